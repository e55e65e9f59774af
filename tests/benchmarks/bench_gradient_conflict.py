"""Where the diagnostic gradient_conflict fires: lowest cosines of networks that serve all targets, and of such as cannot.

Wide enough are perceptrons of 16 hidden units and more on wine (kind, alcohol, proline), diabetes (progression, body mass, blood
pressure) and six quantities as in `bench_strategies.py multitask`, related and unrelated. Too narrow are those with 1 or 2 units
in a hidden layer for the six quantities; at odds are two quantities of opposite sign that one output shall be at once.

    python tests/benchmarks/bench_gradient_conflict.py [--seeds 0 1 2]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_wine
from torch import Tensor, nn

import mltrainer
from mltrainer.configs.pages import diagnostic_page
from mltrainer.diagnostics.gradient_conflict import find
from mltrainer.diagnostics.signals import Finding, Run
from tests.benchmarks.bench_strategies import FEATURES, SHARED, TARGETS, mixtures


class Opposed(mltrainer.Task):
    """Two quantities of opposite sign, for one output.

    Args:
        seed: Of the samples.
    """

    terms = ("near", "far")

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def samples(self) -> tuple[Tensor, Tensor]:
        x = torch.randn(300, 5, generator=torch.Generator().manual_seed(self._seed))
        return x, torch.stack([x[:, 0], -x[:, 0]], 1)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))

    def losses(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        near, far = (outputs - targets).square().mean(0)
        return {"near": near, "far": far}

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()


def fit(task: Any, seed: int, epochs: int, **keys: Any) -> Finding:
    """Return the finding on a training."""
    found = mltrainer.fit(task, seed=seed, epochs=epochs, batch_size=16, early_stopping=None, tell=lambda _event: None, **keys)
    return find(Run.of(found.result), **diagnostic_page("gradient_conflict", None).thresholds)


def table(columns: dict[str, np.ndarray], targets: list[str], hidden: list[int], seed: int, epochs: int) -> Finding:
    """Return the finding on a perceptron that learned some columns of a table from the others."""
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    with open("rows.csv", "w", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")
    data, model = {"source": "rows.csv", "targets": targets}, {"name": "mlp", "hidden": hidden}
    return fit({"kind": "tabular_multitask"}, seed, epochs, data=data, model=model)


def wine(hidden: list[int], epochs: int) -> Callable[[int], Finding]:
    """Return a training on the wines, by a seed."""
    found = load_wine()
    columns = dict(zip([name.replace("/", "_") for name in found.feature_names], found.data.T, strict=True))
    columns["kind"] = np.array(["a", "b", "c"])[found.target]
    return lambda seed: table(columns, ["kind", "alcohol", "proline"], hidden, seed, epochs)


def diabetes(hidden: list[int], epochs: int) -> Callable[[int], Finding]:
    """Return a training on the patients, by a seed."""
    found = load_diabetes(scaled=False)
    columns = {**dict(zip(found.feature_names, found.data.T, strict=True)), "progression": found.target}
    return lambda seed: table(columns, ["progression", "bmi", "bp"], hidden, seed, epochs)


def six(bends: int, hidden: list[int], epochs: int) -> Callable[[int], Finding]:
    """Return a training on six quantities, by a seed."""

    def trained(seed: int) -> Finding:
        x, y = mixtures(seed, bends)
        columns = {f"x{nr}": x[:, nr] for nr in range(FEATURES)} | {f"y{nr}": y[:, nr] for nr in range(TARGETS)}
        return table(columns, [f"y{nr}" for nr in range(TARGETS)], hidden, seed, epochs)

    return trained


SERVE_ALL = {
    "wine, 16": wine([16], 60),
    "wine, 32, long": wine([32], 200),
    "diabetes, 16": diabetes([16], 60),
    "diabetes, 32, long": diabetes([32], 100),
    "six related, 16": six(SHARED, [16], 40),
    "six related, 32 and 32": six(SHARED, [32, 32], 40),
    "six unrelated, 32 and 32": six(TARGETS, [32, 32], 40),
    "six unrelated, 64": six(TARGETS, [64], 40),
}
CANNOT: dict[str, Callable[[int], Finding]] = {
    "opposed, one output": lambda seed: fit(Opposed(seed), seed, 30),
    "six related, 1": six(SHARED, [1], 40),
    "six related, 32 and 1": six(SHARED, [32, 1], 40),
    "six unrelated, 1": six(TARGETS, [1], 40),
    "six unrelated, 2": six(TARGETS, [2], 40),
    "six unrelated, 32 and 2": six(TARGETS, [32, 2], 40),
}


def main() -> None:
    """Print of each setting the lowest cosines at the end, the skill, and how many fired."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    for what, settings in (("serve all targets", SERVE_ALL), ("cannot", CANNOT)):
        print(f"--- networks that {what}")
        found = {name: [setting(seed) for seed in seeds] for name, setting in settings.items()}
        for name, findings in found.items():
            lowest, skills = ([round(one.evidence[key], 2) for one in findings] for key in ("cosine", "skill"))
            print(f"{name}: cosines {lowest}, skill {skills}", flush=True)
        each = [one for findings in found.values() for one in findings]
        print(f"fired: {sum(one.state == 'fired' for one in each)} of {len(each)}")
        cosines = [one.evidence["cosine"] for one in each]
        print(f"lowest cosine {min(cosines):.2f}, highest {max(cosines):.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
        os.chdir("/")
