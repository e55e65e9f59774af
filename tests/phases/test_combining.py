"""Several models made into one at finalization: what is made, measured and delivered, and how the gate answers to a lie."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import torch
import yaml

import mltrainer
from mltrainer.checkpointing.ensembles import Ensemble
from mltrainer.checkpointing.format import load
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import Combine
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import derive
from mltrainer.records.finalization import Finalization
from mltrainer.records.optimization import Searched
from mltrainer.records.partial import partial
from mltrainer.records.reading import read_record
from mltrainer.records.run import RunResult, read_result
from mltrainer.runs.combining import combined
from mltrainer.runs.launcher import tools_of
from mltrainer.workspace import Project, read_json, seal, sha256_file, write_json
from tests.conftest import Cli
from tests.projects import write_rings

pytestmark = pytest.mark.usefixtures("tools_here")
# Least squares by steps that are too long: the weights wander around the best ones, which their mean comes closer to.
WANDERING = """
import torch
from torch import nn
import mltrainer


class Line(mltrainer.Task):
    def samples(self):
        g = torch.Generator().manual_seed(3)
        x = torch.randn(600, 32, generator=g)
        return x, 3 * x.sum(1, keepdim=True) + 2 * torch.randn(600, 1, generator=g)

    def model(self):
        return nn.Sequential(nn.BatchNorm1d(32), nn.Linear(32, 1))

    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)

    def inference(self):
        return {"output": "value"}
"""
SETTINGS: dict[str, Any] = {
    "checkpoint": {"every_n_epochs": 2, "save_best": True, "save_last": True, "keep": 4},
    "export": {"formats": ["safetensors"], "samples": 8, "tolerance": None},
}
STEPS = ("epochs=12", "batch_size=4", "optimizer={name: sgd, lr: 0.02}", "schedule={name: constant}", "early_stopping=null")
FINAL = "phases/05_finalization"


def _walk(folder: Path, cli: Cli) -> Project:
    task = {"use": "my_task:Line", "options": {}}
    metric, acceptance = {"name": "loss", "mode": "min"}, {"loss": "<= 60"}
    project = write_rings(folder, WANDERING, task=task, metric=metric, acceptance=acceptance)
    (folder / "configs/production_template.yaml").write_text(yaml.safe_dump(SETTINGS))
    cli("phase", "run", "planning", *(part for one in STEPS for part in ("--set", one)), "--project", folder, code=0)
    for phase in ("baseline", "diagnostics", "optimization"):
        cli("phase", "run", phase, "--project", folder, code=0)
    return project


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"folder": tmp_path_factory.mktemp("combining") / "rings", "made": None}


@pytest.fixture
def project(walked: dict[str, Any], tmp_path: Path, cli: Cli) -> Project:
    """A copy of a project before its finalization, walked once."""
    if walked["made"] is None:
        walked["folder"].mkdir()
        walked["made"] = _walk(walked["folder"], cli)
    shutil.copytree(walked["folder"], tmp_path / "rings", symlinks=True)
    return Project(tmp_path / "rings")


def finalize(cli: Cli, project: Project, combine: str, *others: str) -> Finalization:
    changes = (part for one in (f"combine={combine}", *others) for part in ("--set", one))
    cli("phase", "run", "finalization", *changes, "--project", project.root, code=0)
    record = read_record(project, "finalization")
    assert not record.faults
    return record.trusted.evidence


def gate(project: Project) -> Gate:
    """Return finalization's gate, with all files demanded."""
    return derive(project, demand_files=True)[-1].gate


def faults(project: Project) -> str:
    return " ".join(derive(project, demand_files=True)[-1].reasons)


def weights(project: Project, folder: str) -> dict[str, torch.Tensor]:
    tree, _ = load(project.root / folder)
    return dict(tree["model"])


