"""Checkpoints that are pruned: of ended runs that nothing refers to, whose results stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mltrainer.leftovers import RUN_LOCK
from mltrainer.runs.find import result_of, runs_here
from mltrainer.workspace import Project, locked, read_json, seal, write_json, write_text
from tests.conftest import train_baseline
from tests.projects import recorded, write_rings
from tests.runs.test_deleting import leave_for_the_first_commit
from tests.runs.test_packing import RUNS, end

FIRST, SECOND, THIRD = RUNS


def checkpoint(run: str) -> str:
    return f".mltrainer/runs/{run}/checkpoints/step-00000007"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with three runs that have ended, each with a checkpoint."""
    (tmp_path / "mltrainer.yaml").write_text("name: small\n")
    for age, run in enumerate(RUNS):
        folder = end(Project(tmp_path), run, age_s=-100 * age)
        rows = [{"step": 7, "path": checkpoint(run), "roles": ["best", "last"], "files": []}]
        write_json(folder / "result.json", seal({**read_json(folder / "result.json"), "checkpoints": rows}))
    return Project(tmp_path)


def test_checkpoints_that_nothing_refers_to_go_and_results_stay(project, cli):
    write_text(project.root / "phases/02_baseline/record.json", f"{SECOND}\n")
    before = {run: (project.runs_dir / run / "result.json").read_bytes() for run in RUNS}
    shown = cli("checkpoints", "prune", "--dry-run", "--project", project.root, code=0).out
    assert shown.splitlines()[0] == f"would remove {checkpoint(FIRST)}: 10.2 kB"
    assert shown.splitlines()[-1] == "2 checkpoints, 20.5 kB"
    assert (project.root / checkpoint(FIRST)).is_dir()
    assert not (project.runs_dir / FIRST / "pruned.json").exists()
    said = cli("checkpoints", "prune", "--json", "--project", project.root, code=0).json
    assert [row["path"] for row in said["checkpoints"]] == [checkpoint(FIRST), checkpoint(THIRD)]
    assert [(project.root / checkpoint(run)).exists() for run in RUNS] == [False, True, False]
    assert before == {run: (project.runs_dir / run / "result.json").read_bytes() for run in RUNS}
    assert runs_here(project) == RUNS
    assert "0 checkpoints" in cli("checkpoints", "prune", "--project", project.root, code=0).out


def test_a_run_that_the_project_file_or_another_branch_names_keeps_its_checkpoint(project, cli):
    write_text(project.file, f"start: {{weights: {checkpoint(FIRST)}/state.safetensors}}\n")
    write_json(project.phase_dir("baseline") / "record.json", {"evidence": {"run": {"id": SECOND}}})
    leave_for_the_first_commit(project)
    cli("checkpoints", "prune", "--project", project.root, code=0)
    assert [(project.root / checkpoint(run)).exists() for run in RUNS] == [True, True, False]


def test_a_pruned_checkpoint_is_not_taken_for_lost_and_a_lost_one_is(project, cli):
    write_text(project.root / "phases/02_baseline/record.json", f"{SECOND}\n")
    cli("checkpoints", "prune", "--project", project.root, code=0)
    assert cli("checkpoints", "verify", FIRST, "--project", project.root, code=0).out.endswith("0 of 0 intact\n")
    shutil.rmtree(project.root / checkpoint(SECOND))
    said = cli("checkpoints", "verify", SECOND, "--project", project.root, code=4).out
    assert f"the result of run {SECOND} names it, but it is not here" in said


@pytest.mark.parametrize("name", ["test.json", "start/manifest.json"])
def test_a_run_that_opened_the_test_split_or_is_a_fork_keeps_its_checkpoint(project, name, cli):
    write_json(project.runs_dir / FIRST / name, {})
    cli("checkpoints", "prune", "--project", project.root, code=0)
    assert [(project.root / checkpoint(run)).exists() for run in RUNS] == [True, False, False]


def test_checkpoints_of_segments_stay_for_an_audit(project, cli):
    path = project.runs_dir / FIRST / "result.json"
    write_json(path, seal({**read_json(path), "saved": {"segments": 20}}))
    cli("checkpoints", "prune", "--project", project.root, code=0)
    assert [(project.root / checkpoint(run)).exists() for run in RUNS] == [True, False, False]


def test_a_parent_and_what_has_not_ended_keep_theirs(project, cli):
    write_json(project.runs_dir / SECOND / "job.json", {"run": SECOND, "phase": "optimization", "parent": FIRST})
    (project.runs_dir / SECOND / "result.json").unlink()
    with locked(project.runs_dir / THIRD / RUN_LOCK, "the run"):
        cli("checkpoints", "prune", "--project", project.root, code=0)
    assert all((project.root / checkpoint(run)).exists() for run in RUNS)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_whose_checkpoint_was_pruned_is_trained_again_in_the_same_bits(tmp_path, cli):
    project = write_rings(tmp_path)
    train_baseline(project.root, "epochs=2")
    old = recorded(project, "baseline")["evidence"]["run"]
    train_baseline(project.root, "epochs=3")
    removed = cli("checkpoints", "prune", "--json", "--project", project.root, code=0).json["checkpoints"]
    assert {row["path"].split("/")[2] for row in removed} == {old["id"]}
    cli("gate", "check", "--files", "--project", project.root, code=0)
    cli("checkpoints", "verify", "--project", project.root, code=0)
    assert result_of(project, old["id"]) is not None
    train_baseline(project.root, "epochs=2")
    again = recorded(project, "baseline")["evidence"]["run"]
    assert (again["id"], again["weights_sha256"]) == (old["id"], old["weights_sha256"])
    cli("gate", "check", "--files", "--project", project.root, code=0)
