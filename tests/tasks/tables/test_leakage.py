"""Columns that give the target are asked about, and honest ones are not."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import yaml

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import PLACEHOLDER
from mltrainer.tasks.content import Table
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.tables.columns import parse_column
from mltrainer.tasks.tables.config_inference import kind_of, task_of
from mltrainer.tasks.tables.files import text_array
from mltrainer.tasks.tables.leak_formulas import formulas
from mltrainer.tasks.tables.leakage import Answers, Target, leakage_findings
from mltrainer.tasks.tables.schema import labels_of, schema_of
from tests.tasks.tables.labelled_leaks import HONEST, LEAKS, NATURE, SHIPPED, Columns, classes


def findings(columns: Columns, answers: Answers | None = None) -> list[Finding]:
    """Return the findings on a table's leaks, its columns read as `init` reads them."""
    rows = len(columns["t"])
    table = Table(columns, lambda: np.arange(rows) + 2, "d.csv")
    plain = {name: parse_column(name, cells) for name, cells in columns.items()}
    kinds = {name: kind for name, column in plain.items() if (kind := kind_of(column, table)) is not None}
    answers = answers or Answers()
    schema = schema_of(table, "t", list(answers.ignored), kinds)
    is_quantity = task_of(schema.target)[0] == "tabular_regression"
    labels, names = (None, []) if is_quantity else labels_of(schema)
    target = Target(schema.target, labels, names)
    return leakage_findings(schema.features, target, np.arange(rows), DataLimits(), answers)


def errors(found: list[Finding]) -> list[str]:
    return [one.what for one in found if one.severity == "error"]


def test_columns_that_no_row_has_together_are_judged():
    target, rows = np.random.default_rng(0).normal(100, 20, 400), np.arange(400) % 2
    first, second = np.where(rows, target, np.nan), np.where(rows, np.nan, target)
    assert "mean" not in [one.what for one in formulas([first, second], target, 0)]


@pytest.mark.parametrize(("classes", "text"), [(("iyi", "kötü"), "İyi hizmet"), (("µg", "mg"), "5 μg")])
def test_a_letter_whose_lower_case_is_another_one_is_no_name_of_a_class(classes, text):
    columns = {"note": [f"{text} {nr}" for nr in range(40)], "t": [classes[nr % 2] for nr in range(40)]}
    findings({name: text_array(column) for name, column in columns.items()})


DRAWN = [(name, seed) for name in HONEST for seed in (range(3) if name not in SHIPPED else [0])]


@pytest.mark.parametrize(("name", "seed"), DRAWN)
def test_an_ordinary_table_is_asked_nothing(name, seed):
    assert errors(findings(HONEST[name](np.random.default_rng(seed)))) == []


@pytest.mark.parametrize("name", NATURE)
def test_what_nature_determines_is_asked_about_once_at_most(name):
    columns = NATURE[name](np.random.default_rng(0))
    asked = errors(findings(columns))
    assert len(asked) <= 1
    accepted = {column: "measured before" for column in columns if column != "t"}
    answered = findings(columns, Answers(accepted=accepted))
    assert errors(answered) == []
    assert sum(one.what.startswith("accepted: ") for one in answered) >= len(asked)


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_asked_about_in_one_question_that_names_its_columns(name):
    make, named = LEAKS[name]
    (asked,) = errors(findings(make(np.random.default_rng(0))))
    assert pasted(asked) == named


def pasted(question: str) -> set[str]:
    """Return the columns in the two lines to paste, which are the same in both."""
    ignore, accepted = (yaml.safe_load(line) for line in re.findall(r"`([^`]+)`", question))
    assert set(ignore["ignore"]) == accepted["leak_accepted"].keys()
    assert set(accepted["leak_accepted"].values()) == {PLACEHOLDER}
    return set(ignore["ignore"])


@pytest.mark.parametrize("name", LEAKS)
def test_either_answer_ends_the_question(name):
    make, named = LEAKS[name]
    columns = make(np.random.default_rng(0))
    assert errors(findings(columns, Answers(ignored=sorted(named)))) == []
    reasons = {column: f"{column} is known" for column in named}
    answered = findings(columns, Answers(accepted=reasons))
    assert errors(answered) == []
    assert any(one.what.startswith("accepted: ") and all(why in one.what for why in reasons.values()) for one in answered)


def test_half_an_answer_is_none():
    make, _ = LEAKS["a product of two"]
    (asked,) = errors(findings(make(np.random.default_rng(0)), Answers(accepted={"price": "it's listed"})))
    assert "leak_accepted: {price: 'it''s listed', amount: REASON}" in asked


def test_columns_that_are_left_out_already_stay_in_the_line_to_paste():
    columns = {**LEAKS["a copy"][0](np.random.default_rng(0)), "the id": np.arange(1200.0)}
    (asked,) = errors(findings(columns, Answers(ignored=["the id"])))
    assert 'ignore: ["the id", leak]' in asked


@pytest.mark.parametrize(("rows", "features"), [(40, 20), (80, 40), (400, 40), (60, 300)])
@pytest.mark.parametrize("count", [0, 2, 5])
def test_of_random_columns_none_gives_the_target(rows, features, count):
    draw = np.random.default_rng(rows + count)
    target = classes(np.arange(rows) % count) if count else draw.normal(size=rows)
    columns = {f"x{nr}": draw.normal(size=rows) for nr in range(features)}
    codes = {f"c{nr}": classes(draw.integers(0, 4, rows)) for nr in range(10)}
    assert findings({**columns, **codes, "t": target}) == []


def test_a_leak_in_a_smooth_series_is_found_beside_what_only_grows_with_time():
    draw = np.random.default_rng(0)
    series = np.cumsum(draw.normal(size=1200)) + 0.1 * np.arange(1200)
    honest = {"people": 1e6 + 40 * np.arange(1200.0) ** 1.1, "x": draw.normal(size=1200), "t": series}
    assert errors(findings(honest)) == []
    (asked,) = errors(findings({**honest, "leak": np.log(series - series.min() + 1)}))
    assert pasted(asked) == {"leak"}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "features"), [(20_000, 30), (4_000, 600)])
def test_a_long_and_a_wide_table_are_looked_at_within_seconds(rows, features):
    """Measured as time of the processor, with a wide margin for a loaded machine."""
    draw = np.random.default_rng(0)
    columns = {f"x{nr}": draw.normal(size=rows) for nr in range(features)}
    begun = time.process_time()
    assert findings({**columns, "t": columns["x0"] + draw.normal(size=rows)}) == []
    assert time.process_time() - begun < 10
