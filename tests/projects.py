"""Small projects that tests train: a user's own task with dropout and random augmentation."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import yaml

from mltrainer.workspace import Project

KEPT = Path(__file__).parent / "kept"

TASK = '''
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
import mltrainer


class Noisy(Dataset):
    """Two rings; each sample is moved by draws from three generators."""

    def __init__(self, n):
        g = np.random.default_rng(7)
        angle, ring = g.uniform(0, 6.28, n), np.arange(n) % 2
        self.x = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 + ring[:, None])
        self.y = ring

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        noise = np.random.normal(0, 0.05) + random.gauss(0, 0.05) + torch.randn(()).item() * 0.05
        return torch.tensor(self.x[i] + noise, dtype=torch.float32), int(self.y[i])


class Rings(mltrainer.Task):
    def __init__(self, n=300, pause=0.0):
        self.n, self.pause = n, pause

    def samples(self):
        return Noisy(self.n)

    def model(self):
        return nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))

    def loss(self, outputs, targets):
        import time
        time.sleep(self.pause)
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
'''

PROJECT: dict[str, Any] = {
    "name": "rings",
    "seed": 42,
    "task": {"use": "my_task:Rings", "options": {}},
    "split": {"validation": 0.2, "test": 0.1},
    "metric": {"name": "accuracy", "mode": "max"},
    "acceptance": {"accuracy": ">= 0.7"},
    "budget": {"minutes": 5},
}


# One format that is written at once: planning tries every export, and torch.export alone takes seconds.
LIGHT: dict[str, Any] = {"export": {"formats": ["safetensors"], "samples": 8, "tolerance": None}}


def write_light_template(folder: Path) -> None:
    """Write a project's own production template: the final training as planned, one format that is written at once."""
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    (folder / "configs/production_template.yaml").write_text(yaml.safe_dump(LIGHT), "utf-8")


def write_rings(folder: Path, source: str = TASK, **changes: Any) -> Project:
    """Write a project with a task of its own; not a git repository."""
    write_light_template(folder)
    (folder / "my_task.py").write_text(source, "utf-8")
    (folder / "mltrainer.yaml").write_text(yaml.safe_dump({**PROJECT, **changes}), "utf-8")
    return Project(folder)


def results(project: Project) -> dict[str, dict[str, Any]]:
    """Return the results of all runs by id."""
    paths = project.runs_dir.glob("*/result.json")
    return {path.parent.name: json.loads(path.read_bytes()) for path in paths}


def recorded(project: Project | Path, phase: str) -> dict[str, Any]:
    """Return what a phase recorded."""
    root = project.root if isinstance(project, Project) else project
    return json.loads((Project(root).phase_dir(phase) / "record.json").read_bytes())


def evidence_of(project: Project | Path, phase: str) -> dict[str, Any]:
    """Return the evidence that a phase recorded."""
    return recorded(project, phase)["evidence"]


def kept(name: str, folder: Path) -> Project:
    """Unpack a finished project that lies in `tests/kept`."""
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return Project(folder)


def as_cloned(project: Path, folder: Path) -> Project:
    """Copy a finished project as a clone has it: without runs, data and weights; no git repository."""
    away = shutil.ignore_patterns(".git", ".mltrainer", "__pycache__", "*.safetensors", "*.onnx", "*.onnx.data", "*.pt2")
    shutil.copytree(project, folder, ignore=away, dirs_exist_ok=True)
    return Project(folder)
