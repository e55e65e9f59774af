"""Custom training tools: the job runs with the user's module, and its result is completed to a run's full record.

The module's `work(job, tell)` trains and returns a `Trained`, the facts that only the module knows. Code, environment, time and
memory are measured here. Values that the tool cannot give stay empty, and gate items that need them do not apply.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import mltrainer
from mltrainer.checkpointing.ranking import best_row
from mltrainer.errors import InputError, MltrainerError
from mltrainer.records.common import FileRow
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import Memory, NonFinite, Percentiles, ProbeResult, Rehearsal, parsed_result, sealed
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.code import imported_files
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tasks.user_code import import_module, user_code
from mltrainer.tools.program import Events
from mltrainer.trainers import result as parts
from mltrainer.trainers.custom.trained import Data, Trained
from mltrainer.validation import faults_of
from mltrainer.workspace import locked, write_json


def work_of(entry_point: str) -> Callable[[TrainingJob, Path, Events], None]:
    """Return the work that runs a job with a custom module."""

    def work(job: TrainingJob, root: Path, events: Events) -> None:
        with locked(root / job.folder / "lock", f"run {job.run}"):
            started = time.perf_counter()
            module = import_module(f"{entry_point}:work", root, "entry_point")
            with user_code(root, f"running {entry_point}"):
                given = module.work(job.written(), lambda event, **values: events.send(event, **values))
            result = completed(job, _checked(given, job, entry_point), root, time.perf_counter() - started)
            write_json(root / job.folder / RESULT_FILE, result)

    return work


def _checked(given: Any, job: TrainingJob, entry_point: str) -> Trained:
    """Return a tool's answer as a model.

    Raises:
        InputError: The answer lacks a value, or has more steps than the job allows.
        GateError: The data differs from planning's record.
    """
    try:
        found = Trained.model_validate(given)
    except ValidationError as error:
        first = faults_of(error)[0]
        raise InputError(
            f"it returned {first.place}: {first.msg}", where=f"{entry_point}:work", hint="return a mltrainer.tools.own.Trained"
        ) from error
    steps, most = len(found.losses), job.max_steps or found.planned_steps
    if steps > most or found.history[-1].step != steps:
        message = f"{steps} losses, the last evaluation after step {found.history[-1].step}, and at most {most} steps to make"
        raise InputError(f"it returned {message}", where=f"{entry_point}:work", hint="evaluate after the last step, then end")
    parts.require_planned_data(job, found.data.sha256)
    return found


def completed(job: TrainingJob, found: Trained, root: Path, seconds: float) -> dict[str, Any]:
    """Return the complete result: the tool's values, the values measured here, and empty ones for unknown values.

    Args:
        job: The job.
        found: The tool's answer.
        root: The project's folder.
        seconds: The training's duration in seconds.

    Raises:
        InputError: The tool's `more` has keys or values that a run's result cannot hold.
    """
    result = parts.built(
        job,
        code_files=imported_files(root),
        **_identity(job, found),
        data_sha256=found.data.sha256,
        data=_facts(found.data, job, root) if job.purpose == "probe" else None,
        train_samples=found.data.train,
        measured_samples={"train": 0, "validation": found.data.validation},
        **_course(job, found, root),
        **_quality(job, found),
        **_costs(found, seconds),
    )
    result |= found.more
    try:
        whole = sealed(result)
        if job.purpose == "probe":  # sealing does not check it: the built-in trainers' results are valid
            parsed_result(whole, ProbeResult)
    except MltrainerError as error:
        hint = "give `more` keys of a run's result, as mltrainer.records.run.Run declares them"
        raise InputError(f"it returned {error.message}", where=f"tool {job.tool}, more", hint=hint) from error
    return whole


def _identity(job: TrainingJob, found: Trained) -> parts.Row:
    return {
        **parts.identity_of(job, "tool"),
        "libraries": {"mltrainer": mltrainer.__version__, "python": platform.python_version()},
        "weights_sha256": found.weights_sha256,
        "draws": found.draws,
        "rehearsal": Rehearsal(samples=found.data.validation, seconds=0.0),
    }


def _facts(data: Data, job: TrainingJob, root: Path) -> dict[str, Any]:
    """Return planning's record of the data."""
    rows = [FileRow.of(root / name, name).model_dump() for name in data.files]
    counts = {"train": data.train, "validation": data.validation, "test": data.test}
    return parts.facts_of("own", job.tool, data.sha256, rows, counts, [])


def _course(job: TrainingJob, found: Trained, root: Path) -> parts.Row:
    # There are no norms and no sample ids: NaN and zeros have the same bits in every run, so that these columns never differ.
    entries = [fingerprint.step_entry(step, fingerprint.NO_IDS, loss, math.nan) for step, loss in enumerate(found.losses, 1)]
    head, divergence = parts.write_chain(job, root, [*entries, fingerprint.weights_entry(len(entries), found.weights_sha256)])
    nonfinite = _nonfinite(found)
    cut_short = len(found.losses) < found.planned_steps
    return {
        "stop_reason": "nonfinite" if nonfinite else "max_steps" if cut_short else "epochs",
        "steps": len(found.losses),
        "epochs": math.ceil(found.history[-1].epoch),
        "planned_steps": found.planned_steps,
        "planned_epochs": found.planned_epochs,
        "batch_size": found.batch_size,
        "head": head,
        "first_divergence": divergence,
        "nonfinite": nonfinite,
    }


def _nonfinite(found: Trained) -> NonFinite | None:
    step = next((number for number, loss in enumerate(found.losses, 1) if not math.isfinite(loss)), None)
    if step is None:
        return None
    epoch = math.ceil(step * found.planned_epochs / found.planned_steps)
    return NonFinite(step=step, epoch=epoch, what="loss", samples=[])


def _quality(job: TrainingJob, found: Trained) -> parts.Row:
    """Return the metrics, their history, and the best and the last evaluation.

    Raises:
        InputError: An evaluation lacks the config's metric.
    """
    metric = job.config.metric
    unknown = {"median": None, "max": None, "min": None}
    # NaN, not 0: rules and reports must see the difference between an unmeasured value and a measured zero.
    unmeasured = {"lr": math.nan, "seconds": math.nan, "samples_per_s": math.nan, "data_wait": math.nan, "clipped": None}
    lists: dict[str, Any] = {"layer_norms": [], "update_ratios": []}
    history = [{**row.model_dump(), "grad_norm": unknown, **lists, **unmeasured} for row in found.history]
    if any(metric.name not in row.validation for row in found.history):
        raise InputError(f"an evaluation has no {metric.name}", where="metric.name", hint="measure it, or name another metric")
    best = history[found.history.index(best)] if (best := best_row(found.history, metric)) else None
    return {"history": history, "best": best, "final": history[-1], "first_loss": found.losses[0], "parameters": found.parameters}


def _costs(found: Trained, seconds: float) -> parts.Row:
    """Return times and memory; every step's time is the mean over all steps."""
    step_us = seconds / len(found.losses) * 1e6
    return {
        "time_s": {"setup": 0.0, "train": seconds, "evaluate": 0.0, "checkpoint": 0.0, "verify": 0.0},
        "wall_s": seconds,
        "step_time_us": Percentiles(median=step_us, p95=step_us),
        "step_pace_us": step_us,
        "shortest_step_us": step_us,
        "memory": Memory(peak_rss_mb=parts.peak_rss_mb(), device_peak_mb=None),
    }
