"""A cell becomes a number only where the number says what the cell said; otherwise it stays a text, and `init` says so."""

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.checkpointing import inference_script
from mltrainer.checkpointing.inference_script import as_formatted, as_number, as_seconds, unit_of
from mltrainer.tasks.config_inference import infer_project
from mltrainer.tasks.tables.columns import parse_column
from mltrainer.tasks.tables.text_files import text_array

NUMBERS = st.floats(-1e12, 1e12).map(lambda number: round(number, 3))


def inferred(folder, cells, target=None, header="c,x,t"):
    """What a file asks for, whose first column holds some cells again and again."""
    rows = [
        f'"{cells[n % len(cells)]}",{n * 7 % 30},{target[n % len(target)] if target else "ab"[n * n % 7 % 2]}' for n in range(60)
    ]
    (folder / "d.csv").write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return infer_project({"train": folder / "d.csv"}, "t")


@given(st.lists(st.integers(0, 10**20).map(str) | st.integers(0, 999).map("{:05}".format), min_size=1))
def test_whole_numbers_that_become_numbers_are_written_back_as_they_stood(cells):
    """Both readers agree, and what is a number gives its text back."""
    one = parse_column("c", text_array(cells))
    assert parse_column("c", polars.Series(cells)).kind == one.kind
    if one.kind == "number":
        assert [str(int(value)) for value in one.values] == cells


@given(
    NUMBERS,
    st.sampled_from(["-", "\u2212", "\u2013", "\u2011", "\uff0d"]),
    st.sampled_from(["", " kg", " Miles", " m\u00b2", " km/h"]),
)
def test_a_number_is_read_with_any_minus_and_any_unit(number, minus, unit):
    cell = f"{number:,.3f}".replace("-", minus) + unit
    assert as_formatted(cell) == number
    assert unit_of(cell) == unit.strip().lower().removesuffix("s")


@pytest.mark.parametrize("cell", ["\u22125", "\u20135", "5-", "(5)", "($5)", "-5 kg", "\u22125 \u00b0C"])
def test_each_minus_is_one(cell):
    assert as_formatted(cell) == -5


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["19M", "3.5k"], [19e6, 3500]),
        (["950", "1.1k"], [950, 1100]),
        (["44,190 Miles", "1 mile"], [44190, 1]),
        (["$2.5B"], [2.5e9]),
    ],
)
def test_units_and_scales_of_a_column_are_read(cells, values):
    found = parse_column("c", text_array(cells), "formatted")
    assert (found.values.tolist(), len(found.wrong)) == (values, 0)


@pytest.mark.parametrize(
    "cells", [["12 cm", "14 cm", "3 m"], ["3 kg", "5 kg", "2 lb"], ["19M", "3M", "7 kg"], ["1 Mb", "2 Mb", "3 MB"]]
)
def test_a_cell_in_another_unit_is_no_number_of_its_column(cells):
    found = parse_column("c", text_array(cells), "formatted")
    assert found.wrong.tolist() == [2]


def test_the_delivered_model_refuses_a_cell_in_another_unit():
    spec = {"name": "w", "kind": "formatted", "unit": "kg"}
    assert inference_script.parsed([{"w": "3 kg"}, {"w": "4"}], spec, [""]).tolist() == [3, 4]
    with pytest.raises(inference_script.InvalidInputError, match="expected a number in kg, found '3 lb'"):
        inference_script.parsed([{"w": "3 lb"}], spec, [""])


@pytest.mark.parametrize(
    "cells", [["01234", "1234"], ["7", "07", "007"], ["9007199254740992", "9007199254740993"], ["1E5", "100000"]]
)
def test_cells_that_would_become_one_number_stay_categories(tmp_path, cells):
    found = inferred(tmp_path, cells)
    assert found.columns == {"c": "category"}
    assert any(
        "would not be the same as a number; where it is a quantity, write data: {columns: {c: number}}" in line
        for line in found.explanation
    )


@pytest.mark.parametrize(
    "cells", [["0", "10", "200"], ["0.5", "00.7"], ["1e-05", "2e+10"], ["1000000000000000000", "0"], ["-0", "5"]]
)
def test_quantities_stay_numbers(cells):
    assert parse_column("c", text_array(cells)).kind == "number"


@pytest.mark.parametrize("spelling", ["NA", "None", "null", "?", "n/a"])
def test_a_class_that_is_spelled_like_a_missing_value_is_named_with_what_to_write(tmp_path, spelling):
    found = inferred(tmp_path, [str(n) for n in range(30)], ["mild", spelling, "grave"])
    (line,) = [line for line in found.warnings if line.startswith(f"{spelling!r} stands in 20 of 60 cells of the target 't'")]
    assert "where it is a class, write data: {missing: [" in line
    assert f'"{spelling}"' not in line.partition("write data")[2]


@pytest.mark.parametrize(
    ("cell", "day"),
    [("January-2005", 1104537600), ("Jan 2005", 1104537600), ("2005 March", 1109635200), ("Sept/2005", 1125532800)],
)
def test_a_month_is_its_first_day(cell, day):
    assert as_seconds(cell) == day


@pytest.mark.parametrize("cell", ["Marketing 2005", "Mars 2005", "Mayor-2005", "Jan-05"])
def test_words_that_only_begin_like_a_month_are_no_dates(cell):
    assert as_seconds(cell) is None


def test_many_numbers_that_only_python_reads_are_read_once_each():
    cells = polars.Series([f"\u2212{n}" for n in range(2000)])
    assert np.array_equal(parse_column("c", cells).values, -np.arange(2000.0))
    assert as_number("\u2013") is None
