"""Links and texts of a project that a referee judges: none leads to a file of the referee's, and none writes on a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mltrainer.companions.proof.referee.copying import _copied, refuse_links
from mltrainer.errors import InputError
from mltrainer.workspace import Project


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "copy/project"
    (root / "phases/05_finalization").mkdir(parents=True)
    (root / "kept").mkdir()
    (tmp_path / "mine").mkdir()
    return tmp_path / "copy"


def refuse(copy: Path) -> None:
    refuse_links(copy, Project(copy / "project"))


@pytest.mark.parametrize("target", ["{}/mine", "../../mine", "../../nothing", "first"])
def test_a_committed_link_that_leads_out_of_the_copy_is_refused_by_name(copy, target):
    (copy / "project/first").symlink_to(copy.parent / "mine")
    os.symlink(target.format(copy.parent), copy / "project/tools")
    with pytest.raises(InputError, match=r"leads out of the copy: .* -> "):
        refuse(copy)


def test_a_link_within_the_copy_is_no_fault(copy):
    (copy / "project/tools").symlink_to("kept")
    refuse(copy)


@pytest.mark.parametrize("name", ["phases/05_finalization", "phases"])
def test_records_that_are_links_to_a_path_that_is_not_hidden_are_refused(copy, name):
    path = copy / "project" / name
    path.rename(copy / "project/kept/moved")
    path.symlink_to(copy / "project/kept/moved")
    with pytest.raises(InputError, match="records must not be links"):
        refuse(copy)


def test_no_path_leads_the_data_out_of_the_copy(copy):
    (copy / "given.csv").write_text("a\n1\n")
    (copy / "project/data").symlink_to(copy.parent / "mine")
    for place in (copy.parent / "mine/a.csv", copy / "project/data/a.csv", copy / "project/data"):
        with pytest.raises(InputError, match="leads out of the copy"):
            _copied(copy / "given.csv", place, copy)
    assert list((copy.parent / "mine").iterdir()) == []
