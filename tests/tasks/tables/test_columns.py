import json

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltrainer.checkpointing import inference_script as delivered
from mltrainer.configs.project import NO_VALUE
from mltrainer.errors import InputError
from mltrainer.tasks.content import Table, content_sha256, without
from mltrainer.tasks.tables import files, polars_csv
from mltrainer.tasks.tables.columns import Column, parse_column
from mltrainer.tasks.tables.schema import encode, schema_of, vocabularies
from mltrainer.tasks.tables.task import Tabular, _difference
from tests.refusals import refused

CELLS = st.sampled_from(
    [
        "",
        "a",
        "b c",
        "NA",
        "1",
        "-2.5",
        "1e5",
        " 3 ",
        "\x1f4\u3000",
        "inf",
        "x" * 20,
        "ü",
        "1_000",
        "١٢",
        "0x1",
        "+4",
        "1.",
        "?",
        '"q"',
        "x, y",
        "l\nm",
    ]
)


def table_of(**columns: list[str]) -> Table:
    cells = {name: files.text_array(values) for name, values in columns.items()}
    return without(Table(cells, lambda: np.arange(2, 2 + len(next(iter(cells.values())))), "d.csv"), NO_VALUE)


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(mark in cell for mark in '",\n') else cell


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_the_fast_reader_reads_what_the_careful_one_reads(rows, end, header):
    """Cells, digest, line numbers and what each column means are the same, or the fast reader leaves the file alone."""
    lines = ["a,b", *(f"{quoted(a)},{quoted(b)}" for a, b in rows)]
    data = (end.join(lines) + end).encode()
    quick = files._fast_table(data, "d.csv", header)
    slow = files.read_csv(data, "d.csv", header)
    if quick is None:
        return
    assert {name: cells.to_list() for name, cells in quick.columns.items()} == {n: c.tolist() for n, c in slow.columns.items()}
    assert content_sha256(quick) == content_sha256(slow)
    assert quick.rows.tolist() == slow.rows.tolist()
    for name in slow.columns:
        one, other = parse_column(name, quick.columns[name]), parse_column(name, slow.columns[name])
        assert (one.kind, one.texts, one.wrong.tolist()) == (other.kind, other.texts, other.wrong.tolist())
        assert np.array_equal(one.values, other.values, equal_nan=True)


