"""What is asked of a loss landscape, and what is measured of it."""

from __future__ import annotations

from typing import Any

from mltrainer.questions.findings import Explored, Findings, Value


class Asked(Findings):
    """Which checkpoint, and how the places around it are chosen.

    Attributes:
        points: On each side of the plane; an odd number.
        samples: Of each split, evenly spaced.
        span: How far it goes to either side; 1: as far as the weights' own norm.
        checkpoint: Its folder, relative to the project.
        files: The digests of its files by name.
    """

    points: int
    samples: int
    span: Value
    checkpoint: str
    files: dict[str, str]


class Line(Findings):
    """The losses of both splits along a direction, at places from -span to span."""

    places: list[Value]
    train: list[Value]
    validation: list[Value]


class Plane(Findings):
    """The training losses over two directions, a row for each place along the second."""

    places: list[Value]
    losses: list[list[Value]]


class Rise(Findings):
    """By how much the loss rises after a step of length `rho` towards the worst point nearby."""

    rho: Value
    rise: Value


class Spectrum(Findings):
    """The ends of the Hessian's spectrum.

    Attributes:
        largest: The largest eigenvalue.
        smallest: The smallest one.
        residual: It bounds the error of both.
        iterations: Of Lanczos' method.
    """

    largest: Value
    smallest: Value
    residual: Value
    iterations: int


class Sharpness(Spectrum):
    """The spectrum, how its products were computed, the gradient's norm, and the rise by SAM and its adaptive form."""

    method: str
    gradient_norm: Value
    sam: Rise
    adaptive: Rise


class OfSplits(Findings):
    """A number of each of the two splits."""

    train: Value
    validation: Value


class Landscape(Findings):
    """The loss around a checkpoint; `samples` and the loss at the `center` are by split."""

    parameters: int
    samples: OfSplits
    center: OfSplits
    line: Line
    plane: Plane
    sharpness: Sharpness


class FoundLandscape(Landscape, Explored):
    """A landscape with the run and the step of its checkpoint, the run's optimizer, the span, and the path of the page."""

    run: str
    step: int
    optimizer: dict[str, Any]
    span: Value
    page: str
