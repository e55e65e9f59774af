"""A model's scores on single samples: the loss, the predicted class, and its margin."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.records.run import TargetKind
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.structures import length, main_output, one_of
from mltrainer.tasks.user_code import user_code
from mltrainer.trainers.native.data.addresses import evaluation_batches
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.optimization.precision import autocast, full
from mltrainer.trainers.native.signals.observing import answers_of, is_numbered


@dataclass(frozen=True)
class Score:
    """A model's score on a sample.

    Attributes:
        sample: Its id.
        split: The sample's split.
        loss: Loss of the sample by itself.
        label: The sample's class number or value; None if the target is neither.
        answer: The model's prediction, in the same form; None without one.
        probabilities: Probabilities of the classes; empty without classes.
    """

    sample: int
    split: str
    loss: float
    label: int | float | None
    answer: int | float | None
    probabilities: list[float]

    @property
    def other(self) -> int | None:
        """The most probable of the other classes."""
        others = {place: share for place, share in enumerate(self.probabilities) if place != self.label}
        return max(others, key=lambda place: others[place], default=None)

    @property
    def share(self) -> float | None:
        """The probability that the model gives to the sample's own class."""
        return self.probabilities[int(self.label or 0)] if self.probabilities else None


@torch.no_grad()
def scores(
    opened: OpenTask, model: nn.Module, config: TrainingConfig, split: str, positions: np.ndarray | None = None
) -> Iterator[Score]:
    """Yield a model's scores, in evaluation mode, on single samples of a split; training's draws change none of them.

    Args:
        opened: The task.
        model: The model, on its device.
        config: Config with seed, device and precision.
        split: "train" or "validation".
        positions: Indices of the samples in the split; None for all.

    Raises:
        InputError: The task's loss fails on a single sample; the message names the line.
    """
    samples, task = opened.split(split), opened.task
    positions = np.arange(len(samples)) if positions is None else positions
    begins = 0
    with evaluating(model):
        for number, batch in enumerate(evaluation_batches(samples, positions, config, split)):
            seeds.seed_everything(seeds.key(config.seed, "rows", number))
            with autocast(config):
                outputs, targets = task.forward(model, batch)
            outputs, count = full(outputs), length(targets)
            ids = samples.ids[positions[begins : begins + count]].tolist()
            with user_code(opened.root, "the loss of one sample"):
                losses = [float(task.loss(one_of(outputs, n, count), one_of(targets, n, count))) for n in range(count)]
            yield from _rows(ids, split, losses, main_output(outputs), targets, opened.target_kind)
            begins += count


def _rows(ids: list[int], split: str, losses: list[float], output: Any, targets: Any, kind: TargetKind | None) -> Iterator[Score]:
    labels, answers = _plain(targets), _plain(output)
    probabilities = None
    if isinstance(targets, Tensor) and isinstance(output, Tensor) and is_numbered(targets, kind):
        predicted = answers_of(output)
        answers = [None] * len(ids) if predicted is None or predicted.shape != targets.shape else predicted.tolist()
        # A single output separates two classes by its sign: its softmax would be 1 for every sample.
        if output.dim() == 2 and output.shape[1] > max(1, int(targets.max())):
            probabilities = output.softmax(1).tolist()
    for place, (sample, loss) in enumerate(zip(ids, losses, strict=True)):
        yield Score(sample, split, loss, labels[place], answers[place], probabilities[place] if probabilities else [])


def _plain(value: Any) -> list[Any]:
    """Return one number for each sample; None if it has none or several."""
    if not isinstance(value, Tensor) or value[:1].numel() != 1:
        return [None] * length(value)
    return list(value.flatten().tolist())


def by_loss(scores: list[Score]) -> list[Score]:
    """Return the samples, the hardest first; a loss of NaN comes before all others."""
    return sorted(scores, key=lambda score: (-math.inf if math.isnan(score.loss) else -score.loss, score.split, score.sample))


# --- labels ---------------------------------------------------------------------------------------


def doubtful(scores: list[Score]) -> list[tuple[float, Score]]:
    """Return the held-out samples whose label is probably wrong, each with its margin, the worst first.

    That is where the model gives another class at least the probability that it gives that class on average over the samples
    that are labelled so, and the sample's own class less than it (confident learning: Northcutt et al., 2021, arXiv 1911.00068).
    The margin is the logarithm of the ratio of the two probabilities, which is the difference of their outputs.
    """
    known = [score for score in scores if score.probabilities]
    usual = {label: statistics.fmean(score.share or 0.0 for score in known if score.label == label) for label in _labels(known)}
    wrong = [score for score in known if score.probabilities[score.other or 0] >= usual.get(score.other or 0, math.inf)]
    margins = [(margin_of(score), score) for score in wrong]
    return sorted(((margin, score) for margin, score in margins if margin < 0), key=lambda pair: (pair[0], pair[1].sample))


def margin_of(score: Score) -> float:
    """Return the margin: the output of a sample's own class less the largest other one."""
    own, other = score.share or 0.0, score.probabilities[score.other or 0]
    # A probability may underflow to 0, whose logarithm raises.
    return math.log(max(own, 1e-30)) - math.log(max(other, 1e-30))


def _labels(scores: list[Score]) -> set[int | float | None]:
    return {score.label for score in scores}
