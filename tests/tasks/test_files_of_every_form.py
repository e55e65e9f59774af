"""Files of every form are read, or refused with the way on."""

from pathlib import Path

import polars
import pytest

from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.project import start
from mltrainer.project.start import make_project
from mltrainer.tasks.config_inference import infer_project
from mltrainer.tasks.images.image_folders import fault_of

ROWS = [f"{n % 17},{n * n % 23},{'ab'[n * n % 7 % 2]}" for n in range(60)]
TEXT = "\n".join(["x,z,y", *ROWS]) + "\n"


def read(path: Path, data: bytes) -> list[object]:
    path.write_bytes(data)
    found = infer_project({"train": path}, "y")
    return [found.kind, found.rows]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "t.dat"])
def test_a_table_of_any_name_and_encoding_is_read(tmp_path: Path, encoding: str, name: str) -> None:
    assert read(tmp_path / name, TEXT.encode(encoding)) == ["tabular_classification", 60]


@pytest.mark.parametrize("name", ["t.txt", "t.tab", "t.psv", "t.data"])
def test_a_delimited_file_of_another_name_is_a_table(tmp_path: Path, name: str) -> None:
    assert read(tmp_path / name, TEXT.replace(",", "|").encode()) == ["tabular_classification", 60]


def test_a_text_without_a_target_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(TEXT)
    assert infer_project({"train": tmp_path / "t.txt"}, None).kind == "text_generation"


def test_a_target_of_a_folder_of_texts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    with pytest.raises(InputError, match="--target y names a column, and this is a folder of texts"):
        infer_project({"train": tmp_path}, "y")


def test_the_tables_of_a_folder_are_one_table(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(TEXT)
    found = infer_project({"train": tmp_path}, "y")
    assert (found.kind, found.rows) == ("tabular_classification", 120)


def test_tables_of_a_folder_with_other_headers_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "b.csv").write_text(TEXT.replace("z,y", "other,y"))
    with pytest.raises(InputError, match=r"no column 'z', which .*a.csv has"):
        infer_project({"train": tmp_path}, "y")


@pytest.mark.parametrize(("above", "line"), [("My export\n", 2), ("My export\nof July, at noon\n\n", 4), ("# by X\n# more\n", 3)])
def test_title_lines_are_named_with_the_command_that_cuts_them_off(tmp_path: Path, above: str, line: int) -> None:
    with pytest.raises(InputError, match=f"the header seems to be line {line}, of 3 cells") as refused:
        read(tmp_path / "t.csv", (above + TEXT).encode())
    assert refused.value.mend == f"tail -n +{line} t.csv > t_table.csv, and give t_table.csv"


def test_lists_in_parquet_columns_are_named_and_left_out(tmp_path: Path) -> None:
    nested = {"emb": polars.Series([[1.0, 2.0]] * 60), "place": polars.Series([{"p": 1}] * 60)}
    polars.read_csv(TEXT.encode()).with_columns(**nested).write_parquet(tmp_path / "t.parquet")
    found = infer_project({"train": tmp_path / "t.parquet"}, "y")
    said = [line.partition(", and")[0] for line in found.explanation if "is left out: write its parts" in line]
    assert said == ["column 'emb' holds list(float64)", "column 'place' holds struct({'p': int64})"]


def test_a_column_that_is_ignored_at_init_is_no_feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "start_repository", lambda folder, written: "no git")
    (tmp_path / "t.csv").write_text(TEXT)
    make_project(tmp_path / "p", None, tmp_path / "t.csv", "y", ignore=["z"])
    assert load_project(tmp_path / "p" / "mltrainer.yaml").data.ignore == ["z"]
    with pytest.raises(InputError, match="has no column 'zz'"):
        make_project(tmp_path / "q", None, tmp_path / "t.csv", "y", ignore=["zz"])


def test_a_damaged_picture_is_told_without_an_object_in_memory() -> None:
    error = OSError("cannot identify image file <_io.BytesIO object at 0x7f10>")
    assert fault_of(error) == "OSError: cannot identify image file"
