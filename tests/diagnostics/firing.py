"""Records, made by hand, of which one of the rules on curves, steps and memory has something to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.diagnostics.conftest import result, row

Record = dict[str, Any]
UNLEARNED = [0.5] * 12


def curve(losses: Sequence[float], accuracies: Sequence[float], first_loss: float = 0.7, **more: Any) -> Record:
    """Return a run by its losses and accuracies, the same on both splits."""
    rows = [row(n, skill, skill, loss) for n, (loss, skill) in enumerate(zip(losses, accuracies, strict=True), 1)]
    return result(rows, first_loss=first_loss, **more)


def stepping(run: Record, *ratios: float, weights: float = 1.0) -> Record:
    """Put updates into a run: of its first steps, and the last of them of every evaluation."""
    updates = [[2**n, ratio, ratio] for n, ratio in enumerate(ratios)]
    for one in run["history"]:
        one["update_ratios"] = [ratios[-1]] * 3
    model = {"weights": {"0": weights, "2": weights}}
    return {
        **run,
        "signals": {"start": {"model": model, "data": None}, "early": {"updates": updates, "labels": []}, "spikes": []},
    }


def answering(run: Record, output: dict[str, float], target: dict[str, float | None], memory_mb: Sequence[float] = ()) -> Record:
    """Put what was seen on validation samples, and memory, into every evaluation of a run."""
    held = memory_mb or [100.0] * len(run["history"])
    seen = [{"validation": {"output": output, "target": target}, "memory_mb": mb} for mb in held]
    rows = zip(run["history"], seen, held, strict=True)
    history = [{**one, "signals": signals, "memory_mb": mb} for one, signals, mb in rows]
    return {**run, "history": history}


def holding(*memory_mb: float, what: str = "memory_mb") -> Record:
    """Return a run that learns nothing, with what its process held, or had in use, at each evaluation."""
    run = curve([0.7] * len(memory_mb), [0.5] * len(memory_mb))
    return {**run, "history": [{**one, what: mb} for one, mb in zip(run["history"], memory_mb, strict=True)]}


def spiking(run: Record, *spikes: dict[str, float]) -> Record:
    return {**run, "signals": {"spikes": [*spikes]}}


def waiting(run: Record, share: float) -> Record:
    return {**run, "history": [{**one, "data_wait": share} for one in run["history"]]}


FLAT = curve([0.7] * 12, UNLEARNED)
CLASSES = {"classes": 2, "top": 0.5, "spread": 0.5}


def clipped(run: Record, norm: float, share: float = 1.0, usual: float = 5.0) -> Record:
    """Put a clip into a run, the share of its steps that were clipped, and the usual norm before."""
    norms = {"median": usual, "max": 2 * usual, "min": usual / 2}
    start = {"model": {}, "data": None, "clip_norm": norm}
    history = [{**one, "clipped": share, "grad_norm": norms} for one in run["history"]]
    return {**run, "history": history, "signals": {"start": start, "early": {"updates": [], "labels": []}, "spikes": []}}


FIRING: dict[str, Record] = {
    "clip_too_small": clipped(FLAT, 0.01),
    "constant_predictions": answering(FLAT, {"top": 1.0, "spread": 0.0}, CLASSES),
    "divergence": curve([0.7 + 0.1 * n for n in range(12)], UNLEARNED),
    "input_starvation": waiting(FLAT, 0.8),
    "learning_rate_high": stepping(FLAT, 9.0, 1.0, 0.5, 0.2, 0.1, 0.01),
    "learning_rate_low": stepping(FLAT, *[1e-6] * 6),
    "loss_oscillation": curve([0.4] * 12, [0.8, 0.7] * 6),
    "loss_spike": spiking(FLAT, {"step": 33, "loss": 40.0, "usual": 0.5, "largest_before": 0.8}),
    "memory_growth": answering(FLAT, {"top": 0.5}, CLASSES, [1000.0 + 30 * n for n in range(12)]),
    "underfitting": FLAT,
    "undertrained": curve([0.7 - 0.01 * n for n in range(12)], [0.5 + 0.01 * n for n in range(12)]),
}
