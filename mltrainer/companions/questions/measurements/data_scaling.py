"""Would more data or more epochs help? Trainings on parts of the data, and a run's own history, as power laws."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltrainer.checkpointing.ranking import best_row
from mltrainer.companions.questions.data_scaling import (
    Curves,
    DataCurve,
    Fit,
    FittedData,
    FittedSteps,
    MeasuredTraining,
    Prediction,
    StepCurve,
    Training,
    UnfittedData,
    UnfittedSteps,
)
from mltrainer.companions.questions.findings import ExplorerSettings
from mltrainer.reports.values import duration
from mltrainer.reproducibility import seeds
from mltrainer.search.space import fresh_seeds, reseeded
from mltrainer.tasks.opening import OpenTask
from mltrainer.trainers.native.session import Session

PARTS = (0.125, 0.25, 0.5, 1.0)  # shares of the training samples
FEWEST_POINTS = 5  # points that a fit needs
SETTLING = 0.1  # share of a run's steps that is left out: the first epochs follow another law


class OnPart(Session):
    """A training on a part of the samples, repeated to the length of all, so that steps and schedule stay the same."""

    part = 1.0  # share of the samples

    def open(self) -> OpenTask:
        """Return the task with its training samples reduced; parts of one seed are nested."""
        opened = super().open()
        count = len(opened.split("train"))
        chosen = seeds.generator(self.config.seed, "part").permutation(count)[: part_of(count, self.part)]
        opened.keep_training(np.resize(np.sort(chosen), count))  # all of them are the samples as they are
        return opened


def part_of(count: int, part: float) -> int:
    """Return the number of samples in a part, at least 1."""
    return max(1, round(part * count))


def measure(session: Session, _: ExplorerSettings, *, history: list[list[float]], seeds: int) -> Curves:
    """Return the learning curve over steps, and with seeds the one over data, each with its extrapolation.

    Args:
        session: The session of the run's config.
        history: Step and validation loss of each evaluation of the run.
        seeds: Number of seeds for each part of the data; 0: none is trained.
    """
    seed = session.config.seed
    epochs = _of_epochs(history, seed)
    return Curves(epochs=epochs, data=_of_data(session, _trained(session, seeds), seed)) if seeds else Curves(epochs=epochs)


# --- more epochs ----------------------------------------------------------------------------------


def _of_epochs(history: list[list[float]], seed: int) -> FittedSteps | UnfittedSteps:
    """Return the validation loss over the steps with its law's predictions at two and four times the steps, or the `reason`."""
    last = history[-1][0] if history else 0.0
    kept = [(step, loss) for step, loss in history if step > SETTLING * last]
    curve = StepCurve(steps=[step for step, _ in history], losses=[loss for _, loss in history])
    # Distances are relative to the error, which must be above 0 for that.
    if len(kept) < FEWEST_POINTS or min(loss for _, loss in kept) <= 0:
        reason = f"{len(kept)} evaluations are too few for a curve, or a loss is not above 0"
        return UnfittedSteps.of(curve, reason=reason)
    steps, losses = zip(*kept, strict=True)
    return FittedSteps.of(curve, **dict(extrapolated(steps, losses, [last, 2 * last, 4 * last], seed)))


# --- more data ------------------------------------------------------------------------------------


def _trained(session: Session, count: int) -> list[Training]:
    """Train on each part under each seed, and return a row for each training."""
    config = session.config
    drawn = [config.seed, *fresh_seeds(config.seed, "extrapolate", count - 1)]
    todo = [(part, one) for part in PARTS for one in drawn]
    begun, rows = time.perf_counter(), []
    for nr, (part, one) in enumerate(todo):
        remaining = f"; about {duration((time.perf_counter() - begun) / nr * (len(todo) - nr))} left" if nr else ""
        session.events.send(
            "note", text=f"training {nr + 1} of {len(todo)}: {part * 100:g} % of the samples, seed {one}{remaining}"
        )
        rows.append(_row(session, part, one))
    return rows


def _row(session: Session, part: float, seed: int) -> Training:
    name = f"part-{part:g}-{seed}"
    folder = session.folder / name
    folder.mkdir()
    job = session.job.model_copy(update={"run": name, "phase": "exploration", "config": reseeded(session.config, seed)})
    trained = OnPart(job, folder, session.events, session.stop_signal, session.root)
    trained.part = part
    trained.prepare()
    trained.train()
    best = best_row(trained.trainer.history, session.config.metric)
    samples = part_of(len(trained.task.split("train")), part)
    trained.task.close()
    # At once, not at the end: all trainings together could fill the disk.
    shutil.rmtree(folder)
    return Training(part=part, samples=samples, seed=seed, validation=best and dict(best.validation))


def _of_data(session: Session, rows: list[Training], seed: int) -> FittedData | UnfittedData:
    """Return the trainings' errors with their law's predictions at two and four times the data, or the `reason`."""
    evaluated = [(row, row.validation) for row in rows if row.validation is not None]
    name = error_name([metrics for _, metrics in evaluated], session.config.metric.name, session.config.metric.mode)
    curve = DataCurve(error=name, rows=[MeasuredTraining.of(row, error=error_of(metrics, name)) for row, metrics in evaluated])
    amounts, errors = [row.samples for row in curve.rows], [row.error for row in curve.rows]
    if len(errors) < FEWEST_POINTS or min(errors) <= 0:
        return UnfittedData.of(curve, reason="too few trainings reached an evaluation, or one has no error")
    whole = max(amounts)
    return FittedData.of(curve, **dict(extrapolated(amounts, errors, [whole, 2 * whole, 4 * whole], seed)))


