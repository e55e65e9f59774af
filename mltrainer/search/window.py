"""Optuna's study in memory; a sampler sees its best and newest ended trials, so that suggestions do not slow down.

The shown trials are a function of the ended trials, in their order, and of nothing else.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections import deque
from collections.abc import Container, Sequence

from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

Rank = tuple[bool, int, float, int]


class WindowedStorage(InMemoryStorage):
    """A storage of one study that shows its open trials, and the ended ones in a window.

    Trials without a value are not shown. A trial that has left the window never comes back: it keeps only its number.

    Args:
        best: The number of shown trials among the ended ones that are not the newest, the best of them.
        newest: The number of shown trials that ended last.
        is_largest_best: Whether larger values are better.
    """

    def __init__(self, best: int, newest: int, is_largest_best: bool) -> None:
        super().__init__()
        self._most_best, self._most_newest, self._sign = best, newest, 1 if is_largest_best else -1
        self._open: set[int] = set()
        # Ended trials, which do not change any more.
        self._newest: deque[FrozenTrial] = deque()
        self._best: list[tuple[Rank, FrozenTrial]] = []  # a heap, the worst first; no two ranks are equal

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Make a trial, and return its id."""
        found = super().create_new_trial(study_id, template_trial)
        self._open.add(found)
        return found

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Set a trial's state, and return whether it was set; an ended trial enters the window."""
        is_set = super().set_trial_state_values(trial_id, state, values)
        if state.is_finished():
            self._open.discard(trial_id)
            self._enter(self.get_trial(trial_id))
        return is_set

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the shown trials, in order."""
        ended = [*(trial for _, trial in self._best), *self._newest]
        shown = sorted([*map(self.get_trial, self._open), *ended], key=lambda trial: trial.number)
        found = [trial for trial in shown if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def _enter(self, trial: FrozenTrial) -> None:
        if trial.state == TrialState.FAIL:
            _forget(trial)
            return
        self._newest.append(trial)
        if len(self._newest) <= self._most_newest:
            return
        older = self._newest.popleft()
        heapq.heappush(self._best, (self._rank(older), older))
        if len(self._best) > self._most_best:
            _forget(heapq.heappop(self._best)[1])

    def _rank(self, trial: FrozenTrial) -> Rank:
        """Return a trial's rank, larger is better: finished ones that meet the constraints, then by rung and value."""
        value = math.nan if trial.value is None else self._sign * trial.value
        reached = max(trial.intermediate_values, default=0)
        is_whole = trial.state == TrialState.COMPLETE and all(excess <= 0 for excess in trial.constraints.values())
        return is_whole, reached, -math.inf if math.isnan(value) else value, -trial.number


def _forget(trial: FrozenTrial) -> None:
    """Drop a trial's content, which takes the memory; its number must stay for the later trials to keep theirs."""
    trial.params, trial.distributions, trial.system_attrs = {}, {}, {}
    trial.intermediate_values = {}
