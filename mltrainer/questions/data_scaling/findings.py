"""What is asked of learning curves, what is measured of them, and what they let expect."""

from __future__ import annotations

from mltrainer.questions.findings import Explored, Findings, Value
from mltrainer.records.common import MetricChoice


class Asked(Findings):
    """The validation loss of a run by its steps, and on how many seeds each part of the data is trained; 0: on none."""

    history: list[list[Value]]
    seeds: int


class Prediction(Findings):
    """The expected error at an amount, with its interval."""

    amount: Value
    error: Value
    low: Value
    high: Value


class Fit(Findings):
    """error = floor + scale * amount ** -exponent, and what it predicts.

    Attributes:
        floor: The error that no amount goes below.
        scale: Of what falls.
        exponent: How fast it falls.
        confidence: Of the intervals.
        predictions: At the present amount, twice and four times it.
        gain: By which share of itself a doubling would lower the error.
        gain_low: The lower end of its interval.
        gain_high: The upper end.
        verdict: "helps", "hardly" or "not shown".
    """

    floor: Value
    scale: Value
    exponent: Value
    confidence: Value
    predictions: list[Prediction]
    gain: Value
    gain_low: Value
    gain_high: Value
    verdict: str


class NoFit(Findings):
    """Why no law is fitted."""

    reason: str


class StepCurve(Findings):
    """The validation loss of a run over its steps."""

    steps: list[Value]
    losses: list[Value]

    def points(self) -> list[tuple[float, float]]:
        """Return the step and the loss of each evaluation."""
        return list(zip(self.steps, self.losses, strict=True))


class FittedSteps(StepCurve, Fit):
    """With a law."""


class UnfittedSteps(StepCurve, NoFit):
    """Without one."""


class Training(Findings):
    """A training on a part of the samples: how many they are, its seed, and the metrics of its best evaluation, if any."""

    part: Value
    samples: int
    seed: int
    validation: dict[str, Value] | None


class MeasuredTraining(Training):
    """With its error on validation."""

    error: Value


class DataCurve(Findings):
    """The error, by its name, of trainings on parts of the samples."""

    error: str
    rows: list[MeasuredTraining]

    def points(self) -> list[tuple[float, float]]:
        """Return the number of samples and the error of each training."""
        return [(float(row.samples), row.error) for row in self.rows]


class FittedData(DataCurve, Fit):
    """With a law."""


class UnfittedData(DataCurve, NoFit):
    """Without one."""


class Curves(Findings):
    """The learning curves of a run, over its steps and, where parts were trained, over the data."""

    epochs: FittedSteps | UnfittedSteps
    data: FittedData | UnfittedData | None = None


class FoundCurves(Curves, Explored):
    """The curves with the run, its metric and epochs, whether its rate changes, and the path of the page."""

    run: str
    metric: MetricChoice
    epochs_trained: Value
    decays: bool
    page: str
