"""Metrics of classification and regression; outputs that are NaN give NaN, never a number that looks like a result."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

MAX_PAIRS = 200
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def predictions(outputs: Tensor) -> Tensor:
    """Return the class of the largest logit of each row [samples, classes]."""
    return outputs.argmax(dim=1)


def confusion(outputs: Tensor, targets: Tensor, classes: int) -> Tensor:
    """Return how often each true class (row) was taken for each class (column), int64."""
    cells = targets * classes + predictions(outputs)
    return torch.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def classification(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return `accuracy` and `f1_macro`.

    Args:
        outputs: Logits [samples, classes].
        targets: Class numbers [samples].
    """
    if len(targets) == 0 or bool(outputs.isnan().any()):
        return {"accuracy": math.nan, "f1_macro": math.nan}
    counts = confusion(outputs, targets, outputs.shape[1]).double()
    hits = counts.diagonal()
    return {"accuracy": float(hits.sum() / counts.sum()), "f1_macro": _f1_macro(counts)}


def _f1_macro(counts: Tensor) -> float:
    """Return the mean F1 of the classes that occur, as targets or as predictions (scikit-learn's default)."""
    support = counts.sum(0) + counts.sum(1)
    occurs = support > 0
    return float((2 * counts.diagonal()[occurs] / support[occurs]).mean())


def regression(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return `r2`, `rmse` and `mae`; r2 is NaN where all targets are equal.

    Args:
        outputs: Predicted values [samples].
        targets: True values [samples].
    """
    true, errors = targets.double(), outputs.double() - targets.double()
    if len(true) == 0:
        return {"r2": math.nan, "rmse": math.nan, "mae": math.nan}
    squares, spread = float(errors.square().sum()), float((true - true.mean()).square().sum())
    return {
        "r2": 1 - squares / spread if spread > 0 else math.nan,
        "rmse": math.sqrt(squares / len(true)),
        "mae": float(errors.abs().mean()),
    }


def classification_evaluation(outputs: Tensor, targets: Tensor, labels: list[str]) -> dict[str, Any]:
    """Return the confusion matrix, true classes as rows; all NaN outputs give none."""
    matrix = None if bool(outputs.isnan().any()) else confusion(outputs, targets, len(labels)).tolist()
    return {"kind": "classification", "labels": labels, "confusion": matrix}


def regression_evaluation(outputs: Tensor, targets: Tensor) -> dict[str, Any]:
    """Return at most 200 evenly spaced pairs [target, prediction], and quantiles of prediction - target."""
    places = torch.linspace(0, len(targets) - 1, min(len(targets), MAX_PAIRS)).round().long().unique()
    pairs = torch.stack([targets[places].double(), outputs[places].double()], dim=1)
    errors = outputs.double() - targets.double()
    quantiles = errors.sort().values[[round(q * (len(errors) - 1)) for q in QUANTILES]]
    return {"kind": "regression", "pairs": pairs.tolist(), "residual_quantiles": quantiles.tolist()}