@pytest.mark.slow
def test_an_ensemble_that_is_better_is_delivered_tested_and_asked(project, cli):
    found = finalize(cli, project, "{of: checkpoints, how: ensemble, most: 3}")
    made = found.combination
    assert made.delivered
    assert made.rebuilt_sha256 == made.weights_sha256 == found.delivered_sha256
    losses = [float(row.metrics["loss"]) for row in made.members]
    assert losses == sorted(losses)
    assert float(made.metrics["loss"]) < losses[0]
    used = [row for row in made.members if row.used]
    assert len(used) > 1
    assert made.cost.parameters == len(used) * made.single_cost.parameters
    assert found.test.samples > 0
    assert found.test.openings[-1].weights_sha256 == made.weights_sha256
    delivered = safetensors.numpy.load_file(project.root / FINAL / "final_model/model.safetensors")
    second = weights(project, used[1].path)
    assert all((delivered[f"members.1.{name}"] == tensor.numpy()).all() for name, tensor in second.items())
    model = mltrainer.load_model(project.root, "final_model")
    assert isinstance(model, Ensemble)
    x = torch.randn(5, 32)
    assert torch.allclose(model(x), sum(member(x) for member in model.members) / len(used))
    report = (project.root / FINAL / "final_report.md").read_text()
    assert f"The ensemble of {len(used)} models has validation loss" in report
    assert "**it is delivered**" in report
    assert f"The ensemble of {len(used)} models" in (project.root / FINAL / "final_model/README.md").read_text()
    assert gate(project).holds


@pytest.mark.slow
def test_a_greedy_mean_is_of_what_its_members_have_and_batch_norm_is_measured_anew(project, cli):
    found = finalize(cli, project, "{of: checkpoints, how: greedy, most: 4}")
    made = found.combination
    used = [weights(project, row.path) for row in made.members if row.used]
    mean = weights(project, made.path)
    for name in mean.keys() - set(made.measured):
        stacked = torch.stack([state[name].double() for state in used])
        assert torch.equal(mean[name], stacked.mean(0).to(mean[name].dtype)), name
    assert len(used) > 1
    assert not torch.equal(mean["0.running_var"], torch.stack([state["0.running_var"] for state in used]).mean(0))
    assert [row.kept for row in made.additions] == [row.used for row in made.members[1:]]
    assert gate(project).holds


@pytest.mark.slow
def test_a_mean_that_is_no_better_is_said_to_be_and_the_runs_own_model_is_delivered(project, cli):
    # Short steps: each checkpoint is better than all before it.
    found = finalize(cli, project, "{of: checkpoints, how: greedy}", "optimizer.lr=0.006")
    made = found.combination
    assert not made.delivered
    assert [row.kept for row in made.additions] == [False] * (len(made.members) - 1)
    assert found.validation == found.run.metrics
    assert "**no better than the best single model**" in (project.root / FINAL / "final_report.md").read_text()
    assert gate(project).holds


def test_trials_are_refused_where_there_was_no_search(project, cli):
    said = cli("phase", "run", "finalization", "--set", "combine={of: trials, how: greedy}", "--project", project.root, code=1)
    assert "there was no search" in said.err
    assert "the final training" not in said.err


@pytest.mark.parametrize(
    "wrong", ["{of: checkpoints, how: mean}", "{of: all, how: greedy}", "{of: trials, how: greedy, most: 1}"]
)
def test_a_combination_of_another_kind_is_refused_before_anything_is_trained(wrong, project, cli):
    cli("phase", "run", "finalization", "--set", f"combine={wrong}", "--project", project.root, code=1, err="combine")
    assert not (project.root / FINAL / "record.json").exists()


