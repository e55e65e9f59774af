"""Figures of many trials: the best stands out, what is far off bleaches nothing, and what a trial lacks is no point."""

from __future__ import annotations

import math
import re

import pytest

from mltrainer.figures.axes import linear
from mltrainer.figures.canvas import VERMILLION
from mltrainer.figures.forest_plot import Compared, forest
from mltrainer.figures.search import _with_ranks, axis, curves, focused, of_space
from mltrainer.figures.trial_figures import SHADES, Curve, Marked, Panel, bundle, parallel, plane, small_multiples
from mltrainer.records.optimization import Searched, Trial
from mltrainer.records.partial import partial
from mltrainer.reports.space import Dimension
from tests.reports import records

UNIT = linear([0.0, 1.0])


def spots(svg: str, colour: str) -> int:
    """Return how many points of a colour a figure has below its legend."""
    paths = re.findall(rf'<path d="([^"]*h0)" stroke="{colour}"', svg)
    return sum(path.count("h0") for path in paths) - 1  # the legend's own


def test_the_best_trial_stands_out_and_the_others_are_darker_the_better_they_are():
    points = [Marked(nr / 10, nr / 10, nr / 10) for nr in range(11)]
    chart = small_multiples("t", "d", [Panel("lr", UNIT, points)], UNIT, y_label="accuracy")
    assert spots(chart, VERMILLION) == 1
    assert [spots(chart, colour) for colour in SHADES] == [2, 2, 2, 2, 3]


def test_points_that_are_not_on_an_axis_are_left_out():
    points = [Marked(0.5, 0.5, 0.0), Marked(math.nan, 0.5, 0.0), Marked(0.5, 9.0, 0.0), Marked(0.5, math.inf, 0.0)]
    assert spots(small_multiples("t", "d", [Panel("lr", UNIT, points)], UNIT, y_label="y"), SHADES[0]) == 1


@pytest.mark.parametrize(("mode", "far"), [("max", -1e9), ("min", 1e9)])
def test_one_value_far_off_does_not_stretch_the_axis(mode, far):
    values = [nr / 20 for nr in range(20)]
    scale, beyond = focused([*values, far], mode)
    assert (scale.low, scale.high, beyond) == (0.0, 1.0, 1)
    assert focused(values, mode)[1] == 0


def test_the_ground_is_coloured_where_trials_are_near_alone():
    def cells(points: list[Marked]) -> int:
        chart = plane("t", "d", points, UNIT, UNIT, x_label="x", y_label="y")
        return sum(path.count("M") for path in re.findall(r'<path d="([^"]*)"[^>]*crispEdges', chart))

    one = cells([Marked(0.5, 0.5, 0.5)])
    assert 0 < one < 100
    assert cells([Marked(0.1, 0.1, 0.0), Marked(0.9, 0.9, 1.0)]) > one


def test_a_line_skips_the_axes_on_which_its_trial_has_no_value():
    chart = parallel("t", "d", [("a", UNIT), ("b", UNIT), ("c", UNIT)], [([0.1, math.nan, 0.3], 0.5)])
    assert len(re.findall(r'd="M[\d.]+ [\d.]+L[\d.]+ [\d.]+" stroke="#', chart)) == 4  # three axes, and a line of two points


def test_a_curve_that_was_stopped_ends_in_a_dot():
    ways = [Curve([(1, 0.1), (2, 0.2)], 0.0, stopped) for stopped in (True, False)]
    drawn = [bundle("t", "d", [way], linear([1.0, 8.0]), UNIT, x_label="epoch", y_label="y") for way in ways]
    assert [spots(chart, SHADES[0]) for chart in drawn] == [1, 0]
    assert ["stopped at a rung" in chart for chart in drawn] == [True, False]


def test_choices_stand_side_by_side_whatever_they_are():
    choices = Dimension("model.hidden", "choice", [[32, 32], True, 1, None])
    assert [choices.number(value) for value in choices.values] == [0, 1, 2, 3]
    assert [name for _, name in axis(choices).ticks] == ["32x32", "true", "1", "none"]
    assert math.isnan(choices.number("other"))


def test_a_caption_says_how_many_trials_are_drawn_of_how_many():
    figures = {figure.file: figure.caption for figure in of_space(partial(Searched, records.searched(400)["evidence"]))}
    assert "90 of" in figures["parallel.svg"]
    assert "90 of 400 trials are drawn" in figures["curves.svg"]
    assert "stopped at a rung" in figures["curves.svg"]


def test_trials_with_one_evaluation_each_have_no_curves():
    search = partial(Searched, records.searched(20)["evidence"])
    once = [trial.model_copy(update={"curve": trial.curve[:1]}) for trial in search.trials]
    assert curves(search, once) is None


def test_of_many_trials_the_best_half_is_drawn_and_ranks_go_from_one_to_zero():
    trials = [partial(Trial, {"nr": nr}) for nr in range(101)]
    whole, some = _with_ranks(trials, 101), _with_ranks(trials, 10)
    assert [rank for _, rank in whole] == [1 - nr / 100 for nr in range(101)]
    assert [trial.nr for trial, _ in some][:5] == [0, 1, 2, 3, 4]
    assert (len(some), some[-1]) == (10, (trials[100], 0.0))


@pytest.mark.parametrize(("count", "shown"), [(10, 9), (20, 18), (21, 19)])
def test_the_worst_tenth_may_lie_beyond_the_axis_and_no_more(count, shown):
    far = [-1e6 * (nr + 1) for nr in range(count - shown)]
    assert focused([*(nr / count for nr in range(shown)), *far], "max")[1] == count - shown
    assert focused([*(nr / count for nr in range(shown - 1)), -1e6, *far], "max")[1] == 0


def test_a_forest_s_interval_lies_where_its_ends_are():
    rows = [Compared("a", [1.0, 3.0], 2.0, (0.5, 3.5), "#0072B2")]
    drawn = forest("t", "d", rows, unit="change")
    left, right = map(float, re.search(r'M([\d.]+) 65L([\d.]+) 65" stroke="#0072B2"', drawn).groups())  # type: ignore[union-attr]
    mean = float(re.search(r'M([\d.]+) 65h0" stroke="#0072B2"', drawn)[1])  # type: ignore[index]
    zero = float(re.search(r'M([\d.]+) 48L\1 82"[^>]*dasharray', drawn)[1])  # type: ignore[index]
    unit = (mean - zero) / 2
    assert [(place - zero) / unit for place in (left, right)] == pytest.approx([0.5, 3.5], abs=0.01)
