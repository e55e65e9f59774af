"""How well margins tell labels that are wrong: the digits with some planted, and what share of the head of the list they are.

Of each seed and model, as many training samples as have a planted label are taken from the head of the list that
`mltrainer rows --mislabelled` goes by.

    python tests/benchmarks/bench_labels.py [--share 0.05] [--epochs 20] [--seeds 0 1 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import mltrainer
from mltrainer.trainers.native.signals import outputs
from mltrainer.workspace import write_atomic

MODELS: dict[str, dict[str, Any]] = {"mlp": {"name": "mlp", "hidden": [256, 256]}, "cnn": {"name": "cnn"}}


def plant(folder: Path, share: float, seed: int) -> np.ndarray:
    """Write the digits with a share of wrong labels, and return which samples have one."""
    digits, draw = load_digits(), np.random.default_rng(seed)
    wrong = draw.choice(len(digits.target), round(share * len(digits.target)), replace=False)
    labels = digits.target.copy()
    labels[wrong] = (labels[wrong] + draw.integers(1, 10, len(wrong))) % 10
    np.savez(folder / "digits.npz", x=(digits.images / 16).astype(np.float32), y=labels)
    return wrong


def measure(share: float, epochs: int, seed: int, model: str) -> dict[str, Any]:
    """Return the share of planted labels at the head of the list, and in its first half."""
    kept: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        wrong = plant(Path(name), share, seed)
        outputs.write_atomic = lambda path, data: kept.update(found=data) or write_atomic(path, data)  # type: ignore[attr-defined]
        mltrainer.fit(
            {"kind": "image_classification"},
            data={"source": "digits.npz"},
            model=MODELS[model],
            metric={"name": "accuracy", "mode": "max"},
            epochs=epochs,
            early_stopping=None,
            tell=lambda _event: None,
        )
        os.chdir("/")
    found = np.frombuffer(kept["found"], dtype="<f4")
    trained = np.flatnonzero(np.isfinite(found))
    head = trained[np.argsort(found[trained], kind="stable")][: int(np.isin(wrong, trained).sum())]
    is_planted = np.isin(head, wrong)
    return {
        "model": model,
        "seed": seed,
        "planted": len(head),
        "head": is_planted.mean(),
        "half": is_planted[: len(head) // 2].mean(),
    }


def main() -> None:
    """Print a line for each model and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for model in MODELS:
        for seed in asked.seeds:
            row = measure(asked.share, asked.epochs, seed, model)
            shares = f"{row['head']:.3f} of the first {row['planted']} are planted, {row['half']:.3f} of the first half"
            line = f"{model}, seed {seed}: {shares}"
            print(json.dumps(row) if asked.json else line, flush=True)


if __name__ == "__main__":
    main()
