"""Every checkpoint of a project is listed with where it came from, and every damage is found."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mltrainer.checkpointing.format import save, snapshot
from mltrainer.checkpointing.inventory import checkpoints, protected_steps, verify
from mltrainer.checkpointing.weights import weights_tree_sha256
from mltrainer.errors import InputError
from mltrainer.reproducibility import fingerprint
from mltrainer.workspace import Project, sha256_file, write_json

RUN, OTHER = "a1b2c3d4e5f6", "0123456789ab"
CONTRACT = {"config_sha256": "c", "data_sha256": "d", "code_sha256": "e", "environment_sha256": "f", "numerics_class": "n"}


def rows_of(folder: Path, root: Path) -> list[dict[str, Any]]:
    files = sorted(folder.iterdir())
    return [{"path": str(f.relative_to(root)), "sha256": sha256_file(f), "size": f.stat().st_size} for f in files]


def train(project: Project, run: str, steps: tuple[int, ...]) -> None:
    """Leave what a run leaves."""
    listed = []
    for step in steps:
        folder = project.runs_dir / run / "checkpoints" / f"step-{step:08d}"
        manifest = {"step": step, "epoch": step // 10, "metrics": {"accuracy": step / 100}, "contract": CONTRACT, "run": run}
        save(folder, snapshot({"x": step}), manifest)
        path = project.relative(folder)
        listed.append({"step": step, "roles": ["best"], "path": path, "files": rows_of(folder, project.root)})
    parent = OTHER if run == RUN else None
    write_json(project.runs_dir / run / "result.json", {"id": run, "parent": parent, "checkpoints": listed})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    train(project, RUN, (10, 20))
    train(project, OTHER, (10,))
    rows = rows_of(project.runs_dir / RUN / "checkpoints" / "step-00000010", tmp_path)
    write_json(project.phase_dir("baseline") / "record.json", {"inputs": rows})
    return project


def test_a_row_says_where_a_checkpoint_came_from_and_who_refers_to_it(project):
    row = next(row.written() for row in checkpoints(project) if row.run == RUN)
    assert {name: row[name] for name in CONTRACT} == CONTRACT
    assert (row["step"], row["epoch"], row["roles"], row["parent"], row["phases"]) == (10, 1, ["best"], OTHER, ["baseline"])
    assert row["path"] == f".mltrainer/runs/{RUN}/checkpoints/step-00000010"
    assert row["fault"] is None


def test_all_runs_are_listed_or_one(project):
    assert [(row.run, row.step) for row in checkpoints(project)] == [(OTHER, 10), (RUN, 10), (RUN, 20)]
    assert [row.step for row in checkpoints(project, OTHER)] == [10]


def test_a_run_that_was_set_aside_is_left_alone(project):
    shutil.copytree(project.runs_dir / RUN, project.runs_dir / f"{RUN}.damaged-1")
    assert {row.run for row in checkpoints(project)} == {RUN, OTHER}


def test_a_project_without_runs_has_no_checkpoints(tmp_path):
    assert checkpoints(Project(tmp_path)) == verify(Project(tmp_path)) == []


@pytest.mark.parametrize("run", ["nothing", "../..", "ffffffffffff"])
def test_an_unknown_run_is_refused(run, project):
    with pytest.raises(InputError, match="no run"):
        verify(project, run)


def test_a_damaged_manifest_is_listed_with_its_fault(project):
    (project.runs_dir / OTHER / "checkpoints" / "step-00000010" / "manifest.json").write_text("{}")
    row = checkpoints(project)[0].written()
    assert row["epoch"] is None
    assert "manifest" in row["fault"]


def test_a_person_reads_the_fault_in_place_of_the_metrics(project, cli):
    (project.root / "mltrainer.yaml").write_text("")
    (project.runs_dir / OTHER / "checkpoints" / "step-00000010" / "manifest.json").write_text("{}")
    out = cli("checkpoints", "list", "--project", project.root, code=0).out
    assert [line.count("no manifest") for line in out.splitlines() if "step-" in line] == [1, 0, 0]


def test_damaged_records_do_not_hide_checkpoints(project):
    (project.runs_dir / RUN / "result.json").write_text("{")
    (project.phase_dir("baseline") / "record.json").write_text("[]")
    assert [(row.phases, row.roles) for row in checkpoints(project, RUN)] == [([], []), ([], [])]


def test_intact_checkpoints_verify(project):
    rows = verify(project)
    assert len(rows) == 3
    assert all(row.is_intact and row.reason is None for row in rows)


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "manifest.json"])
def test_a_changed_byte_is_found_and_its_file_named(name, project):
    path = project.runs_dir / RUN / "checkpoints" / "step-00000020" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    bad = [row for row in verify(project) if not row.is_intact]
    assert [row.path for row in bad] == [project.relative(path.parent)]
    assert name in str(bad[0].reason)


def test_a_checkpoint_that_a_result_names_and_that_is_gone_is_found(project):
    shutil.rmtree(project.runs_dir / RUN / "checkpoints" / "step-00000020")
    reasons = [row.reason for row in verify(project, RUN) if not row.is_intact]
    assert reasons == [f"the result of run {RUN} names it, but it is not here"]


def test_a_checkpoint_written_anew_is_not_the_recorded_one(project):
    save(project.runs_dir / RUN / "checkpoints" / "step-00000020", snapshot({"x": 0}), {"step": 20, "run": RUN})
    bad = [row.reason for row in verify(project, RUN) if not row.is_intact]
    assert len(bad) == 1
    assert "the run's result expected" in str(bad[0])


def test_a_checkpoint_of_another_run_is_found(project):
    source = project.runs_dir / RUN / "checkpoints" / "step-00000020"
    shutil.copytree(source, project.runs_dir / OTHER / "checkpoints" / "step-00000020")
    assert [row.reason for row in verify(project, OTHER) if not row.is_intact] == [f"it belongs to run {RUN}, not to {OTHER}"]


WEIGHTS = {"a": torch.arange(3.0)}


def checkpoint_of_weights(project: Project, tree: str, noted: str | None) -> list[str | None]:
    """Leave a run with a checkpoint of weights, whose manifest and whose chain tell digests over chunks; return what is wrong."""
    folder = project.runs_dir / RUN / "checkpoints" / "step-00000030"
    save(folder, snapshot({"model": WEIGHTS}), {"step": 30, "run": RUN, "weights_tree_sha256": tree})
    if noted is not None:
        entries = [fingerprint.weights_entry(30, noted, is_tree=True)]
        fingerprint.append(project.runs_dir / RUN / "chain.txt", fingerprint.extend(fingerprint.Head(), entries)[1])
    return [row.reason for row in verify(project, RUN) if row.path.endswith("30")]


def test_the_digest_over_chunks_of_a_manifest_is_the_weights_and_the_chains(tmp_path):
    project, tree, other = Project(tmp_path), weights_tree_sha256(WEIGHTS), "0" * 64
    assert checkpoint_of_weights(project, tree, None) == [None]
    assert checkpoint_of_weights(project, tree, tree) == [None]
    (told,) = checkpoint_of_weights(project, other, None)
    assert f"manifest.json: expected weights of sha256 {other[:12]} over chunks, found {tree[:12]}" in str(told)
    assert f"weights_tree_sha256 is {other}, the chain has {tree} after step 30" in str(told)


def test_a_chain_that_tells_other_weights_than_a_manifest_is_found(tmp_path):
    project, tree, other = Project(tmp_path), weights_tree_sha256(WEIGHTS), "0" * 64
    assert checkpoint_of_weights(project, tree, other) == [
        f"manifest.json: weights_tree_sha256 is {tree}, the chain has {other} after step 30"
    ]


def test_what_a_phase_refers_to_is_protected(project):
    assert protected_steps(project, RUN) == {10}
    assert protected_steps(project, OTHER) == set()


def test_what_an_export_or_a_fork_names_is_protected(project):
    exported = project.runs_dir / OTHER / "checkpoints" / "step-00000010"
    write_json(project.state_dir / "exports" / OTHER / "job.json", {"checkpoint": project.relative(exported)})
    begun = project.runs_dir / "00000000beef" / "start" / "step-00000020"
    shutil.copytree(project.runs_dir / RUN / "checkpoints" / begun.name, begun)
    assert protected_steps(project, OTHER) == {10}
    assert protected_steps(project, RUN) == {10, 20}


def test_listing_and_verifying_need_neither_torch_nor_numpy(project):
    script = (
        "import json, sys; from pathlib import Path; from mltrainer.workspace import Project;"
        "from mltrainer.checkpointing import inventory; project = Project(Path(sys.argv[1]));"
        "rows = inventory.checkpoints(project) + inventory.verify(project);"
        "print(json.dumps([len(rows), 'torch' in sys.modules, 'numpy' in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", script, str(project.root)], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == [6, False, False]
