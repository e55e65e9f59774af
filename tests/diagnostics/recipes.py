"""Measures the rules on a file of labelled runs: `python tests/diagnostics/recipes.py RUNS.jsonl...`.

Each line is what a small training printed about itself, with the labels that must and that may be found. The labels
that the rules of the handbook stand for are compared; healthy runs are those whose id begins with H.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mltrainer.diagnostics.rules import RULES, diagnose
from mltrainer.diagnostics.signals import Run

LABELS = {
    "NAN_LOSS": "nan_loss",
    "OVERFIT": "overfitting",
    "EXPLODING": "exploding_gradients",
    "VANISHING": "vanishing_gradients",
    "PIPELINE": "input_starvation",
    "STALL": "convergence_stall",
}


def run_result(printed: dict[str, Any]) -> dict[str, Any]:
    """Return the run result that the trainer would have recorded: it stops at the first loss that is not finite."""
    bad = printed["nanstep"]
    whole = len(printed["train_loss"])
    per_epoch = len(printed["step_loss"]) // whole
    epochs = whole if bad is None else min(whole, bad // per_epoch)
    classification = printed["task"] == "cls"
    return {
        "state": "finished" if bad is None else "failed",
        "metric": {"name": "accuracy" if classification else "r2", "mode": "max"},
        "layers": ["first", "last"],
        "first_loss": printed["step_loss"][0],
        "nonfinite": None if bad is None else nonfinite(printed, bad, bad // per_epoch + 1),
        "history": [row(printed, epoch, per_epoch, classification) for epoch in range(epochs)],
        "evaluation": {"kind": "classification", "confusion": confusion(printed)} if classification and bad is None else None,
        "gpu": None,
    }


def nonfinite(printed: dict[str, Any], step: int, epoch: int) -> dict[str, Any]:
    losses = printed["step_loss"][max(0, step - 8) : step + 1]
    return {"step": step + 1, "epoch": epoch, "what": "loss", "samples": [1, 2], "recent": {"losses": losses, "norms": []}}


def row(printed: dict[str, Any], epoch: int, per_epoch: int, classification: bool) -> dict[str, Any]:
    metric = "accuracy" if classification else "r2"
    first, last = printed["gfirst"][epoch], printed["glast"][epoch]
    return {
        "epoch": epoch + 1,
        "step": (epoch + 1) * per_epoch,
        "lr": printed["lr"][epoch],
        "train_loss": printed["train_loss"][epoch],
        "train": {"loss": printed["train_eval_loss"][epoch], metric: printed["train_acc"][epoch]},
        "validation": {"loss": printed["val_loss"][epoch], metric: printed["val_acc"][epoch]},
        "grad_norm": {"median": printed["gmed"][epoch], "max": printed["gmax"][epoch], "min": printed["gmed"][epoch]},
        "layer_norms": [first, last] if printed["id"] != "H10" else [first],
        "data_wait": printed["data_frac"],
    }


def confusion(printed: dict[str, Any]) -> list[list[int]]:
    """Return a matrix whose row sums have the right share of the most frequent class."""
    most = round(printed["maj"] * 400)
    others = printed["k"] - 1
    rest = [(400 - most) // others + (n < (400 - most) % others) for n in range(others)]
    return [[count, *[0] * others] for count in (most, *rest)]


def measure(lines: list[dict[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return, per rule, the ids of runs found, missed, wrongly labelled (faulty otherwise) and of healthy runs flagged."""
    table: dict[str, dict[str, list[str]]] = {name: {"found": [], "missed": [], "wrong": [], "healthy": []} for name in RULES}
    for printed in lines:
        fired = {r.id for r in diagnose(Run.of(run_result(printed)), None) if r.state == "fired"}
        for label, name in LABELS.items():
            verdict = judge(label, printed, name in fired)
            if verdict:
                table[name][verdict].append(printed["id"])
    return table


def judge(label: str, printed: dict[str, Any], fired: bool) -> str | None:
    if label in printed["must"]:
        return "found" if fired else "missed"
    if fired and printed["id"].startswith("H"):
        return "healthy"
    return "wrong" if fired and label not in printed["may"] else None


def load(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "error" not in line]


def print_table(path: str) -> None:
    lines = load(Path(path))
    healthy = sum(line["id"].startswith("H") for line in lines)
    table = measure(lines)
    print(f"{path}: {len(lines) - healthy} faulty and {healthy} healthy runs")
    for name, ids in table.items():
        total = len(ids["found"]) + len(ids["missed"])
        rest = ", ".join(f"{key} {ids[key] or 'none'}" for key in ("missed", "wrong", "healthy"))
        print(f"  {name:24} found {len(ids['found'])}/{total}; {rest}")
    print(f"  healthy runs flagged by any rule: {len({one for ids in table.values() for one in ids['healthy']})}/{healthy}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print_table(argument)
