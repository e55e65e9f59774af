"""Runs that are deleted: only those that nothing refers to, and all of those that were named or none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mltrainer.leftovers import RUN_LOCK
from mltrainer.records.layout import record_json
from mltrainer.records.trial_table import MOST_ROWS, divided
from mltrainer.records.tried import read, runs
from mltrainer.runs.find import runs_here
from mltrainer.runs.packing import pack_runs
from mltrainer.runs.tried import note_tried
from mltrainer.workspace import Project, locked, seal, sha256_file, write_json, write_text
from tests.conftest import commit, git
from tests.runs.test_packing import RUNS, end

FIRST, SECOND, THIRD = RUNS


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with three runs that have ended."""
    (tmp_path / "mltrainer.yaml").write_text("name: small\n")
    for age, run in enumerate(RUNS):
        end(Project(tmp_path), run, age_s=-100 * age)
    return Project(tmp_path)


def test_a_run_that_nothing_refers_to_is_removed_and_counts_as_tried(project, cli):
    shown = cli("runs", "delete", FIRST, "--dry-run", "--project", project.root, code=0).out
    assert shown.startswith(f"would remove run {FIRST}: 4 files, ")
    assert runs_here(project) == RUNS
    said = cli("runs", "delete", FIRST, THIRD, "--json", "--project", project.root, code=0).json
    assert said["deleted"] == [FIRST, THIRD]
    assert runs_here(project) == [SECOND]
    assert [path.name for path in project.runs_dir.iterdir()] == [SECOND]
    assert runs(read(project)) == set(RUNS)


@pytest.mark.parametrize(
    "place",
    [
        "phases/02_baseline/record.json",
        "phases/02_baseline/gate.json",
        "phases/02_baseline/baseline_results.md",
        "phases/registered.json",
        "phases/01_planning/training_config.yaml",
        "mltrainer.yaml",
        "configs/production_template.yaml",
        f".mltrainer/exports/{FIRST}/job.json",
        f".mltrainer/audits/{FIRST}/job.json",
        f".mltrainer/disputes/{FIRST}/case.json",
        ".mltrainer/studies/5e1442242043/study.journal",
        ".mltrainer/seeds/seeds.md",
        ".mltrainer/runs/0a0a0a0a0a0a/job.json",
    ],
)
def test_a_run_that_a_file_names_stays_and_so_do_those_beside_it(project, place, cli):
    write_text(project.root / place, f'"path": ".mltrainer/runs/{FIRST}/result.json"\n')
    said = cli("runs", "delete", SECOND, FIRST, "--project", project.root, code=1)
    assert f"run {FIRST} is not deleted: {place} refers to it" in said.err
    assert {FIRST, SECOND} <= {path.name for path in project.runs_dir.iterdir()}


@pytest.mark.parametrize("place", [".mltrainer/cache/digests.json", f".mltrainer/reproductions/{FIRST}/job.json", "notes.md"])
def test_what_is_made_again_keeps_no_run(project, place, cli):
    write_text(project.root / place, f"{FIRST}\n")
    cli("runs", "delete", FIRST, "--project", project.root, code=0)


def test_the_search_that_has_ended_leaves_its_runs_to_its_record(project, cli):
    study = project.state_dir / "studies/5e1442242043"
    write_text(study / "study.journal", f"{FIRST}\n")
    write_json(study / "result.json", {"trials": [{"run": FIRST}]})
    cli("runs", "delete", FIRST, "--project", project.root, code=0)


def write_long_search(project: Project) -> None:
    """Write the record of a search whose trials, the first run among them, are in a compressed file."""
    trials = [{"run": FIRST if nr == 7 else "0" * 12, "nr": nr} for nr in range(MOST_ROWS + 1)]
    stored = divided(seal({"schema": 1, "phase": "optimization", "evidence": {"trials": trials}}))
    assert stored.table is not None
    folder = project.phase_dir("optimization")
    folder.mkdir(parents=True)
    (folder / str(stored.file)).write_bytes(stored.table)
    (folder / "record.json").write_bytes(record_json(stored.content))


def test_a_trial_of_a_long_search_stays_though_its_table_is_compressed(project, cli):
    write_long_search(project)
    said = cli("runs", "delete", FIRST, "--project", project.root, code=1)
    assert f"run {FIRST} is not deleted: phases/04_optimization/record.json refers to it" in said.err


def leave_for_the_first_commit(project: Project) -> None:
    """Commit what is here on branch main, after a commit with the project file alone, which is then checked out."""
    aside = project.root.with_name("aside")
    shutil.move(project.root / "phases", aside)
    (project.root / ".gitignore").write_text(".mltrainer\n")
    commit(project.root, new=True)
    shutil.move(aside, project.root / "phases")
    commit(project.root)
    git(project.root, "checkout", "-q", "HEAD~1")
    assert not (project.root / "phases").exists()


