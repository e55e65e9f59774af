"""`predict --out`: the table comes back with what was given unchanged and the answers behind it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars
import pytest

from mltrainer.errors import InputError
from mltrainer.runs.predicted_table import columns_of, require_format, write_answers

ANSWERS = [{"prediction": "no", "probabilities": {"no": 0.75, "yes": 0.25}}, {"prediction": "yes", "probabilities": {"yes": 0.9}}]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "inference.json").write_text(json.dumps({"input": {"name": "table"}}))
    return tmp_path


def test_a_csv_comes_back_with_its_cells_as_they_were(model):
    rows, out = model / "rows.csv", model / "out.csv"
    rows.write_text('code;city\n007;"a;b"\n1.50;\n')
    assert write_answers(out, rows, model, ANSWERS) == 2
    assert [*csv.reader(out.read_text().splitlines())] == [
        ["code", "city", "prediction", "probability"],
        ["007", "a;b", "no", "0.75"],
        ["1.50", "", "yes", "0.9"],
    ]


def test_parquet_has_the_numbers_of_the_answers_as_numbers(model):
    (model / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    write_answers(model / "out.parquet", model / "rows.jsonl", model, ANSWERS)
    found = polars.read_parquet(model / "out.parquet")
    assert (found.columns, found["probability"].to_list()) == (["a", "prediction", "probability"], [0.75, 0.9])


def test_a_column_that_is_called_as_the_answer_is_not_overwritten(model):
    (model / "rows.csv").write_text("prediction\n1\n2\n")
    with pytest.raises(InputError, match="column 'prediction' has the name of an answer's column"):
        write_answers(model / "out.csv", model / "rows.csv", model, ANSWERS)


@pytest.mark.parametrize(
    ("answer", "cells"),
    [
        ({"prediction": 2.5, "interval": [1.0, 4.0]}, {"prediction": 2.5, "low": 1.0, "high": 4.0}),
        (
            {"file": "a.png", "prediction": "cat", "set": ["cat", "dog"]},
            {"file": "a.png", "prediction": "cat", "set": "cat | dog"},
        ),
        (
            {"prediction": {"price": 3.0, "sold": "no"}, "probabilities": {"sold": {"no": 0.6}}},
            {"prediction price": 3.0, "prediction sold": "no", "probability sold": 0.6},
        ),
        ({"output": [0.5, 1.5]}, {"output 0": 0.5, "output 1": 1.5}),
    ],
)
def test_each_kind_of_answer_has_its_columns(answer, cells):
    assert columns_of(answer) == cells


def test_another_kind_of_file_is_refused_with_one_to_take():
    with pytest.raises(InputError, match=r"written as \.csv or \.parquet"):
        require_format(Path("answers.xlsx"))
