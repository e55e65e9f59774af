"""Curves in a terminal: where they go, how wide they are, and that no spike is lost."""

from __future__ import annotations

from mltrainer.figures.series import bucket_points
from mltrainer.monitor.plot import MARGIN, Line, drawn, label_of

EMPTY = 0x2800


def dots(text: str) -> list[str]:
    """Return the lines of a drawing without the numbers at the left and below."""
    return [line[MARGIN:] for line in text.splitlines()[:-1]]


def test_a_drawing_has_the_size_that_was_asked_for() -> None:
    text = drawn([Line([(1, 0.0), (100, 1.0)], "blue")], 60, 12).plain
    assert [len(line) for line in text.splitlines()] == [60] * 12


def test_a_rising_line_rises() -> None:
    rows = dots(drawn([Line([(1, 0.0), (100, 1.0)], "blue")], 60, 12).plain)
    places = [next(place for place, cell in enumerate(row) if cell != " ") for row in rows]
    assert places == sorted(places, reverse=True)
    assert (places[-1], rows[0].rstrip()[-1] != " ") == (0, True)


def test_a_bucket_with_a_spike_is_drawn_to_its_top() -> None:
    high = [1.0] * 50
    high[30] = 40.0
    line = Line(bucket_points(list(range(50)), [1.0] * 50, list(high)), "blue")
    top = dots(drawn([line], 60, 12).plain)[0]
    assert sum(cell != " " for cell in top) == 1


def test_a_bucket_without_a_finite_number_is_left_out() -> None:
    assert bucket_points([1, 2, 3], [1.0, None, 3.0], [1.0, None, 3.0]) == [(1, 1.0), (3, 3.0)]


def test_a_scale_by_logarithms_leaves_out_what_has_none() -> None:
    falling = [(nr, 10.0**-nr) for nr in range(5)]
    middle = drawn([Line(falling, "blue")], 60, 12, is_log=True).plain.splitlines()[5]
    assert "0.01" in middle  # the middle of 1 and 0.0001
    assert drawn([Line([*falling, (9, 0.0)], "blue")], 60, 12, is_log=True).plain.splitlines()[5] == middle
    assert drawn([Line([(0, 0.0)], "blue")], 60, 12, is_log=True).plain == "nothing yet"


def test_nothing_to_draw_and_a_flat_line_are_drawn_too() -> None:
    assert drawn([], 60, 12).plain == "nothing yet"
    assert any(cell != " " for cell in "".join(dots(drawn([Line([(1, 0.0), (9, 0.0)], "blue")], 60, 12).plain)))


def test_the_numbers_beside_a_curve_fit() -> None:
    assert [label_of(value) for value in (30000.0, 2960.0, 0.000115, 1.5, -2e-30)] == [
        *("30k", "2.96k", "1e-04", "1.5", "-2e-30"),
    ]
