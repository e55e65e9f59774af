"""Figures are small, well formed, and show what is not finite instead of hiding it."""

from __future__ import annotations

import math
import random
import re
import xml.etree.ElementTree as ElementTree

import pytest

from mltrainer.figures import axes, canvas, heat, series, svg
from mltrainer.figures.series import Series


def chart(lines: list[Series], **options: object) -> str:
    return svg.line_chart("Title", "What it shows", lines, x_label="epoch", y_label="loss", **options)  # type: ignore[arg-type]


def test_a_chart_names_its_axes_series_title_and_description():
    found = chart([Series("validation", [(1, 0.5), (2, 0.25)])])
    words = [element.text for element in ElementTree.fromstring(found)]
    assert {"Title", "What it shows", "epoch", "loss", "validation"} <= set(words)


def test_a_value_that_is_not_finite_leaves_a_marked_gap():
    whole = chart([Series("a", [(x, 1.0 + x) for x in range(6)])])
    broken = chart([Series("a", [(x, math.nan if x == 3 else 1.0 + x) for x in range(6)])])
    assert "not finite" in broken
    assert "not finite" not in whole
    assert broken.count(canvas.FAULT) > whole.count(canvas.FAULT)


def test_a_zero_on_a_log_axis_is_marked_too():
    assert "not finite or not positive" in chart([Series("a", [(1, 0.0), (2, 1.0), (3, 100.0)])], log_y=True)


def test_a_chart_without_a_finite_value_says_so():
    assert "No finite value was measured." in chart([Series("a", [(1, math.nan), (2, math.inf)])])


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [1e-300, 1e300], [-1e149, 1e149], [1e-12, 2e-12], [0.0, 1e-320]])
def test_any_finite_values_can_be_drawn(values):
    for log in (False, True):
        found = chart([Series("a", list(enumerate(values)))], log_y=log)
        ElementTree.fromstring(found)
        assert "nan" not in found
        assert "inf" not in found.replace("infinite", "")


def test_the_ticks_are_round_numbers_that_enclose_the_values():
    scale = axes.linear([0.0312, 0.2871])
    assert [name for _, name in scale.ticks] == ["0", "0.1", "0.2", "0.3"]


def test_a_log_axis_goes_from_power_to_power():
    assert next(name for _, name in axes.logarithmic([3e-5, 40.0]).ticks) == "1e-5"
    assert axes.log10(1000.0) == 3.0


def test_thinning_keeps_the_smallest_the_largest_the_last_and_the_broken():
    draw = random.Random(1)
    points = [(float(x), draw.random()) for x in range(10_000)]
    points[5_050], points[6_050] = (5_050.0, 9.0), (6_050.0, -9.0)
    points[7_050], points[8_050] = (7_050.0, math.nan), (8_050.0, math.inf)  # amid their stretches, whose first points are kept
    kept = series.thin(points)
    assert len(kept) <= series.MAX_POINTS + 1
    assert {points[place] for place in (5_050, 6_050, 7_050, 8_050, -1)} <= set(kept)


def test_names_are_escaped_and_controls_are_visible():
    found = chart([Series("<b>&\x1b{{7*7}}\"'", [(1, 1.0)])])
    assert "<b>" not in found
    assert "\\x1b" in found
    assert "{{" not in found
    ElementTree.fromstring(found)


def test_marks_close_together_stand_on_different_lines():
    marks = [canvas.Mark(8, "best: epoch 8"), canvas.Mark(9, "stopped: epoch 9")]
    found = chart([Series("a", [(x, 1.0 * x) for x in range(10)])], marks=marks)
    heights = re.findall(r'y="([\d.]+)"[^>]*>(?:best|stopped)', found)
    assert len(set(heights)) == 2


def test_a_confusion_matrix_shows_its_counts():
    found = svg.confusion_matrix("t", "d", ["cat", "dog"], [[17, 3], [0, 29]])
    assert all(f">{count}<" in found for count in (17, 3, 29))
    assert ">cat<" in found


def test_a_confusion_matrix_of_many_classes_stays_small():
    counts = [[50 if t == p else (t * p) % 7 == 1 for p in range(60)] for t in range(60)]
    found = svg.confusion_matrix("t", "d", [f"class {nr}" for nr in range(60)], [[int(n) for n in row] for row in counts])
    assert len(found) < 60_000
    ElementTree.fromstring(found)


def test_a_heat_map_tells_zero_from_small_and_crosses_out_what_is_not_finite():
    found = svg.heat_map("t", "d", [("a", [1e-9, 0.0, math.nan])], [1, 2, 3], x_label="epoch", scale_label="norm")
    assert canvas.LINE in found
    assert found.count("l8 8m0-8l-8 8") == 1


def test_a_heat_map_of_many_layers_and_epochs_stays_small():
    draw = random.Random(2)
    rows = [(f"layer {nr}", [10 ** draw.uniform(-6, 1) for _ in range(500)]) for nr in range(80)]
    assert len(svg.heat_map("t", "d", rows, list(range(500)), x_label="epoch", scale_label="norm")) < 40_000


def test_layers_of_a_deep_network_can_be_told_apart_by_their_labels():
    names = [f"transformer.encoder.layers.{nr}.self_attention.in_proj_{what}" for nr in range(12) for what in ("weight", "bias")]
    shown = heat.labels(names)
    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) <= 40
    assert all(f"{nr}." in shown[2 * nr] for nr in range(12))
    assert heat.labels(["stem.weight", "head.weight"]) == ["stem.weight", "head.weight"]


def test_a_heat_map_without_a_positive_value_says_so():
    assert "No positive value" in svg.heat_map("t", "d", [("a", [0.0])], [1], x_label="epoch", scale_label="norm")


def test_bars_start_at_zero_and_carry_their_values():
    found = svg.bars("t", "d", [("a", 2.0), ("b", -1.0), ("c", math.nan)], unit="s", sign=True)
    assert all(text in found for text in (">+2.00<", ">-1.00<", ">NaN<", canvas.VERMILLION))


def test_a_scatter_says_how_many_pairs_it_leaves_out():
    found = svg.scatter("t", "d", [(1.0, 1.1), (2.0, math.inf)], x_label="target", y_label="prediction")
    assert "1 pairs are not finite" in found
    assert "No finite pair" in svg.scatter("t", "d", [], x_label="x", y_label="y")
