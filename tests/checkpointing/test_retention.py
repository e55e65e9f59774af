"""What is kept: best, last, some periodic ones, and whatever a record refers to."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.checkpointing.retention import best_step, roles, to_delete
from mltrainer.configs.project import Checkpoint


def rows(*metrics: float | str | None, per_epoch: int = 10) -> list[dict[str, Any]]:
    return [{"step": nr * per_epoch, "epoch": nr, "metric": metric} for nr, metric in enumerate(metrics, 1)]


POLICY = Checkpoint(every_n_epochs=2, keep=1)


def test_best_last_and_the_newest_periodic_ones_stay() -> None:
    assert to_delete(rows(0.1, 0.9, 0.2, 0.3, 0.4), "max", POLICY, set()) == {10, 30}


def test_in_mode_min_the_smallest_is_best() -> None:
    assert best_step(rows(0.3, 0.1, 0.2), "min") == 20
    assert best_step(rows(0.3, 0.1, 0.2), "max") == 10


def test_of_equals_the_earlier_is_best() -> None:
    assert best_step(rows(0.1, 0.5, 0.5)[::-1], "max") == 20


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("bad", [math.nan, "nan"])
def test_nan_is_never_best(mode: Any, bad: float | str) -> None:
    assert best_step(rows(bad, 0.5, bad), mode) == 20


def test_where_nothing_was_measured_there_is_no_best() -> None:
    assert best_step(rows(None, None), "max") is None
    assert roles(rows(None), "max", POLICY) == {10: ["last"]}


def test_a_protected_one_stays() -> None:
    assert to_delete(rows(0.1, 0.9, 0.2, 0.3, 0.4), "max", POLICY, {30}) == {10}


def test_the_last_stays_even_where_nothing_is_to_be_kept() -> None:
    policy = Checkpoint(save_best=False, save_last=False, keep=0)
    assert to_delete(rows(0.9, 0.1, 0.2), "max", policy, set()) == {10, 20}


def test_one_in_mid_epoch_is_not_periodic() -> None:
    existing = [{**rows(0.1, 0.2)[1], "periodic": False}]
    assert roles(existing, "max", POLICY) == {20: ["best", "last"]}


def test_one_checkpoint_may_have_every_role() -> None:
    assert roles(rows(0.1, 0.2), "max", POLICY) == {10: [], 20: ["best", "last", "periodic"]}


def test_an_empty_run_deletes_nothing() -> None:
    assert to_delete([], "max", POLICY, {1}) == set()


metrics = st.lists(st.none() | st.floats(), max_size=12)


@given(metrics, st.sampled_from(["max", "min"]), st.integers(1, 4), st.integers(0, 3), st.sets(st.integers(0, 130)))
def test_best_last_and_protected_are_never_deleted(values: Any, mode: Any, every: int, keep: int, protected: set[int]) -> None:
    existing = rows(*values)
    policy = Checkpoint(every_n_epochs=every, keep=keep)
    gone = to_delete(existing, mode, policy, protected)
    named = roles(existing, mode, policy)
    assert gone <= set(named)
    assert not any("best" in named[step] or "last" in named[step] or step in protected for step in gone)
    assert sum("periodic" in named[step] for step in set(named) - gone) >= min(keep, sum("periodic" in n for n in named.values()))
