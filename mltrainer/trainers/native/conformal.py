"""Split conformal prediction: prediction sets or intervals that contain the truth as often as requested.

Calibrated on the validation split and measured on the test split, by the functions of the delivered inference script.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing import inference_script
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.finalization import Conformal, Coverage, Weakest
from mltrainer.tasks.opening import Samples
from mltrainer.tasks.statistics import fewest_samples, rank, wilson
from mltrainer.tasks.structures import tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.evaluation import evaluate

KEY = "conformal"
ROWS = 4096  # rows per pass: the probabilities of many classes take much memory
FEW = 7  # samples of the trial batch
RESIDUAL = "residual"


@dataclass(frozen=True)
class Answers:
    """A model's outputs with the truth.

    Attributes:
        outputs: The outputs, [samples, classes], or [samples, 1] for two classes; [samples, 1] for values.
        truth: The class numbers, or the true values.
        classes: The names of the classes; empty for values.
    """

    outputs: np.ndarray
    truth: np.ndarray
    classes: list[str]


def calibrated(task: Task, model: nn.Module, config: TrainingConfig, samples: Samples, interface: Mapping[str, Any]) -> Conformal:
    """Return the threshold for a trained model's sets or intervals, calibrated on the validation split.

    Args:
        task: The model's task.
        model: The trained model, on its device.
        config: The run's config; its `conformal` has the requested coverage.
        samples: The validation split's samples.
        interface: The task's description of the model's outputs.

    Raises:
        InputError: There are too few samples, the outputs are neither classes nor values, or too many are not finite.
    """
    assert config.conformal is not None
    coverage = config.conformal.coverage
    score, place = require(task, model, config, samples, interface)
    answers = answers_of(task, model, config, samples, "validation", interface)
    threshold = float(np.sort(fits(answers, score))[::-1][place - 1])
    if not math.isfinite(threshold):
        what = f"a coverage of {coverage:g} needs finite outputs of {place} of {len(samples)} validation samples"
        raise InputError(what, where=KEY, hint="train a model whose outputs are finite, or ask for less coverage")
    bound = -threshold if score == RESIDUAL else threshold
    return Conformal(coverage=coverage, score=score, threshold=bound, samples=len(samples), rank=place)


def require(
    task: Task, model: nn.Module, config: TrainingConfig, samples: Samples, interface: Mapping[str, Any]
) -> tuple[str, int]:
    """Return the score and the rank of the bounding one, after a trial on a few samples that sets or intervals can be made.

    Args:
        task: The model's task.
        model: The model, trained or not.
        config: The run's config.
        samples: The validation split's samples.
        interface: The task's description of the model's outputs.

    Raises:
        InputError: Sets or intervals cannot be made.
    """
    assert config.conformal is not None
    place, score = require_samples(config.conformal.coverage, len(samples)), score_of(config, interface)
    seen: list[Tensor] = []
    handle = model.register_forward_hook(lambda _module, _given, outputs: seen.extend(tensors_in(outputs)))
    few = np.arange(min(FEW, config.batch_size, len(samples)))
    try:
        outputs = answers_of(task, model, config, samples, "validation", interface, few).outputs
    finally:
        handle.remove()
    if not seen or not _is_as_delivered(outputs, seen[0], score):
        what = "forward() of your task returns other outputs than its model gives, which are what inference.py reads"
        raise InputError(what, where=KEY, hint="move what forward() does with them into the model, or leave conformal out")
    return score, place


def _is_as_delivered(outputs: np.ndarray, given: Tensor, score: str) -> bool:
    """Return True if outputs mean the same as the model's own: equal values, or equal class probabilities."""
    own = given.to("cpu", torch.float64).numpy().reshape(len(given) if given.dim() else 1, -1)
    if own.shape != outputs.shape:
        return False
    if score != RESIDUAL:
        outputs, own = inference_script.probabilities(outputs), inference_script.probabilities(own)
    return np.allclose(outputs, own, rtol=1e-4, atol=1e-6, equal_nan=True)


def score_of(config: TrainingConfig, interface: Mapping[str, Any]) -> str:
    """Return the score that fits a task's outputs: the requested one, else `lac` for classes, `residual` for values.

    Raises:
        InputError: The task's `inference()` declares neither, or the score does not fit the outputs.
    """
    assert config.conformal is not None
    asked = config.conformal.score
    if interface.get("classes") and interface.get("output") == "logits":
        return asked or "lac"
    if interface.get("output") != "value":
        raise InputError(
            "conformal needs outputs that are logits of classes or one value, and your task does not say that they are",
            where=KEY,
            hint='return {"output": "logits", "classes": [...]} or {"output": "value"} in inference() of your task',
        )
    if asked is not None:
        raise InputError(f"{asked} makes sets of classes, and the outputs are values", where=f"{KEY}.score", hint="leave it out")
    return RESIDUAL


def require_samples(coverage: float, samples: int) -> int:
    """Return the rank of the bounding score.

    Raises:
        InputError: Too few samples for the coverage: sets would hold all classes, and intervals would be infinite.
    """
    place = rank(coverage, samples)
    if place > samples:
        what = f"a coverage of {coverage:g} needs at least {fewest_samples(coverage)} validation samples, found {samples}"
        raise InputError(what, where=f"{KEY}.coverage", hint="raise split.validation, or ask for less coverage")
    return place


