"""Tables as people have them: what `init` sees in them, and asks."""

import numpy as np
import pytest

from mltrainer.checkpointing import inference_script
from mltrainer.checkpointing.inference_script import as_seconds
from mltrainer.configs import yaml
from mltrainer.configs.items import DataLimits
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import NO_VALUE, TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.errors import InputError
from mltrainer.project.start import make_project
from mltrainer.tasks import config_inference
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.tables import schema
from mltrainer.tasks.tables.ambiguities import ambiguities, as_key
from tests.benchmarks.bench_traps import answer
from tests.benchmarks.tables.traps import TRAPS, write
from tests.tasks.tables.test_tables import column, inferred, repeated

NUMBERS = [str(i * 37 % 91 / 4) for i in range(60)]


@pytest.fixture
def begun(tmp_path):
    """Begin a project with a table of columns, and return the `data` of its project file."""

    def make(target="t", header=True, **columns):
        lines = [",".join(row) for row in zip(*columns.values(), strict=True)]
        (tmp_path / "d.csv").write_text("\n".join([*([",".join(columns)] if header else []), *lines]) + "\n")
        make_project(tmp_path / "p", None, tmp_path / "d.csv", target)
        return load_project(tmp_path / "p" / "mltrainer.yaml").data

    return make


def gapped(spellings):
    return [spellings[i % len(spellings)] if i % 3 == 0 else cell for i, cell in enumerate(NUMBERS)]


def planned(root):
    """Open a project's task, and refuse what planning refuses."""
    values = {**baseline_template(root), **load_project(root / "mltrainer.yaml").model_dump()}
    opened = open_task(validate_values(TrainingConfig, values, "test"), root)
    errors = [one["what"] for one in opened.facts(DataLimits())["findings"] if one["severity"] == "error"]
    if errors:
        raise InputError("; ".join(errors))
    return opened.task


# --- all of them ---


READ_OTHERWISE = ["constants", "dates", "german", "headless", "lines", "missing", "money", "names", "nulls", "zipped"]


@pytest.mark.slow
@pytest.mark.parametrize("name", READ_OTHERWISE)
def test_a_table_asks_one_question_at_most_and_is_read_alike_for_predictions(tmp_path, name):
    trap, path, root = TRAPS[name], write(name, tmp_path), tmp_path / "project"
    make_project(root, None, path, trap.target)
    if trap.answer:
        with pytest.raises(InputError):
            planned(root)
        answer(root, trap.answer)
    task = planned(root)
    spec = task.inference()
    given = inference_script.to_matrix(inference_script.read_rows(path, spec.get("header", True)), spec)
    every = np.arange(task.size)
    assert np.array_equal(given[task._schema.used_rows], schema.encode(task._schema, task._vocabulary, every), equal_nan=True)


# --- missing in many spellings ---


def test_spellings_of_a_missing_value_are_found_in_numbers_and_written(begun):
    data = begun(n=gapped(["-", "n/a", "unknown", "", "NA"]), t=["a", "b"] * 30)
    assert (data.missing, data.ignore, data.columns) == ([*NO_VALUE, "-", "n/a", "unknown"], [], {})


def test_a_word_that_is_a_category_is_no_gap(begun):
    data = begun(n=gapped(["none"]), m=gapped(["-"]), c=["none", "little", "much"] * 20, t=["a", "b"] * 30)
    assert data.missing == [*NO_VALUE, "-"]


def test_a_class_is_no_gap(begun):
    assert begun(n=NUMBERS, t=["none", "some"] * 30).missing is None


def test_rows_whose_target_is_missing_in_another_spelling_are_left_out(tmp_path, begun):
    assert begun(n=NUMBERS, t=["-" if i % 7 == 0 else cell for i, cell in enumerate(NUMBERS)]).missing == [*NO_VALUE, "-"]
    assert "wrong_cells" not in (tmp_path / "p" / "mltrainer.yaml").read_text()


# --- how cells are read ---


@pytest.mark.parametrize(("cell", "seconds"), [("13:05", 47100), ("1:05:30 pm", 47130), ("1970-02", 31 * 86400), ("25:00", None)])
def test_times_and_months_are_dates(cell, seconds):
    assert as_seconds(cell) == seconds


def test_times_are_no_days_between_which_to_count():
    found = inferred(repeated("d,c,t", lambda i: f"2020-{1 + i % 12:02d}-03,{i % 24:02d}:{i * 7 % 60:02d},{'ab'[i % 2]}", 100))
    assert (found.columns, found.width) == ({"d": "date", "c": "date"}, 8)  # days, year, week; days and hours; no difference


def test_codes_with_zeros_in_front_are_categories_and_ids_among_them_none():
    found = inferred(repeated("zip,nr,t", lambda i: f"{i % 9 * 1001:05d},{i:04d},{'ab'[i % 2]}"))
    assert (found.columns, found.ignored) == ({"zip": "category"}, ["nr"])


def test_of_thousands_and_decimals_that_is_taken_which_reads_more():
    found = inferred(repeated("n,t", lambda i: f'"{i % 3},{i * 37 % 1000:03d}",{"ab"[i % 2]}', 60))
    assert found.columns == {"n": "decimal_comma"}  # 0,850 has no thousands


def test_classes_in_several_spellings_of_yes_are_two():
    found = inferred(repeated("n,t", lambda i: f"{i % 7},{['Yes', 'no', 'YES', 'No'][i % 4]}"))
    assert found.kind == "tabular_classification"
    assert any("'t' holds yes and no in several spellings" in line for line in found.explanation)