FORMS = {
    "short": "a,b\n1\n",
    "long": "a,b\n1,2,3\n",
    "blank line": "a,b\n\n1,2\n",
    "open quote": 'a,b\n1,"x\n',
    "quote inside": 'a,b\n1,x"y\n',
    "text after a quote": 'a,b\n1,"x"y\n',
    "lone return": "a,b\n1,2\r3,4\n",
    "space before a quote": 'a,b\n1, "x"\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_leaves_a_question_is_left_to_the_careful_reader(form):
    assert polars_csv.frame_of(FORMS[form].encode(), ["a", "b"], ",", True) is None


def test_a_large_file_is_read_fast_and_its_faults_are_told_by_line(monkeypatch):
    monkeypatch.setattr(files, "FAST_FROM", 0)
    assert isinstance(files.read_csv(b"a,b\n1,2\n", "d.csv").columns["a"], polars.Series)
    with pytest.raises(InputError, match=r"d.csv:3: 1 of 2 rows: expected the header's 2 cells, found line 3 has 1"):
        files.read_csv(b"a,b\n1,2\n3\n", "d.csv")
    table = files.read_csv(b"n,t\n" + b"1,a\n" * 20 + b"12 kg,a\n", "d.csv")
    with pytest.raises(InputError, match=r"d.csv:22: column 'n', 1 cell in line 22: expected numbers, found '12 kg'"):
        schema_of(table, "t", [])


KINDS = {
    "formatted": {"1,234.5": 1234.5, "$1,200": 1200, "12%": 0.12, "(30)": -30, "-5": -5, "€ 3.5": 3.5, "1 234": 1234, "": np.nan},
    "decimal_comma": {"1.234,5": 1234.5, "3,5": 3.5, "-0,25 €": -0.25, "7": 7, "": np.nan},
    "boolean": {"Yes": 1, "no": 0, "TRUE": 1, "f": 0, "": np.nan, "y": 1},
    "date": {
        "2020-01-02": 1577923200,
        "1970-01-01 12:00": 43200,
        "3.4.2020": 1585872000,
        "3/4/2020": 1583280000,
        "Jan 2, 2020": 1577923200,
        "2 January 2020": 1577923200,
        "": np.nan,
        "2020-01-02T00:00:00+01:00": 1577919600,
    },
    "date_day_first": {"3/4/2020": 1585872000, "13/4/2020": 1586736000},
}
WRONG = [("formatted", "1,5"), ("formatted", "$"), ("decimal_comma", "1,234,5"), ("boolean", "maybe"), ("date", "2020-02-30")]


@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_read_as_their_kind_says(kind):
    found = parse_column("c", files.text_array(list(KINDS[kind])), kind)
    assert np.allclose(found.values, list(KINDS[kind].values()), equal_nan=True)
    assert not len(found.wrong)


@pytest.mark.parametrize(("kind", "cell"), WRONG)
def test_a_cell_that_is_not_of_its_kind_is_wrong(kind, cell):
    good = next(iter(KINDS[kind]))
    assert parse_column("c", files.text_array([good, cell]), kind).wrong.tolist() == [1]


def test_the_delivered_model_counts_the_words_of_a_long_text_as_training_does():
    texts = ["the " * 300 + "end", ""]
    given = {"columns": [{"name": "c", "kind": "text"}]}
    matrix = delivered.to_matrix([{"c": text} for text in texts], given)
    column = parse_column("c", files.text_array(texts), "text")
    assert matrix.max() == 255
    assert column.lookup is not None
    assert (column.lookup[column.values] == matrix).all()


@pytest.mark.parametrize("kind", ["number", "date", "text", "category"])
def test_polars_and_plain_text_give_the_same_column(kind):
    cells = ["2020-01-02", "5", "", "some words here", "5", "NaN"]
    one, other = parse_column("c", files.text_array(cells), kind), parse_column("c", polars.Series(cells), kind)
    assert np.array_equal(one.values, other.values, equal_nan=True)
    assert (one.texts, one.wrong.tolist()) == (other.texts, other.wrong.tolist())


def test_the_delivered_script_makes_the_matrix_of_the_training():
    """Each kind, with missing and unseen values: the script reads raw cells into the very matrix that a model was trained on."""
    table = table_of(
        plain=["1", "2.5", "", "4"],
        price=["$1,000", "5%", "?", "7"],
        comma=["1,5", "2", "3.000,25", ""],
        ok=["yes", "No", "", "y"],
        colour=["red", "blue", "", "green"],
        shop=["a", "b", "c", ""],
        day=["2020-01-02", "2021-06-05 10:30", "", "2020-03-09"],
        left=["2020-01-05", "2021-07-05", "2021-01-01", ""],
        notes=["Good food, good price", "", "bad Food", "x y z"],
        t=["1", "2", "3", "4"],
    )
    kinds = {
        "price": "formatted",
        "comma": "decimal_comma",
        "ok": "boolean",
        "shop": "hashed",
        "day": "date",
        "left": "date",
        "notes": "text",
    }
    schema = schema_of(table, "t", [], kinds)
    vocabulary = vocabularies(schema, np.array([0, 1, 2]))
    matrix = encode(schema, vocabulary, np.arange(4))
    columns = [Tabular._column(_with(vocabulary), column) for column in schema.features]
    spec = {"columns": [*columns, *map(_difference, schema.differences)], "missing": list(delivered.MISSING)}
    rows = [{name: str(table.columns[name][nr]) for name in table.columns if name != "t"} for nr in range(4)]
    assert np.array_equal(delivered.to_matrix(rows, json.loads(json.dumps(spec))), matrix, equal_nan=True)
    assert matrix.shape == (4, 6 + 7 + 5 + 64 + 1)


def _with(vocabulary):
    class Fitted:
        _vocabulary = vocabulary
        _train = np.array([0, 1, 2])

    return Fitted()


def test_a_date_becomes_what_varies_in_it():
    days = parse_column("d", files.text_array(["2020-01-02", "2020-01-02", "2020-01-02"]), "date")
    assert days.parts == ("days",)
    hours = parse_column("d", files.text_array(["2020-01-02 01:00", "2020-01-02 13:00"]), "date")
    assert hours.parts == ("days", "day_sin", "day_cos")
    assert np.allclose(hours.block(np.arange(2))[:, 1], np.sin(2 * np.pi * np.array([1, 13]) / 24), atol=1e-6)


def test_rows_without_a_target_are_left_out_on_the_record():
    schema = schema_of(table_of(n=["1", "2", "3", "4"], t=["a", "", "b", "NA"]), "t", [])
    assert schema.used_rows.tolist() == [0, 2]
    assert schema.notes == ["2 of 4 rows have no target and are left out: lines 3, 5"]
    assert schema.features[0].values.tolist() == [1, 3]


@pytest.mark.parametrize(("wrong", "values"), [("missing", [1.0] * 20 + [np.nan, 3.0]), ("drop", [1.0] * 20 + [3.0])])
def test_a_wrong_cell_is_a_choice(wrong, values):
    table = table_of(n=["1"] * 20 + ["12 kg", "3"], t=["a", "b"] * 11)
    with refused(hint="data: {wrong_cells: missing}"):
        schema_of(table, "t", [])
    schema = schema_of(table, "t", [], wrong=wrong)
    assert np.array_equal(schema.features[0].values, values, equal_nan=True)
    assert schema.wrong == ["in column 'n', 1 of 22 cells holds no numbers that can be used (line 22)"]


def test_an_infinite_number_is_a_choice_too():
    table = table_of(n=["1", "inf", "3"], t=["a", "b", "a"])
    assert np.isnan(schema_of(table, "t", [], wrong="missing").features[0].values[1])


def test_a_file_without_a_header_has_numbered_columns():
    table = files.read_csv(b"1,2\n3,4\n", "d.csv", header=False)
    assert list(table.columns) == ["column_1", "column_2"]
    assert len(table) == 2
    assert table.rows.tolist() == [1, 2]


def test_numbers_named_as_categories_are_their_texts():
    found = parse_column("zip", np.array([10115.0, np.nan, 2.5]), "category")
    assert (found.texts, found.values.tolist()) == (["10115", "2.5"], [0, -1, 1])
    assert isinstance(found, Column)
