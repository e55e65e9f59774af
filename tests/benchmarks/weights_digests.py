"""Digests of trained weights: whether two versions of the code compute the same bits, work by work.

Run it before and after a change, on one machine, and compare the lines: digits with the demo's config, and the tests' own
task with draws in its samples and its models, one micro-batch to a step and several. A line that differs is a change of bits.

    python -m tests.benchmarks.weights_digests > before.txt
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.trainers.native.digits_runs import make, train

MODELS = ("mlp", "cnn", "lstm", "transformer")
DEMO: dict[str, Any] = {
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp", "hidden": [256, 256]},
    "epochs": 3,
    "batch_size": 64,
}
WAYS: dict[str, dict[str, Any]] = {
    "one batch a step": {"accumulate": 1},
    "clipped now and then": {"accumulate": 1, "clip": {"norm": 1.0}},
    "normalized, clipped": {"accumulate": 1, "clip": {"norm": 0.5}, "gradients": {"normalize": True}},
    "2 micro-batches": {"accumulate": 2},
    "3 micro-batches": {"accumulate": 3},
    "sam, one batch a step": {"accumulate": 1, "optimizer": {"name": "sgd", "lr": 0.05, "sam": {}}},
    "sam, 2 micro-batches": {"accumulate": 2, "optimizer": {"name": "sgd", "lr": 0.05, "sam": {}}},
}


def works() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each work's name and its config."""
    for way, changes in WAYS.items():
        yield f"digits, {way}", {**DEMO, **changes}
        for model in MODELS:
            task = {"use": "digits_task:Digits", "options": {"model": model}}
            yield f"{model}, {way}", {"task": task, "epochs": 2, **changes}


def main() -> None:
    """Train every work in this process and print its weights' digest and the head of its chain."""
    for name, changes in works():
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            result = train(make(Path(folder)), **changes)
        print(f"{name}: {result['weights_sha256'][:16]} {result['chain']['head'][:16]}", flush=True)


if __name__ == "__main__":
    main()
