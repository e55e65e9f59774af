from __future__ import annotations

import numpy as np
import pytest

from mltrainer.tasks.array_operations import common, distinct


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float64])
def test_distinct_and_common_values_are_those_that_numpy_finds(kind):
    draw = np.random.default_rng(0)
    values, others = (draw.integers(0, 500, size).astype(kind) for size in (1000, 300))
    assert np.array_equal(distinct(values), np.unique(values))
    assert common(values, others) == np.isin(values, others).sum() > 0
    assert common(others, values) == np.isin(others, values).sum()


def test_an_array_without_values_has_none_and_is_among_none():
    empty = np.zeros(0, dtype=np.uint64)
    assert len(distinct(empty)) == common(empty, np.arange(3)) == common(np.arange(3), empty) == 0
