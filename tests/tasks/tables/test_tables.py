import numpy as np
import pytest

from mltrainer.configs.project import NO_VALUE
from mltrainer.errors import InputError
from mltrainer.tasks import config_inference as inference
from mltrainer.tasks.content import _emptied, without
from mltrainer.tasks.tables import columns, config_inference
from mltrainer.tasks.tables import schema as tables
from mltrainer.tasks.tables.files import read_csv, text_array


def table(text):
    return without(read_csv(text.encode(), "d.csv"), NO_VALUE)


def column(cells):
    return columns.parse_column("c", _emptied(text_array(cells), NO_VALUE))


def inferred(found):
    """What a table with the target `t` asks for."""
    return config_inference.infer_table(found, "t", inference.plain_columns(found))


def repeated(header, row, times=40):
    """A table of many rows made by a function of the row's number."""
    return table(header + "\n" + "\n".join(row(i) for i in range(times)) + "\n")


@pytest.mark.parametrize("marker", ["", "NA", "NaN", "nan", "null", "None", "?", "  "])
def test_each_missing_marker_is_a_missing_number(marker):
    found = column(["1", marker, "2.5"])
    assert (found.kind, found.missing.tolist()) == ("number", [False, True, False])


def test_missing_categories_are_empty():
    found = column(["x", "?", "y"])
    assert (found.kind, found.texts, found.values.tolist()) == ("category", ["x", "y"], [0, -1, 1])


@pytest.mark.parametrize("cell", ["1", "-2.5", "1e-3", "+.5", "inf", "-0", "0.12"])
def test_numbers_are_read_as_numbers(cell):
    assert column([cell]).kind == "number"


@pytest.mark.parametrize("cell", ["1_000", "1,5", "0x1f", "12 kg"])
def test_what_looks_like_a_number_is_none(cell):
    assert column([cell]).kind == "category"


@pytest.mark.parametrize(("junk", "kind"), [(1, "number"), (2, "category")])
def test_a_column_of_90_percent_numbers_is_a_number_column(junk, kind):
    assert column(["1"] * (10 - junk) + ["x"] * junk).kind == kind


def test_junk_in_a_number_column_is_refused_with_line_and_value():
    text = "n,t\n" + "1,a\n" * 10 + "12 kg,a\n" + "1,b\n" * 10
    with pytest.raises(InputError, match=r"d.csv:12: column 'n', 1 cell in line 12: expected numbers, found '12 kg'"):
        tables.schema_of(table(text), "t", [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n,t\n,a\n?,b\n", "column 'n' has no value in any of 2 rows"),
        ("n,t\n1,?\n2,\n", "column 't' has no value in any of 2 rows"),
        ("n,t\n1,a\ninf,b\n", "d.csv:3: column 'n' holds inf"),
        ("n,t\n1,a\n1e300,b\n", "which is not finite as float32"),
        ("t\na\nb\n", "no feature is left beside the target"),
    ],
)
def test_what_nothing_can_be_learned_from_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        tables.schema_of(table(text), "t", [])


def test_ignored_columns_must_exist():
    with pytest.raises(InputError, match="no column 'x'"):
        tables.schema_of(table("n,t\n1,a\n"), "t", ["x"])


def test_numeric_classes_are_ordered_as_numbers():
    schema = tables.schema_of(table("n,t\n1,10\n2,9\n3,10.0\n"), "t", [])
    labels, names = tables.labels_of(schema)
    assert (labels.tolist(), names) == ([1, 0, 1], ["9", "10"])


@pytest.mark.parametrize(
    ("cells", "message"), [(["a", "a"], "one class only: 'a' in all 2 rows"), (["1.5", "2"], "expected a class, found 1.5")]
)
def test_labels_that_are_none_are_refused(cells, message):
    schema = tables.schema_of(table("n,t\n" + "".join(f"1,{cell}\n" for cell in cells)), "t", [])
    with pytest.raises(InputError, match=message):
        tables.labels_of(schema)


def test_text_is_no_quantity():
    schema = tables.schema_of(table("n,t\n1,low\n2,high\n"), "t", [])
    with pytest.raises(InputError, match="expected a number, found 'low'"):
        tables.quantities_of(schema)


def test_vocabularies_come_from_the_training_rows_alone():
    schema = tables.schema_of(table("c,t\nb,1\na,2\n,3\nz,4\n"), "t", [])
    assert tables.vocabularies(schema, np.array([0, 1, 2])) == {"c": ["a", "b"]}


def test_unseen_and_missing_categories_are_minus_one():
    schema = tables.schema_of(table("n,c,t\n1,b,1\n,a,2\n3,,3\n4,z,4\n"), "t", [])
    matrix = tables.encode(schema, {"c": ["a", "b"]}, np.arange(4))
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix, [[1, 1], [np.nan, 0], [3, -1], [4, -1]], equal_nan=True)


# --- inference ---