@pytest.mark.slow
def test_of_a_search_the_best_trials_that_are_here_are_taken_and_none_twice(project, cli):
    final = finalize(cli, project, "null", "optimizer.lr=0.01")
    record = read_record(project, "baseline")
    baseline = record.trusted.evidence.run
    runs = {"0" * 12: 0.1, final.run.id: 0.2, baseline.id: 0.3, "1" * 12: 0.4}
    row = {"values": {}, "seed": 1, "state": "finished", "reason": None, "steps": 1, "wall_s": 1.0}
    trials = [{**row, "nr": nr, "run": run, "value": value} for nr, (run, value) in enumerate(runs.items(), 1)]
    study = partial(Searched, {"trials": trials, "metric": {"name": "loss", "mode": "min"}})
    result = read_result(project.runs_dir / final.run.id / "result.json", RunResult)
    # The final run's own weights once more, as of a trial that found the same config.
    shutil.copytree(project.runs_dir / final.run.id, project.runs_dir / ("1" * 12))
    with tools_of(project, lambda event: None) as tools:
        asked = Combine(of="trials", how="uniform", most=5)
        made = combined(tools, asked, result, TrainingConfig.model_validate(final.config), study)
    assert {row.run for row in made.members} == {final.run.id, baseline.id}
    assert all(row.config for row in made.members if row.run == baseline.id)
    left_out = {row.run: row.reason for row in made.left_out}
    assert left_out["0" * 12] == f"the best checkpoint of trial {'0' * 12} is missing"
    assert "it has the weights of" in left_out["1" * 12]


# --- lies -----------------------------------------------------------------------------------------


def _edit(project: Project, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the record's evidence, and seal it anew as somebody would who writes records."""
    path = project.root / FINAL / "record.json"
    content = read_json(path)
    change(content["evidence"])
    write_json(path, seal({key: value for key, value in content.items() if key != "seal"}))


def _row(project: Project, path: str) -> dict[str, Any]:
    return {"path": path, "sha256": sha256_file(project.root / path), "size": (project.root / path).stat().st_size}


@pytest.fixture
def delivered(project: Project, cli: Cli) -> Project:
    assert finalize(cli, project, "{of: checkpoints, how: ensemble, most: 3}").delivered_combination
    return project


def _better(evidence: dict[str, Any]) -> None:
    evidence["combination"]["members"][0]["metrics"]["loss"] = 1e-9


def _kept(evidence: dict[str, Any]) -> None:
    evidence["combination"]["additions"][0]["metrics"]["loss"] = 1e9


def _other(evidence: dict[str, Any]) -> None:
    evidence["combination"]["rebuilt_sha256"] = "0" * 64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (_better, "no better than each single model on validation, and delivered is True"),
        (_kept, "by their validation metrics it is of [1"),
    ],
)
def test_what_does_not_follow_from_the_metrics_is_told(lie, told, delivered):
    _edit(delivered, lie)
    assert told in faults(delivered)


@pytest.mark.slow
def test_a_combination_that_came_out_otherwise_again_fails_the_reproduction(delivered):
    _edit(delivered, _other)
    items = {item.id: item.verdict for item in gate(delivered).items}
    assert items["reproduction_verified"] == "fail"


@pytest.mark.slow
def test_an_altered_member_and_a_swapped_combination_are_noticed(delivered):
    record = read_record(delivered, "finalization")
    made = record.trusted.evidence.combination
    member, own = (delivered.root / row / "state.safetensors" for row in (made.members[1].path, made.path))
    whole = member.read_bytes()
    member.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert made.members[1].path in faults(delivered)
    member.write_bytes(whole)
    assert gate(delivered).holds
    whole = own.read_bytes()
    own.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert made.path in faults(delivered)


@pytest.mark.slow
def test_a_swapped_combination_is_noticed_although_every_digest_was_written_anew(project, cli):
    made = finalize(cli, project, "{of: checkpoints, how: greedy, most: 4}").combination
    other, folder = made.members[1], project.root / made.path
    assert sum(row.used for row in made.members) > 1
    for name in ("state.safetensors", "state.json"):
        shutil.copyfile(project.root / other.path / name, folder / name)
    files = {row.path: row for row in made.files}

    def swap(evidence: dict[str, Any]) -> None:
        evidence["combination"] |= {"weights_sha256": other.weights_sha256, "rebuilt_sha256": other.weights_sha256}
        evidence["delivered_sha256"] = other.weights_sha256
        evidence["combination"]["files"] = [_row(project, path) for path in files]

    _edit(project, swap)
    assert "is not the mean of what its" in faults(project)
