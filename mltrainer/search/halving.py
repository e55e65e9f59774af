"""The early end of trials, at rungs: a trial must be among the best of those that were measured there before.

A rung is a number of epochs, or a fraction of one; it is measured at the first evaluation at or after it.

A trial's limits are a function of the trials that are at least `lag` older, all of which have ended when it begins:
neither the number of workers nor their pace decides anything, and the trial itself needs no further information.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Sequence
from typing import Any

from mltrainer.checkpointing.ranking import best_row, rank_of
from mltrainer.configs.project import Metric
from mltrainer.configs.pruning import Pruning
from mltrainer.reproducibility import seeds
from mltrainer.search.trial import Evaluations, Rungs, Trial
from mltrainer.trainers.native.stopping import best_at, missed_rung

EPOCH_OF = operator.attrgetter("epoch")  # the number of epochs trained at an evaluation


def rungs_of(pruning: Pruning | None, epochs: int) -> list[float]:
    """Return the epochs of the rungs, each `eta` times the one before and before the end."""
    if pruning is None:
        return []
    found: list[float] = [pruning.first]
    while found[-1] * pruning.eta < epochs:
        found.append(round(found[-1] * pruning.eta, 9))  # 0.3, not 0.30000000000000004, at which no evaluation is made
    return [epoch for epoch in found if epoch < epochs]


def own_rungs(pruning: Pruning | None, epochs: int, seed: int, trial: int) -> list[float]:
    """Return the rungs of a trial: all, or in Hyperband those of its bracket, which is drawn.

    The brackets' probabilities give each of them the same total number of epochs.
    """
    rungs = rungs_of(pruning, epochs)
    if pruning is None or pruning.name == "successive_halving" or not rungs:
        return rungs
    weights = _brackets(pruning, rungs)
    place = float(seeds.generator(seed, "tuner/bracket", trial).random()) * sum(weights)
    # The sums may round to less than the place: the last bracket takes the rest.
    skipped = next(nr for nr in range(len(weights)) if place < sum(weights[: nr + 1]) or nr == len(weights) - 1)
    return rungs[skipped:]


def _brackets(pruning: Pruning, rungs: Sequence[float]) -> list[float]:
    """Return the weights of the brackets without the first s rungs, for each s, proportional to their probabilities."""
    return [pruning.eta ** (len(rungs) - skipped) / (len(rungs) + 1 - skipped) for skipped in range(len(rungs) + 1)]


def expected_share(pruning: Pruning, epochs: int) -> float:
    """Return the expected share of its epochs that a trial trains, where one trial in `eta` goes on at each rung."""
    rungs = rungs_of(pruning, epochs)
    weights = _brackets(pruning, rungs) if pruning.name == "hyperband" else [1.0]
    trained: list[float] = []
    for skipped in range(len(weights)):
        ends = [*rungs[skipped:], epochs]
        parts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        trained.append(sum(part / pruning.eta**nr for nr, part in enumerate(parts)))
    return math.fsum(w * t for w, t in zip(weights, trained, strict=True)) / math.fsum(weights) / epochs


class Ladder:
    """The values that trials reached at each rung, from which the limits of later trials follow.

    Args:
        pruning: The rungs and `eta`; None for a study that ends no trial early.
        metric: The objective, with the direction of better values.
    """

    def __init__(self, pruning: Pruning | None, metric: Metric) -> None:
        self._pruning, self._metric = pruning, metric
        self._reached: dict[float, list[float]] = {}  # by rung, ascending, larger is better

    def learn(self, trial: Trial) -> None:
        """Take in an ended trial."""
        for epoch in trial.rungs if self._pruning else ():
            if (value := _reached(trial, epoch, self._metric)) is not None:
                bisect.insort(self._reached.setdefault(epoch, []), value)

    def limits(self, own: Sequence[float]) -> Rungs:
        """Return the least value for a trial at each of its rungs, which puts it among the best `1 / eta` of the trials taken in.

        Args:
            own: The trial's rungs.
        """
        if self._pruning is None:
            return []
        found, eta = [], self._pruning.eta
        for epoch in own:
            there = self._reached.get(epoch, [])
            # With fewer trials, this one included, no place is among the best `1 / eta`: no trial ends there.
            if len(there) + 1 >= eta:
                least = there[-((len(there) + 1) // eta)]
                found.append((epoch, least if self._metric.mode == "max" else -least))
        return found


def _reached(trial: Trial, epoch: float, metric: Metric) -> float | None:
    """Return a trial's best value at a rung, larger is better; that of its whole history where it finished before the rung."""
    value = best_at(trial.history, epoch, metric, EPOCH_OF)
    ended = trial.state == "finished" and trial.history
    return max(rank_of(row, metric)[0] for row in trial.history) if value is None and ended else value


def cut(history: Evaluations, limits: Rungs, metric: Metric) -> tuple[Evaluations, float | None]:
    """Return a run's evaluations up to the rung that ends the trial, and that rung; all of them and None where none does.

    The run may have gone on for another study: the part for this one is the same.
    """
    epoch = missed_rung(history, limits, metric, EPOCH_OF)
    if epoch is None:
        return history, None
    last = next(nr for nr, row in enumerate(history) if row.epoch >= epoch)
    return history[: last + 1], epoch


def best_of(history: Evaluations, metric: Metric) -> Any:
    """Return the metric of the best evaluation, as records hold it; None where there is none."""
    row = best_row(history, metric)
    return None if row is None else row.validation[metric.name]
