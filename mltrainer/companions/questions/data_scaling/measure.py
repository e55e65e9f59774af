"""Would more data or more epochs help? Trainings on parts of the data, and a run's own history, as power laws."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence

import numpy as np

from mltrainer.checkpointing.ranking import best_row
from mltrainer.companions.questions.data_scaling.ask import (
    Curves,
    DataCurve,
    DataScalingRequest,
    FittedData,
    FittedSteps,
    MeasuredTraining,
    StepCurve,
    Training,
    UnfittedData,
    UnfittedSteps,
)
from mltrainer.companions.questions.data_scaling.power_laws import extrapolated
from mltrainer.records.job import ExplorationJob
from mltrainer.reports.values import duration
from mltrainer.reproducibility import seeds
from mltrainer.search.seeded import fresh_seeds
from mltrainer.search.space import reseeded
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


def measure(session: Session, job: ExplorationJob) -> Curves:
    """Return the learning curve over steps, and with seeds the one over data, each with its extrapolation."""
    asked, seed = DataScalingRequest.model_validate(job.asked), session.config.seed
    epochs = _of_epochs(asked.history, seed)
    if not asked.seeds:
        return Curves(epochs=epochs)
    return Curves(epochs=epochs, data=_of_data(session, _trained(session, asked.seeds), seed))


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