def test_text_targets_ask_for_classification():
    found = inferred(repeated("n,t", lambda i: f"{i % 7},{'ab'[i % 2]}"))
    assert (found.kind, found.metric) == ("tabular_classification", "accuracy")
    assert "'t' holds text with 2 distinct values" in found.explanation[1]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (lambda i: i % 20, "tabular_classification"),
        (lambda i: i % 21, "tabular_regression"),
        (lambda i: i / 8, "tabular_regression"),
    ],
)
def test_numeric_targets_are_told_apart_by_fractions_and_distinct_values(value, kind):
    assert inferred(repeated("n,t", lambda i: f"{i % 7},{value(i)}", 42)).kind == kind


def test_regression_is_measured_by_r2():
    assert inferred(repeated("n,t", lambda i: f"{i % 7},{i / 8}")).metric == "r2"


def test_imbalance_is_warned_of_and_measured_by_the_rare_classs_average_precision():
    found = inferred(repeated("n,t", lambda i: f"{i % 7},{int(i > 36)}"))
    assert found.metric == "average_precision"
    assert found.warnings[0].startswith("classes are imbalanced: 0 has 37 rows, 1 3")


@pytest.mark.parametrize("row", [lambda i: f"{i + 100}", lambda i: f"u{i}x"])
def test_columns_that_number_the_rows_are_ignored(row):
    found = inferred(repeated("key,n,t", lambda i: f"{row(i)},{i % 7},{'ab'[i % 2]}"))
    assert found.ignored == ["key"]
    assert "column 'key' is ignored" in found.explanation[-1]


def test_whole_numbers_that_only_happen_to_differ_are_kept():
    assert inferred(repeated("area,t", lambda i: f"{i * i + 50},{'ab'[i % 2]}")).ignored == []
    assert inferred(repeated("user_id,n,t", lambda i: f"{i * i},1,{'ab'[i % 2]}")).ignored == ["user_id"]


def test_constant_and_mostly_empty_columns_are_warned_of():
    found = inferred(repeated("same,gaps,t", lambda i: f"1,{i if i % 3 == 0 else ''},{'ab'[i % 2]}"))
    assert found.warnings[1:] == ["column 'same' has one value only", "column 'gaps' is missing in 26 of 40 rows"]


LOOKS = {
    "formatted": lambda i: f'"${i * 37 % 90},{i % 10}00.50"',
    "decimal_comma": lambda i: f'"{i * 37 % 90},{i % 10}"',
    "date": lambda i: f"2020-{1 + i % 12:02d}-{1 + i % 28:02d}",
    "date_day_first": lambda i: f"{1 + i % 28}/{1 + i % 12}/2020",
    "boolean": lambda i: ["Yes", "no", "Y", "NO"][i * i % 4 if i % 3 else 2],
    "text": lambda i: f"the {'good' if i % 2 else 'bad'} number {i * 7} of many words",
    "hashed": lambda i: f"shop{i % 110}",
}


@pytest.mark.parametrize("kind", LOOKS)
def test_what_a_column_holds_is_seen_and_said(kind):
    found = inferred(repeated("c,n,t", lambda i: f"{LOOKS[kind](i)},{i % 7},{'ab'[i % 2]}", 240))
    assert found.columns == {"c": kind}
    assert f"column 'c' is taken for {config_inference.DESCRIBED[kind]}" in found.explanation
    assert found.ignored == []


def test_plain_numbers_and_a_few_categories_need_no_word():
    found = inferred(repeated("c,n,t", lambda i: f"{'xyz'[i % 3]},{i / 7},{'ab'[i % 2]}", 240))
    assert (found.columns, found.ignored, found.has_wrong_cells) == ({}, [], False)


def test_a_wrong_cell_is_told_and_does_not_stop_the_start():
    found = inferred(repeated("n,t", lambda i: f"{'oops' if i == 5 else i % 7},{'ab'[i % 2]}"))
    assert found.has_wrong_cells
    assert any(
        "in column 'n', 1 of 40 cells holds no numbers that can be used (line 7): planning stops there" in warning
        for warning in found.warnings
    )


def test_a_column_without_a_value_is_left_out():
    found = inferred(repeated("e,n,t", lambda i: f",{i % 7},{'ab'[i % 2]}"))
    assert found.ignored == ["e"]
    assert "column 'e' is ignored: it has no value in any of 40 rows" in found.explanation


def test_dates_suggest_a_split_by_time():
    found = inferred(repeated("d,n,t", lambda i: f"{LOOKS['date'](i)},{i % 7},{'ab'[i % 2]}"))
    assert any("split: {time: d}" in warning for warning in found.warnings)


def test_a_project_is_inferred_from_a_file(project):
    found = inference.infer_project({"train": project / "data.csv"}, "sold")
    assert (found.kind, found.ignored) == ("tabular_classification", ["size"])


def test_an_unknown_target_is_refused(project):
    with pytest.raises(InputError, match="did you mean 'sold'"):
        inference.infer_project({"train": project / "data.csv"}, "solt")


def test_image_arrays_ask_for_image_classification(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 5, 5), dtype=np.uint8), y=np.array([0, 1, 0, 1]))
    assert inference.infer_project({"train": tmp_path / "d.npz"}, None).kind == "image_classification"
