"""Long studies: a sampler sees the best and the newest trials, and what it sees depends on nothing but the trials themselves."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from optuna.trial import TrialState

from mltrainer.configs.project import Metric
from mltrainer.search import suggest
from mltrainer.search.suggest import Window, new_study
from mltrainer.search.window import WindowedStorage
from tests.search.test_program import SPACE
from tests.search.test_study import PRUNING, search

SMALL = Window(best=5, newest=10)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "WINDOW", SMALL)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_best_of_the_older_and_the_newest_are_shown(mode):
    storage, luck = WindowedStorage(*SMALL, mode == "max"), random.Random(3)
    trials = new_study(Metric(name="accuracy", mode=mode), storage)  # type: ignore[arg-type]
    ended: list[tuple[tuple[bool, int, float, int], int]] = []
    for number in range(80):
        asked = trials.ask()
        asked.suggest_float("x", 0, 1)
        state = luck.choice([TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL])
        value, rung = luck.choice([0.1, 0.2, 0.3, 0.4]), luck.choice([1, 3])
        if state == TrialState.PRUNED:
            asked.report(value, rung)
        is_open = number == 7  # which stays in training
        if not is_open:
            trials.tell(asked, value if state == TrialState.COMPLETE else None, state)
        if state != TrialState.FAIL and not is_open:
            is_whole = state == TrialState.COMPLETE
            ended.append(((is_whole, 0 if is_whole else rung, value if mode == "max" else -value, -number), number))
        best = sorted(ended[: -SMALL.newest], reverse=True)[: SMALL.best]
        expected = {nr for _, nr in [*best, *ended[-SMALL.newest :]]} | ({7} if number >= 7 else set())
        assert [trial.number for trial in trials.get_trials(deepcopy=False)] == sorted(expected)


def test_what_no_sampler_sees_any_more_takes_no_memory():
    storage = WindowedStorage(*SMALL, True)
    trials = new_study(Metric(name="accuracy", mode="max"), storage)
    for number in range(40):
        asked = trials.ask()
        asked.suggest_float("x", 0, 1)
        trials.tell(asked, number)
    shown = {trial.number for trial in trials.get_trials()}
    kept = {number for number in range(40) if storage.get_trial(number).params or storage.get_trial(number).distributions}
    assert kept == shown
    assert len(shown) == sum(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("pruning", [None, PRUNING])
def test_an_interruption_anywhere_around_the_windows_border_changes_no_trial(small, tmp_path, pruning):
    about = {"strategy": "tpe", "pruning": pruning}
    whole, _ = search(tmp_path / "whole", 1, 0, trials=32, **about)
    for end in (14, 17, 29):
        folder = tmp_path / str(end)
        _, runs = search(folder, 3, 1, trials=end, **about)
        again, _ = search(folder, 2, 2, runs, trials=32, **about)
        assert again == whole


@pytest.mark.slow
def test_the_window_decides_from_its_border_on(tmp_path, monkeypatch):
    def rows(name: str) -> list[Any]:
        found, _ = search(tmp_path / name, 2, 0, trials=32, strategy="tpe")
        return [(row["values"], row["value"]) for row in json.loads(found)]

    unlimited = rows("unlimited")
    monkeypatch.setattr(suggest, "WINDOW", SMALL)
    windowed = rows("windowed")
    border = sum(SMALL) + 4  # the last trial that was suggested from no more than those, with a lag of 4
    assert windowed[:border] == unlimited[:border]
    assert windowed != unlimited


@pytest.mark.slow
def test_cma_es_suggests_the_same_from_its_newest_trials(tmp_path, monkeypatch):
    pytest.importorskip("cmaes")
    about: dict[str, Any] = {"trials": 40, "strategy": "cma_es", "space": {k: v for k, v in SPACE.items() if "choice" not in v}}
    unlimited, _ = search(tmp_path / "unlimited", 1, 0, **about)
    monkeypatch.setattr(suggest, "WINDOW", Window(best=0, newest=20))
    assert search(tmp_path / "windowed", 1, 0, **about)[0] == unlimited
