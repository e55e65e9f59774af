"""What is recommended: the first way that fits, with the accumulation that keeps a step's samples."""

from __future__ import annotations

from typing import Any

from mltrainer.companions.planner.memory import Parts
from mltrainer.companions.planner.recommendation import Recommendation, Way, largest, micro_batches, recommend


def way(name: str, each: float, refused: str | None = None, **changes: Any) -> Way:
    """Return a way that takes so many bytes a sample, and 100 beside."""

    def parts(batch: int, _accumulate: int) -> Parts:
        return Parts(100, 0, 0, 0, each * batch, 0, 0)

    return Way(name, changes, parts, refused=refused)


def advice(ways: list[Way], batch: int, accumulate: int, limit: float) -> Recommendation:
    choices = [largest(one, batch * accumulate, limit) for one in ways]
    return recommend(choices, batch, accumulate, "the memory")


def test_micro_batches_share_a_step_equally_and_leave_each_process_one():
    assert micro_batches(12) == [12, 6, 4, 3, 2, 1]
    assert micro_batches(12, processes=4) == [3, 2, 1]


def test_a_config_that_fits_is_left_as_it_is():
    found = advice([way("own", 10)], 8, 1, 1000)
    assert found.set == {}
    assert "fits into the memory as it is" in found.reason


def test_a_smaller_micro_batch_comes_with_the_accumulation_that_keeps_the_step():
    assert advice([way("own", 10)], 8, 1, 145).set == {"batch_size": 4, "accumulate": 2}


def test_a_larger_micro_batch_needs_fewer_passes():
    found = advice([way("own", 10)], 2, 4, 1000)
    assert found.set == {"batch_size": 8, "accumulate": 1}
    assert "accumulate 1 in place of 4" in found.reason


def test_the_first_way_that_fits_is_taken_with_its_own_keys_and_one_that_is_refused_is_not():
    ways = [way("own", 1000), way("a", 10, refused="no", first=1), way("b", 10, second=2)]
    found = advice(ways, 4, 1, 150)
    assert found.set == {"second": 2}
    assert "with b" in found.reason


def test_where_nothing_fits_nothing_is_set_and_that_is_said():
    found = advice([way("own", 1000)], 4, 1, 150)
    assert (found.choice, found.set) == (None, {})
    assert "no tried setting fits into the memory" in found.reason
