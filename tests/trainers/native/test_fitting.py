"""`mltrainer.fit`: a training to explore, in this process; the bits of a run, and nothing that a gate could take."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mltrainer
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.errors import InputError
from mltrainer.trainers.native import fitting
from tests.trainers.native import digits_runs

PAGE = Path(__file__).parents[3] / "docs/TASKS.md"
CELL = """
import torch
import mltrainer

class Doubling(mltrainer.Task):
    def __init__(self, scale=1.0):
        self.scale = scale
    def samples(self):
        x = torch.linspace(-1, 1, 120)[:, None]
        return x, 2 * x
    def model(self):
        return torch.nn.Linear(1, 1)
    def loss(self, outputs, targets):
        return self.scale * torch.nn.functional.mse_loss(outputs, targets)
    def metrics(self, outputs, targets):
        return {"mae": (outputs - targets).abs().mean().item()}
"""


def task(**options: Any) -> mltrainer.Task:
    """A task as a notebook's cell defines it: in `__main__`, which has no file."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(CELL, names)
    return names["Doubling"](**options)


def quick(**keys: Any) -> fitting.Fit:
    return mltrainer.fit(task(), **{"epochs": 3, "batch_size": 12, "optimizer": {"name": "sgd", "lr": 0.05}, **keys})


@pytest.mark.slow
def test_a_class_from_a_notebook_is_trained():
    found = quick(metric={"name": "mae", "mode": "min"})
    assert [row["epoch"] for row in found.history] == found.frame()["epoch"].tolist() == [1, 2, 3]
    assert found.metrics["mae"] == min(row["validation"]["mae"] for row in found.history)
    assert found.config.task.use == "__main__:Doubling"


@pytest.mark.slow
def test_the_smallest_class_of_the_guide_is_trained():
    block, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(block, names)
    found = mltrainer.fit(names["TwoMoons"](noise=0.2), epochs=1, metric={"name": "accuracy", "mode": "max"})
    assert found.metrics["accuracy"] > 0.5


@pytest.mark.slow
def test_the_bits_are_those_of_a_run(tmp_path, monkeypatch):
    run = digits_runs.train(digits_runs.make(tmp_path / "run"), epochs=2)
    monkeypatch.syspath_prepend(tmp_path)
    with digits_runs._in(tmp_path / "run"):
        found = fitting.train(digits_runs.config({"epochs": 2}), tmp_path / "run")
    assert digits_runs.same(found.result, run)


@pytest.mark.slow
def test_the_model_has_the_weights_of_the_best_evaluation():
    found = quick(epochs=4, schedule={"name": "constant"}, optimizer={"name": "sgd", "lr": 0.5}, set={"metric.mode": "max"})
    best = max(found.history, key=lambda row: row["validation"]["loss"])
    assert best["step"] < found.result["steps"]
    assert weights_sha256(found.model.state_dict()) != found.result["weights_sha256"]
    assert not found.model.training


def test_nothing_of_it_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    states = random.getstate(), np.random.get_state()[2], torch.get_rng_state()
    switches = fitting.determinism.read_back("cpu"), torch.backends.cudnn.conv.fp32_precision
    quick()
    assert not list(tmp_path.iterdir())
    assert (states[0], states[1]) == (random.getstate(), np.random.get_state()[2])
    assert torch.equal(states[2], torch.get_rng_state())
    assert switches == (fitting.determinism.read_back("cpu"), torch.backends.cudnn.conv.fp32_precision)


@pytest.mark.slow
def test_it_is_marked_as_no_evidence():
    found = quick(epochs=1)
    assert not found.is_evidence
    assert "no evidence" in found._repr_markdown_()
    assert found.result["purpose"] == "explore"
    assert "config_sha256" not in found.result
    assert repr(found) == f"Fit(finished, {found.result['steps']} steps of {type(found.model).__name__}; {_best(found)})"


def _best(found: fitting.Fit) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in found.metrics.items())


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_told_and_diagnosed():
    found = mltrainer.fit(task(scale=float("nan")), epochs=1)
    assert found.state == "failed"
    assert "nan_loss" in [row["id"] for row in found.diagnose() if row["state"] == "fired"]


@pytest.mark.slow
def test_events_are_told():
    told: list[dict[str, Any]] = []
    quick(epochs=2, tell=told.append)
    assert [event["epoch"] for event in told if event["event"] == "row"] == [1, 2]


@pytest.mark.slow
def test_a_group_that_is_given_keeps_its_other_keys():
    found = quick(epochs=1, optimizer={"lr": 0.125}, set={"schedule.warmup_epochs": 0})
    assert (found.config.optimizer.name, found.config.optimizer.lr) == ("adamw", 0.125)


@pytest.mark.parametrize(("keys", "told"), [({"epoch": 3}, "did you mean 'epochs'"), ({"epochs": 0}, "epochs")])
def test_a_mistake_is_told_as_of_a_file(keys, told):
    with pytest.raises(InputError, match=told):
        mltrainer.fit(task(), **keys)


@pytest.mark.slow
def test_curves_are_shown_as_figures():
    assert quick(epochs=2).curves._repr_html_().startswith("<svg")
