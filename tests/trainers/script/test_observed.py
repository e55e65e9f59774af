"""The data of a program, as records hold it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.observe.inputs import Read
from mltrainer.programs.subject import Subject
from mltrainer.trainers.script.observed import data_of


def test_a_file_of_the_project_that_is_named_by_its_absolute_path_is_found_in_another_clone(tmp_path):
    inside, outside = str(tmp_path / "mine" / "data" / "a.csv"), str(tmp_path / "b.csv")
    found = Subject((), (Read(inside, 1, "ab"), Read(outside, 2, "cd")), {})
    assert [row.path for row in data_of(found, [], tmp_path / "mine")] == [outside, "data/a.csv"]


@pytest.mark.parametrize(
    ("path", "is_data"),
    [
        *[(path, True) for path in ("/data/a.csv", "/library/a.csv", "/opt/data/a.csv", "/var/tmp/a.csv", "/opt/other/a.csv")],
        *[
            (path, False)
            for path in ("/usr/share/zoneinfo/UTC", "/lib/os-release", "/var/lib/dpkg/status", "/opt/env/ssl/cert.pem")
        ],
    ],
)
def test_what_lies_outside_is_data_but_for_files_of_the_machine_and_of_python(tmp_path, path, is_data):
    found = Subject((), (Read(path, 1, "ab"),), {}, "/opt/env")
    assert [row.path for row in data_of(found, [], tmp_path)] == [path] * is_data


def test_a_file_of_the_project_is_data_wherever_the_project_lies():
    root = Path("/var/lib/builds/mine")
    found = Subject((), (Read(str(root / "a.csv"), 1, "ab"), Read("/var/lib/other", 1, "cd")), {}, "/var/lib/builds")
    assert [row.path for row in data_of(found, [], root)] == ["a.csv"]
