"""Weights that a program goes on with are loaded from wherever it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from mltrainer.checkpointing.loading import from_safetensors
from mltrainer.records.common import FileRow
from mltrainer.workspace import sha256_file
from tests.trainers.native.digits_runs import config

TASK = """
from pathlib import Path
import torch
import mltrainer

class Own(mltrainer.Task):
    def __init__(self):
        self.width = int(Path("width.txt").read_text())

    def samples(self):
        return torch.ones(20, self.width), torch.zeros(20, dtype=torch.long)

    def model(self):
        return torch.nn.Linear(self.width, 2)

    def loss(self, outputs, targets):
        return outputs.sum()
"""


def test_a_task_finds_its_files_from_whichever_folder_its_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "task_of_width.py").write_text(TASK)
    (tmp_path / "width.txt").write_text("3")
    weights = nn.Linear(3, 2).state_dict()
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(weights, path)
    row = FileRow(path=path.name, sha256=sha256_file(path), size=path.stat().st_size)
    here = Path.cwd()
    model = from_safetensors(config({"task": {"use": "task_of_width:Own"}, "data": None}), tmp_path, path, row)
    assert torch.equal(model.state_dict()["weight"], weights["weight"])
    assert Path.cwd() == here
