"""Situations: run results as the trainer records them, small and complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RECORDED = json.loads(Path(__file__).with_name("runs.json").read_text())


def row(epoch: int, train: float, validation: float, loss: float = 0.2, **more: Any) -> dict[str, Any]:
    """One evaluation of a classifier; the validation loss equals the training loss unless given."""
    return {
        "epoch": epoch,
        "step": 10 * epoch,
        "lr": 0.001,
        "train_loss": loss,
        "train": {"loss": loss, "accuracy": train},
        "validation": {"loss": more.pop("validation_loss", loss), "accuracy": validation},
        "grad_norm": {"median": 1.0, "max": 2.0, "min": 0.5},
        "layer_norms": [0.5, 0.4, 0.6],
        "data_wait": 0.02,
        "seconds": 10.0,
        **more,
    }


def result(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A finished run of a classifier of two equally frequent classes, 200 validation samples."""
    return {
        "state": "finished",
        "metric": {"name": "accuracy", "mode": "max"},
        "layers": ["0.weight", "2.weight", "4.weight"],
        "first_loss": 0.7,
        "nonfinite": None,
        "history": rows,
        "evaluation": {"kind": "classification", "confusion": [[95, 5], [5, 95]]},
        "gpu": None,
        **more,
    }


@pytest.fixture
def healthy() -> dict[str, Any]:
    """A run that learns steadily over twenty epochs."""
    return result([row(n, 0.6 + 0.019 * n, 0.58 + 0.019 * n, 0.7 / n) for n in range(1, 21)])


@pytest.fixture
def unlearned() -> dict[str, Any]:
    """A run that stays at chance over twenty epochs, with ordinary gradients."""
    return result([row(n, 0.5, 0.5, 0.7) for n in range(1, 21)])


@pytest.fixture
def broken(healthy: dict[str, Any]) -> dict[str, Any]:
    """A run that was stopped by a NaN loss in its third epoch."""
    found = {"step": 27, "epoch": 3, "what": "loss", "samples": [4, 9, 11]}
    return {**healthy, "state": "failed", "history": healthy["history"][:2], "nonfinite": found, "evaluation": None}
