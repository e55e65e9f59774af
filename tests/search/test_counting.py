"""Comparisons of one plan's candidates are counted, and however many there are, they spend one level."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.gates.statistics import is_better
from mltrainer.records.job import SearchJob
from mltrainer.records.optimization import CountedComparison, Earlier
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.search import counting
from mltrainer.search.comparing import Comparison, samples_of, sides_of
from mltrainer.tasks.statistics import fewest_pairs, spent_level
from tests.search.test_program import config, study

LEVEL = 0.05
ROW = {"plan_sha256": "p", "data_sha256": "d", "study": "s"}


def row(number: int, candidate: str, **changes: Any) -> CountedComparison:
    return CountedComparison(**{**ROW, "number": number, "candidate_sha256": candidate, **changes})


def planned(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(config(**changes))


# --- the level ------------------------------------------------------------------------------------


def test_the_levels_of_all_comparisons_add_up_to_the_whole():
    assert [spent_level(0.05, number) / 0.05 for number in (1, 2, 3, 4)] == pytest.approx([5 / 8, 3 / 16, 3 / 32, 3 / 64])
    assert math.fsum(spent_level(LEVEL, number) for number in range(1, 60)) <= LEVEL


def test_each_comparison_takes_the_fewest_pairs_that_its_share_of_the_level_can_be_reached_with():
    assert [counting.pairs_of(5, LEVEL, number) for number in (1, 2, 3, 4, 11, 12)] == [5, 7, 8, 9, 16, 0]
    assert [counting.pairs_of(12, LEVEL, number) for number in (1, 11)] == [12, 16]
    assert counting.pairs_of(3, None, 1) == 3
    assert fewest_pairs(1 / 32) == 5


@pytest.mark.slow
def test_repeated_searches_in_noise_promote_one_no_more_often_than_the_level():
    draw, series, promoted = random.Random(1), 4000, 0
    for _ in range(series):
        for number in range(1, 7):
            pairs = counting.pairs_of(5, LEVEL, number)
            if is_better([draw.gauss(0, 1) for _ in range(pairs)], 5, spent_level(LEVEL, number)):
                promoted += 1
                break
    exact = 1 - math.prod(1 - 0.5 ** counting.pairs_of(5, LEVEL, number) for number in range(1, 7))
    assert exact < LEVEL
    assert abs(promoted / series - exact) < 4 * math.sqrt(exact * (1 - exact) / series)
    uncounted = 1 - (1 - 1 / 32) ** 6
    assert uncounted > 3 * LEVEL  # what the same searches promote when each has the whole level


# --- the number -----------------------------------------------------------------------------------


def test_a_comparison_has_the_number_after_those_of_the_same_plan_and_data():
    others = [row(4, "x", plan_sha256="another"), row(7, "y", data_sha256="another")]
    assert counting.counted(row(9, "c"), others) == (1, [])
    number, earlier = counting.counted(row(9, "c"), [*others, row(2, "b"), row(1, "a"), row(2, "b")])
    assert (number, [one.number for one in earlier]) == (3, [1, 2])
    assert counting.counted(row(9, "c"), [row(1, "a"), row(1, "b")])[0] == 3  # of two clones, each with its first


def test_a_candidate_that_is_found_again_has_the_number_that_it_had():
    known = [row(1, "a"), row(2, "b"), row(3, "c")]
    assert counting.counted(row(9, "b"), known) == (2, [Earlier(number=1, candidate_sha256="a")])
    assert counting.counted(row(9, "b"), [*known, row(5, "b")])[0] == 2


def test_another_seed_of_the_same_plan_starts_no_new_series_and_another_plan_does():
    one, other, longer = (counting.key_of(planned(**change), planned(), "d", "s") for change in ({}, {"seed": 9}, {"epochs": 9}))
    assert one.plan_sha256 == other.plan_sha256 != longer.plan_sha256
    seeded = counting.key_of(planned(), planned(seed=9), "d", "s")
    assert seeded.candidate_sha256 != one.candidate_sha256


def test_the_ledger_keeps_each_comparison_once_and_none_where_it_is_damaged(tmp_path):
    for one in (row(1, "a"), row(2, "b"), row(1, "a")):
        counting.enter(tmp_path, one)
    assert [one.number for one in counting.ledger(tmp_path)] == [1, 2]
    for text in ("", "[]", '{"comparisons": 3}', '{"comparisons": [1, {"number": "1"}]}'):
        (tmp_path / counting.LEDGER).write_text(text)
        assert counting.ledger(tmp_path) == []


# --- what is compared -----------------------------------------------------------------------------


def comparison(values: dict[str, Any], **changes: Any) -> Comparison:
    job = {**study({}, 3, epochs=2), "planned": config(epochs=8, batch_size=64), "level": LEVEL, **changes}
    return Comparison(SearchJob.model_validate({**job, "seeds": 5}), values)


def test_both_sides_are_as_planned_and_not_as_a_trial():
    sides = comparison({"batch_size": 16}).sides
    assert {name: (side.epochs, side.batch_size) for name, side in sides.items()} == {"baseline": (8, 64), "candidate": (8, 16)}


@pytest.mark.parametrize(("epochs", "lent"), [(20, 20), (8, 8), (3, 8)])
def test_the_baseline_is_trained_for_as_many_epochs_as_the_candidate_at_least(epochs, lent):
    sides = sides_of(planned(epochs=8), {"epochs": epochs})
    assert (sides["baseline"].epochs, sides["candidate"].epochs) == (lent, epochs)


def test_each_comparison_has_seeds_of_its_own():
    first = comparison({"batch_size": 16})
    known = {**first.key.model_dump(), "number": 1, "candidate_sha256": "another"}
    second = comparison({"batch_size": 16}, earlier=[known])
    third = comparison({"batch_size": 16}, earlier=[known, {**known, "number": 2, "candidate_sha256": "b"}])
    assert [len(one.seeds) for one in (first, second, third)] == [5, 7, 8]
    for one, other in itertools.combinations((first, second, third), 2):
        assert not set(one.seeds) & set(other.seeds)


@pytest.mark.parametrize(
    ("steps", "accumulate", "expected"),
    [(4, 1, 100), (3, 1, 96), (5, 1, 132), (8, 1, 200), (2, 2, 100), (1, 2, 64)],  # 100 samples in batches of 32
)
def test_samples_are_counted_with_the_short_last_batch(steps, accumulate, expected):
    seen = list(itertools.islice(itertools.cycle(_sizes(100, 32 * accumulate)), steps))
    told = {"train_samples": 100, "batch_size": 32, "accumulate": accumulate, "steps": steps}
    assert samples_of(partial(RunResult, told)) == sum(seen) == expected


def _sizes(samples: int, batch: int) -> list[int]:
    return [len(range(start, min(start + batch, samples))) for start in range(0, samples, batch)]


def test_of_a_program_nobody_knows_the_samples():
    assert samples_of(partial(RunResult, {"train_samples": 0, "steps": 5})) is None