DOUBTS = {
    "date": (["01/02/2020", "03/04/2020"], "'01/02/2020' is read as 2020-01-02; where it is 2020-02-01"),
    "formatted": (["$1,234", "$5,678"], "'$1,234' is read as 1234; where it is 1.234"),
    None: ([f"{n} {'kg' if n % 2 else 'lb'}" for n in range(30)], "holds numbers in several units, such as '0 lb' and '1 kg'"),
    "category": (["Rome", "rome", "Oslo"], "'Rome' and 'rome' are two categories"),
}


@pytest.mark.parametrize("kind", DOUBTS)
def test_what_could_be_meant_otherwise_is_told(kind):
    cells, said = DOUBTS[kind]
    assert any(said in doubt for doubt in ambiguities(column(cells), kind))


@pytest.mark.parametrize(("kind", "cells"), [("date", ["01/02/2020", "03/25/2020"]), ("formatted", ["$1,234", "$1,234.50"])])
def test_a_cell_that_proves_the_reading_ends_the_doubt(kind, cells):
    assert ambiguities(column(cells), kind) == []


@pytest.mark.parametrize("name", ["plain_1", "a: b", "no", "1", 'say "hi"', "größe", "x, y", "2020-01-01"])
def test_a_name_in_a_suggestion_can_be_copied_into_the_project_file(name):
    assert yaml.parse(f"split: {{time: {as_key(name)}}}", "p.yaml").value == {"split": {"time": name}}


@pytest.mark.parametrize(
    ("cell", "kind"), [("SKU{:04d}", None), ("A-{:03d}", None), ("EUR {:d}", "formatted"), ("${:d}", "formatted")]
)
def test_a_code_with_zeros_in_front_is_no_amount(cell, kind):
    found = inferred(repeated("c,t", lambda i: f"{cell.format(i % 60)},{i % 60 + 0.5}", 400))
    assert found.columns.get("c") == kind


def test_several_currencies_are_told():
    assert ambiguities(column(["$1.50", "€2.50"]), "formatted") == ["column 'c' mixes $ and €: its numbers are taken as they are"]


# --- targets and columns ---


def test_few_rows_with_most_of_the_variance_ask_for_another_metric():
    found = inferred(repeated("n,t", lambda i: f"{i % 7},{1e6 if i == 3 else i + 0.5}", 200))
    assert found.metric == "mae"
    assert any("2 of 200 rows hold 100% of the variance of 't'" in warning for warning in found.warnings)


def test_a_column_that_training_may_have_no_value_of_is_ignored():
    found = inferred(repeated("e,n,t", lambda i: f"{i if i < 3 else ''},{i % 7},{'ab'[i % 2]}"))
    assert found.ignored == ["e"]
    assert "column 'e' is ignored: it has a value in only 3 of 40 rows" in found.explanation


def test_a_leak_is_told_before_anything_is_planned():
    found = inferred(repeated("n,copy,t", lambda i: f"{i % 7},{'' if i == 5 else i * i % 83 * 1.5},{i * i % 83 + 0.0}", 80))
    assert any("'copy' is the target under another scale" in w and w.endswith("planning stops there") for w in found.warnings)
    assert any("`ignore: [copy]`" in warning for warning in found.warnings)


def test_parts_of_a_sum_are_named_though_one_has_a_gap():
    found = inferred(repeated("a,b,t", lambda i: f"{'' if i == 5 else i % 7},{i * i % 31},{i % 7 + i * i % 31}", 80))
    assert any("'a' and 'b' give the target, as their sum" in warning for warning in found.warnings)


def test_a_table_of_ids_alone_is_refused_with_the_reason_of_each():
    with pytest.raises(InputError, match="'nr': every row has a whole number of its own, an id"):
        inferred(repeated("nr,t", lambda i: f"{i},{'ab'[i % 2]}"))


def test_an_empty_target_is_not_to_be_ignored():
    with pytest.raises(InputError) as refused:
        inferred(repeated("n,t", lambda i: f"{i % 7},"))
    assert refused.value.hint == "predict another column"


def test_a_name_that_repeats_suggests_groups():
    found = inferred(repeated("patient_id,n,t", lambda i: f"{100 + i // 3},{i % 7},{'ab'[i % 2]}", 120))
    assert any("split: {group: patient_id} keeps them in one split" in warning for warning in found.warnings)


# --- no header ---


def test_a_target_named_by_its_place_says_that_there_is_no_header(tmp_path, begun):
    data = begun("column_2", header=False, n=NUMBERS, t=["a", "b"] * 30)
    assert (data.header, data.target) == (False, "column_2")
    rows = inference_script.read_rows(tmp_path / "d.csv", header=False)
    assert (len(rows), rows[0]) == (60, {"column_1": NUMBERS[0], "column_2": "a"})


def test_a_target_that_is_missing_where_names_are_numbers_tells_how_to_name_it(tmp_path):
    (tmp_path / "d.csv").write_text("1.5,2,a\n2.5,3,b\n")
    with pytest.raises(InputError, match="if its first line holds no names, they are column_1 to column_3"):
        config_inference.infer_project({"train": tmp_path / "d.csv"}, "kind")


def test_gaps_are_found_in_a_large_table_too(tmp_path, monkeypatch):
    from mltrainer.tasks.tables import files

    monkeypatch.setattr(files, "FAST_FROM", 0)
    (tmp_path / "d.csv").write_text("n,t\n" + "".join(f"{cell},{'ab'[i % 2]}\n" for i, cell in enumerate(gapped(["-"]))))
    found = config_inference.infer_project({"train": tmp_path / "d.csv"}, "t")
    assert (found.missing, found.rows, np.isfinite(found.width)) == ([*NO_VALUE, "-"], 60, True)
