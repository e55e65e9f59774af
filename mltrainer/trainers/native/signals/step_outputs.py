"""The outputs of the steps' passes, processed many steps at once: a step itself only stores them.

Between a step's kernels a few lines of Python take several times as long as in a row, with the processor's caches warm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mltrainer.trainers.native.data.addresses import Step, samples_of
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.signals.margins import Margins
from mltrainer.trainers.native.signals.recent_outputs import HELD, Pass, RecentOutputs, numbers, seen

# A step's number, its epoch from 1, the ids of its samples, its shards and their count as in `Step`, the outputs of its passes.
# A plain tuple: a named one takes several times as long to make.
_Taken = tuple[int, int, np.ndarray, Sequence[int], int, list[Pass | None]]


class StepOutputs:
    """Stores the outputs of each step taken, for the margins and for spikes.

    Args:
        margins: The margins of the training samples.
        recent: The outputs of the last steps.
        ranks: The processes.
        batch_size: The number of samples of a micro-batch.
    """

    def __init__(self, margins: Margins, recent: RecentOutputs, ranks: Ranks, batch_size: int) -> None:
        self.margins, self.recent = margins, recent
        self._ranks, self._batch_size = ranks, batch_size
        self._passes: list[Pass | None] = []  # of the present step, with an optimizer's extra passes
        self._taken: list[_Taken] = []
        self._held = 0

    def begin(self) -> None:
        """Begin a step."""
        self._passes = []

    def saw(self, outputs: Any, targets: Any) -> None:
        """Store a pass's outputs and targets."""
        self._passes.append(seen(outputs, targets))

    def took(self, number: int, epoch: int, step: Step) -> None:
        """Store the passes of a step that was taken."""
        passes = self._passes
        if not passes:
            return
        self._taken.append((number, epoch, step.ids, step.shards, step.count, passes))
        if passes[0] is not None:
            self._held += len(passes) * numbers(passes[0][0])
        if self._held >= HELD:
            self.hand_on()

    def hand_on(self) -> None:
        """Pass on the stored outputs, each sample's in only one process."""
        for number, epoch, ids, shards, count, passes in self._taken:
            if (count == 1 or not self._ranks.shares_steps) and not self._ranks.writes:  # all compute a step of one shard
                continue
            own = [samples_of(ids, shard, self._batch_size) for shard in shards if shard < count]
            known = [one for one in passes[: len(own)] if one is not None]  # without extra ones, such as SAM's
            if len(known) == len(own):
                found = own[0] if len(own) == 1 else np.concatenate([ids[:0], *own])
                self.margins.took(epoch, found, known)
                self.recent.took(number, found, known)
        self._taken, self._held = [], 0
