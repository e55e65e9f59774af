"""The rule that lists public tables, and what the benchmark on them computes."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from tests.benchmarks.bench_public_tables import RESULTS, Result, keep, kept, placed, planning_was_right, quality, summary
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


BEHIND = [0.9 - 0.1, 0.9 - 0.11, 0.9 - 0.12]


def result(network, seed=0):
    quality = {"linear": 0.5, "boosting": 0.6, "lightgbm": 0.9, "network": network}
    return Result("ISLR/Credit", seed, "R2", "open", quality, {"boosting": 1.0, "network": 2.0})


def test_a_table_counts_as_behind_where_the_whole_interval_is():
    # t(0.975, 2) = 4.303; splits of 20 % beside 60 % that share rows: sqrt(1/3 + 1/3)
    one = summary(listed()[0], [result(network, seed) for seed, network in enumerate(BEHIND)])
    half = 4.3027 * 0.01 * (2 / 3) ** 0.5
    assert (one["low"], one["high"]) == pytest.approx((-0.11 - half, -0.11 + half), abs=1e-5)
    assert (one["better"], one["is_behind"], one["splits"]) == ("lightgbm", True, 3)


def test_a_result_is_read_back_as_it_was_kept(tmp_path):
    (tmp_path / "results.csv").write_text(RESULTS.read_text().partition("\n")[0] + "\n")
    keep(tmp_path / "results.csv", result(0.8, 1))
    keep(tmp_path / "results.csv", Result("x/refused", 2, "refused", "", {}, {}))
    found = kept(tmp_path / "results.csv")
    assert found["ISLR/Credit"] == [result(0.8, 1)]
    assert (found["x/refused"][0].measure, found["x/refused"][0].seed) == ("refused", 2)


def test_what_planning_says_is_right_where_the_network_is_level_with_boosting():
    said = planning_was_right([replace(result(network), planning="network") for network in (0.95, 0.896, 0.88)] + [result(0.7)])
    assert "in **2 of 3** splits" in said
    assert "0 of 1" in said


def test_a_part_of_the_page_takes_the_place_of_the_older_one():
    assert placed("# A\n\n## B\n\nold\n\n## C\n", "## B\n\nnew\n") == "# A\n\n## B\n\nnew\n\n## C\n"
