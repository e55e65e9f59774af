"""A task whose model gives several outputs, and whose epochs tie in the metric, from planning to the delivered model."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import mltrainer
from tests.conftest import commit, shared, succeed
from tests.projects import evidence_of, write_rings

pytestmark = pytest.mark.slow

TASK = '''
import torch
from torch import nn
import mltrainer


class Both(nn.Module):
    """A class and the input again, by way of two numbers."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.kind, self.decode = nn.Linear(32, 2), nn.Linear(32, 4)

    def forward(self, x):
        hidden = self.encode(x)
        return {"kind": self.kind(hidden), "again": self.decode(hidden)}


class Joint(mltrainer.Task):
    def dataset(self, split):
        seed, count = {"train": (1, 48), "validation": (2, 16), "test": (3, 64)}[split]
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(count, 4, generator=draw)
        return x, (x[:, 0] + 0.8 * torch.randn(count, generator=draw) > 0).long()  # labels that cannot all be told

    def model(self):
        return Both()

    def forward(self, model, batch):
        x, kind = batch
        outputs = model(x)
        return (outputs["kind"], {"again": outputs["again"]}), (kind, x)

    def loss(self, outputs, targets):
        again = nn.functional.mse_loss(outputs[1]["again"], targets[1])
        return nn.functional.cross_entropy(outputs[0], targets[0]) + 0.1 * again

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs[0].argmax(1) == targets[0]).float().mean().item()}
'''
SETTINGS = ("epochs=30", "batch_size=16", "optimizer.lr=0.02", "early_stopping=null", "schedule.name=constant")


def make(folder: Path) -> None:
    task = {"use": "my_task:Joint"}
    metric = {"name": "accuracy", "mode": "max", "ties": "loss"}
    write_rings(folder, TASK, task=task, metric=metric, split={}, acceptance={"accuracy": ">= 0.5"})
    (folder / ".gitignore").write_text(".mltrainer/\n")
    commit(folder, new=True)
    succeed("phase", "run", "planning", "--project", folder, *(word for pair in SETTINGS for word in ("--set", pair)))
    succeed("run", "--project", folder)


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That task through all five phases; not to be changed."""
    return shared(tmp_path_factory, "joint", make)


@pytest.fixture
def task(joint: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(joint))
    return importlib.import_module("my_task").Joint()


@pytest.mark.parametrize(("phase", "run"), [("baseline", "baseline"), ("finalization", "final_model")])
def test_of_epochs_that_tie_the_described_one_is_delivered(joint, task, phase, run):
    """Its loss is lowest in the middle of the tied ones, so that neither the first nor the last of them will do."""
    trained = evidence_of(joint, phase)["run"]
    tied = [row for row in trained["history"] if row["validation"]["accuracy"] == trained["best"]["validation"]["accuracy"]]
    lowest = min(tied, key=lambda row: float(row["validation"]["loss"]))
    assert lowest not in (tied[0], tied[-1])
    assert trained["best"]["epoch"] == lowest["epoch"]
    samples = task.dataset("validation")
    with torch.no_grad():
        outputs, targets = task.forward(mltrainer.load_model(joint, run), samples)
    assert task.loss(outputs, targets).item() == pytest.approx(trained["best"]["validation"]["loss"], rel=1e-5)
    assert task.metrics(outputs, targets)["accuracy"] == pytest.approx(trained["best"]["validation"]["accuracy"])


def test_report_card_and_manifest_name_that_epoch(joint):
    epoch = evidence_of(joint, "finalization")["run"]["best"]["epoch"]
    folder = joint / "phases/05_finalization"
    assert f"in epoch {epoch}." in (folder / "final_report.md").read_text()
    assert f"best epoch {epoch} of 30" in (folder / "final_model/README.md").read_text()
    assert json.loads((folder / "final_model/manifest.json").read_bytes())["epoch"] == epoch


def test_the_model_of_several_outputs_is_diagnosed_exported_and_ablated(joint, tmp_path, cli):
    cli("gate", "check", "--files", "--project", joint, code=0)
    cli("diagnose", "baseline", "--project", joint, code=0)
    cli("checkpoints", "export", "--format", "torch_export", "--to", tmp_path / "out", "--project", joint, code=0)
    copy = shutil.copytree(joint, tmp_path / "copy", symlinks=True)
    cli("ablate", "clip", "--seeds", "2", "--project", copy, code=0, out="accuracy")
