"""The loss landscape around a trained model: its loss along random directions, and its curvature."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import torch

from mltrainer.companions.questions.loss_landscape.ask import (
    Landscape,
    LandscapeRequest,
    Line,
    OfSplits,
    Plane,
    Rise,
    Sharpness,
    Spectrum,
)
from mltrainer.companions.questions.loss_landscape.surface import (
    Surface,
    Vector,
    drawn,
    load_checkpoint,
    norm,
    parameters_of,
    scaled_by_filter,
)
from mltrainer.records.job import ExplorationJob
from mltrainer.trainers.native.session import Session

ITERATIONS = 40  # most iterations of Lanczos' method
EXACT_ENOUGH = 0.01  # residual of both ends of the spectrum, as a share of the larger one
TINY = 1e-300  # a gradient of 0 has no direction, and the loss does not rise along it
RHO, ADAPTIVE_RHO = 0.05, 0.5  # of SAM (Foret et al., 2021) and of its adaptive form (Kwon et al., 2021), their defaults


def measure(session: Session, job: ExplorationJob) -> Landscape:
    """Return the loss along one and over two directions around a run's checkpoint, and the sharpness there."""
    asked = LandscapeRequest.model_validate(job.asked)
    load_checkpoint(session, session.root / asked.checkpoint, asked.files)
    surface = Surface(session, asked.samples)
    ticker = _Ticker(session, 2 * asked.points - 1 + asked.points**2 + ITERATIONS)
    seed = session.config.seed
    first, second = (scaled_by_filter(drawn(surface.at, seed, "landscape", nr), surface.at) for nr in range(2))
    return Landscape(
        parameters=parameters_of(session.model),
        samples=OfSplits.model_validate(surface.samples),
        center=OfSplits.model_validate({split: surface.loss(split) for split in surface.samples}),
        line=_line(surface, first, spread(asked.span, 2 * asked.points - 1), ticker),
        plane=_plane(surface, first, second, spread(asked.span, asked.points), ticker),
        sharpness=sharpness(surface, ticker),
    )


class _Ticker:
    """Reports progress, with rate, and stops after a signal."""

    def __init__(self, session: Session, total: int) -> None:
        self._session, self._total, self._done, self._start = session, total, 0, time.perf_counter()

    def __call__(self, loss: float) -> None:
        self._session.stop_signal()
        self._done += 1
        rate = self._done / (time.perf_counter() - self._start)
        self._session.events.send("progress", step=self._done, steps=self._total, loss=loss, steps_per_s=rate)


def spread(span: float, count: int) -> list[float]:
    """Return `count` (odd) places from -span to span, 0 among them exactly."""
    return [span * (2 * nr - (count - 1)) / (count - 1) for nr in range(count)]


def _line(surface: Surface, direction: Vector, places: list[float], ticker: _Ticker) -> Line:
    train: list[float] = []
    validation: list[float] = []
    for place in places:
        with surface.moved((place, direction), renew=True):
            train.append(surface.loss("train"))
            validation.append(surface.loss("validation"))
        ticker(train[-1])
    return Line(places=places, train=train, validation=validation)


def _plane(surface: Surface, first: Vector, second: Vector, places: list[float], ticker: _Ticker) -> Plane:
    return Plane(places=places, losses=[list(_row(surface, first, second, y, places, ticker)) for y in places])


def _row(surface: Surface, first: Vector, second: Vector, y: float, places: list[float], ticker: _Ticker) -> Iterator[float]:
    for x in places:
        with surface.moved((x, first), (y, second), renew=True):
            loss = surface.loss()
        ticker(loss)
        yield loss


# --- sharpness ------------------------------------------------------------------------------------


def sharpness(surface: Surface, tick: Any) -> Sharpness:
    """Return the ends of the Hessian's spectrum, and the rise of the loss at the worst point nearby."""
    surface.choose_product()
    gradient = surface.gradient()
    return Sharpness.of(
        lanczos(surface, surface.config.seed, tick),
        method=surface.method,
        gradient_norm=float(norm(gradient)),
        sam=Rise(rho=RHO, rise=_rise(surface, gradient)),
        adaptive=Rise(rho=ADAPTIVE_RHO, rise=_adaptive_rise(surface, gradient)),
    )


def _rise(surface: Surface, gradient: Vector) -> float:
    """Return the rise of the loss after a step of length `RHO` up the gradient (Foret et al., 2021, arXiv 2010.01412)."""
    return _risen(surface, gradient, RHO / float(norm(gradient).clamp_min(TINY)))


def _adaptive_rise(surface: Surface, gradient: Vector) -> float:
    """Return the same with each weight's step in proportion to its size (Kwon et al., 2021, arXiv 2102.11600)."""
    scaled = [g * w.abs() for g, w in zip(gradient, surface.at, strict=True)]
    step = [s * w.abs() for s, w in zip(scaled, surface.at, strict=True)]
    return _risen(surface, step, ADAPTIVE_RHO / float(norm(scaled).clamp_min(TINY)))


def _risen(surface: Surface, direction: Vector, far: float) -> float:
    before = surface.loss()
    with surface.moved((far, direction)):
        return surface.loss() - before


def lanczos(surface: Surface, seed: int, tick: Any) -> Spectrum:
    """Return the largest and the smallest eigenvalue of the Hessian (Lanczos, 1950), from a start that the seed addresses.

    Vectors are not made orthogonal again: eigenvalues may appear twice then, and the outermost ones stay right (Paige, 1980).
    """
    vector = _unit(drawn(surface.at, seed, "lanczos", 0))
    before, diagonal, beside = [torch.zeros_like(p) for p in vector], [], [0.0]
    largest = smallest = residual = math.nan
    for _ in range(ITERATIONS):
        image = surface.product(vector)
        diagonal.append(_dot(image, vector))
        rest = [i - diagonal[-1] * v - beside[-1] * b for i, v, b in zip(image, vector, before, strict=True)]
        beside.append(float(norm(rest)))
        if not math.isfinite(beside[-1]):
            break
        values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, beside[1:-1]))
        largest, smallest = float(values[-1]), float(values[0])
        residual = beside[-1] * max(abs(float(vectors[-1, nr])) for nr in (0, -1))
        tick(largest)
        if residual <= EXACT_ENOUGH * max(abs(largest), abs(smallest)):
            break
        before, vector = vector, [r / beside[-1] for r in rest]
    return Spectrum(largest=largest, smallest=smallest, residual=residual, iterations=len(diagonal))


def _tridiagonal(diagonal: list[float], beside: list[float]) -> torch.Tensor:
    side = torch.tensor(beside, dtype=torch.float64)
    return torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + torch.diag(side, 1) + torch.diag(side, -1)


def _unit(vector: Vector) -> Vector:
    length = norm(vector)
    return [part / length.to(part) for part in vector]


def _dot(one: Vector, other: Vector) -> float:
    # In float64, as the sum runs over every weight of the model.
    return float(torch.stack([(a.double() * b.double()).sum() for a, b in zip(one, other, strict=True)]).sum())
