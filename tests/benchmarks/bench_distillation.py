"""What distillation brings: a small perceptron that learns the digits from few labels, alone and with a teacher that saw many.

The teacher, a small convolutional network, is trained on 900 digits, or with `--same-rows` on the student's; the student on 200
others, alone and with the default settings of `distillation`, for as many steps and under the same draws. All are measured on 697
digits that none has seen, after the last step.

    python tests/benchmarks/bench_distillation.py [--labels 200] [--hidden 64] [--epochs 80] [--seeds 0 1 2 3 4] [--same-rows]
        [--features 0.5]

With `--features` the hidden layer is to give what the teacher's last but one gives, too, at that weight.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from scipy import stats
from sklearn.datasets import load_digits

import mltrainer

TEACHER: dict[str, Any] = {"name": "cnn"}
STRATEGY: dict[str, Any] = {"name": "distillation", "teacher": {"weights": "teacher.safetensors", "model": TEACHER}}
LAYERS = [{"student": "relu1", "teacher": "flatten"}]
OF_TEACHER, BEFORE_HELD = 900, 1100


def divide(labels: int, seed: int) -> None:
    """Write the rows of teacher, student and measurement, drawn by a seed."""
    digits = load_digits()
    order, x = np.random.default_rng(seed).permutation(len(digits.target)), (digits.images / 16).astype(np.float32)
    parts = {"many": order[:OF_TEACHER], "few": order[OF_TEACHER : OF_TEACHER + labels], "held": order[BEFORE_HELD:]}
    for name, rows in parts.items():
        np.savez(f"{name}.npz", x=x[rows], y=digits.target[rows])


def fit(source: str, model: dict[str, Any], epochs: int, seed: int, **keys: Any) -> mltrainer.Fit:
    """Train on a file and measure once, at the end, on what was held out."""
    return mltrainer.fit(
        {"kind": "image_classification"},
        data={"source": source, "validation": "held.npz"},
        split={"validation": 0.2, "test": 0.0},
        model=model,
        metric={"name": "accuracy", "mode": "max"},
        epochs=epochs,
        seed=seed,
        batch_size=16,
        early_stopping=None,
        evaluate={"every_n_epochs": epochs},
        signals=False,
        tell=lambda _event: None,
        **keys,
    )


def measure(labels: int, hidden: int, epochs: int, seed: int, same_rows: bool, features: float | None) -> dict[str, Any]:
    """Return the accuracies of teacher, student alone and student with its teacher."""
    student = {"name": "mlp", "hidden": [hidden]}
    strategy = STRATEGY if features is None else {**STRATEGY, "features": LAYERS, "feature_weight": features}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        divide(labels, seed)
        teacher = fit("few.npz", TEACHER, epochs, seed) if same_rows else fit("many.npz", TEACHER, 12, seed)
        safetensors.torch.save_file(
            {n: t.contiguous() for n, t in teacher.model.state_dict().items()}, Path("teacher.safetensors")
        )
        alone = fit("few.npz", student, epochs, seed)
        taught = fit("few.npz", student, epochs, seed, strategies=[strategy])
        os.chdir("/")
    found = {"teacher": teacher, "alone": alone, "taught": taught}
    return {"seed": seed, "steps": alone.result["steps"], **{name: one.metrics["accuracy"] for name, one in found.items()}}


def interval(values: list[float]) -> str:
    """Return mean and 95 % interval of some values, by Student's t."""
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return f"{np.mean(values):.4f} [{low:.4f}, {high:.4f}]"


def main() -> None:
    """Print a line for each seed, and the means with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=200, choices=range(20, BEFORE_HELD - OF_TEACHER + 1), metavar="20..200")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--same-rows", action="store_true")
    parser.add_argument("--features", type=float)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for seed in asked.seeds:
        rows.append(measure(asked.labels, asked.hidden, asked.epochs, seed, asked.same_rows, asked.features))
        line = ", ".join(f"{name} {value:.4f}" for name, value in rows[-1].items() if isinstance(value, float))
        print(json.dumps(rows[-1]) if asked.json else f"seed {seed}: {line}", flush=True)
    if not asked.json and len(rows) > 1:
        for name in ("teacher", "alone", "taught"):
            print(f"{name}: {interval([row[name] for row in rows])}")
        print(f"taught - alone, seed by seed: {interval([row['taught'] - row['alone'] for row in rows])}")


if __name__ == "__main__":
    main()
