"""Runs with a strategy: the same bits in any number of processes and after any interruption, and gates that know the teacher."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from torch import nn

from mltrainer.configs.project import config_digest
from mltrainer.gates.gate import check_gates
from mltrainer.workspace import Project, read_json
from tests.conftest import Cli, commit, start_digits
from tests.projects import TASK, results, write_rings
from tests.trainers.native.digits_runs import config, make, train
from tests.trainers.native.test_ranks import bits, train_on
from tests.trainers.native.test_resume import finish, job, start

STRATEGY: dict[str, Any] = {"name": "distillation", "teacher": {"weights": "teacher.pt"}, "weight": 0.7}
SETTING: dict[str, Any] = {
    "task": {"use": "digits_task:Digits", "options": {"model": "large"}},
    "batch_size": 6,
    "accumulate": 4,
    "epochs": 2,
    "rules": 2,
    "strategies": [STRATEGY],
}


RINGS = TASK.replace(
    "    def loss(",
    "    def teacher(self):\n        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))\n\n    def loss(",
)


def prepared(root: Path, model: str = "Large") -> Path:
    """Write the digits task into a folder, with the weights of a teacher of one of its classes."""
    spec = importlib.util.spec_from_file_location("teachers", make(root) / "digits_task.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(5)
    torch.save(getattr(module, model)().state_dict(), root / "teacher.pt")
    return root


def rings(root: Path, **changes: Any) -> Project:
    """Write the project of rings, with a teacher's weights."""
    project = write_rings(root, RINGS, strategies=[STRATEGY], **changes)
    save_teacher(root, 5)
    return project


def save_teacher(root: Path, seed: int) -> None:
    torch.manual_seed(seed)
    torch.save(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2)).state_dict(), root / "teacher.pt")


def terms(result: dict[str, Any]) -> list[Any]:
    return [row["terms"] for row in result["history"]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    root = prepared(tmp_path_factory.mktemp("alone"))
    result = train(root, **SETTING)
    assert [*terms(result)[0]] == ["task", "distillation"]
    return terms(result), *bits(result, root)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "zero1", "fsdp", "pipeline"])
def test_two_processes_give_bits_and_terms_of_one(tmp_path: Path, alone: tuple[Any, ...], parallel: str) -> None:
    root = prepared(tmp_path)
    result = train_on(root, 2, **SETTING, launch={"parallel": parallel})
    assert (terms(result), *bits(result, root)) == alone
    assert result["processes"] == 2


@pytest.mark.slow
def test_a_run_that_was_stopped_within_an_epoch_gives_bits_and_terms_of_one_that_was_not(
    tmp_path: Path, alone: tuple[Any, ...]
) -> None:
    root = prepared(tmp_path)
    result = train(root, stops=(3, 6), **SETTING)
    assert (terms(result), *bits(result, root)) == alone


@pytest.mark.slow
def test_a_model_that_is_split_by_its_plan_learns_what_a_whole_one_learns(tmp_path: Path) -> None:
    task = {"use": "digits_task:Digits", "options": {"model": "planned"}}
    split, whole = (prepared(tmp_path / name, "Planned") for name in ("split", "whole"))
    found = train_on(split, 2, **{**SETTING, "task": task, "tensor_parallel": 2})
    alone = train(whole, **{**SETTING, "task": task})
    for one, other in zip(terms(found), terms(alone), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16", "accumulate": 1},
        {"optimizer": {"name": "sgd", "lr": 0.01, "sam": {"rho": 0.05}}},
        {"averaging": {"name": "ema", "decay": 0.9}, "accumulate": 3},
    ],
    ids=["bf16", "SAM", "averaged"],
)
@pytest.mark.slow
def test_other_ways_to_train_repeat_with_a_teacher(tmp_path: Path, changes: dict[str, Any]) -> None:
    one, again = (prepared(tmp_path / name) for name in ("one", "again"))
    found, halves = train(one, **{**SETTING, **changes}), train(again, stops=(5,), **{**SETTING, **changes})
    assert (terms(found), *bits(found, one)) == (terms(halves), *bits(halves, again))


def test_a_teacher_whose_outputs_are_not_finite_is_told_with_the_step(tmp_path: Path) -> None:
    root = prepared(tmp_path, "Attention")
    weights = torch.load(root / "teacher.pt")
    torch.save({**weights, "head.bias": torch.full((10,), float("inf"))}, root / "teacher.pt")
    task = {"use": "digits_task:Digits", "options": {"model": "transformer"}}
    result = train(root, **{**SETTING, "task": task})
    assert (result["state"], result["nonfinite"]["step"], result["nonfinite"]["what"]) == ("failed", 1, "loss")
    assert result["nonfinite"]["located"]["holds"] in ("nan", "inf")


