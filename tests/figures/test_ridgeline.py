"""Ridges show where values lie at each time, and say so where none is finite."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

from mltrainer.figures.ridgeline import MOST_RIDGES, Ridge, Ridges, ridges


def drawn(*panels: Ridges) -> str:
    return ridges("Weights", "What it shows", panels, time="epoch")


def outlines(found: str) -> list[list[tuple[float, float]]]:
    paths = re.findall(r'<path d="M([^"]*)Z"', found)
    return [[(float(x), float(y)) for x, y in (place.split() for place in path.split("L"))] for path in paths]


def test_a_ridge_is_highest_over_its_fullest_bin_and_later_ones_lie_lower():
    found = drawn(Ridges("a", [Ridge("start", -1.0, 1.0, [1, 4, 1]), Ridge("5", 0.0, 2.0, [4, 1, 1])]))
    first, last = outlines(found)
    assert min(first, key=lambda place: place[1]) == first[2]
    assert min(last, key=lambda place: place[1]) == last[1]
    assert last[0][1] > first[0][1]
    assert last[-1][0] > first[-1][0]
    words = [element.text for element in ElementTree.fromstring(found)]
    assert {"Weights", "What it shows", "a", "start", "5"} <= set(words)


def test_of_many_times_some_are_drawn_and_all_values_alike_are_a_spike():
    rows = [Ridge(str(nr), 0.5, 0.5, [8, 0]) for nr in range(100)]
    found = outlines(drawn(Ridges("a", rows)))
    assert len(found) == MOST_RIDGES
    assert len({x for x, _ in found[0]}) == 1


def test_what_is_not_finite_is_not_drawn():
    broken = Ridge("1", math.nan, math.nan, [1])
    assert "No finite value was measured." in drawn(Ridges("a", [broken]))
    assert len(outlines(drawn(Ridges("a", [broken, Ridge("2", 0.0, 1.0, [1, 2])])))) == 1
