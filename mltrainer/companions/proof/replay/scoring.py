"""The delivered weights of a checkpoint, measured with the task of the config, and with an interval for each metric."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import delivered, weights_sha256
from mltrainer.companions.proof.findings import Score, Scored
from mltrainer.errors import InputError
from mltrainer.records.job import ScoreJob
from mltrainer.tasks.metrics import classification, regression
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.sources import tables_parsed
from mltrainer.tools.loading import open_untrained
from mltrainer.trainers.native.evaluation import Evaluated, accumulates, measured, needs_outputs
from mltrainer.trainers.native.intervals import Interval, intervals
from mltrainer.workspace import plain


def scored(job: ScoreJob, root: Path) -> Scored:
    """Return the digest of a checkpoint's delivered weights, and their score on each split of a job.

    Raises:
        GateError: The checkpoint is damaged.
        InputError: The weights do not fit a model for this data.
    """
    tree, _ = load(root / job.checkpoint)
    with tables_parsed():  # the state folder's tables could have been written by code of the project's own
        task, model = open_untrained(job.config, root)
    state = delivered(tree, trained=job.trained and not task.strategies.adapts)
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        message = f"the weights do not fit a model for this data, such as one with a class that the author's lacks: {error}"
        raise InputError(message, where=job.checkpoint, hint="give the data that the author trained on") from error
    model.to(job.config.device)
    sha256 = weights_sha256(state)
    has_intervals = sha256 != job.recorded_sha256
    found: dict[str, Score] = {
        name: _score(job, task, model, name, has_intervals=has_intervals or name == "test") for name in job.scored
    }
    task.close()
    return Scored(weights_sha256=sha256, splits=found, files={row.path: row.sha256 for row in task.files})


def _score(job: ScoreJob, task: OpenTask, model: nn.Module, split: str, *, has_intervals: bool) -> Score:
    samples, asked = task.open_test() if split == "test" else task.split(split), Interval(**job.interval)
    is_own = job.config.task.kind is None
    found = measured(task, model, samples, split, hold=(asked.loss or is_own) and not accumulates(task.task))
    bounds = _bounds(job, task, found, len(samples), asked) if has_intervals else {}
    own = _own(found) if is_own and not accumulates(task.task) else {}
    return Score(samples=len(samples), metrics=plain(found.metrics), intervals=bounds, own=plain(own))


def _own(found: Evaluated) -> dict[str, float]:
    """Return mltrainer's own numbers for a task's metrics, of outputs that are logits of classes, or values; others have none."""
    outputs, targets = found.outputs, found.targets
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor) and len(outputs) == len(targets) > 0):
        return {}
    computed: dict[str, float] = {}
    are_classes = targets.dim() == 1 and targets.dtype == torch.int64 and outputs.dim() == 2
    if are_classes and int(targets.min()) >= 0 and int(targets.max()) < outputs.shape[1]:
        computed = classification(outputs, targets)
    elif outputs.shape == targets.shape and targets.is_floating_point() and outputs.numel() == len(outputs):
        computed = regression(outputs.flatten(), targets.flatten())
    return {name: value for name, value in computed.items() if name in found.metrics}


def _bounds(job: ScoreJob, task: OpenTask, found: Evaluated, samples: int, asked: Interval) -> dict[str, list[int | float]]:
    """Return the interval of each metric; none where no outputs are held to resample."""
    if accumulates(task.task) or not (needs_outputs(task.task) or asked.loss):
        return {}
    bounds: dict[str, list[int | float]] = intervals(
        task.task, found.outputs, found.targets, samples, job.config.seed, asked
    ).bounds
    return bounds