@pytest.mark.slow
def test_a_run_killed_in_mid_epoch_goes_on_to_the_same_bits_and_terms(tmp_path: Path) -> None:
    policy = {"every_n_epochs": 100, "every_n_steps": 1, "save_best": False, "save_last": True, "keep": 0}
    changes = {"strategies": [STRATEGY], "task": {"use": "my_task:Rings", "options": {"pause": 0.01}}, "checkpoint": policy}
    whole = finish(rings(tmp_path / "whole").root, job(tmp_path / "whole", **changes))
    root = rings(tmp_path / "killed").root
    work = job(root, **changes)
    process = start(root, work)
    while process.poll() is None and not [*(root / work["folder"]).glob("checkpoints/step-*[123456789]")]:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    again = finish(root, work)
    assert [(stop["cause"], stop["step"] > 0) for stop in again["interruptions"]] == [("killed", True)]
    assert (again["chain"], terms(again)) == (whole["chain"], terms(whole))


# --- what names a run -----------------------------------------------------------------------------


def test_a_run_without_strategies_has_the_name_that_it_had() -> None:
    assert config_digest(config({})) == config_digest(config({"strategies": []}))
    assert config_digest(config({})) != config_digest(config({"strategies": [STRATEGY]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategies": [STRATEGY, STRATEGY]}, "distillation stands there twice"),
        ({"strategies": [{**STRATEGY, "teacher": {"weights": "t", "model": {"name": "mlp"}}}]}, "makes its teacher in teacher"),
    ],
)
def test_strategies_that_do_not_suit_the_task_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(changes)


# --- through the phases ---------------------------------------------------------------------------


@pytest.mark.slow
def test_another_teacher_is_another_run_and_a_stale_gate(tmp_path: Path, cli: Cli) -> None:
    project = rings(tmp_path)
    for phase in ("planning", "baseline"):
        assert (
            cli("phase", "run", phase, "--project", tmp_path, *(["--set", "epochs=2"] if phase == "planning" else [])).code == 0
        )
    (first,) = results(project)
    evidence = read_json(project.phase_dir("planning") / "record.json")["evidence"]
    assert "teacher.pt" in [row["path"] for row in evidence["data"]["files"]]
    save_teacher(tmp_path, 6)
    assert "teacher.pt (data) changed" in "\n".join(reason for gate in check_gates(project) for reason in gate.stale)
    assert "planning is stale" in cli("phase", "run", "baseline", "--project", tmp_path).err
    for phase in ("planning", "baseline"):
        assert (
            cli("phase", "run", phase, "--project", tmp_path, *(["--set", "epochs=2"] if phase == "planning" else [])).code == 0
        )
    assert len({row["data_sha256"] for row in results(project).values()}) == len({first, *results(project)}) == 2


@pytest.mark.slow
def test_planning_refuses_a_teacher_of_other_classes(tmp_path: Path, cli: Cli) -> None:
    rings(tmp_path)
    (tmp_path / "my_task.py").write_text(RINGS.replace("nn.Linear(64, 2)", "nn.Linear(64, 3)"))
    torch.save(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 3)).state_dict(), tmp_path / "teacher.pt")
    said = cli("phase", "run", "planning", "--project", tmp_path)
    assert said.code == 1
    assert "strategies.0: the teacher gives outputs of shape" in said.err


@pytest.mark.slow
def test_a_delivered_model_teaches_another_project_through_all_phases(digits: Project, tmp_path: Path, cli: Cli) -> None:
    root = tmp_path / "small"
    start_digits(root)
    values = yaml.safe_load((root / "mltrainer.yaml").read_text("utf-8"))
    (delivered,) = {path.parent for path in digits.root.rglob("inference.json")}
    teacher = {"weights": os.path.relpath(delivered, root), "model": values["model"]}
    changes = {"model": {"name": "mlp", "hidden": [12]}, "acceptance": {"accuracy": ">= 0.5"}}
    strategies = [{"name": "distillation", "teacher": teacher, "temperature": 4.0, "weight": 0.9}]
    (root / "mltrainer.yaml").write_text(yaml.safe_dump({**values, **changes, "strategies": strategies}))
    commit(root)
    assert cli("phase", "run", "planning", "--project", root, "--set", "epochs=12").code == 0
    assert cli("run", "--project", root).code == 0
    report = (Project(root).phase_dir("baseline") / "baseline_results.md").read_text("utf-8")
    assert "loss_terms.svg" in report
    (final,) = {path.parent for path in root.rglob("inference.json")}
    assert safetensors.torch.load_file(final / "model.safetensors")["output.weight"].shape == (10, 12)
    inputs = root / "images.npy"
    np.save(inputs, np.zeros((3, 1, 8, 8), dtype=np.float32))
    assert cli("predict", inputs, "--project", root).code == 0
