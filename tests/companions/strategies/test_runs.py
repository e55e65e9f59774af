"""Runs with a strategy: the same bits in any number of processes and after any interruption, and gates that know the teacher."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from torch import nn

from mltrainer.checkpointing.format import load
from mltrainer.configs.project import config_digest
from mltrainer.gates.gate import check_gates
from mltrainer.workspace import Project, read_json
from tests.conftest import commit, start_digits
from tests.projects import TASK, evidence_of, results, write_rings
from tests.trainers.native.digits_runs import config, make, part_of, train
from tests.trainers.native.test_ranks import bits, train_on
from tests.trainers.native.test_resume import finish, job, start

STRATEGY: dict[str, Any] = {"name": "distillation", "teacher": {"weights": "teacher.pt"}, "weight": 0.7}
LORA: dict[str, Any] = {"name": "lora", "rank": 4, "dropout": 0.1}
# Each strategy with what else its config needs, over weights in teacher.pt.
CASES: dict[str, dict[str, Any]] = {
    "distillation": {"strategies": [STRATEGY]},
    "lora": {"strategies": [{**LORA, "dora": True, "train": ["head"]}], "start": {"weights": "teacher.pt"}},
    "adversarial": {"strategies": [{"name": "adversarial", "epsilon": 0.1, "steps": 2, "weight": 0.8}]},
    "contrastive": {"strategies": [{"name": "contrastive", "projection": 16}]},
    "curriculum": {"strategies": [{"name": "curriculum", "epochs": 2, "begin": 0.4}]},
    "masked": {"strategies": [{"name": "masked"}]},
    "progressive": {
        "strategies": [{"name": "progressive", "shares": [0.5], "epochs": 1}],
        "task": {"use": "digits_task:Pictures"},
    },
    "uncertainty": {"strategies": [{"name": "balancing"}]},
    "gradients": {"strategies": [{"name": "balancing", "method": "gradients", "aggregator": "pcgrad"}]},  # which draws
    "mean teacher": {"strategies": [{"name": "distillation", "teacher": {"ema": 0.9}}]},
    "distillation and layers": {
        "strategies": [
            {
                **STRATEGY,
                "features": [{"student": "entry", "teacher": "layers.0.linear1"}, {"student": "layers.1", "teacher": "layers.1"}],
            }
        ]
    },
    "quantization": {"strategies": [{"name": "quantization"}]},
    "kept": {
        "strategies": [{**STRATEGY, "keep": True}],
        "task": {"use": "digits_task:InMemory", "options": {"model": "large"}},
    },
    "lora and 4 bits": {
        "strategies": [{**LORA, "base_bits": 4, "dora": True, "train": ["head"]}],
        "start": {"weights": "teacher.pt"},
    },
    "lora and 8 bits": {"strategies": [{**LORA, "base_bits": 8}], "start": {"weights": "teacher.pt"}},
    "distillation and lora": {"strategies": [STRATEGY, LORA], "start": {"weights": "teacher.pt"}},
}
KILLED = ("mean teacher", "uncertainty", "lora")  # that have a state of their own; the others are killed with the long tests
# One of each kind - another loss, other inputs, another order - and those with a state; the others are tried with the long tests.
SHORT = ("distillation", "adversarial", "curriculum", *KILLED)
NAMES = [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in CASES]
SETTING: dict[str, Any] = {
    "task": {"use": "digits_task:Digits", "options": {"model": "large"}},
    "batch_size": 6,
    "accumulate": 4,
    "epochs": 2,
    "strategies": [STRATEGY],
}


RINGS = TASK.replace(
    "    def loss(",
    "    def teacher(self):\n        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))\n\n    def loss(",
)


BESIDE = """

class Digits(Digits):
    terms = ("digit", "parity")

    def difficulty(self):
        return load_digits().images[:self.n].std((1, 2))

    def losses(self, outputs, targets):
        odd = outputs[:, 1::2].logsumexp(1) - outputs[:, ::2].logsumexp(1)
        parity = nn.functional.binary_cross_entropy_with_logits(odd, (targets % 2).float())
        return {"digit": nn.functional.cross_entropy(outputs, targets), "parity": parity}