def error_name(validation: Sequence[Mapping[str, float]], metric: str, mode: str) -> str:
    """Return the error's name: the metric where less is better, 1 minus it where 1 is perfect, else the loss."""
    values = [row[metric] for row in validation]
    if mode == "min":
        return metric
    return f"1 - {metric}" if all(-1 <= value <= 1 for value in values) else "loss"


def error_of(validation: Mapping[str, float], name: str) -> float:
    """Return the error of that name."""
    return 1 - validation[name.removeprefix("1 - ")] if name.startswith("1 - ") else validation[name]


EXPONENTS = np.geomspace(
    0.05, 2.0, 60
)  # exponents of learning curves; Hestness et al., 2017, arXiv 1712.00409, found 0.07 to 0.5
RESAMPLES = 1000
CONFIDENCE = 0.9
TAKEN = 5  # degrees of freedom that the residuals lose: the law's three parameters, and two for Student's t of few points
TINY = 1e-12
WORTH = 0.02  # smallest relative fall of the error that makes a doubling worthwhile; chosen by us


@dataclass(frozen=True)
class Law:
    """error = floor + scale * amount ** -exponent."""

    floor: float
    scale: float
    exponent: float

    def __call__(self, amount: Any) -> Any:
        """Return the error at an amount, or at several."""
        return self.floor + self.scale * np.asarray(amount, dtype=np.float64) ** -self.exponent


def fitted(amounts: Sequence[float], errors: Sequence[float]) -> Law:
    """Return the power law of the smallest squared relative distances, with floor and scale from 0 up.

    Args:
        amounts: Numbers of samples or steps, above 0.
        errors: Errors above 0; less is better.
    """
    return _fitted(np.asarray(amounts, dtype=np.float64), np.asarray(errors, dtype=np.float64)[None])[0]


def _fitted(amounts: np.ndarray, errors: np.ndarray) -> list[Law]:
    """Return the law of each row of errors; for a given exponent, floor and scale have a closed form (a linear problem)."""
    weights = 1 / np.maximum(errors, TINY) ** 2
    best = [(math.inf, Law(0.0, 0.0, 1.0))] * len(errors)
    for exponent in EXPONENTS:
        # Relative to the largest: powers of raw step numbers are so small that the line's sums lose their digits.
        powers = (amounts / amounts.max()) ** -exponent
        floor, scale = _line(powers, errors, weights)
        misses = (weights * (errors - floor[:, None] - scale[:, None] * powers) ** 2).sum(1)
        for row, miss in enumerate(misses):
            if miss < best[row][0]:
                best[row] = float(miss), Law(float(floor[row]), float(scale[row] * amounts.max() ** exponent), float(exponent))
    return [law for _, law in best]


def _line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return intercept and slope, neither below 0, of each weighted line."""
    total = weights.sum(1)
    mean_x, mean_y = (weights * x).sum(1) / total, (weights * y).sum(1) / total
    spread = (weights * (x - mean_x[:, None]) ** 2).sum(1)
    slope = (weights * (x - mean_x[:, None]) * (y - mean_y[:, None])).sum(1) / np.maximum(spread, TINY)
    through_zero = (weights * x * y).sum(1) / (weights * x * x).sum(1)
    # A line that would begin below 0 is fitted again through 0: cutting its intercept off alone would not be the best one.
    slope = np.where(mean_y - slope * mean_x < 0, through_zero, slope)
    slope = np.maximum(slope, 0.0)
    return np.maximum(mean_y - slope * mean_x, 0.0), slope


def extrapolated(amounts: Sequence[float], errors: Sequence[float], at: Sequence[float], seed: int) -> Fit:
    """Return the fitted law, its predictions with intervals, and the gain of doubling the largest amount.

    The intervals are percentiles of laws fitted to the prediction with resampled relative residuals, addressed by the seed
    (Efron, 1979), made wider as few points ask for: of 100 curves of eight points 94 intervals held the truth. They hold if the
    law does.

    Args:
        amounts: At least four different amounts, above 0.
        errors: Errors above 0.
        at: Amounts to predict the error at.
        seed: Seed of the draws.
    """
    law = fitted(amounts, errors)
    x, y = np.asarray(amounts, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    # A fit takes part of the noise into its parameters: its residuals are too small, and made larger by as much.
    residuals = (y - law(x)) / law(x) * math.sqrt(len(x) / max(1, len(x) - TAKEN))
    draws = seeds.generator(seed, "extrapolate").choice(residuals, (RESAMPLES, len(x)))
    laws = _fitted(x, np.maximum(law(x) * (1 + draws), TINY))
    largest = float(x.max())
    gains = [_gain(one, largest) for one in laws]
    low, high = _ends(gains)
    return Fit(
        floor=law.floor,
        scale=law.scale,
        exponent=law.exponent,
        confidence=CONFIDENCE,
        predictions=[_prediction(law, laws, amount) for amount in at],
        gain=_gain(law, largest),
        gain_low=low,
        gain_high=high,
        verdict="helps" if low >= WORTH else "hardly" if high < WORTH else "not shown",
    )


def _gain(law: Law, amount: float) -> float:
    now = float(law(amount))
    return (now - float(law(2 * amount))) / now if now > 0 else 0.0


def _prediction(law: Law, laws: list[Law], amount: float) -> Prediction:
    low, high = _ends([float(one(amount)) for one in laws])
    return Prediction(amount=amount, error=float(law(amount)), low=low, high=high)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
