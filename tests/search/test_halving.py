"""Rungs: who must have reached what to go on, as a function of older trials alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mltrainer.configs.project import Metric
from mltrainer.configs.pruning import Pruning
from mltrainer.records.run import Evaluation
from mltrainer.search.halving import Ladder, best_of, cut, expected_share, own_rungs, rungs_of
from mltrainer.search.trial import Rungs, Trial
from mltrainer.trainers.native.stopping import epochs_seen

ACCURACY, LOSS = Metric(name="accuracy", mode="max"), Metric(name="loss", mode="min")
HALVING, HYPERBAND = Pruning(eta=3, first=1), Pruning(name="hyperband", eta=3, first=1)


def history(*values: Any, name: str = "accuracy") -> list[Evaluation]:
    return [Evaluation.at(nr, 10 * nr, {"loss": 1.0, name: value}) for nr, value in enumerate(values, 1)]


def older(*curves: tuple[float, ...], name: str = "accuracy", rungs: tuple[int, ...] = (1, 3)) -> list[Trial]:
    known: dict[str, Any] = {"nr": 1, "values": {}, "seed": 0, "run": "r", "state": "finished", "value": 0.0}
    known |= {"reason": None, "steps": 1, "wall_s": 1.0, "rungs": rungs}
    return [Trial(history=history(*curve, name=name), **known) for curve in curves]


def limits(pruning: Pruning | None, own: list[float], older: list[Trial], metric: Metric) -> Rungs:
    ladder = Ladder(pruning, metric)
    for trial in older:
        ladder.learn(trial)
    return ladder.limits(own)


@pytest.mark.parametrize(
    ("first", "eta", "epochs", "rungs"),
    [(1, 3, 10, [1, 3, 9]), (1, 3, 9, [1, 3]), (2, 2, 16, [2, 4, 8]), (1, 3, 1, []), (5, 3, 4, [])],
)
def test_rungs_lie_each_eta_times_the_one_before(first, eta, epochs, rungs):
    assert rungs_of(Pruning(eta=eta, first=first), epochs) == rungs


def test_rungs_may_lie_within_epochs():
    assert rungs_of(Pruning(eta=3, first=0.1), 9) == [0.1, 0.3, 0.9, 2.7, 8.1]


def test_a_rung_within_an_epoch_is_measured_at_the_first_evaluation_from_there_on():
    rows = [Evaluation.at(1, step, {"loss": 1.0, "accuracy": step / 100}) for step in (2, 4, 6, 10)]
    seen = [Evaluation.at(epochs_seen(row, 10), row.step, row.validation) for row in rows]
    assert [(row.epoch, type(row.epoch)) for row in seen] == [(0.2, float), (0.4, float), (0.6, float), (1, int)]
    assert cut(seen, [(0.3, 0.05)], ACCURACY) == (seen[:2], 0.3)
    assert cut(seen, [(0.3, 0.04), (1, 0.2)], ACCURACY) == (seen, 1)
    assert cut(seen, [(2, 0.9)], ACCURACY)[1] is None


def test_without_pruning_there_is_no_rung():
    assert rungs_of(None, 100) == limits(None, [], [], ACCURACY) == []


def test_a_trial_must_be_in_the_best_third_of_those_that_were_there():
    found = limits(HALVING, [1], older((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)), ACCURACY)
    assert found == [(1, 0.4)]  # of six with itself, two go on
    assert cut(history(0.4, 0.9), found, ACCURACY)[1] is None
    assert cut(history(0.39, 0.9), found, ACCURACY) == (history(0.39), 1)


def test_smaller_is_better_where_the_metric_says_so():
    found = limits(HALVING, [1], older((0.1,), (0.2,), (0.3,), name="loss"), LOSS)
    assert found == [(1, 0.1)]
    assert cut(history(0.2, name="loss"), found, LOSS)[1] == 1
    assert cut(history(0.1, name="loss"), found, LOSS)[1] is None


def test_nobody_is_ended_before_there_are_enough_to_compare_with():
    assert limits(HALVING, [1], older((0.9,)), ACCURACY) == []
    assert limits(HALVING, [1], older((0.9,), (0.8,)), ACCURACY) == [(1, 0.9)]


def test_only_those_that_reached_a_rung_count_there_and_one_that_ended_by_itself_did():
    rows = older((0.1, 0.1, 0.9), (0.2, 0.2, 0.8), (0.5,))
    rows[2] = replace(rows[2], state="pruned")
    assert limits(HALVING, [3], rows, ACCURACY) == [(3, 0.9)]
    rows[2] = replace(rows[2], state="finished")  # early stopping, at epoch 1
    assert limits(HALVING, [3], [*rows, *older((0.3, 0.4, 0.95))], ACCURACY) == [(3, 0.95)]


def test_a_metric_that_is_not_a_number_is_the_worst():
    found = limits(HALVING, [1], older((0.5,), ("nan",), (0.2,)), ACCURACY)  # type: ignore[arg-type]
    assert found == [(1, 0.5)]
    assert cut(history("nan"), found, ACCURACY)[1] == 1


def test_a_run_that_went_on_for_another_study_is_seen_up_to_its_rung():
    seen, rung = cut(history(0.1, 0.2, 0.99), [(2, 0.5)], ACCURACY)
    assert (rung, best_of(seen, ACCURACY)) == (2, 0.2)


def test_hyperband_deals_trials_to_brackets_by_their_number_alone():
    dealt = [tuple(own_rungs(HYPERBAND, 27, 42, trial)) for trial in range(1, 400)]
    assert set(dealt) == {(1, 3, 9), (3, 9), (9,), ()}
    assert dealt == [tuple(own_rungs(HYPERBAND, 27, 42, trial)) for trial in range(1, 400)]
    counts = [dealt.count(rungs) for rungs in ((1, 3, 9), (3, 9), (9,), ())]
    assert counts == sorted(counts, reverse=True)  # most begin with many rungs


@pytest.mark.parametrize(
    ("pruning", "epochs", "expected"),
    [
        (HALVING, 10, (1 + 2 / 3 + 6 / 9 + 1 / 27) / 10),
        (Pruning(eta=3, first=9), 10, (9 + 1 / 3) / 10),
        (HALVING, 1, 1.0),
        (HYPERBAND, 3, (1.5 * (1 + 2 / 3) + 1 * 3) / 2.5 / 3),  # eta / 2 to 1 are the brackets' weights
    ],
)
def test_the_share_that_trials_are_trained_for_is_what_one_of_eta_at_each_rung_leaves(pruning, epochs, expected):
    assert expected_share(pruning, epochs) == pytest.approx(expected)
