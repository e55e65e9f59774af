"""Whether planning is right where it says that a network is likely at least as good as gradient boosting on a table.

Each table is begun as `mltrainer init` does; smooth models and gradient boosting are measured on its validation rows, as in
planning, and then the default network and that boosting on its test rows.

    OMP_NUM_THREADS=1 PYTHONPATH=. python tests/benchmarks/bench_likely.py [--tables iris boxes] [--seeds 0 1]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from mltrainer.references.models import PlainModel, fit, predict, references, stand_ins
from mltrainer.references.packages import Setting
from mltrainer.runs.references import library
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.opening import open_task
from tests.benchmarks import bench_tables
from tests.benchmarks.tables.formulas import FORMULAS, Formula, Made

LEVEL = 0.005  # of accuracy or R2


def _noisy(draws: np.random.Generator, y: np.ndarray) -> np.ndarray:
    return y + draws.normal(size=len(y)) * 0.1


def board(seed: int) -> Made:
    """Return a board of four by four fields, and the colour of each."""
    x = np.random.default_rng(seed).uniform(size=(3000, 5))
    return Made(x, (np.floor(x[:, 0] * 4) + np.floor(x[:, 1] * 4)).astype(np.int64) % 2)


def boxes(seed: int) -> Made:
    """Return a sum of twelve boxes in two of eight features each."""
    draws, fixed = np.random.default_rng(seed), np.random.default_rng(3)
    x = draws.uniform(size=(2500, 8))
    y = np.zeros(2500)
    for _ in range(12):
        (i, j), (a, b) = fixed.integers(0, 8, 2), fixed.uniform(0, 0.6, 2)
        y += fixed.normal() * 3 * ((x[:, i] > a) & (x[:, i] < a + 0.4) & (x[:, j] > b) & (x[:, j] < b + 0.4))
    return Made(x, _noisy(draws, y))


def plane(seed: int) -> Made:
    """Return a plane over ten features."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(1500, 10))
    return Made(x, _noisy(draws, x @ np.linspace(-1, 1, 10)))


def ratio(seed: int) -> Made:
    """Return the logarithm of a ratio and a sum."""
    draws = np.random.default_rng(seed)
    x = draws.lognormal(size=(2500, 6))
    return Made(x, _noisy(draws, np.log(x[:, 0] / x[:, 1] + x[:, 2])))


def waves(seed: int) -> Made:
    """Return a wave along a sum, and a product."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(2000, 6))
    return Made(x, _noisy(draws, np.sin(3 * x[:, 0] + 2 * x[:, 1]) + x[:, 2] * x[:, 3]))


TABLES = {
    **FORMULAS,
    "board": Formula("board", True, board),
    "boxes": Formula("boxes", False, boxes),
    "plane": Formula("plane", False, plane),
    "ratio": Formula("ratio", False, ratio),
    "waves": Formula("waves", False, waves),
}


def measure(name: str, seed: int) -> tuple[float, float, float, float]:
    """Return the better smooth model and boosting on validation, and the network and boosting on the test rows."""
    with tempfile.TemporaryDirectory() as folder:
        config, _ = bench_tables.begun(name, seed, Path(folder))
        root = Path(folder) / "project"
        opened = open_task(config, root)
        task = opened.task
        assert isinstance(task, BuiltinTask)
        parts = [np.asarray(rows.ids) for rows in (opened.split("train"), opened.split("validation"), opened.open_test())]
        inputs, classes = [task.reference_inputs(ids) for ids in parts], len(task.classes or [])

        def reached(one: PlainModel) -> list[float]:
            assert inputs[0] is not None
            model = one.make(Setting(inputs[0], seed))
            fit(model, inputs[0])
            found = [
                (predict(model, each.inputs, classes), task.rows(ids)[1]) for each, ids in zip(inputs, parts, strict=True) if each
            ]
            return [task.metric("accuracy" if classes else "r2", *one) for one in found[1:]]

        smooth = max(reached(one)[0] for one in stand_ins(classification=bool(classes)))
        boosting = next(one for one in references("table", classification=bool(classes)) if one.name == library())
        return smooth, *reached(boosting), bench_tables.network(config, root)["test"]


def main() -> None:
    """Measure, print a line for each table, and how often planning is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    asked = parser.parse_args()
    bench_tables.TABLES |= TABLES
    leads: dict[str, list[float]] = {"network": [], "open": []}
    for seed in asked.seeds:
        for name in asked.tables:
            smooth, boosting, tested, network = measure(name, seed)
            said = "network" if smooth >= boosting else "open"
            leads[said].append(network - tested)
            print(
                f"{name} {seed}: smooth {smooth:.4f}, boosting {boosting:.4f}: {said}; test {network:.4f}, boosting {tested:.4f}",
                flush=True,
            )
    for said, found in leads.items():
        level = sum(lead >= -LEVEL for lead in found)
        print(f"{said}: the network is ahead, or behind by at most {LEVEL}, in {level} of {len(found)}", flush=True)


if __name__ == "__main__":
    main()
