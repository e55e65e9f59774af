"""Files of every form are read, or refused with the way on."""

from pathlib import Path

import numpy as np
import polars
import pytest

from mltrainer.checkpointing.inference_script import read_table
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Data, TrainingConfig, load_project
from mltrainer.errors import InputError
from mltrainer.project import start
from mltrainer.project.start import make_project
from mltrainer.tasks.config_inference import Reading, infer_project, place_in_file
from mltrainer.tasks.images.image_folders import fault_of
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.sources import read_source
from mltrainer.tasks.tables import files

ROWS = [f"{n % 17},{n * n % 23},{'ab'[n * n % 7 % 2]}" for n in range(60)]
TEXT = "\n".join(["x,z,y", *ROWS]) + "\n"


def read(path: Path, data: bytes) -> list[object]:
    path.write_bytes(data)
    found = infer_project({"train": path}, "y")
    return [found.kind, found.rows]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "t.dat"])
def test_a_table_of_any_name_and_encoding_is_read(tmp_path, encoding, name):
    assert read(tmp_path / name, TEXT.encode(encoding)) == ["tabular_classification", 60]


@pytest.mark.parametrize("name", ["t.txt", "t.tab", "t.psv", "t.data"])
def test_a_delimited_file_of_another_name_is_a_table(tmp_path, name):
    assert read(tmp_path / name, TEXT.replace(",", "|").encode()) == ["tabular_classification", 60]


def test_a_text_without_a_target_is_no_table(tmp_path):
    (tmp_path / "t.txt").write_text(TEXT)
    assert infer_project({"train": tmp_path / "t.txt"}, None).kind == "text_generation"


def test_a_target_of_a_folder_of_texts_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    with pytest.raises(InputError, match="--target y names the column to predict, and this is a folder of texts"):
        infer_project({"train": tmp_path}, "y")


def test_a_target_of_arrays_is_refused_and_not_needed(tmp_path):
    data = tmp_path / "d.npz"
    np.savez(data, x=np.random.default_rng(0).random((60, 3)), y=np.arange(60) % 2)
    with pytest.raises(InputError, match="--target price names the column to predict, and this is arrays, whose target is y"):
        make_project(tmp_path / "p", None, data, "price")
    make_project(tmp_path / "p", None, data, None)
    assert load_project(tmp_path / "p" / "mltrainer.yaml").task.kind == "tabular_classification"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_text_whose_bytes_are_not_those_of_utf_8_is_refused_with_the_command_that_saves_it_anew(tmp_path, encoding):
    (tmp_path / "t.txt").write_bytes(("Call me Ishmael. " * 90).encode(encoding))
    with pytest.raises(InputError, match=f"expected a text in UTF-8, found {encoding.upper()}") as refused:
        make_project(tmp_path / "p", None, tmp_path / "t.txt", None)
    assert refused.value.hint == f"save it as UTF-8: iconv -f {encoding} -t utf-8 t.txt > NEW.txt"


@pytest.mark.parametrize(("rows", "points"), [(7, "100"), (20, "25"), (49, "10"), (50, None)])
def test_of_a_table_of_few_rows_init_and_planning_say_what_they_can_show(tmp_path, rows, points):
    (tmp_path / "t.csv").write_text("\n".join(["x,z,y", *ROWS[:rows]]))
    told = make_project(tmp_path / "p", None, tmp_path / "t.csv", "y")
    config = TrainingConfig.model_validate({**load_project(tmp_path / "p/mltrainer.yaml").model_dump(), "batch_size": 2})
    planned = [one["what"] for one in open_task(config, tmp_path / "p").facts(DataLimits())["findings"]]
    for lines in (told, planned):
        said = [line.removeprefix("warning: ") for line in lines if "rows are few" in line]
        assert [line.partition(" points")[0].rpartition(" ")[2] for line in said] == ([points] if points else [])


