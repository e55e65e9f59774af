"""An ablation's table: verdicts follow from the runs alone, noise is not called a difference, and failures are told."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mltrainer.companions.questions.ablation import Row, Words, _cells
from mltrainer.companions.questions.variants import MeasuredRun, contributions
from mltrainer.configs.components import Swap
from mltrainer.gates.statistics import fewest_pairs, holm
from mltrainer.reports.values import number, signed

WHOLE = (0.91, 0.93, 0.90, 0.94, 0.92, 0.95, 0.89, 0.93)


def runs(values: Sequence[float | None], **about: Any) -> list[MeasuredRun]:
    """Return runs with these metrics; None is a training that failed."""
    common = {"state": "", "wall_s": 1.0, "run": "r", "parameters": 10, "step_us": 100.0, "weights_sha256": None, **about}
    reason = "the loss was not finite at step 3"
    rows = [{**common, "value": "nan" if v is None else v, "reason": reason if v is None else None} for v in values]
    return [MeasuredRun.model_validate(row) for row in rows]


def table(*variants: Sequence[float | None], whole: Sequence[float | None] = WHOLE, mode: str = "max") -> dict[str, Any]:
    count = min(len(side) for side in (whole, *variants))
    swaps = [Swap(f"part {nr}", {"clip": None}, takes_out=True) for nr in range(len(variants))]
    return contributions(swaps, [runs(side[:count]) for side in (whole, *variants)], range(count), mode, 0.05).written()


def moved(by: float, *, count: int = 8, spread: float = 0.001) -> list[float]:
    return [value + by + spread * (nr % 3) for nr, value in enumerate(WHOLE[:count])]


def verdicts(found: dict[str, Any]) -> list[str]:
    return [row["verdict"] for row in found["rows"]]


@pytest.mark.parametrize(("by", "mode", "verdict"), [(-0.1, "max", "helps"), (0.1, "max", "hurts"), (0.1, "min", "helps")])
def test_a_component_helps_where_the_metric_is_worse_without_it(by, mode, verdict):
    found = table(moved(by), mode=mode)
    (row,) = found["rows"]
    assert (row["verdict"], row["why"]) == (verdict, "")
    assert row["difference"] == pytest.approx(by, abs=0.002)
    assert row["difference_interval"][0] <= row["difference"] <= row["difference_interval"][1]
    assert {row["better"], row["worse"]} == {0, 8}


def ends_by_inversion(values: Sequence[float], level: float) -> tuple[float, float]:
    """Return the shifts that the two one-sided sign-flip tests do not reject, by trying all signs on a fine grid of them."""
    signs = np.array(list(itertools.product((1, -1), repeat=len(values))))
    kept = []
    for shift in np.linspace(min(values) - 1e-9, max(values) + 1e-9, 4001):
        moved = np.array(values) - shift
        sums = signs @ moved
        above, below = (sums >= moved.sum() - 1e-12).mean(), (sums <= moved.sum() + 1e-12).mean()
        if min(above, below) > level:
            kept.append(shift)
    return min(kept), max(kept)


def test_the_interval_of_a_difference_is_the_inverted_test_and_stands_so_in_the_table():
    draw = random.Random(8)
    other = [value + draw.gauss(0.02, 0.01) for value in WHOLE]
    (row,) = table(other)["rows"]
    low, high = ends_by_inversion([new - old for new, old in zip(other, WHOLE, strict=True)], 0.05)
    assert row["difference_interval"] == pytest.approx([low, high], abs=2e-5)
    (whole_low, whole_high), whole = ends_by_inversion(WHOLE, 0.05), table(other)["whole"]
    assert whole["interval"] == pytest.approx([whole_low, whole_high], abs=4e-5)
    assert whole["mean"] == pytest.approx(float(np.mean(WHOLE)))
    words = Words(better="", folds="", confidence="", by_luck="", parameters_change=False, pace_changes=False)
    cells = _cells(Row.model_validate({**row, "keys": [], "command": None}), words)
    shown = [number(end) for end in row["difference_interval"]]
    assert cells[3] == f"{signed(row['difference'])} [{shown[0]}, {shown[1]}]"


def test_p_is_that_of_the_permutation_test_of_another_library():
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(3)
    other = [value + draw.gauss(0.005, 0.01) for value in WHOLE]
    (row,) = table(other)["rows"]
    differences = [new - old for new, old in zip(other, WHOLE, strict=True)]
    ends = [
        stats.permutation_test((differences,), np.sum, permutation_type="samples", alternative=side, n_resamples=np.inf).pvalue
        for side in ("greater", "less")
    ]
    assert row["p"] == pytest.approx(min(ends))


def test_a_swap_of_ones_own_is_better_or_worse():
    found = contributions([Swap("lr", {"optimizer.lr": 1.0})], [runs(WHOLE), runs(moved(0.1))], range(8), "max", 0.05).written()
    assert verdicts(found) == ["is better"]


def test_without_a_difference_none_is_shown_and_the_seeds_are_told_that_would():
    noisy = [value + move for value, move in zip(WHOLE, (0.02, -0.01, 0.01, -0.02, 0.02, 0.01, -0.01, 0.015), strict=True)]
    (row,) = table(noisy)["rows"]
    assert row["verdict"] == "no difference shown"
    assert row["why"].startswith("at 8 seeds; about ")
    assert int(row["why"].split()[-2]) > 8


@pytest.mark.parametrize(("digest", "why"), [("a", "the same weights on every seed"), (None, "the same metric on every seed")])
def test_a_component_that_never_acts_is_told(digest, why):
    same = runs(WHOLE, weights_sha256=digest)
    (row,) = contributions([Swap("clip", {"clip": None}, True)], [same, same], range(8), "max", 0.05).written()["rows"]
    assert (row["verdict"], row["why"]) == ("no difference", why)


def test_what_is_shown_alone_may_not_be_among_others():
    assert verdicts(table(moved(-0.1, count=5))) == ["helps"]
    found = table(moved(-0.1, count=5), *[moved(0.0, count=5, spread=0.0)] * 3)
    assert found["rows"][0]["verdict"] == "may help"
    assert found["rows"][0]["why"] == "shown alone, but not among 4 comparisons; 7 seeds are the fewest that could"
    assert found["fewest_seeds"] == 7
    assert verdicts(table(moved(-0.1), *[moved(0.0, spread=0.0)] * 3))[0] == "helps"  # at eight


def test_with_few_seeds_nothing_can_be_shown_and_no_interval_is_claimed():
    (row,) = table(moved(-0.5, count=2))["rows"]
    assert (row["verdict"], row["why"]) == ("no difference shown", "at 2 seeds; 5 seeds are the fewest that could")
    assert (row["difference_interval"], row["interval"]) == (None, None)


def test_a_training_that_failed_is_told_with_its_reason_and_leaves_the_others_alone():
    found = table([*WHOLE[:7], None], moved(-0.1))
    assert verdicts(found) == ["fails", "helps"]
    assert found["rows"][0]["why"] == "1 of 8 trainings failed: the loss was not finite at step 3"
    assert found["rows"][0]["failed"] == [{"seed": 7, "reason": "the loss was not finite at step 3"}]
    assert (found["rows"][0]["mean"], found["rows"][0]["difference"], found["comparisons"]) == (None, None, 1)


def test_a_whole_config_that_failed_is_compared_with_nothing():
    found = table(moved(-0.1), whole=[None, *WHOLE[1:]])
    assert verdicts(found) == ["not known"]
    assert found["rows"][0]["why"] == "the whole config failed on 1 seed, so nothing is compared"
    assert (found["whole"]["mean"], found["comparisons"]) == (None, 0)


@pytest.mark.parametrize(
    ("times", "pace"), [([50.0] * 8, 0.5), ([95.0] * 8, None), ([50.0] * 7 + [120.0], None), ([50.0] * 4, None)]
)
def test_a_steps_time_is_told_where_every_seed_says_the_same(times, pace):
    sides = [
        runs(WHOLE[: len(times)]),
        [run.model_copy(update={"step_us": us}) for run, us in zip(runs(WHOLE), times, strict=False)],
    ]
    (row,) = contributions([Swap("clip", {"clip": None})], sides, range(len(times)), "max", 0.05).written()["rows"]
    assert row["pace"] == pace


@pytest.mark.slow
def test_noise_alone_is_rarely_called_a_difference():
    draw, luck = random.Random(5), 0
    for _ in range(300):
        sides = [[draw.gauss(0.9, 0.01) for _ in range(7)] for _ in range(5)]
        found = table(*sides[1:], whole=sides[0])
        luck += any(row["verdict"] in ("helps", "hurts") for row in found["rows"])
    assert luck / 300 <= 0.1  # as the page says; without the correction it is a quarter


def test_holm_corrects_the_smallest_most_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(("comparisons", "fewest"), [(1, 5), (2, 6), (3, 6), (4, 7), (6, 7), (7, 8), (12, 8), (13, 9)])
def test_the_fewest_seeds_grow_with_the_comparisons(comparisons, fewest):
    assert fewest_pairs(0.05, comparisons) == fewest
    assert math.ldexp(comparisons, -fewest) <= 0.05 < math.ldexp(comparisons, 1 - fewest)