class InMemory(Digits):
    def samples(self):
        digits = load_digits()
        return torch.tensor(digits.images[:self.n] / 16, dtype=torch.float32), torch.tensor(digits.target[:self.n])


class Following(InMemory):
    def enter(self, step, length):
        pass


class Pictures(Digits):
    def collate(self, rows):
        x, y = torch.utils.data.default_collate(rows)
        return x[:, None], y

    def model(self):
        body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(body, nn.Dropout(0.3), nn.Linear(8, 10))
"""


def prepared(root: Path, model: str = "Large") -> Path:
    """Write the digits task into a folder, with the weights of a teacher of one of its classes."""
    path = make(root) / "digits_task.py"
    path.write_text(path.read_text() + BESIDE)
    spec = importlib.util.spec_from_file_location("teachers", path)
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


def load_all(root: Path) -> list[Any]:
    """Return what the kept checkpoints of a run hold."""
    folders = sorted((root / ".mltrainer/runs/run/checkpoints").iterdir())
    return [load(folder, None)[0] for folder in folders]


def terms(result: dict[str, Any]) -> list[Any]:
    return [row.get("terms") for row in result["history"]]


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """A setting with a strategy, and the terms and bits of one process that nothing disturbed."""
    root, setting = prepared(tmp_path_factory.mktemp("alone")), {**SETTING, **CASES[request.param]}
    result = train(root, **setting)
    return setting, (terms(result), *bits(result, root))


def _needs_whole_model(strategy: dict[str, Any]) -> bool:
    if strategy["name"] in ("adversarial", "contrastive", "masked") or "method" in strategy:
        return True
    return "features" in strategy or "ema" in strategy.get("teacher", {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "parallel",
    ["ddp", *(pytest.param(way, marks=pytest.mark.long) for way in ("zero1", "fsdp", "pipeline"))],
)
def test_two_processes_give_bits_and_terms_of_one(tmp_path, case, parallel):
    setting, alone = case
    if parallel in ("fsdp", "pipeline") and any(map(_needs_whole_model, setting["strategies"])):
        pytest.skip("refused, as the tests of these strategies tell")
    root = prepared(tmp_path)
    result = train_on(root, 2, **setting, launch={"parallel": parallel})
    assert (terms(result), *bits(result, root)) == alone
    assert result["processes"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adversarial", "contrastive", "masked"])
def test_what_the_tasks_loss_draws_is_nothing_to_a_term(tmp_path, name):
    found = []
    for place, drawn in (("plain", "        return"), ("drawing", "        torch.rand(3)\n        return")):
        root = prepared(tmp_path / place)
        path = root / "digits_task.py"
        loss = "    def loss(self, outputs, targets):\n"
        path.write_text(path.read_text().replace(f"{loss}        return", f"{loss}{drawn}", 1))
        found.append(train(root, **{**SETTING, **CASES[name], "epochs": 1}))
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert terms(found[0]) == terms(found[1])


@pytest.mark.slow
def test_a_run_that_was_stopped_within_an_epoch_gives_bits_and_terms_of_one_that_was_not(tmp_path, case):
    setting, alone = case
    root = prepared(tmp_path)
    result = train(root, stops=(3, 6), **setting)
    assert (terms(result), *bits(result, root)) == alone


@pytest.mark.slow
@pytest.mark.long
def test_computing_micro_batches_twice_changes_no_bit_and_no_term(tmp_path, case):
    setting, alone = case
    root = prepared(tmp_path)
    result = train(root, **setting, replay={"every": 2})
    assert (terms(result), *bits(result, root)) == alone
    assert result["replay"] == {"every": 2, "compared": result["steps"] // 2, "differed": []}


@pytest.mark.slow
def test_terms_are_those_of_the_task_and_of_each_strategy_that_has_one(tmp_path):
    setting = {**SETTING, **CASES["distillation and lora"], "epochs": 1}
    assert terms(train(prepared(tmp_path), **setting))[0].keys() == {"task", "distillation"}


@pytest.mark.slow
def test_a_model_that_is_split_by_its_plan_learns_what_a_whole_one_learns(tmp_path):
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
def test_other_ways_to_train_repeat_with_a_teacher(tmp_path, changes):
    one, again = (prepared(tmp_path / name) for name in ("one", "again"))
    found, halves = train(one, **{**SETTING, **changes}), train(again, stops=(5,), **{**SETTING, **changes})
    assert (terms(found), *bits(found, one)) == (terms(halves), *bits(halves, again))


@pytest.mark.slow
def test_a_teacher_whose_outputs_are_not_finite_is_told_with_the_step(tmp_path):
    root = prepared(tmp_path, "Attention")
    weights = torch.load(root / "teacher.pt")
    largest = torch.finfo(torch.float32).max  # infinite weights are refused when they are read; these overflow in the product
    torch.save({**weights, "head.weight": torch.full_like(weights["head.weight"], largest)}, root / "teacher.pt")
    task = {"use": "digits_task:Digits", "options": {"model": "transformer"}}
    result = train(root, **{**SETTING, "task": task})
    assert (result["state"], result["nonfinite"]["step"], result["nonfinite"]["what"]) == ("failed", 1, "loss")
    assert result["nonfinite"]["located"]["holds"] in ("nan", "inf")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name if name in KILLED else pytest.param(name, marks=pytest.mark.long) for name in CASES])
def test_a_run_killed_in_mid_epoch_goes_on_to_the_same_bits_and_terms(tmp_path, name):
    policy = {"every_n_epochs": 100, "every_n_steps": 1, "save_best": False, "save_last": True, "keep": 0}
    changes = {**SETTING, **CASES[name], "epochs": 5, "checkpoint": policy}
    whole_root, root = (prepared(tmp_path / place) for place in ("whole", "killed"))
    whole = finish(whole_root, job(whole_root, **changes))
    work = job(root, **changes)
    process = start(root, work)
    while process.poll() is None and not [*(root / work["folder"]).glob("checkpoints/step-*[123456789]")]:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    again = finish(root, work)
    assert [(stop["cause"], stop["step"] > 0) for stop in again["interruptions"]] == [("killed", True)]
    assert (again["chain"], terms(again)) == (whole["chain"], terms(whole))


@pytest.mark.slow
def test_a_teacher_is_measured_beside_the_model_that_learned_from_it(tmp_path):
    root = prepared(tmp_path, "Attention")
    changes = {**SETTING, "task": {"use": "digits_task:Digits", "options": {"model": "transformer"}}, "epochs": 1}
    taught = train(root, **changes)["taught"]
    alone = train(prepared(tmp_path / "alone", "Attention"), **{**changes, "strategies": []})
    assert (taught["teacher"], taught["untaught_sha256"]) == ("teacher.pt", alone["data_sha256"])
    assert alone.get("taught") is None
    # As a run that begins with the teacher's weights, and moves them by nothing that a float could tell.
    still = {"start": {"weights": "teacher.pt"}, "optimizer": {"name": "sgd", "lr": 1e-30, "momentum": 0.0}}
    same = train(prepared(tmp_path / "same", "Attention"), **{**changes, "strategies": [], **still})
    assert taught["metrics"] == {name: value for name, value in same["metrics"].items() if not name.startswith("train_")}
    assert taught["cost"]["parameters"] == taught["own_cost"]["parameters"] == same["parameters"]
    assert all(taught[cost][time] > 0 for cost in ("cost", "own_cost") for time in ("one_ms", "batch_ms"))


MEAN: dict[str, Any] = {
    "task": {"use": "digits_task:Digits", "options": {"model": "mlp"}},
    "strategies": [{"name": "distillation", "teacher": {"ema": 0.7}}],
    "optimizer": {"name": "sgd", "lr": 0.3},
}


@pytest.mark.slow
def test_an_average_is_measured_as_it_stood_at_the_best_checkpoint(tmp_path):
    # By the smallest accuracy the best is the first evaluation; the run to it alone ends with that average.
    first = {**SETTING, **MEAN, "metric": {"name": "accuracy", "mode": "min"}, "schedule": {"name": "constant"}}
    whole = train(make(tmp_path / "whole"), **{**first, "epochs": 6})
    step = whole["best"]["step"]
    assert step < whole["steps"]
    again = train(make(tmp_path / "first"), **{**first, "epochs": whole["best"]["epoch"]})
    assert again["best"]["step"] == step
    assert whole["taught"]["teacher"] == "ema: 0.7"
    assert whole["taught"]["metrics"] == again["taught"]["metrics"]


@pytest.mark.slow
def test_adapters_are_no_part_of_the_size_that_stands_beside_the_teachers(tmp_path):
    taught = train(prepared(tmp_path), **{**SETTING, **CASES["distillation and lora"], "epochs": 1})["taught"]
    assert taught["own_cost"]["parameters"] == taught["cost"]["parameters"]


@pytest.mark.slow
def test_the_module_of_a_teacher_is_part_of_the_runs_code(tmp_path):
    root = prepared(tmp_path)
    made = "import torch\nfrom digits_task import Large\n\ndef teacher():\n    made = Large()\n"
    (root / "a_teacher.py").write_text(f"{made}    made.load_state_dict(torch.load('teacher.pt'))\n    return made\n")
    given = {"name": "distillation", "teacher": {"use": "a_teacher:teacher"}, "weight": 0.7}
    found = train(root, **{**SETTING, "epochs": 1, "strategies": [given]})
    sys.modules.pop("a_teacher")
    other = train(prepared(tmp_path / "file"), **{**SETTING, "epochs": 1})
    assert "a_teacher.py" in [row["path"] for row in found["code_files"]]
    assert terms(found) == terms(other)
    assert found["taught"]["metrics"] == other["taught"]["metrics"]


@pytest.mark.slow
def test_of_many_runs_of_a_search_no_teacher_is_measured(tmp_path):
    root = prepared(tmp_path)
    work = {**job(root, **{**SETTING, "epochs": 1}), "phase": "ablation"}
    assert part_of(root, work, lambda _step: False).get("taught") is None


@pytest.mark.slow
def test_a_held_norm_beside_adapters_keeps_its_statistics(tmp_path):
    torch.manual_seed(5)
    root = make(tmp_path)
    norm = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10))
    torch.save(norm.state_dict(), root / "teacher.pt")
    task = {"use": "digits_task:Digits", "options": {"model": "mlp"}}
    train(root, **{**SETTING, "task": task, "epochs": 1, "strategies": [LORA], "start": {"weights": "teacher.pt"}})
    (last,) = load_all(root)
    assert torch.equal(last["model"]["2.running_mean"], torch.zeros(32))
    assert last["delivered"].keys() == norm.state_dict().keys()
    assert not torch.equal(last["delivered"]["1.weight"], norm.state_dict()["1.weight"])


# --- what names a run -----------------------------------------------------------------------------


def test_a_run_without_strategies_has_the_name_that_it_had():
    assert config_digest(config({})) == config_digest(config({"strategies": []}))
    assert config_digest(config({})) != config_digest(config({"strategies": [STRATEGY]}))


# --- through the phases ---------------------------------------------------------------------------


@pytest.mark.slow
def test_another_teacher_is_another_run_and_a_stale_gate(tmp_path, cli):
    project = rings(tmp_path)
    for phase in ("planning", "baseline"):
        assert (
            cli("phase", "run", phase, "--project", tmp_path, *(["--set", "epochs=2"] if phase == "planning" else [])).code == 0
        )
    (first,) = results(project)
    evidence = evidence_of(project, "planning")
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
def test_planning_refuses_a_teacher_of_other_classes(tmp_path, cli):
    rings(tmp_path)
    (tmp_path / "my_task.py").write_text(RINGS.replace("nn.Linear(64, 2)", "nn.Linear(64, 3)"))
    torch.save(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 3)).state_dict(), tmp_path / "teacher.pt")
    cli("phase", "run", "planning", "--project", tmp_path, code=1, err="strategies.0: the teacher gives outputs of shape")


@pytest.mark.slow
def test_a_delivered_model_teaches_another_project_through_all_phases(digits, tmp_path, cli):
    root = tmp_path / "small"
    start_digits(root)
    values = yaml.safe_load((root / "mltrainer.yaml").read_text("utf-8"))
    (delivered,) = {path.parent for path in digits.root.rglob("inference.json")}
    teacher = {"weights": os.path.relpath(delivered, root), "model": values["model"]}
    changes = {"model": {"name": "mlp", "hidden": [12]}, "acceptance": {"accuracy": ">= 0.5"}}
    strategies = [{"name": "distillation", "teacher": teacher, "temperature": 4.0, "weight": 0.9}]
    (root / "mltrainer.yaml").write_text(yaml.safe_dump({**values, **changes, "strategies": strategies}))
    commit(root)
    cli("phase", "run", "planning", "--project", root, "--set", "epochs=12", code=0)
    cli("run", "--project", root, code=0)
    report = (Project(root).phase_dir("baseline") / "baseline_results.md").read_text("utf-8")
    assert "loss_terms.svg" in report
    evidence = evidence_of(root, "finalization")
    theirs = read_json(next(digits.root.glob("phases/05_finalization/record.json")))["evidence"]["run"]
    taught = evidence["run"]["taught"]
    assert taught["metrics"] == {name: theirs["metrics"][name] for name in taught["metrics"]}
    assert taught["own_cost"]["parameters"] < taught["cost"]["parameters"] == theirs["parameters"]
    assert evidence["untaught"] == {"runs": [], "command": "mltrainer ablate 'strategies=[]+epochs=15'"}
    (final,) = {path.parent for path in root.rglob("inference.json")}
    assert safetensors.torch.load_file(final / "model.safetensors")["output.weight"].shape == (10, 12)
    inputs = root / "images.npy"
    np.save(inputs, np.zeros((3, 1, 8, 8), dtype=np.float32))
    cli("predict", inputs, "--project", root, code=0)


def adapting(digits: Project, root: Path) -> None:
    """Start a digits project that adapts the delivered model of another, with a new head."""
    start_digits(root)
    values = yaml.safe_load((root / "mltrainer.yaml").read_text("utf-8"))
    (final,) = {path.parent for path in digits.root.rglob("inference.json")}
    begun = {"weights": os.path.relpath(final, root), "replace_head": True}
    changes = {"start": begun, "strategies": [{"name": "lora", "rank": 4}], "acceptance": {"accuracy": ">= 0.5"}}
    (root / "mltrainer.yaml").write_text(yaml.safe_dump({**values, **changes}))
    commit(root)


@pytest.mark.slow
@pytest.mark.long
def test_adapters_are_trained_delivered_and_predict_through_all_phases(digits, tmp_path, cli):
    root = tmp_path / "adapted"
    adapting(digits, root)
    cli("phase", "run", "planning", "--project", root, "--set", "epochs=6", "--set", "optimizer.lr=0.003", code=0)
    cli("run", "--project", root, code=0)
    final = Project(root).phase_dir("finalization")
    evidence = read_json(final / "record.json")["evidence"]
    rows = {row["format"]: row for row in evidence["exports"]}
    assert rows["adapter"]["agrees"]
    assert rows["adapter"]["relative_difference"] < 1e-5
    base = safetensors.torch.load_file(next(digits.root.rglob("model.safetensors")))
    theirs = safetensors.torch.load_file(final / "final_model" / "model.safetensors")
    assert base.keys() == theirs.keys()
    assert torch.equal(base["hidden1.bias"], theirs["hidden1.bias"])
    assert torch.linalg.matrix_rank((theirs["hidden1.weight"] - base["hidden1.weight"]).double(), rtol=1e-4) == 4
    inputs = root / "images.npy"
    np.save(inputs, np.zeros((3, 1, 8, 8), dtype=np.float32))
    cli("predict", inputs, "--project", root, code=0)
    # An adapter that was changed after it was delivered is told.
    file = final / "final_model" / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert any("adapter_model.safetensors" in reason for gate in check_gates(Project(root)) for reason in gate.stale)


@pytest.mark.slow
def test_robust_metrics_are_measured_on_the_test_split_and_decide_the_gate(tmp_path, cli):
    start_digits(tmp_path)
    values = yaml.safe_load((tmp_path / "mltrainer.yaml").read_text("utf-8"))
    strategy = {"name": "adversarial", "epsilon": 0.1, "steps": 3}
    asked = {"accuracy": ">= 0.5", "robust_accuracy": ">= 0.3"}
    (tmp_path / "mltrainer.yaml").write_text(yaml.safe_dump({**values, "strategies": [strategy], "acceptance": asked}))
    commit(tmp_path)
    cli("phase", "run", "planning", "--project", tmp_path, "--set", "epochs=6", code=0)
    cli("run", "--project", tmp_path, code=0)
    evidence = evidence_of(tmp_path, "finalization")
    found = evidence["test"]["metrics"]
    assert 0.3 <= found["robust_accuracy"] < found["accuracy"]
    assert found["robust_loss"] > found["loss"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "contrastive", "augment": {"crop": 1, "affine": {"rotate": 15.0}}, "projection": 16},
        {"name": "masked", "patch": 2},
    ],
    ids=["contrastive", "masked"],
)
def test_features_learned_without_labels_begin_another_project(tmp_path, cli, strategy):
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        start_digits(root)
    values = yaml.safe_load((first / "mltrainer.yaml").read_text("utf-8"))
    model = {"name": "cnn"}
    asked = {"accuracy": ">= 0.3", "knn_accuracy": ">= 0.5"}
    (first / "mltrainer.yaml").write_text(
        yaml.safe_dump({**values, "model": model, "strategies": [strategy], "acceptance": asked})
    )
    begun = {"weights": "../first/phases/05_finalization/final_model", "replace_head": True}
    (second / "mltrainer.yaml").write_text(yaml.safe_dump({**values, "model": model, "start": begun}))
    for root in (first, second):
        commit(root)
    cli("phase", "run", "planning", "--project", first, "--set", "epochs=3", "--set", "batch_size=128", code=0)
    cli("run", "--project", first, code=0)
    evidence = evidence_of(first, "finalization")
    assert evidence["test"]["metrics"]["knn_accuracy"] >= 0.5
    names = safetensors.torch.load_file(next(first.rglob("model.safetensors"))).keys()
    assert not [name for name in names if "beside" in name or "base_layer" in name]
    cli("phase", "run", "planning", "--project", second, "--set", "epochs=1", code=0)


TIED = TASK.replace(
    "class Rings(",
    """class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 32), nn.Linear(32, 2)

    def forward(self, x):
        return self.last(self.first(x).relu()) + x @ self.first.weight[:2].T


class Rings(""",
).replace(
    "return nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))", "return Tied()"
)


@pytest.mark.slow
@pytest.mark.long
def test_planning_tells_a_model_that_passes_its_adapters_by(tmp_path, cli):
    project = write_rings(tmp_path, TIED, strategies=[{"name": "lora", "rank": 2, "layers": ["first"]}])
    cli("phase", "run", "planning", "--project", tmp_path, code=4)
    evidence = evidence_of(project, "planning")
    rows = {row["format"]: row for row in evidence["rehearsal"]["exports"]}
    assert not rows["adapter"]["agrees"]
    assert rows["safetensors"]["agrees"]
    (tmp_path / "my_task.py").write_text(TIED.replace(" + x @ self.first.weight[:2].T", ""))
    cli("phase", "run", "planning", "--project", tmp_path, code=0)
