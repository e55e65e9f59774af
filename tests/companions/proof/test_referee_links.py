"""Links and texts of a project that a referee judges: none leads to a file of the referee's, and none writes on a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mltrainer.companions.proof.referee.closing import closed_tools, empty_state, moved, remove_links
from mltrainer.companions.proof.referee.copying import _copied, refuse_links
from mltrainer.errors import GateError, InputError
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


# --- what the author's code left -----------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.runs_dir.mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/log.txt").write_text("mine")
    return made


def plant(project: Project) -> None:
    """Leave what leads out of a state folder, or would stop whoever reads it, beside a file that may stay."""
    state, mine = project.state_dir, project.root.parent / "mine"
    (state / "held").symlink_to(mine)
    (state / "scores/deep").mkdir(parents=True)
    (state / "scores/deep/log.txt").symlink_to(mine / "log.txt")
    os.mkfifo(state / "scores/result.json")
    (state / "scores/deep/chain.txt").write_text("a")
    (state / "scores/deep").chmod(0o300)


LEFT = ["runs", "scores", "scores/deep", "scores/deep/chain.txt"]


def left(project: Project) -> list[str]:
    return sorted(str(path.relative_to(project.state_dir)) for path in project.state_dir.rglob("*") if path.name != ".gitignore")


def test_only_regular_files_are_left_of_what_the_authors_code_wrote(project):
    plant(project)
    remove_links(project.state_dir)
    assert left(project) == LEFT
    assert (project.root.parent / "mine/log.txt").read_text() == "mine"


@pytest.mark.parametrize("fails", [False, True])
def test_the_links_of_a_process_are_gone_before_anything_else_opens_a_file(project, monkeypatch, fails):
    def launch(project: Project, *_: object, **__: object) -> None:
        plant(project)
        if fails:
            raise InputError("failed")

    monkeypatch.setattr("mltrainer.runs.launcher.launch", launch)
    with closed_tools(project, lambda _: None, [], is_closed=False) as tools:
        try:
            tools.launch(project, "any", None, tools.tell)
        except InputError:
            assert fails
        assert left(project) == LEFT


def test_a_checkpoint_is_taken_from_the_run_alone_to_where_no_code_writes(project, tmp_path):
    for path in (
        "../mine",
        str(tmp_path / "mine"),
        ".mltrainer/runs",
        ".mltrainer/runs/a/../../../../mine",
        ".mltrainer/runs/no",
    ):
        with pytest.raises(GateError, match="a checkpoint that it does not have"):
            moved(project, path, tmp_path / "trained")
    (project.runs_dir / "a/checkpoints/step_0000000008").mkdir(parents=True)
    place = moved(project, ".mltrainer/runs/a/checkpoints/step_0000000008", tmp_path / "trained")
    assert (place, place.is_dir()) == (tmp_path / "trained/step_0000000008", True)
    (project.state_dir / "tables").mkdir()
    empty_state(project)
    assert [path.name for path in project.state_dir.iterdir()] == [".gitignore"]