def test_the_tables_of_a_folder_are_one_table(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(TEXT)
    found = infer_project({"train": tmp_path}, "y")
    assert (found.kind, found.rows) == ("tabular_classification", 120)


def test_tables_of_a_folder_with_other_headers_are_named(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "b.csv").write_text(TEXT.replace("z,y", "other,y"))
    with pytest.raises(InputError, match=r"no column 'z', which .*a.csv has"):
        infer_project({"train": tmp_path}, "y")


@pytest.mark.parametrize(
    ("above", "count"),
    [
        ("My export\n", 1),
        ("My export\nof July, at noon\n\n", 3),
        ("# by X\n# a, b\n", 2),
        ("sep=,\n", 1),
        ('"My, title",,\n\n', 2),
        ("", 0),
        ("\n", 0),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_lines_above_the_header_are_left_out_and_stand_in_the_config(tmp_path, above, count, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes((above.replace("of", "\xfcber") + TEXT).encode(encoding))
    found = infer_project({"train": path}, "y")
    assert (found.rows, found.reading.get("skip_lines", 0)) == (60, count)
    table = read_source(Data(source="t.csv", target="y", skip_lines=count), tmp_path).content
    assert (list(table.columns), table.where(0)) == (["x", "z", "y"], f"t.csv:{above.count(chr(10)) + 2}")
    assert len(read_table(path, {"skip_lines": count})) == 60


@pytest.mark.parametrize("header", ["x,z,y", "x,1990,1991", "x;z;y"])
def test_a_first_line_of_names_is_no_title(tmp_path, header):
    """Nor where decimal commas would part the rows below it."""
    rows = [f"a{n},{n},{n % 3}" if "," in header else f"a{n};{n},5;{n % 3},5" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]))
    assert place_in_file(tmp_path / "t.csv") == {"skip_lines": 0}


def test_the_names_of_a_wide_table_may_be_years(tmp_path):
    (tmp_path / "t.csv").write_text("Source,Bank,,,\n\nCountry,1960,1961,1962,1963\n" + "A,1,2,3,4\n" * 9)
    assert place_in_file(tmp_path / "t.csv") == {"skip_lines": 2}


@pytest.mark.parametrize("least", [1, 1 << 20])
def test_both_readers_skip_the_same_lines_and_count_them(tmp_path, monkeypatch, least):
    monkeypatch.setattr(files, "FAST_FROM", least)
    (tmp_path / "t.csv").write_text("a\nb\n" + TEXT)
    table = read_source(Data(source="t.csv", target="y", skip_lines=2), tmp_path).content
    assert (len(table), table.where(3)) == (60, "t.csv:7")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "A, b\nd\n1,a\n" + TEXT.partition("\n")[2],
            "where a title is above line 4: --skip-lines 3 at init, or data: {skip_lines: 3}",
        ),
        (TEXT + "Total: 60\n", "where these are no rows: head -n 61 t.csv is the file without them"),
        (
            TEXT.removeprefix("x,"),
            "where the header has a name too few, write it, such as that of the row names; where it is a title: --skip-lines 1",
        ),
        (TEXT.replace("1,1,", "1,1,1,", 1), "fix these rows; a cell that holds the delimiter must be quoted"),
        ("x\n", "skip fewer lines"),
    ],
)
def test_lines_that_fit_no_header_are_told_with_what_to_do(tmp_path, text, hint):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError) as refused:
        infer_project({"train": tmp_path / "t.csv"}, "y", Reading(skip_lines=2 if text == "x\n" else None))
    assert refused.value.hint == hint


def test_lists_in_parquet_columns_are_named_and_left_out(tmp_path):
    nested = {"emb": polars.Series([[1.0, 2.0]] * 60), "place": polars.Series([{"p": 1}] * 60)}
    polars.read_csv(TEXT.encode()).with_columns(**nested).write_parquet(tmp_path / "t.parquet")
    found = infer_project({"train": tmp_path / "t.parquet"}, "y")
    said = [line.partition(", and")[0] for line in found.explanation if "is left out: write its parts" in line]
    assert said == ["column 'emb' holds list(float64)", "column 'place' holds struct({'p': int64})"]


def test_a_column_that_is_ignored_at_init_is_no_feature(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "start_repository", lambda folder, written: "no git")
    (tmp_path / "t.csv").write_text(TEXT)
    make_project(tmp_path / "p", None, tmp_path / "t.csv", "y", ignore=["z"])
    assert load_project(tmp_path / "p" / "mltrainer.yaml").data.ignore == ["z"]
    with pytest.raises(InputError, match="there is no column 'zz' in "):
        make_project(tmp_path / "q", None, tmp_path / "t.csv", "y", ignore=["zz"])


def test_a_damaged_picture_is_told_without_an_object_in_memory():
    error = OSError("cannot identify image file <_io.BytesIO object at 0x7f10>")
    assert fault_of(error) == "OSError: cannot identify image file"
