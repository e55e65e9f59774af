"""What two runs of a program left, compared file by file, and JSON value by value."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from mltrainer.programs.leftover_files import MOST_VALUES, first_unlike, leftover_files, stamps, written


def left(folder: Path, whole: tuple[str, ...] = (), **files: object) -> dict[str, str]:
    """Write files, JSON but for bytes, and return their compared parts."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return leftover_files(folder, list(files), whole)


def test_files_are_compared_by_digest_and_json_by_its_values_but_for_times(tmp_path):
    one = left(tmp_path, model=b"bits", metrics={"accuracy": 0.5, "fit_seconds": 1.0, "by_class": [0.1, {"f1": 1}]})
    other = left(tmp_path, model=b"bits", metrics={"accuracy": 0.5, "fit_seconds": 7.0, "by_class": [0.1, {"f1": 1}]})
    assert [name for name in one if ": " in name] == ["metrics: accuracy", "metrics: by_class[1]", "metrics: by_class[2].f1"]
    assert one == other


def test_the_first_difference_is_a_value_of_json_with_both_sides_and_the_file_beside_it(tmp_path):
    one = left(tmp_path, metrics={"accuracy": 0.5}, model=b"one")
    other = left(tmp_path, metrics={"accuracy": 0.75}, model=b"other")
    found = first_unlike(one, other)
    assert (found.what, found.expected, found.found) == ("metrics: accuracy, and model", "0.5", "0.75")


def test_a_file_that_differs_though_the_values_agree_is_told_as_such(tmp_path):
    one, other = (left(tmp_path, metrics={"accuracy": 0.5}, model=bits) for bits in (b"one", b"other"))
    found = first_unlike(one, other)
    assert found.what == "model, though the values in JSON agree"
    assert first_unlike(one, one) is None


def test_a_file_that_is_missing_in_one_run_differs(tmp_path):
    found = first_unlike(left(tmp_path / "a", model=b"one"), left(tmp_path / "b"))
    assert (found.what, found.found) == ("model", "not there")


def test_of_lines_of_json_each_is_compared_and_of_an_output_every_byte(tmp_path):
    lines = b'{"loss": 2, "seconds": 1}\n{"loss": 1, "seconds": 2}\n'
    assert left(tmp_path, rows=lines) == {"rows: [1].loss": "2", "rows: [2].loss": "1"}
    assert list(left(tmp_path, ("rows",), rows=lines)) == ["rows"]


@pytest.mark.parametrize("content", [b"no JSON", b"0.5", b"\xff\xfe", b"", b'{"half": '])
def test_what_is_no_mapping_and_no_list_of_json_is_compared_by_its_bytes(tmp_path, content):
    assert list(left(tmp_path, file=content)) == ["file"]


def test_many_values_are_one_digest_still_without_times(tmp_path):
    many = {str(n): n for n in range(MOST_VALUES + 1)}
    one, other = (left(tmp_path, model={**many, "time": time}) for time in (1, 2))
    assert (list(one), one) == (["model"], other)
    assert left(tmp_path, model={**many, "0": 1}) != one


def archive(folder: Path, year: int, **members: str) -> dict[str, str]:
    """Write an archive whose members are of a year, and return its compared parts, as of an output."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "model.keras", "w") as file:
        for name, text in members.items():
            file.writestr(zipfile.ZipInfo(f"{name}.json" if name == "metadata" else name, (year, 1, 1, 0, 0, 0)), text)
    return leftover_files(folder, ["model.keras"], ["model.keras"])


def test_when_an_archive_was_made_is_no_difference_and_what_it_holds_is(tmp_path):
    saved = [json.dumps({"version": v, "date_saved": d, "layer": {"shared_object_id": d}}) for v, d in ((3, 1), (3, 2), (4, 1))]
    one = archive(tmp_path, 2020, metadata=saved[0], weights="0.5")
    assert one == archive(tmp_path, 2021, metadata=saved[1], weights="0.5")
    assert one != archive(tmp_path, 2020, metadata=saved[2], weights="0.5")
    assert one != archive(tmp_path, 2020, metadata=saved[0], weights="0.75")
    undated = archive(tmp_path, 1980, weights="0.5")
    assert undated["model.keras"] == hashlib.sha256((tmp_path / "model.keras").read_bytes()).hexdigest()


def test_only_what_was_written_since_counts_and_no_cache(tmp_path):
    for name in ("kept.csv", "again.json"):
        (tmp_path / name).write_text("old")
    before = stamps(tmp_path)
    (tmp_path / "again.json").write_text("new")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.bin").write_text("new")
    for folder in (tmp_path / "__pycache__", tmp_path / ".git"):
        folder.mkdir()
        (folder / "own").write_text("not the program's")
    assert written(tmp_path, before) == ["again.json", "out/model.bin"]
