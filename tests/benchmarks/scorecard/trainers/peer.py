"""What the adapters of other trainers share: each trains in a fresh process of its own, through `fit`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.benchmarks.scorecard import process
from tests.benchmarks.scorecard.case import CHECKPOINTS, SAMPLES, Case, Outcome, Weights
from tests.benchmarks.scorecard.work import write_data

FINAL_FILE = "final.npz"


class Peer:
    """A trainer that is a Python library."""

    name: str
    distribution: str
    saves_when_asked = False

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train in this process and return the final weights; called in a fresh process."""
        raise NotImplementedError

    def write_data(self, folder: Path, seed: int) -> None:
        """Write the two noisy classes."""
        write_data(folder, SAMPLES, seed)

    def newest(self, folder: Path, pattern: str) -> Path:
        """Return the checkpoint that was written last."""
        return max((folder / CHECKPOINTS).glob(pattern), key=lambda path: path.stat().st_mtime_ns)

    def train(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        """Train in a fresh process, from the start or from the newest checkpoint in the folder."""
        command = [sys.executable, "-m", "tests.benchmarks.scorecard.child", self.name, "resume" if resume else "start"]
        code, said = process.run(command, folder, case)
        final = folder / FINAL_FILE
        if code != 0 or not final.exists():
            return Outcome(code, said, None)
        return Outcome(code, said, dict(np.load(final)))
