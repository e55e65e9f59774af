"""The data of a program, as records hold it."""

from __future__ import annotations

from pathlib import Path

from mltrainer.tools.script.observed import data_of
from mltrainer.wrap.judged import Judged, Read


def test_a_file_of_the_project_that_is_named_by_its_absolute_path_is_found_in_another_clone(tmp_path: Path) -> None:
    inside, outside = str(tmp_path / "mine" / "data" / "a.csv"), str(tmp_path / "b.csv")
    found = Judged((), (Read(inside, 1, "ab"), Read(outside, 2, "cd")), {})
    assert [row["path"] for row in data_of(found, [], tmp_path / "mine")] == [outside, "data/a.csv"]
