"""`mltrainer report`: the gates here beside the records of another revision, read from git without checking anything out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mltrainer
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates
from mltrainer.project.engine import waive
from mltrainer.workspace import Project
from tests.conftest import commit, git
from tests.gates.evidence import reseal
from tests.projects import as_cloned

BASELINE = "phases/02_baseline/record.json"
WHO = "Tester <tester@example.org>"


@pytest.fixture
def project(digits_once: Path, tmp_path: Path) -> Project:
    """A finished project as the only commit of a repository, on `main`."""
    project = as_cloned(digits_once, tmp_path / "repository" / "models" / "digits")
    commit(tmp_path / "repository", new=True)
    return project


def edited(project: Project, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Edit the baseline's record, seal and all, and return what it was."""
    before = (project.root / BASELINE).read_bytes()
    reseal(project, change, "baseline")
    return before


def worse(record: dict[str, Any]) -> None:
    record["evidence"]["run"]["id"] = "0" * 12  # another run: one and the same cannot have other numbers
    record["evidence"]["run"]["metrics"]["accuracy"] = 0.1


@pytest.mark.slow
def test_an_unchanged_project_holds_and_tells_of_no_change(project, cli):
    said = cli("report", "--against", "main", "--project", project.root, code=0, out="every gate that there is holds")
    assert "no config key, digest, policy or waiver changed" in said.out


@pytest.mark.slow
def test_what_the_branch_has_is_read_and_nothing_is_checked_out(project, cli):
    now = edited(project, worse)
    commit(project.root)
    (project.root / BASELINE).write_bytes(now)
    state = git(project.root, "status", "--porcelain"), git(project.root, "rev-parse", "HEAD")
    said = cli("report", "--against", "main", "--json", "--project", project.root, code=0)
    row = said.json["metrics"][0]
    assert (row["before"], row["verdict"]) == (0.1, "no clear difference")  # no seeds were trained
    assert (git(project.root, "status", "--porcelain"), git(project.root, "rev-parse", "HEAD")) == state


@pytest.mark.slow
def test_the_verdicts_are_those_of_gate_check_and_so_is_the_exit_code(project, cli):
    edited(project, worse)
    said, gates = (
        cli(*line, "--json", "--project", project.root) for line in (("report", "--against", "main"), ("gate", "check"))
    )
    assert said.code == gates.code == 4
    assert [(row["name"], row["holds"], row["stale"]) for row in said.json["phases"]] == [
        (row["name"], row["holds"], row["stale"]) for row in gates.json["phases"]
    ]
    assert "❌ not every gate holds: " in cli("report", "--against", "main", "--project", project.root).out


@pytest.mark.slow
def test_a_record_that_was_edited_is_not_believed(project, cli):
    path = project.root / BASELINE
    before = path.read_text()
    path.write_text(before.replace('"accuracy"', '"accuracies"', 1))
    commit(project.root)
    path.write_text(before)
    said = cli("report", "--against", "main", "--json", "--project", project.root)
    assert "baseline" in said.json["added"]
    told, *unchecked = said.json["notes"]
    assert told == f"{BASELINE} was edited: its content does not match its seal, at main"
    assert all("not in this repository" in note or "not recomputed" in note for note in unchecked)


@pytest.mark.slow
def test_a_waiver_is_new_until_the_branch_has_it(project, cli):
    project.file.write_text(project.file.read_text().replace("minutes: 60", "minutes: 1.0e-6"))
    cli("phase", "run", "planning", "--project", project.root, code=4)
    commit(project.root)
    waive(project, "planning", "time_within_budget", "seconds are still fine", WHO)
    found = cli("report", "--against", "main", "--json", "--project", project.root).json
    assert [(row["phase"], row["item"], row["reason"], row["by"]) for row in found["waivers"]] == [
        ("planning", "time_within_budget", "seconds are still fine", WHO)
    ]
    commit(project.root)
    assert not cli("report", "--against", "main", "--json", "--project", project.root).json["waivers"]


@pytest.mark.slow
def test_against_a_branch_without_records_all_is_new(project, cli):
    git(project.root, "checkout", "--quiet", "--orphan", "start")
    git(project.root, "rm", "-r", "--quiet", "--cached", ".")
    git(project.root, "add", "mltrainer.yaml")
    git(project.root, "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", "Start")
    cli("report", "--against", "start", "--project", project.root, code=0, out="Nothing is on record at `start`")


def test_where_the_records_are_gone_nothing_holds(project, cli):
    git(project.root, "rm", "-r", "--quiet", "phases")
    said = cli("report", "--against", "main", "--project", project.root, code=4, out="| planning | ❌ not run |")
    assert "planning has a record at `main`, and none here" in said.out


