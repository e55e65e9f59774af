"""Which parts of a run an audit trains again, and how likely it misses a forged part."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from mltrainer.companions.proof.segments import Segment, drawn, fewest_forged, miss_probability, segments

TWENTY = segments(0, range(10, 201, 10), 200)


@pytest.mark.parametrize(
    ("begun", "saved", "last", "expected"),
    [
        (0, [], 10, [(0, 10)]),
        (0, [4, 8, 10], 10, [(0, 4), (4, 8), (8, 10)]),
        (0, [8, 4], 10, [(0, 4), (4, 8), (8, 10)]),  # the last one was not kept
        (6, [4, 8], 10, [(6, 8), (8, 10)]),  # a fork
        (0, [], 0, []),
    ],
)
def test_segments_lie_between_checkpoints(begun, saved, last, expected):
    assert segments(begun, saved, last) == [Segment(*pair) for pair in expected]


@pytest.mark.parametrize(("share", "count"), [(0.01, 3), (0.1, 4), (0.12, 5), (0.5, 11), (1.0, 20)])
def test_the_first_and_the_last_are_always_drawn_and_as_many_as_the_share_asks(share, count):
    found = drawn(TWENTY, share, "commitment", "nonce")
    assert found == sorted(set(found))
    assert (found[0], found[-1], len(found)) == (TWENTY[0], TWENTY[-1], count)


def test_the_draw_depends_on_the_commitment_and_on_the_nonce_alone():
    def draw(*texts: str) -> list[Segment]:
        return drawn(TWENTY, 0.3, *texts)

    assert draw("a", "b") == draw("a", "b")
    assert len({tuple(draw(*texts)) for texts in itertools.product("abc", "def")}) == 9


def test_a_run_of_one_segment_is_trained_whole():
    whole = segments(0, [], 10)
    assert drawn(whole, 0.01, "", "") == whole
    assert miss_probability(whole, 1, 1) == 0.0


def test_a_segment_that_was_forged_in_any_place_is_met_as_often_as_the_answer_states():
    places, share = random.Random(1), 0.3
    planted = [places.choice(TWENTY[1:-1]) for _ in range(200)]
    met = sum(forged in drawn(TWENTY, share, "commitment", str(nr)) for nr, forged in enumerate(planted))
    expected = 1 - miss_probability(TWENTY, len(drawn(TWENTY, share, "commitment", "0")), 1)
    assert expected == pytest.approx(6 / 18)
    deviation = math.sqrt(200 * expected * (1 - expected))
    assert abs(met - 200 * expected) < 3 * deviation


@pytest.mark.parametrize(
    ("replayed", "forged", "probability"),
    [(2, 1, 1.0), (20, 1, 0.0), (11, 1, 0.5), (11, 2, 9 * 8 / (18 * 17)), (6, 15, 0.0), (2, 19, 0.0)],
)
def test_a_miss_is_as_likely_as_a_draw_without_the_forged_ones(replayed, forged, probability):
    assert miss_probability(TWENTY, replayed, forged) == pytest.approx(probability)


def test_a_forger_takes_the_longest_segments_but_not_the_ends():
    uneven = segments(0, [50, 60, 90, 95], 100)
    assert [fewest_forged(uneven, share) for share in (0.01, 0.3, 0.31, 0.45)] == [1, 1, 2, 3]
    assert fewest_forged(uneven, 0.6) > 3  # only with an end, which is always trained again
    assert miss_probability(uneven, 3, fewest_forged(uneven, 0.6)) == 0.0
