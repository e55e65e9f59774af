"""The coordinator of a long search: its processor time a trial and its memory, with imagined runs in place of trained ones.

    PYTHONPATH=. python tests/benchmarks/bench_studies.py [--trials 10000] [--strategies tpe random ...] [--again]

One run of nine evaluations is trained. A pool that is given to the search in place of its worker processes then writes, for each
trial, that run's result and chain with values of its own, in no time that counts. All else is what a search does: to choose a
trial, to validate its config, to write its job, to read and verify its result, to report and to journal it. Prints a line of
JSON for every so many trials. With --again a search goes on of which all runs are there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from mltrainer.records.event import Running
from mltrainer.records.job import SearchJob
from mltrainer.search.runs import Runs
from mltrainer.search.study import Study
from mltrainer.search.workers import RunEnd
from mltrainer.workspace import read_json, seal
from tests.search.silent import Silent
from tests.search.test_study import alone
from tests.trainers.native.digits_runs import config, make, train

EPOCHS = 9
SPACE: dict[str, Any] = {
    "optimizer.lr": {"log_uniform": [1e-4, 1e-1]},
    "optimizer.weight_decay": {"uniform": [0.0, 0.5]},
    "batch_size": {"choice": [8, 16, 32, 64]},
    "clip.norm": {"log_uniform": [0.1, 10]},
    "schedule.warmup_epochs": {"integer": [0, 4]},
    "early_stopping.patience": {"integer": [3, 9]},
}
NUMBERS = {key: dimension for key, dimension in SPACE.items() if "choice" not in dimension}  # all that CMA-ES searches
HALVING = {"name": "successive_halving", "eta": 3, "first": 1}
STRATEGIES: dict[str, dict[str, Any]] = {
    "random": {},
    "grid": {"strategy": "grid"},
    "quasi_random": {"strategy": "quasi_random"},
    "halving": {"pruning": HALVING},
    "hyperband": {"pruning": {**HALVING, "name": "hyperband"}},
    "tpe": {"strategy": "tpe"},
    "tpe_halving": {"strategy": "tpe", "pruning": HALVING},
    "cma_es": {"strategy": "cma_es", "space": NUMBERS},
    "gp": {"strategy": "gp"},
}


class ImaginedPool:
    """Four workers whose runs have ended as soon as they are asked for.

    Attributes:
        ended: Number of runs.
        seconds: Processor time that this pool took itself.

    Args:
        trained: The folder of a trained run.
    """

    def __init__(self, trained: Path) -> None:
        self._result, self._chains = read_json(trained / "result.json"), [trained / "chain.txt", trained / "ledger.txt"]
        self._given: list[int] = []
        self.running: list[Running] = []
        self.ended, self.seconds = 0, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no process."""

    @property
    def room(self) -> int:
        """The number of runs that can begin now."""
        return 4 - self.busy

    @property
    def busy(self) -> int:
        """The number of runs in training."""
        return len(self._given)

    def begin(self, nr: int, job: Path, _processes: int = 1) -> None:
        """Write what a training would have written."""
        start = time.process_time()
        asked = read_json(job)
        lr, size = asked["config"]["optimizer"]["lr"], asked["config"]["batch_size"]
        end = 1 / (1 + abs(math.log10(lr) + 2)) - size / 1000
        rows = [
            {**row, "validation": {**row["validation"], "accuracy": end * (1 - 0.5 ** row["epoch"])}}
            for row in self._result["history"]
        ]
        best = {key: rows[-1][key] for key in self._result["best"]}
        metrics = {**best["validation"], **{f"train_{name}": value for name, value in best["train"].items()}}
        of_run = {"id": asked["run"], **asked["contract"], "purpose": "train", "checkpoints": []}
        found = {**self._result, **of_run, "history": rows, "best": best, "metrics": metrics}
        (job.parent / "result.json").write_text(json.dumps(seal(found)))
        for chain in self._chains:
            shutil.copy(chain, job.parent)
        self._given.append(nr)
        self.seconds += time.process_time() - start

    def wait(self, timeout: float = 0.0) -> list[RunEnd]:
        """Return the oldest run."""
        self.ended += 1
        return [RunEnd(self._given.pop(0))]

    def stop(self, number: int) -> None:
        """Do nothing: there is no process."""


def measured(root: Path, trained: Path, name: str, trials: int, every: int, is_again: bool) -> None:
    """Search, and print the processor time a trial and the memory every so many trials."""
    about: dict[str, Any] = {"strategy": "random", "space": SPACE, **STRATEGIES[name]}
    job = SearchJob(
        run=name,
        phase="optimization",
        folder=f".mltrainer/studies/{name}",
        trials=trials,
        lag=4,
        seeds=2,
        contract={"code_sha256": "0", "environment_sha256": name},
        code_files=[],
        gate=None,
        parent=None,
        threads=1,
        config=config({"epochs": EPOCHS, "accumulate": 1}),
        **about,
    )
    pool = ImaginedPool(trained)
    runs = Runs(job, root, pool, Silent(), lambda: None)
    runs.folder.mkdir(parents=True, exist_ok=True)

    class Told(Study):
        """Prints how far it is."""

        count, since, own = 0, time.process_time(), 0.0

        def _show(self) -> None:
            super()._show()
            if self.count and self.count % every == 0:
                now = time.process_time()
                ms = 1000 * (now - self.since - (pool.seconds - self.own)) / every
                print(json.dumps({"strategy": name, "trials": self.count, "ms_a_trial": round(ms, 1), "mb": _mb()}), flush=True)
                self.since, self.own = now, pool.seconds
            self.count += 1

    Told(job, runs, Silent(), alone(job, runs.folder)).search()
    if is_again:
        start = time.process_time()
        again = Runs(job, root, ImaginedPool(trained), Silent(), lambda: None)
        Study(job, again, Silent(), alone(job, again.folder)).search()
        ms = 1000 * (time.process_time() - start) / trials
        print(json.dumps({"strategy": name, "again": True, "trials": trials, "ms_a_trial": round(ms, 1)}), flush=True)


def _mb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=[name for name in STRATEGIES if name != "gp"])
    parser.add_argument("--every", type=int, default=2_000)
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as name:
        root = make(Path(name) / "project")
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            train(root, epochs=EPOCHS, accumulate=1)
        trained = root / ".mltrainer/runs/run"
        for strategy in asked.strategies:
            measured(root, trained, strategy, asked.trials, asked.every, asked.again)


if __name__ == "__main__":
    main()
