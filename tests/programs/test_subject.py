"""What a verdict is about."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from mltrainer.observe import inputs as module
from mltrainer.observe.disturbances import Perturbations
from mltrainer.observe.inputs import Read
from mltrainer.observe.logs import rows_of
from mltrainer.observe.process import Settings
from mltrainer.programs.starting import WrappedProgram, start
from mltrainer.programs.subject import Subject, subject_of


def noted(tmp_path: Path, *rows: list[Any]) -> Subject:
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "files-a-1.jsonl").write_text("".join(json.dumps([n, *row]) + "\n" for n, row in enumerate(rows)))
    return subject_of(lines, tmp_path / "work")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("import torch")
    (folder / "data.csv").write_text("1,2")
    return folder


def test_code_and_data_are_named_by_digest(tmp_path, work):
    outside = tmp_path / "outside.npy"
    outside.write_bytes(b"3")
    about = {"python": "3.11", "torch": "2.13"}
    paths = [work / "train.py", work / "data.csv", outside]
    found = noted(tmp_path, *(["read", str(path)] for path in paths), ["about", about])
    assert found.code == (Read("train.py", 12, hashlib.sha256(b"import torch").hexdigest()),)
    assert [row.path for row in found.data] == [str(outside), "data.csv"]
    assert found.about == about


def test_of_a_program_without_torch_the_first_interpreter_is_known(tmp_path, work):
    python = [["python", "/env", "/env/bin/python", "3.11.7"], ["python", "/other", "/other/bin/python", "3.9.1"]]
    found = noted(tmp_path, *python)
    assert (found.about, found.prefix, found.interpreter) == ({"python": "3.11.7"}, "/env", "/env/bin/python")
    shutil.rmtree(tmp_path / "lines")
    about = noted(tmp_path, *python, ["prefix", "/torch"], ["about", {"torch": "2.13"}])
    assert (about.about, about.prefix) == ({"torch": "2.13"}, "/torch")


def test_another_byte_is_another_digest(tmp_path, work):
    first = noted(tmp_path, ["read", str(work / "data.csv")])
    (work / "data.csv").write_text("1,3")
    second = subject_of(tmp_path / "lines", work)
    assert first.data_sha256 != second.data_sha256
    assert first.code_sha256 == second.code_sha256


def test_what_the_program_wrote_itself_and_what_is_gone_are_left_out(tmp_path, work):
    (work / "saved.pt").write_text("weights")
    rows = [["written", str(work / "saved.pt")], ["read", str(work / "saved.pt")], ["read", str(work / "gone.csv")]]
    assert noted(tmp_path, *rows) == Subject((), (), {})


def test_what_was_read_before_it_was_written_is_told_as_it_was_found(tmp_path, work):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.csv").write_text("as it was")
    for ways in (["read", "written"], ["changed"], ["appended", "read"]):
        shutil.rmtree(tmp_path / "lines", ignore_errors=True)
        noted(tmp_path, *([way, str(work / "data.csv")] for way in ways))
        [row] = subject_of(tmp_path / "lines", work, tmp_path / "mine").data
        assert row == ("data.csv", 9, hashlib.sha256(b"as it was").hexdigest())


def test_a_file_elsewhere_that_is_opened_to_be_changed_in_place_is_read(tmp_path, work):
    outside = tmp_path / "samples.bin"
    outside.write_bytes(b"3")
    assert [row.path for row in noted(tmp_path, ["changed", str(outside)]).data] == [str(outside)]


def test_compiled_code_stands_for_its_source(tmp_path, work):
    found = noted(tmp_path, ["read", importlib.util.cache_from_source(str(work / "train.py"))])
    assert [row.path for row in found.code] == ["train.py"]


def test_a_huge_file_is_named_without_a_digest(tmp_path, work, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 2)
    assert noted(tmp_path, ["read", str(work / "data.csv")]).data == (Read("data.csv", 3, None),)


def test_each_way_of_opening_a_file_is_told(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    modes = {"r": "read", "r+": "changed", "w": "written", "w+": "written", "a": "appended", "a+": "appended"}
    for place in range(len(modes)):
        (folder / f"{place}.bin").touch()
    (folder / "program.py").write_text(f"for place, mode in enumerate({list(modes)}): open(f'{{place}}.bin', mode).close()")
    ended = start(
        WrappedProgram((sys.executable, "program.py"), folder), tmp_path / "scratch", Perturbations(), Settings(files=True)
    )
    [rows] = rows_of(ended.lines, "files").values()
    assert [row[1] for row in rows if row[2].endswith(".bin")] == list(modes.values())
