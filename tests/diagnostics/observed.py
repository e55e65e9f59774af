"""A healthy classification of ten classes as it is observed beside its training; tests change what they need."""

from __future__ import annotations

import copy
from typing import Any

SEEN: dict[str, Any] = {
    "loss": 2.31,
    "accuracy": 0.1,
    "output": {
        "shape": [10],
        "lowest": -0.2,
        "largest": 0.2,
        "spread": 0.05,
        "sums_to_one": False,
        "zero": 0.0,
        "top": 0.4,
    },
    "target": {"shape": [], "classes": 10, "entropy": 2.3, "top": 0.1, "lowest": 0.0, "largest": 9.0, "spread": 2.8},
    "modules": {
        "0": {"mean": 0.0, "std": 0.3, "largest": 1.0},
        "1": {"dead": 0.1, "zero": 0.5},
        "2": {"saturated": 0.0},
        "3": {"mean": 0.0, "std": 0.1, "largest": 0.2},
    },
    "first": "Linear",
    "last": "Linear",
}
DATA: dict[str, Any] = {
    "not_finite": 0,
    "largest": 1.0,
    "spread": 0.4,
    "features": 64,
    "shared": 0.0,
    "repeated": 0.0,
    "counts": [100] * 10,
    "telling": 0.3,
    "neighbours": 0.97,
}


def row(epoch: int, accuracy: float, train: float) -> dict[str, Any]:
    """Return an evaluation, at which the model was observed."""
    return {
        "epoch": epoch,
        "step": 20 * epoch,
        "lr": 1e-3,
        "train_loss": 1.0 / epoch,
        "train": {"loss": 1.0 / epoch, "accuracy": train},
        "validation": {"loss": 1.1 / epoch, "accuracy": accuracy},
        "grad_norm": {"median": 0.5, "max": 1.0, "min": 0.1},
        "layer_norms": [0.2, 0.3],
        "update_ratios": [1e-3, 1e-3],
        "data_wait": 0.01,
        "signals": {
            "validation": copy.deepcopy(SEEN),
            "evaluating": {"loss": 1.0 / epoch, "accuracy": train},
            "training": {"loss": 1.0 / epoch, "accuracy": train},
            "memory_mb": 300.0,
        },
    }


OBSERVED: dict[str, Any] = {
    "state": "finished",
    "metric": {"name": "accuracy", "mode": "max"},
    "layers": ["0.weight", "3.weight"],
    "first_loss": 2.3,
    "batch_size": 64,
    "train_samples": 1000,
    "steps": 200,
    "nonfinite": None,
    "history": [row(epoch, 0.5 + 0.04 * epoch, 0.5 + 0.045 * epoch) for epoch in range(1, 11)],
    "evaluation": {"kind": "classification", "confusion": [[90 if a == b else 1 for b in range(10)] for a in range(10)]},
    "signals": {
        "start": {
            "model": {
                **SEEN,
                "target_kind": "classes",
                "shuffled_loss": 2.33,
                "as_probabilities": 9.0,
                "as_logits": 2.31,
                "symmetric": [],
                "weights": {"0": 0.6, "3": 0.6},
            },
            "data": DATA,
        },
        "early": {"updates": [[step, 1e-3, 2e-3] for step in (1, 2, 4, 8, 16, 32)], "labels": [2.2] * 32},
        "spikes": [],
    },
}


def observed(**changes: Any) -> dict[str, Any]:
    """Return the run with other values: `a__b__c=1` changes what stands at a, b, c; `unlearned=True` keeps it from learning."""
    run = copy.deepcopy(OBSERVED)
    if changes.pop("unlearned", False):
        for each in run["history"]:
            each["train"]["accuracy"] = each["validation"]["accuracy"] = 0.1
    for path, value in changes.items():
        *parents, last = path.split("__")
        place: Any = run
        for parent in parents:
            place = place[int(parent) if isinstance(place, list) else parent]
        place[int(last) if isinstance(place, list) else last] = value
    return run


def unlearned() -> dict[str, Any]:
    """Return a run that learned nothing, of which every rule of what was observed reads all that it can."""
    changes = {"signals__start__model__symmetric": ["0"], "signals__start__model__output__sums_to_one": True}
    return observed(unlearned=True, **changes)


def exploded() -> dict[str, Any]:
    """Return a run that ended as its loss exploded, with most units of a layer dead by then."""
    last = "history__-1__signals__validation__"
    ended = {"step": 600, "epoch": 10, "what": "loss", "samples": [1]}
    return observed(unlearned=True, nonfinite=ended, **{f"{last}modules__1__dead": 0.6, f"{last}loss": 1e9})


def of_numbers() -> dict[str, Any]:
    """Return a run towards numbers of another shape than the outputs'."""
    target = {"shape": [], "classes": None, "entropy": None, "top": None, "lowest": -3.0, "largest": 3.0, "spread": 1.0}
    output = {**SEEN["output"], "shape": [1]}
    changes = {"signals__start__model__as_logits": None, "history__-1__signals__validation__target": target}
    return observed(signals__start__model__target=target, signals__start__model__output=output, **changes)


def of_sorted_numbers(spread: float = 0.03) -> dict[str, Any]:
    """Return the same run, with batches of numbers that spread so far, and what is learned of them by heart."""
    run = {**of_numbers(), "metric": {"name": "r2", "mode": "max"}}
    run["signals"]["early"] |= {"labels": [], "numbers": [[nr / 10, spread] for nr in range(32)]}
    run["signals"]["start"]["data"] |= {"neighbours": None, "neighbour_r2": 0.1}
    for each in run["history"]:
        each |= {"train": {"loss": 0.1, "r2": 0.9}, "validation": {"loss": 1.0, "r2": 0.1}}
    return run


def beside(own: float, floor: float | None = 0.0, **losses: float) -> dict[str, Any]:
    """Return a run that learned nothing by its metrics, whose loss on validation samples stands beside those of plain answers."""
    noise = [0.01 * (-1) ** nr for nr in range(16)]
    plain = {"floor": floor, "losses": {name: [loss + bit for bit in noise] for name, loss in losses.items()}}
    blocks = [own + 0.5 * bit for bit in noise]
    run = observed(
        unlearned=True,
        signals__start__model__plain=plain,
        **{f"history__{nr}__signals__validation__losses": blocks for nr in range(10)},
    )
    run["signals"]["start"]["model"]["uses_targets"] = True
    return run