def answers_of(
    task: Task,
    model: nn.Module,
    config: TrainingConfig,
    samples: Samples,
    split: str,
    interface: Mapping[str, Any],
    positions: np.ndarray | None = None,
) -> Answers:
    """Return the model's outputs on some samples of a split with the truth, in fp32 as the delivered model computes.

    Raises:
        InputError: The outputs or targets do not match the interface.
    """
    plain = config.model_copy(update={"precision": "fp32"})
    found = evaluate(task, model, plain, samples, split, positions, hold=True)
    count = len(samples) if positions is None else len(positions)
    classes = list(interface.get("classes") or []) if interface.get("output") == "logits" else []
    outputs, truth = _table(found.outputs, count, "outputs"), _table(found.targets, count, "targets")
    if outputs.shape[1] not in _widths(classes) or truth.shape[1] != 1:
        _refuse(f"outputs of shape {list(outputs.shape)} and targets of shape {list(truth.shape)}", classes)
    if classes and not np.isin(truth, np.arange(len(classes))).all():
        _refuse("targets that are no class numbers", classes)
    return Answers(outputs, truth[:, 0].astype(np.int64) if classes else truth[:, 0], [str(name) for name in classes])


def _widths(classes: list[Any]) -> set[int]:
    return {1} if not classes else {len(classes), *([1] if len(classes) == 2 else [])}


def _table(found: Any, count: int, what: str) -> np.ndarray:
    """Return a tensor as float64 [samples, numbers]."""
    if not isinstance(found, Tensor) or not found.dim() or len(found) != count:
        shape = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise InputError(expected=f"one row of {what} for each of {count} samples", found=shape, where=KEY, hint=_MEND)
    return np.asarray(found.to(torch.float64).numpy().reshape(count, -1))


_MEND = "let forward() of your task return one row of outputs and one target for each sample, or conformal: null"


def _refuse(found: str, classes: list[Any]) -> None:
    wanted = (
        f"logits of {len(classes)} classes, with the class's number as target" if classes else "one value, with one as target"
    )
    raise InputError(expected=f"for each sample {wanted}, as inference() says", found=found, where=KEY, hint=_MEND)


def fits(answers: Answers, score: str) -> np.ndarray:
    """Return the fit of the truth to each sample's outputs, float64, larger is better; outputs with NaN have the worst fit."""
    if score == RESIDUAL:
        found = -np.abs(answers.truth - answers.outputs[:, 0])
        return np.where(np.isnan(found), -np.inf, found)
    parts = [np.zeros(0)]
    for low in range(0, len(answers.truth), ROWS):
        chances = inference_script.probabilities(answers.outputs[low : low + ROWS])
        of_truth = inference_script.conformity(chances, score)[np.arange(len(chances)), answers.truth[low : low + ROWS]]
        parts.append(np.where(np.isnan(chances).any(axis=1), -np.inf, of_truth))
    return np.concatenate(parts)


def covered(answers: Answers, doubt: Conformal, level: float) -> Coverage:
    """Return the share of samples whose set or interval contains the truth.

    Args:
        answers: The answers of a split other than the calibration's.
        doubt: The calibration, which decides the sets or intervals.
        level: The confidence level of the share's interval.
    """
    if answers.classes:
        return _by_sets(answers, doubt, level)
    ends = inference_script.interval(answers.outputs[:, 0], doubt.written())
    inside = (ends[:, 0] <= answers.truth) & (answers.truth <= ends[:, 1])
    return _coverage(inside, level, 2 * doubt.threshold)


def _by_sets(answers: Answers, doubt: Conformal, level: float) -> Coverage:
    count = len(answers.truth)
    inside, sizes = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64)
    for low in range(0, count, ROWS):
        rows = slice(low, low + ROWS)
        sets = inference_script.plausible(inference_script.probabilities(answers.outputs[rows]), doubt.written())
        inside[rows], sizes[rows] = sets[np.arange(len(sets)), answers.truth[rows]], sets.sum(axis=1)
    alone, weakest = int((sizes == 1).sum()), _weakest(inside, answers)
    return _coverage(inside, level, float(sizes.mean()), alone=alone, weakest=weakest)


def _coverage(inside: np.ndarray, level: float, size: float, **others: Any) -> Coverage:
    count, number = len(inside), int(inside.sum())
    low, high = wilson(number / count, count, statistics.NormalDist().inv_cdf((1 + level) / 2))
    ends = [max(0.0, low), min(1.0, high)]
    return Coverage(samples=count, covered=number, share=number / count, level=level, interval=ends, mean_size=size, **others)


def _weakest(inside: np.ndarray, answers: Answers) -> Weakest:
    """Return the class whose rows are covered least often; the first of several."""
    of_class = np.bincount(answers.truth, minlength=len(answers.classes))
    held = np.bincount(answers.truth[inside], minlength=len(answers.classes))
    number = int(np.argmin(np.where(of_class > 0, held / np.maximum(of_class, 1), np.inf)))
    return Weakest(name=answers.classes[number], samples=int(of_class[number]), covered=int(held[number]))