def test_where_nothing_is_on_record_there_is_nothing_to_tell(project, cli):
    git(project.root, "rm", "-r", "--quiet", "phases")
    commit(project.root)
    said = cli("report", "--against", "main", "--project", project.root)
    assert (said.code, "nothing is on record, neither here nor at main" in said.err, "mltrainer run" in said.err) == (
        1,
        True,
        True,
    )


@pytest.mark.parametrize("branch", ["nope", "", "--all", "main:phases", "a\0b"])
def test_a_branch_that_there_is_not_is_told(project, branch):
    with pytest.raises(InputError, match="there is no branch, tag or commit") as caught:
        mltrainer.Project(project.root).report(branch)
    assert caught.value.hint == "name an existing revision; the branches are main"


@pytest.mark.parametrize("remote", ["origin", "upstream"])
def test_where_there_is_a_remote_a_missing_branch_can_be_fetched(project, remote):
    git(project.root, "remote", "add", remote, "https://example.org/models.git")
    with pytest.raises(InputError) as caught:
        mltrainer.Project(project.root).report("release 2")
    assert str(caught.value.hint).endswith(f"or fetch it: git fetch {remote} 'release 2'")


TEMPLATE = "configs/production_template.yaml"


@pytest.mark.parametrize(("text", "change"), [("# a comment\n", None), ("epochs: 3\n", "changed"), ("[", "changed"), ("", "new")])
def test_a_template_that_the_branch_has_is_not_new_where_no_phase_had_run(project, cli, text, change):
    held = (project.root / TEMPLATE).read_text("utf-8")
    git(project.root, "checkout", "--quiet", "--orphan", "start")
    git(project.root, "rm", "-r", "--quiet", "--cached", ".")
    (project.root / TEMPLATE).write_text(f"{text}{held}", "utf-8")
    git(project.root, "add", "mltrainer.yaml", *([TEMPLATE] if text else []))
    git(project.root, "commit", "--quiet", "--message", "Start")
    (project.root / TEMPLATE).write_text(held, "utf-8")
    told = cli("report", "--against", "start", "--project", project.root).out
    assert (f"`{TEMPLATE}` {change}" in told) if change else (TEMPLATE not in told)


def test_without_a_repository_it_is_told(project, cli):
    (project.root.parents[1] / ".git").rename(project.root.parents[1] / "away")
    cli("report", "--against", "main", "--project", project.root, code=1, err="--against: not a git repository")


@pytest.mark.slow
def test_the_comment_can_be_written_to_a_file(project, cli, tmp_path):
    said = cli("report", "--against", "main", "--out", tmp_path / "comment.md", "--project", project.root)
    review = mltrainer.Project(project.root).report("main")
    assert (said.code, said.out) == (0, f"written to {tmp_path / 'comment.md'}\n")
    assert (tmp_path / "comment.md").read_text("utf-8") == review.markdown == review._repr_markdown_()
    assert review.holds


@pytest.mark.slow
def test_it_needs_no_torch(project):
    code = "import sys, mltrainer; mltrainer.Project(sys.argv[1]).report('main'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, project.root], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


@pytest.mark.slow
def test_looking_at_it_changes_no_verdict(project):
    before = check_gates(project)
    mltrainer.Project(project.root).report("main")
    assert check_gates(project) == before


def test_a_phase_that_the_branch_had_and_is_gone_fails_and_is_said_first(project, cli):
    git(project.root, "rm", "-r", "--quiet", "phases/05_finalization")
    commit(project.root)
    said = cli("report", "--against", "main~1", "--project", project.root, code=4)
    assert "finalization had a record at `main~1` and has none here" in said.out.splitlines()[2]


@pytest.mark.slow
def test_a_criterion_that_moved_after_numbers_were_known_is_said_first(project, cli):
    def lower(record: dict[str, Any]) -> None:
        record["evidence"]["config"]["acceptance"] = {"accuracy": ">= 0.05"}

    reseal(project, lower, "planning")
    commit(project.root)
    first = cli("report", "--against", "main~1", "--project", project.root).out.splitlines()[2]
    assert "moved after numbers were known" in first
    assert "`acceptance`" in first
    assert "Tester" in first
    assert ", when accuracy 0." in first
    assert "(test split) was known" in first


@pytest.mark.slow
def test_a_criterion_that_is_not_committed_was_moved_by_nobody_yet(project, cli):
    reseal(project, lambda record: record["evidence"]["config"].update(seed=43), "planning")
    found = cli("report", "--against", "main", "--json", "--project", project.root).json["moved"]
    assert [(row["key"], row["before"], row["after"], row["by"]) for row in found] == [("seed", 42, 43, None)]
