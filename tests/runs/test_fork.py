"""A fork: a new run from another run's checkpoint, with a link to its parent, where resuming is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import InputError
from mltrainer.project.front import Project as Front
from mltrainer.reproducibility.fingerprint import CHAIN_FILE
from mltrainer.runs.find import find_run
from mltrainer.workspace import Project, read_json, write_json
from tests.conftest import Cli, shared, train_baseline
from tests.projects import results, write_rings

CHANGED_FROM_TEN = """

class Rings(Rings):
    def enter(self, step, length):
        self.scale = 2.0 if step >= 10 else 1.0

    def loss(self, outputs, targets):
        return super().loss(outputs, targets) * getattr(self, "scale", 1.0)
"""


def _train(folder: Path) -> None:
    train_baseline(write_rings(folder).root, "epochs=4", "checkpoint.every_n_epochs=1")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "rings", _train)


@pytest.fixture
def rings(trained: Path, tmp_path: Path) -> Project:
    return Project(Path(shutil.copytree(trained, tmp_path / "rings")))


@pytest.fixture
def fork(cli: Cli, rings: Project, tools_here: None) -> Any:
    return lambda *arguments: cli("fork", "baseline", *arguments, "--project", rings.root)


@pytest.mark.slow
def test_a_fork_takes_another_turn_and_is_linked_to_its_parent(rings, fork):
    parent = find_run(rings, "baseline")
    before = results(rings)[parent]
    said = fork("--step", "12", "--set", "optimizer.lr=3e-4", "--json").json
    child = results(rings)[said["run"]]
    assert (said["parent"], said["step"], child["parent"], child["state"]) == (parent, 12, parent, "finished")
    assert "optimizer.lr: 0.001 -> 0.0003" in said["changes"]
    assert [row["step"] for row in child["history"]] == [16]
    assert results(rings)[parent] == before


@pytest.mark.slow
def test_an_unchanged_fork_computes_what_its_parent_did(rings, fork):
    parent = results(rings)[find_run(rings, "baseline")]
    run = fork("--step", "12", "--json").json["run"]
    child = results(rings)[run]
    assert child["weights_sha256"] == parent["weights_sha256"]


def test_a_fork_of_a_pruned_trial_goes_on_to_its_own_end(rings, fork):
    job = rings.runs_dir / find_run(rings, "baseline") / "job.json"
    write_json(job, {**read_json(job), "rungs": [[1.0, 2.0], [4.0, 2.0]]})  # an accuracy that nothing reaches
    run = fork("--step", "12", "--set", "epochs=6", "--json").json["run"]
    child = results(rings)[run]
    assert (child["state"], child["steps"], child["stop_reason"]) == ("finished", 24, "epochs")
    assert "rungs" not in read_json(rings.runs_dir / run / "job.json")


@pytest.mark.slow
def test_a_fork_is_held_to_the_files_that_planning_saw_opened_and_not_to_its_parents(rings, fork):
    job = rings.runs_dir / find_run(rings, "baseline") / "job.json"
    write_json(job, {**read_json(job), "input_files": [{"path": "teacher.pt", "sha256": "0" * 64, "size": 3}]})
    run = fork("--step", "12", "--json").json["run"]
    assert results(rings)[run]["state"] == "finished"
    assert "input_files" not in read_json(rings.runs_dir / run / "job.json")


@pytest.mark.slow
def test_a_fork_is_reproduced_after_its_parent_is_gone(rings, fork, cli):
    run = fork("--step", "12", "--set", "seed=7", "--set", "split.seed=42", "--json").json["run"]
    shutil.rmtree(rings.runs_dir / find_run(rings, "baseline"))
    assert cli("reproduce", run, "--json", "--project", rings.root).json["identical"]


@pytest.mark.slow
def test_a_forks_reproduction_compares_the_steps_after_its_parents(rings, fork, cli):
    run = fork("--step", "8", "--json").json["run"]
    part = cli("reproduce", run, "--steps", "3", "--project", rings.root)
    assert (part.code, part.out) == (0, f"run {run}: bitwise identical in 3 steps, 9 to 11\n")
    assert _trained_again(rings, run) == [9, 10, 11]
    whole = cli("reproduce", run, "--steps", "100", "--json", "--project", rings.root).json
    assert (whole["steps_compared"], _trained_again(rings, run)) == (8, list(range(9, 17)))


def _trained_again(project: Project, run: str) -> list[int]:
    """The steps that a reproduction took, as its own chain tells."""
    chain = (project.state_dir / "reproductions" / run / CHAIN_FILE).read_text().splitlines()
    return [int(line.split()[0]) for line in chain if not line.startswith("w ")]


@pytest.mark.slow
def test_a_fork_of_a_fork_is_compared_from_its_own_beginning(rings, fork, cli):
    first = fork("--step", "8", "--set", "optimizer.lr=3e-4", "--json").json["run"]
    second = cli("fork", first, "--step", "12", "--set", "optimizer.lr=1e-4", "--json", "--project", rings.root).json["run"]
    found = cli("reproduce", second, "--steps", "2", "--json", "--project", rings.root).json
    assert (found["identical"], found["after_step"], found["steps_compared"]) == (True, 12, 2)
    assert _trained_again(rings, second) == [13, 14]


@pytest.mark.slow
def test_a_forks_first_difference_counts_the_steps_up_to_it(rings, fork, cli):
    run = fork("--step", "8", "--json").json["run"]
    task = rings.root / "my_task.py"
    task.write_text(task.read_text() + CHANGED_FROM_TEN)
    found = cli("reproduce", run, "--steps", "5", "--json", "--project", rings.root).json
    assert (found["first_divergence"]["step"], found["steps_compared"]) == (10, 2)


@pytest.mark.slow
def test_forks_from_two_steps_are_two_runs(rings, fork):
    assert fork("--step", "8", "--json").json["run"] != fork("--step", "12", "--json").json["run"]


def test_no_steps_are_no_reproduction(rings, tools_here):
    with pytest.raises(InputError, match="at least one step"):
        Front(rings.root).reproduce("baseline", steps=0)


@pytest.mark.slow
def test_no_gate_takes_a_fork_for_evidence(rings, fork, cli):
    run = fork("--step", "12", "--set", "optimizer.lr=3e-4", "--json").json["run"]
    cli("phase", "run", "planning", "--set", "optimizer.lr=3e-4", "--project", rings.root, code=0)
    cli("phase", "run", "baseline", "--project", rings.root, code=0)
    assert find_run(rings, "baseline") != run


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--step", "13"), 1, "there is no step 13 with an intact checkpoint of run"),
        (("--step", "12", "--set", "batch_size=32"), 1, "number of samples, batch size and accumulation must be the parent's"),
        (("--step", "12", "--set", "task.options={n: 280}"), 4, "the data differs from planning's record"),
        (("--set", "optimizer.lr=none"), 1, "optimizer.lr"),
        ((), 1, "epochs: step 16 of the parent leaves nothing to train: the config ends after epoch 4"),
        (("--step", "12", "--set", "epochs=2"), 1, "such as --set epochs=6"),
        (("--step", "12", "--set", "optimizer={name: sgd}"), 1, "its optimizer is adamw, and the config's is sgd"),
    ],
)
def test_what_does_not_fit_the_parent_is_refused(fork, arguments, code, message):
    said = fork(*arguments)
    assert (said.code, message in said.err) == (code, True), said.err


def test_a_damaged_checkpoint_is_not_forked(rings, fork):
    for file in rings.runs_dir.glob("*/checkpoints/*/state.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    said = fork()
    assert (said.code, "no intact checkpoint" in said.err) == (4, True)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"config": 1}'])
def test_a_damaged_job_is_named_and_not_forked(rings, fork, content):
    (rings.runs_dir / find_run(rings, "baseline") / "job.json").write_text(content)
    said = fork()
    assert said.code == 4
    assert "job.json: damaged" in said.err


def test_a_run_that_is_not_here_is_told_with_what_trains_it_again(rings, fork):
    (rings.runs_dir / find_run(rings, "baseline") / "job.json").unlink()
    said = fork()
    assert said.code == 1
    assert "mltrainer phase run baseline" in said.err


@pytest.mark.slow
def test_an_interrupted_run_of_another_contract_is_named_with_what_differs(rings, cli, tools_here):
    parent = find_run(rings, "baseline")
    (rings.runs_dir / parent / "result.json").unlink()
    cli("phase", "run", "planning", "--set", "optimizer.lr=3e-4", "--project", rings.root, code=0)
    said = cli("phase", "run", "baseline", "--project", rings.root).err
    assert f"run {parent} was interrupted under another contract (optimizer.lr: 0.001 -> 0.0003)" in said
    assert f"mltrainer fork {parent}" in said
    assert read_json(rings.runs_dir / parent / "job.json")["run"] == parent
