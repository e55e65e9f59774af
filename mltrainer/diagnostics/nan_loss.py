"""NaN loss: a loss or gradient that is not a finite number (page: `diagnostics/nan_loss.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, number

ID = "nan_loss"
SHOWN_SAMPLES = 16  # ids in the evidence; a batch may hold thousands
CURVES = (("train_loss",), ("train", "loss"), ("validation", "loss"), ("grad_norm", "max"))


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire on the first loss or gradient norm that is not finite."""
    if run.nonfinite is not None:
        return _stopped(run.nonfinite)
    broken = _in_history(run)
    if broken is not None:
        reason = f"{broken['what']} was {broken['value']} at epoch {broken['epoch']:g}."
        return Finding(ID, "fired", reason, broken, ("learning_curves.svg",))
    if not run.history:
        return Finding(ID, "not_applicable", "The run recorded no evaluation and no non-finite number.")
    values = sum(_recorded(row, path) is not None for row in run.history for path in CURVES)
    return Finding(ID, "clear", f"All {values} recorded losses and gradient norms of {len(run.history)} evaluations are finite.")


def _stopped(found: Mapping[str, Any]) -> Finding:
    samples = list(found.get("samples") or [])
    what = str(found.get("what", "loss"))
    evidence = {
        "what": what,
        "step": found.get("step"),
        "epoch": found.get("epoch"),
        "samples": samples[:SHOWN_SAMPLES],
        "batch_samples": len(samples),
    }
    place = f"step {found.get('step')} (epoch {found.get('epoch')})"
    return Finding(
        ID,
        "fired",
        f"The {what} was not finite at {place}, on a batch of {len(samples)} samples.",
        evidence,
        ("learning_curves.svg", "gradients.svg"),
    )


def _in_history(run: Run) -> dict[str, Any] | None:
    """Return the first recorded value that is not finite; a value that is missing is not one."""
    for row, epoch in zip(run.history, run.epochs, strict=True):
        for path in CURVES:
            value = _recorded(row, path)
            if value is not None and not math.isfinite(number(value)):
                return {"what": ".".join(path), "value": str(value), "epoch": epoch, "step": row.get("step")}
    return None


def _recorded(row: Mapping[str, Any], path: tuple[str, ...]) -> float | str | None:
    value = row.get(path[0])
    inner = value.get(path[1]) if len(path) > 1 and isinstance(value, Mapping) else value
    return inner if isinstance(inner, (int, float, str)) else None
