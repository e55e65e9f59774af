"""A cell becomes a number only where the number says what the cell said; otherwise it stays a text, and `init` says so."""

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.checkpointing import inference_script
from mltrainer.checkpointing.inference_script import as_formatted, as_number, as_seconds, unit_of
from mltrainer.configs.project import Data
from mltrainer.tasks.config_inference import infer_project
from mltrainer.tasks.sources import read_source
from mltrainer.tasks.tables.columns import parse_column
from mltrainer.tasks.tables.files import text_array

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
    "cells",
    [
        ["01234", "1234"],
        ["7", "07", "007"],
        ["9007199254740992", "9007199254740993"],
        ["1E5", "100000"],
        ["1.1", "1.10", "2.3"],
        ["+491701234567", "+491701234568"],
    ],
)
def test_cells_that_would_become_one_number_stay_categories(tmp_path, cells):
    found = inferred(tmp_path, cells)
    assert found.columns == {"c": "category"}
    assert any(
        "would not be the same as a number; where it is a quantity, write data: {columns: {c: number}}" in line
        for line in found.explanation
    )


@pytest.mark.parametrize(
    "cells",
    [
        ["0", "10", "200"],
        ["0.5", "00.7"],
        ["1e-05", "2e+10"],
        ["1000000000000000000", "0"],
        ["-0", "5"],
        ["1.50", "2.5", "3"],
        ["1.0", "1", "1.00"],
        ["+1500000", "-1500000"],
        [f"{n / 100:.2f}" for n in range(200)] + ["0.5"],
    ],
)
def test_quantities_stay_numbers(cells):
    assert parse_column("c", text_array(cells)).kind == "number"


@pytest.mark.parametrize("spelling", ["NA", "None", "null", "?", "n/a"])
def test_a_class_that_is_spelled_like_a_missing_value_is_named_with_what_to_write(tmp_path, spelling):
    found = inferred(tmp_path, [str(n) for n in range(30)], ["mild", spelling, "grave"])
    (line,) = [line for line in found.warnings if line.startswith(f"{spelling!r} is in 20 of 60 cells of the target 't'")]
    assert "where it is a class, write data: {missing: [" in line
    assert f'"{spelling}"' not in line.partition("write data")[2]


@pytest.mark.parametrize(
    ("cell", "day"),
    [
        ("January-2005", 1104537600),
        ("Jan 2005", 1104537600),
        ("2005 March", 1109635200),
        ("Sept/2005", 1125532800),
        ("Jan-05", 1104537600),
        ("Jan-99", 915148800),
        ("01-Jan-05", 1104537600),
        ("1/31/05", 1107129600),
        ("20050131", 1107129600),
        ("2005-Q2", 1112313600),
        ("Q2 2005", 1112313600),
        ("2005-W01", 1104710400),
    ],
)
def test_months_quarters_and_weeks_are_their_first_day(cell, day):
    assert as_seconds(cell) == day


@pytest.mark.parametrize(
    "cell", ["Marketing 2005", "Mars 2005", "Mayor-2005", "Jan-5", "20051301", "2005-W54", "1.2.05", "12-11-10"]
)
def test_words_that_only_begin_like_a_month_are_no_dates(cell):
    assert as_seconds(cell) is None


@pytest.mark.parametrize(
    ("cells", "value", "unit"),
    [
        (["4 out of 5 stars", "3.5 out of 5 stars"], 4, "out of 5 star"),
        (["4/5", "1/5"], 4, "/5"),
        (["2 of 3", "3 of 3"], 2, "of 3"),
        (["7\u2030", "8\u2030"], 7, "\u2030"),
        (["2nd", "1st", "3rd", "11th"], 2, "th"),
    ],
)
def test_a_number_with_what_all_cells_have_behind_it_is_read(tmp_path, cells, value, unit):
    found = parse_column("c", text_array(cells), inferred(tmp_path, cells).columns["c"])
    assert (found.values[0], found.unit, len(found.wrong)) == (value, unit, 0)


@pytest.mark.parametrize("cells", [["4/5", "3/4", "1/3"], ["120/80", "131/85"], ["3 of 5", "4 of 7"]])
def test_numbers_with_other_numbers_behind_them_stay_categories(tmp_path, cells):
    assert "c" not in inferred(tmp_path, cells).columns


def test_a_plus_behind_a_number_is_no_sign():
    assert (as_formatted("10+"), as_formatted("10-"), as_formatted("+10")) == (None, -10, 10)


def test_days_in_digits_are_dates_and_other_numbers_of_eight_digits_are_not(tmp_path):
    assert inferred(tmp_path, [f"2005{n % 12 + 1:02}{n + 1:02}" for n in range(28)]).columns == {"c": "date"}
    assert inferred(tmp_path, ["20050101", "20051345"]).columns == {}


def test_telephone_numbers_with_blanks_are_no_text_of_words(tmp_path):
    found = inferred(tmp_path, [f"+49 {170 + n % 9} {1234567 + n * 37}" for n in range(60)])
    assert (found.columns, found.ignored) == ({}, ["c"])


@pytest.mark.parametrize("cells", [["caf\u00e9", "cafe\u0301"], ["New York", "New  York"], ["A\u00a0B", "A B"], ["Red", "red"]])
def test_categories_that_look_alike_are_named(tmp_path, cells):
    assert any(
        f"column 'c': {cells[0]!r} and" in line or f"and {cells[0]!r} are two" in line
        for line in inferred(tmp_path, cells).warnings
    )


@pytest.mark.parametrize("kind", [polars.Int64, polars.UInt64])
def test_ids_of_64_bits_in_parquet_keep_their_digits_to_the_delivered_model(tmp_path, kind):
    ids = [2**53 + 1, 2**53, 7, 2**63 - 1]
    path = tmp_path / "d.parquet"
    polars.DataFrame({"c": polars.Series([*ids, None], dtype=kind), "n": [2**53, 1, 2, 3, 4]}).write_parquet(path)
    table = read_source(Data(source="d.parquet"), tmp_path).content
    assert table.columns["c"].to_list() == [*map(str, ids), ""]
    assert table.columns["n"].tolist() == [2.0**53, 1, 2, 3, 4]
    rows = inference_script.read_rows(path)
    assert [row["c"] for row in rows] == table.columns["c"].to_list()
    assert [row["n"] for row in rows] == [*parse_column("n", table.columns["n"], "category").texts[-1:], "1", "2", "3", "4"]


def test_many_numbers_that_only_python_reads_are_read_once_each():
    cells = polars.Series([f"\u2212{n}" for n in range(2000)])
    assert np.array_equal(parse_column("c", cells).values, -np.arange(2000.0))
    assert as_number("\u2013") is None
