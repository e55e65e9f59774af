"""Sets of classes from planning to the delivered model, and records and interfaces that tell of others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import mltrainer
from mltrainer.workspace import Project, read_json
from tests.conftest import commit, shared, succeed
from tests.gates.test_recomputed import bind_anew, forge, reasons
from tests.projects import LIGHT, evidence_of, write_rings

pytestmark = pytest.mark.slow

TASK = '''
import torch
from torch import nn
import mltrainer


class Three(mltrainer.Task):
    """Three overlapping clouds of points."""

    def dataset(self, split):
        seed, count = {"train": (1, 96), "validation": (2, 60), "test": (3, 80)}[split]
        draw = torch.Generator().manual_seed(seed)
        y = torch.arange(count) % 3
        return torch.randn(count, 2, generator=draw) + 1.2 * nn.functional.one_hot(y, 3)[:, :2], y

    def model(self):
        return nn.Linear(2, 3)

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}

    def inference(self):
        return {"output": "logits", "classes": ["right", "up", "middle"]}
'''
FINAL = "phases/05_finalization"
INTERFACE = f"{FINAL}/final_model/inference.json"
SETTINGS = ("epochs=20", "batch_size=16", "optimizer.lr=0.05", "early_stopping=null", "schedule.name=constant")
Record = dict[str, Any]


def start(folder: Path, **conformal: Any) -> Project:
    asked = {"conformal": {"coverage": 0.8, **conformal}}
    project = write_rings(folder, TASK, task={"use": "my_task:Three"}, split={}, acceptance={"accuracy": ">= 0.4"}, **asked)
    light = {"export": {**LIGHT["export"], "formats": ["safetensors", "torch_export"]}}
    (folder / "configs/production_template.yaml").write_text(yaml.safe_dump(light))
    (folder / ".gitignore").write_text(".mltrainer/\n")
    commit(folder, new=True)
    return project


def plan(folder: Path) -> list[str | Path]:
    return ["phase", "run", "planning", "--project", folder, *(word for pair in SETTINGS for word in ("--set", pair))]


def make(folder: Path) -> None:
    start(folder)
    succeed(*plan(folder))
    succeed("run", "--project", folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project through all five phases; not to be changed."""
    return shared(tmp_path_factory, "conformal", make)


@pytest.fixture
def clouds(finished: Path, tmp_path: Path) -> Project:
    import shutil

    shutil.copytree(finished, tmp_path / "clouds", symlinks=True)
    return Project(tmp_path / "clouds")


@pytest.mark.long
def test_a_project_with_sets_walks_to_a_model_that_answers_with_them(finished, cli, tmp_path):
    record = evidence_of(Project(finished), "finalization")
    doubt, coverage = record["conformal"], record["test"]["coverage"]
    assert (doubt["coverage"], doubt["score"], doubt["samples"], doubt["rank"]) == (0.8, "lac", 60, 49)
    assert read_json(finished / INTERFACE)["conformal"] == doubt
    np.save(tmp_path / "x.npy", np.array([[3.0, -3.0], [0.4, 0.4]], dtype=np.float32))
    answers = [json.loads(line) for line in cli("predict", tmp_path / "x.npy", "--project", finished).out.splitlines()]
    assert answers[0]["set"] == ["right"]
    assert len(answers[1]["set"]) > 1
    again = [sys.executable, str(finished / FINAL / "final_model/inference.py"), str(tmp_path / "x.npy")]
    assert [json.loads(line) for line in subprocess.check_output(again, text=True).splitlines()] == answers
    assert [row["set"] for row in mltrainer.Project(finished).predict(tmp_path / "x.npy")] == [row["set"] for row in answers]
    for name in ("final_report.md", "final_model/README.md"):
        text = (finished / FINAL / name).read_text()
        assert f"({coverage['covered']} of 80)" in text, name
        assert "calibrated on 60 validation samples, which also chose the checkpoint" in text, name


def test_its_gates_hold_and_the_coverage_cannot_be_chosen_later(finished, cli):
    cli("gate", "check", "--project", finished, code=0)
    said = cli("phase", "run", "finalization", "--project", finished, "--set", "conformal.coverage=0.7")
    assert said.code != 0
    assert "conformal.coverage belongs to planning" in said.err


FORGED: dict[str, tuple[Callable[[Record], Any], str]] = {
    "a smaller threshold": (lambda found: found["conformal"].update(threshold=0.01), "differ on conformal"),
    "no calibration": (lambda found: found.pop("conformal"), "differ on conformal"),
    "a better coverage": (lambda found: found["test"]["coverage"].update(covered=80, share=1.0), "differ on coverage"),
    "no coverage": (lambda found: found["test"].pop("coverage"), "differ on coverage"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_record_that_was_tampered_with_and_sealed_anew_is_told(clouds, what):
    change, told = FORGED[what]
    assert reasons(clouds) == ""
    assert told in forge(clouds, lambda record: change(record["evidence"]))


def test_an_interface_that_was_tampered_with_is_told_and_answers_nothing(clouds, cli, tmp_path):
    path = clouds.root / INTERFACE
    wrote = json.loads(path.read_bytes())
    wrote["conformal"]["threshold"] = 0.9
    path.write_text(json.dumps(wrote))
    assert f"{INTERFACE}" in reasons(clouds)
    np.save(tmp_path / "x.npy", np.zeros((1, 2), np.float32))
    said = cli("predict", tmp_path / "x.npy", "--project", clouds.root)
    assert (said.code, said.out) == (4, "")
    # Bound anew, digest and all, it still is not what the record says.
    assert f"the record and {INTERFACE} differ on conformal" in bind_anew(clouds, INTERFACE)


def test_an_interface_without_what_makes_the_sets_is_told(clouds):
    path = clouds.root / INTERFACE
    path.write_text("{}")
    assert f"the record and {INTERFACE} differ on conformal" in bind_anew(clouds, INTERFACE)


def test_sets_that_do_not_keep_their_coverage_fail_the_gate(clouds, cli):
    """All that lies in the project agrees: the model has sets that are too small, as of a validation split of another kind."""
    run = evidence_of(clouds, "finalization")["run"]["id"]
    missed = {"covered": 40, "share": 0.5, "interval": [0.3929706, 0.6070294]}

    def change(record: Record) -> None:
        record["evidence"]["test"]["coverage"].update(missed)

    for path in (clouds.runs_dir / run / "test.json", clouds.state_dir / "exports" / run / "result.json"):
        found = json.loads(path.read_bytes())
        found.get("test", found)["coverage"].update(missed)
        path.write_text(json.dumps(found))
    forge(clouds, change)
    said = cli("gate", "check", "finalization", "--project", clouds.root, code=4)
    assert "acceptance_met" in said.out + said.err


def test_too_few_validation_samples_are_told_by_planning(tmp_path, cli):
    """Also where the same project was planned without sets before, whose rehearsal found nothing to tell of."""
    project = start(tmp_path / "few", coverage=0.99)
    config = project.root / "mltrainer.yaml"
    asked = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**asked, "conformal": None}))
    cli(*plan(project.root), code=0)
    config.write_text(yaml.safe_dump(asked))
    said = cli(*plan(project.root))
    assert said.code != 0
    assert "a coverage of 0.99 needs at least 99 validation samples, found 60" in said.out + said.err
