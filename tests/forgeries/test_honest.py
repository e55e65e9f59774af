"""No honest project is refused: as it was finished, as others get it, and after what people do to a project."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mltrainer.project.engine import waive
from mltrainer.project.syncing import pull, push
from mltrainer.records.tried import TRIED_FILE, Begun, appended, read
from mltrainer.workspace import Project
from tests.companions.proof.test_audit import KEEPS, _forked, _in_two_processes, _stopped_and_gone_on
from tests.conftest import commit, git, succeed
from tests.gates.test_recomputed import put_ledger, second
from tests.projects import as_cloned, kept, write_rings

pytestmark = pytest.mark.slow
Change = Callable[[Project, Path], Project]


def cloned(project: Project, away: Path, *options: str) -> Project:
    commit(project.root)
    git(away, "clone", "--quiet", *options, project.root.as_uri(), "clone")
    return Project(away / "clone")


def begin(project: Project, *runs: str) -> None:
    lines = appended(read(project), [Begun("baseline", run) for run in runs], "2026-11-01T00:00:00Z")
    (project.root / TRIED_FILE).write_text("".join(f"{line.text}\n" for line in lines))


def as_finished(project: Project, away: Path) -> Project:
    return project


def committed(project: Project, away: Path) -> Project:
    commit(project.root)
    return project


def a_clone(project: Project, away: Path) -> Project:
    return cloned(project, away)


def a_shallow_clone(project: Project, away: Path) -> Project:
    return cloned(project, away, "--depth=1")


def a_clone_with_other_line_ends(project: Project, away: Path) -> Project:
    return cloned(project, away, "-c", "core.autocrlf=true")


def a_copy_without_git(project: Project, away: Path) -> Project:
    return as_cloned(project.root, away / "copy")


def moved(project: Project, away: Path) -> Project:
    return Project(Path(shutil.move(project.root, away / "another name")))


def runs_removed(project: Project, away: Path) -> Project:
    shutil.rmtree(project.runs_dir)
    return project


def a_comment_added(project: Project, away: Path) -> Project:
    path = project.root / "mltrainer.yaml"
    path.write_text(f"# why\n{path.read_text()}")
    return project


def a_tracker_named(project: Project, away: Path) -> Project:
    path = project.root / "phases/01_planning/training_config.yaml"
    path.write_text(re.sub(r"tracking: .*", "tracking: [mlflow]", path.read_text()))
    return project


def waived_with_a_reason(project: Project, away: Path) -> Project:
    put_ledger(project, second(project))
    waive(project, "finalization", "test_opened_once", "both looks are in the paper", "Tester <tester@example.org>")
    return project


def history_rewritten(project: Project, away: Path) -> Project:
    commit(project.root)
    git(project.root, "commit", "--quiet", "--amend", "--message", "All of it")
    return project


def from_a_bucket(project: Project, away: Path) -> Project:
    clone = cloned(project, away)
    for step in (push, pull):
        step(project if step is push else clone, f"file://{away}/store", tell=lambda event: None)
    return clone


def more_runs_begun_since(project: Project, away: Path) -> Project:
    begin(project, "0" * 12, "1" * 12)
    return project


def two_branches_that_tried_runs_merged(project: Project, away: Path) -> Project:
    commit(project.root)
    git(project.root, "checkout", "--quiet", "-b", "tries")
    begin(project, "0" * 12, "1" * 12)
    commit(project.root)
    git(project.root, "checkout", "--quiet", "-")
    begin(project, "2" * 12)
    commit(project.root)
    git(project.root, "merge", "--quiet", "--message", "Merge", "tries")
    assert len(read(project)) == 6
    return project


OF_DIGITS = (
    *(as_finished, committed, a_clone, a_shallow_clone, a_clone_with_other_line_ends, a_copy_without_git, moved, runs_removed),
    *(a_comment_added, a_tracker_named, waived_with_a_reason, history_rewritten, from_a_bucket, more_runs_begun_since),
    two_branches_that_tried_runs_merged,
)


@pytest.mark.parametrize("change", OF_DIGITS, ids=lambda change: change.__name__)
def test_a_finished_project_is_not_refused(change: Change, digits: Project, tmp_path: Path, cli):
    (tmp_path / "away").mkdir()
    cli("gate", "check", "--project", change(digits, tmp_path / "away").root, code=0)


@pytest.mark.parametrize("name", ["digits", "houses", "parallel", "rings", "script"])
def test_a_project_of_another_kind_is_not_refused(name: str, tmp_path: Path, cli):
    cli("gate", "check", "--project", kept(f"0.9/{name}", tmp_path).root, code=0)


@pytest.mark.long
@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("train", [_stopped_and_gone_on, _in_two_processes, _forked])
def test_a_training_in_parts_is_not_refused(train, tmp_path: Path, cli, monkeypatch):
    root = write_rings(tmp_path).root
    succeed("phase", "run", "planning", "--project", root, *(word for one in KEEPS for word in ("--set", one)))
    train(root, monkeypatch)
    cli("gate", "check", "--project", root, code=0)


@pytest.mark.long
@pytest.mark.usefixtures("tools_here")
def test_whoever_removes_all_folders_and_begins_again_keeps_the_count_and_is_not_refused(tmp_path: Path, cli):
    project = write_rings(tmp_path)
    commit(project.root, new=True)
    succeed("run", "--until", "baseline", "--project", project.root)
    commit(project.root)
    [before] = read(project)
    for folder in (project.root / "phases", project.state_dir):
        shutil.rmtree(folder)
    succeed("phase", "run", "planning", "--project", project.root, "--set", "seed=7")
    succeed("phase", "run", "baseline", "--project", project.root)
    assert (read(project)[0], len(read(project))) == (before, 2)
    cli("gate", "check", "--project", project.root, code=0)
