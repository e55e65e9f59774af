"""The rule that lists public tables, and what the benchmark on them computes."""

import hashlib

import numpy as np
import pytest

from tests.benchmarks.bench_public_tables import interval, quality, summary
from tests.benchmarks.tables.public import IN_SIGHT, listed, named_target

COLUMNS = ["y", "size", "dead"]


@pytest.mark.parametrize(
    ("page", "target"),
    [
        ("y\n\n    \n\nresponse, in mm\n\nsize\n\n    \n\nin cm", "y"),
        ("`dead`\n\n    \n\nthe outcome\n\n### Examples\n\n    lm(y ~ size)", "dead"),
        ("y\n\n    \n\na response\n\nsize\n\n    \n\nanother response", None),
        ("size\n\n    \n\nin cm\n\n### Examples\n\n    lm(log(y) ~ size)\n    glm(y ~ dead)", "y"),
        ("### Examples\n\n    lm(y ~ size)\n    lm(size ~ y)", None),
        ("### Examples\n\n    plot(y ~ size)", None),
    ],
    ids=["described", "described first", "described twice", "modelled", "modelled both ways", "only drawn"],
)
def test_a_target_is_the_one_column_that_the_documentation_names(page, target):
    assert named_target(page, COLUMNS)[0] == target


def test_the_halves_are_drawn_by_a_hash_of_the_names():
    tables = listed()
    assert len(tables) >= 40
    for one in tables:
        is_even = int(hashlib.sha256(one.name.encode()).hexdigest(), 16) % 2 == 0
        assert one.half == ("seen" if is_even or one.name in IN_SIGHT else "unseen")
        assert 300 <= one.rows <= 60_000
        assert one.said


def test_quality_is_the_mean_area_of_the_classes_that_the_rows_have_or_r2():
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.1, 0.9, 0.0]])
    assert quality(np.array([0, 1, 0, 1]), probabilities) == 1
    assert quality(np.array([0, 0, 1, 1]), probabilities) == pytest.approx(0.75)  # 3 of 4 pairs are in order, for both classes
    assert quality(np.array([0.0, 2.0]), np.array([0.0, 1.0])) == pytest.approx(0.5)


def test_a_table_counts_as_behind_where_the_whole_interval_is():
    # t(0.975, 2) = 4.303; splits of 20 % beside 60 % that share rows: sqrt(1/3 + 1/3)
    low, high = interval([-0.1, -0.11, -0.12])
    assert (low, high) == pytest.approx(
        (-0.11 - 4.3027 * 0.01 * (2 / 3) ** 0.5, -0.11 + 4.3027 * 0.01 * (2 / 3) ** 0.5), abs=1e-5
    )
    models = {"linear": 0.5, "boosting": 0.6, "lightgbm": 0.9}
    measured = {name: {"quality": value, "seconds": 1.0} for name, value in models.items()}
    found = [{**measured, "network": {"quality": 0.9 + ahead, "seconds": 2.0}} for ahead in (-0.1, -0.11, -0.12)]
    one = summary(listed()[0], found)
    assert (one["better"], one["is_behind"], one["splits"]) == ("lightgbm", True, 3)