def test_a_run_of_another_branchs_record_stays_and_no_ledger_is_begun_here(project, cli):
    write_json(project.phase_dir("baseline") / "record.json", {"evidence": {"run": {"id": FIRST}}})
    note_tried(project)
    leave_for_the_first_commit(project)
    said = cli("runs", "delete", FIRST, "--project", project.root, code=1)
    assert f"run {FIRST} is not deleted: phases/02_baseline/record.json of branch main refers to it" in said.err
    said = cli("runs", "delete", SECOND, "--project", project.root, code=1)
    assert "the ledger of tried runs, phases/tried_runs.txt, is not here, and branch main holds it" in said.err
    assert "git switch main" in said.err
    assert runs_here(project) == RUNS
    git(project.root, "checkout", "-q", "main")
    cli("runs", "delete", SECOND, "--project", project.root, code=0)
    assert runs_here(project) == [FIRST, THIRD]


def test_a_trial_of_a_long_search_on_another_branch_stays(project, cli):
    write_long_search(project)
    leave_for_the_first_commit(project)
    said = cli("runs", "delete", FIRST, "--project", project.root, code=1)
    assert f"run {FIRST} is not deleted: phases/04_optimization/record.json of branch main refers to it" in said.err
    cli("runs", "delete", SECOND, "--project", project.root, code=0)


def test_a_run_that_was_begun_under_another_branchs_record_stays(project, cli):
    record = project.phase_dir("diagnostics") / "record.json"
    write_json(record, {"phase": "diagnostics"})
    write_json(project.runs_dir / FIRST / "job.json", {"run": FIRST, "phase": "optimization", "gate": sha256_file(record)})
    leave_for_the_first_commit(project)
    said = cli("runs", "delete", FIRST, "--project", project.root, code=1)
    assert "it was begun under phases/03_diagnostics/record.json of branch main, like the runs of a comparison" in said.err


def test_nothing_is_removed_where_git_cannot_say_what_branches_hold(project, cli):
    (project.root / ".git").mkdir()
    for command in (("runs", "delete", FIRST), ("checkpoints", "prune")):
        said = cli(*command, "--project", project.root, code=1)
        assert "git cannot say which runs the branches refer to: not a git repository" in said.err
    assert runs_here(project) == RUNS


def test_a_child_may_go_with_its_parent(project, cli):
    write_json(project.runs_dir / SECOND / "job.json", {"run": SECOND, "phase": "optimization", "parent": FIRST})
    cli("runs", "delete", FIRST, "--project", project.root, code=1)
    cli("runs", "delete", FIRST, SECOND, "--project", project.root, code=0)


def test_a_longer_digest_that_contains_the_id_is_no_reference(project, cli):
    write_text(project.root / "phases/02_baseline/record.json", f'"{FIRST}{"0" * 52}"')
    cli("runs", "delete", FIRST, "--project", project.root, code=0)


def test_a_run_that_opened_the_test_split_stays(project, cli):
    write_json(project.runs_dir / FIRST / "test.json", {})
    assert "it opened the test split" in cli("runs", "delete", FIRST, "--project", project.root, code=1).err


def test_a_run_of_the_present_records_stays_though_none_names_it(project, cli):
    record = project.phase_dir("diagnostics") / "record.json"
    write_json(record, {"phase": "diagnostics"})
    write_json(project.runs_dir / FIRST / "job.json", {"run": FIRST, "phase": "optimization", "gate": sha256_file(record)})
    said = cli("runs", "delete", FIRST, "--project", project.root, code=1)
    assert "begun under the present record of diagnostics" in said.err


def test_a_packed_run_and_its_pack_stay(project, cli):
    list(pack_runs(project))
    said = cli("runs", "delete", FIRST, "--project", project.root, code=1)
    assert f"run {FIRST} is packed together with others" in said.err


def test_a_parent_of_a_packed_run_stays(project, cli):
    write_json(project.runs_dir / SECOND / "job.json", {"run": SECOND, "phase": "optimization", "parent": FIRST})
    shutil.move(project.runs_dir / FIRST, project.root / "aside")
    list(pack_runs(project))
    shutil.move(project.root / "aside", project.runs_dir / FIRST)
    said = cli("runs", "delete", FIRST, "--project", project.root, code=1)
    assert f"run {SECOND} of .mltrainer/runs/pack-0001.zip refers to it" in said.err


def test_a_run_that_trains_stays(project, cli):
    with locked(project.runs_dir / FIRST / RUN_LOCK, "the run"):
        said = cli("runs", "delete", FIRST, "--project", project.root)
    assert said.code != 0
    assert FIRST in runs_here(project)


def test_an_unknown_run_is_no_run(project, cli):
    assert "there is no run" in cli("runs", "delete", "ffff", "--project", project.root, code=1).err
