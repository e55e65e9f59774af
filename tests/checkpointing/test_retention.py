"""What is kept: best, last, some periodic ones, and whatever a record refers to."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.checkpointing.ranking import best_row
from mltrainer.checkpointing.retention import best_step, roles, to_delete
from mltrainer.configs.project import Checkpoint, Metric
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.partial import partial
from mltrainer.records.run import Evaluation


def manifest(nr: int, metrics: dict[str, Any], **more: Any) -> Manifest:
    return partial(Manifest, {"step": nr * 10, "epoch": nr, "metrics": metrics, **more})


def rows(*metrics: float | str | None) -> list[Manifest]:
    return [manifest(nr, {} if one is None else {"score": one, "loss": 1.0}) for nr, one in enumerate(metrics, 1)]


def metric_of(mode: Any, ties: Any = "first") -> Metric:
    return Metric(name="score", mode=mode, ties=ties)


MAX, MIN = metric_of("max"), metric_of("min")
POLICY = Checkpoint(every_n_epochs=2, keep=1)


def test_best_last_and_the_newest_periodic_ones_stay():
    assert to_delete(rows(0.1, 0.9, 0.2, 0.3, 0.4), MAX, POLICY, set()) == {10, 30}


KEPT = [(0, {10, 90}), (1, {10, 80, 90}), (2, {10, 60, 80, 90}), (9, {10, 20, 40, 60, 80, 90})]


@pytest.mark.parametrize(("keep", "kept"), KEPT)
def test_so_many_periodic_ones_stay_as_are_asked_for(keep, kept):
    policy = Checkpoint(every_n_epochs=2, keep=keep)  # of nine epochs: 2, 4, 6 and 8
    existing = rows(0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
    assert {one.step for one in existing} - to_delete(existing, MAX, policy, set()) == kept


def test_in_mode_min_the_smallest_is_best():
    assert best_step(rows(0.3, 0.1, 0.2), MIN) == 20
    assert best_step(rows(0.3, 0.1, 0.2), MAX) == 10


def test_of_equals_the_earlier_is_best():
    assert best_step(rows(0.1, 0.5, 0.5)[::-1], MAX) == 20


@pytest.mark.parametrize("mode", [MAX, MIN])
@pytest.mark.parametrize("bad", [math.nan, "nan"])
def test_nan_is_never_best(mode, bad):
    assert best_step(rows(bad, 0.5, bad), mode) == 20


def test_where_nothing_was_measured_there_is_no_best():
    assert best_step(rows(None, None), MAX) is None
    assert roles(rows(None), MAX, POLICY) == {10: ["last"]}


def test_a_protected_one_stays():
    assert to_delete(rows(0.1, 0.9, 0.2, 0.3, 0.4), MAX, POLICY, {30}) == {10}


def test_the_last_stays_even_where_nothing_is_to_be_kept():
    policy = Checkpoint(save_best=False, save_last=False, keep=0)
    assert to_delete(rows(0.9, 0.1, 0.2), MAX, policy, set()) == {10, 20}


def test_one_in_mid_epoch_is_not_periodic():
    assert roles([manifest(2, {"score": 0.2}, periodic=False)], MAX, POLICY) == {20: ["best", "last"]}


def test_one_checkpoint_may_have_every_role():
    assert roles(rows(0.1, 0.2), MAX, POLICY) == {10: [], 20: ["best", "last", "periodic"]}


def test_an_empty_run_deletes_nothing():
    assert to_delete([], MAX, POLICY, {1}) == set()


@pytest.mark.parametrize("save_best", [True, False])
@pytest.mark.parametrize(("every", "before"), [(1, 0), (1, 10), (3, 10), (10, 10), (30, 10), (7, 100)])
def test_a_run_that_goes_back_at_a_spike_finds_a_checkpoint_shortly_before_it(every, before, save_best):
    policy, drawn = Checkpoint(keep=0, save_best=save_best), random.Random(every)
    there: list[Manifest] = []
    scores: dict[int, float] = {}
    for step in range(every, 60 * every, every):
        scores[step] = drawn.random() + step / (30 * every)
        there.append(partial(Manifest, {"step": step, "epoch": 1, "metrics": {"score": scores[step]}, "periodic": False}))
        gone = to_delete(there, MAX, policy, set(), before)
        there = [one for one in there if one.step not in gone]
        steps = {one.step for one in there}
        assert len(steps) <= (6 if save_best else 3)
        first = step + 1 - before  # of the steps that a spike in the next one leaves out
        if first - 1 < 2 * every:
            continue
        back = max(one for one in steps if one < first)
        assert first - back <= before + 2 * every
        best = max(range(every, back + 1, every), key=scores.__getitem__) if save_best else back
        assert best in steps


metrics = st.lists(st.none() | st.floats(), max_size=12)


@given(metrics, st.sampled_from([MAX, MIN]), st.integers(1, 4), st.integers(0, 3), st.sets(st.integers(0, 130)))
def test_best_last_and_protected_are_never_deleted(values, mode, every, keep, protected):
    existing = rows(*values)
    policy = Checkpoint(every_n_epochs=every, keep=keep)
    gone = to_delete(existing, mode, policy, protected)
    named = roles(existing, mode, policy)
    assert gone <= set(named)
    assert not any("best" in named[step] or "last" in named[step] or step in protected for step in gone)
    assert sum("periodic" in named[step] for step in set(named) - gone) >= min(keep, sum("periodic" in n for n in named.values()))


def measured(*pairs: tuple[float | str, float | str]) -> list[Manifest]:
    """The checkpoints of evaluations, one of each."""
    return [manifest(nr, {"score": score, "loss": loss}) for nr, (score, loss) in enumerate(pairs, 1)]


TIED = {  # score and loss of each evaluation, whether larger scores are better, and the step that wins the tie
    "the later has the smaller loss": ([(0.9, 0.5), (0.9, 0.4), (0.2, 0.1)], "max", 20),
    "the earlier has the smaller loss": ([(0.9, 0.3), (0.9, 0.4)], "max", 10),
    "in mode min": ([(0.1, 0.5), (0.1, 0.2), (0.3, 0.1)], "min", 20),
    "also the losses tie": ([(0.9, 0.4), (0.9, 0.4)], "max", 10),
    "a loss is no number": ([(0.9, math.nan), (0.9, 7.0)], "max", 20),
    "a loss in a file is no number": ([(0.9, "nan"), (0.9, "inf")], "max", 10),
    "every score is no number": ([("nan", 0.4), ("nan", 0.3)], "min", 20),
    "a score is infinite": ([(math.inf, 0.4), (math.inf, 0.3)], "max", 20),
}


@pytest.mark.parametrize("case", TIED)
def test_a_tie_is_won_by_the_smaller_loss_in_what_is_kept_too(case):
    pairs, mode, step = TIED[case]
    existing = measured(*pairs)
    metric = metric_of(mode, "loss")
    assert best_step(existing, metric) == step
    assert step not in to_delete(existing, metric, Checkpoint(keep=0), set())
    assert best_step(existing, metric_of(mode)) == 10


MODES, TIES = st.sampled_from(["max", "min"]), st.sampled_from(["first", "loss"])
scores = st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf, -math.inf, "nan", "inf"])


@given(
    st.lists(st.tuples(scores, scores), min_size=1, max_size=8),
    st.sampled_from(["max", "min"]),
    st.sampled_from(["first", "loss"]),
)
def test_the_epoch_that_is_described_is_the_epoch_that_is_kept(pairs, mode, ties):
    """Whatever is deleted on the way, after each evaluation: the described one is there at the end."""
    metric, there, history = metric_of(mode, ties), list[Manifest](), list[Evaluation]()
    for one in measured(*pairs):
        history.append(Evaluation.at(one.epoch, one.step, one.metrics))
        there.append(one)
        gone = to_delete(there, metric, Checkpoint(keep=0), set())
        there = [one for one in there if one.step not in gone]
    described = best_row(history, metric)
    assert best_step(there, metric) == described.step
