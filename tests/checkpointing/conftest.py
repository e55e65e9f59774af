from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mltrainer.checkpointing.format import save, snapshot


def small_state(fill: float = 0.5) -> dict[str, Any]:
    return {"model": {"0.weight": torch.full((4, 3), fill), "0.bias": torch.zeros(3)}, "step": 1, "history": [{"loss": fill}]}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of step 20, as it lies in a run's folder."""
    folder = tmp_path / "checkpoints" / "step-00000020"
    save(folder, snapshot(small_state()), {"step": 20, "epoch": 1, "metrics": {"accuracy": 0.5}, "run": "a1b2c3d4e5f6"})
    return folder


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
