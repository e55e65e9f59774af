"""The project's folder under another name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mltrainer.errors import MachineError
from mltrainer.observe.renamed_folder import NAME, linked

BEGIN = """
import os, sys
from pathlib import Path
from mltrainer.observe import renamed_folder
renamed_folder.begin(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(
    "asked",
    [
        "os.getcwd()",
        "Path.cwd()",
        "os.path.abspath('.')",
        "Path('.').absolute()",
        "Path('.').resolve()",
        "os.path.realpath('.')",
        "os.environ['PWD']",
        "Path(os.fsdecode(os.path.realpath(b'.')))",
        "Path(sys.argv[2]).resolve()",
    ],
)
def test_each_way_to_ask_for_the_folder_gives_the_other_name(tmp_path, asked):
    with linked(tmp_path) as link:
        command = [sys.executable, "-c", f"{BEGIN}\nprint({asked})", str(link), str(tmp_path)]
        done = subprocess.run(command, cwd=link, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(link)
    assert link.name == NAME


def test_its_files_are_the_same_and_the_link_goes_without_them(tmp_path):
    (tmp_path / "data.txt").write_text("mine")
    with linked(tmp_path) as link:
        assert os.path.samefile(link / "data.txt", tmp_path / "data.txt")
        place = link.parent
    assert not place.exists()
    assert (tmp_path / "data.txt").read_text() == "mine"


def test_an_error_names_the_folder_itself(tmp_path):
    with pytest.raises(MachineError) as raised, linked(tmp_path) as link:
        raise MachineError(f"{link}/data is full", where=f"{link}/data", hint=f"free {link}")
    assert str(raised.value) == f"{tmp_path}/data: {tmp_path}/data is full\n  next: free {tmp_path}"


def test_a_path_elsewhere_keeps_its_name(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project-beside").mkdir()
    with linked(tmp_path / "project") as link:
        command = [
            sys.executable,
            "-c",
            f"{BEGIN}\nprint(os.path.realpath(sys.argv[2]))",
            str(link),
            str(tmp_path / "project-beside"),
        ]
        done = subprocess.run(command, cwd=link, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == os.path.realpath(tmp_path / "project-beside")
