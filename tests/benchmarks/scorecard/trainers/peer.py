"""The base of other trainers' adapters: each trains in a fresh process of its own, through `fit`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.benchmarks.scorecard import process
from tests.benchmarks.scorecard.case import CHECKPOINTS, SAMPLES, AsText, Case, Outcome, Weights
from tests.benchmarks.scorecard.work import write_data

FINAL_FILE = "final.npz"
CHILD = ("-m", "tests.benchmarks.scorecard.child")


class Peer(ABC):
    """A trainer that is a Python library."""

    name: str
    distribution: str
    saves_when_asked = False

    @abstractmethod
    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train in this process and return the final weights; called in a fresh process."""

    def write_data(self, folder: Path, seed: int) -> None:
        """Write the two noisy classes."""
        write_data(folder, SAMPLES, seed)

    def newest(self, folder: Path, pattern: str) -> Path:
        """Return the checkpoint that was written last."""
        return max((folder / CHECKPOINTS).glob(pattern), key=lambda path: path.stat().st_mtime_ns)

    def train(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        """Train in a fresh process, from the start or from the newest checkpoint in the folder."""
        return trained([*CHILD, self.name], folder, case, resume=resume)


def trained(child: Sequence[str], folder: Path, case: AsText, *, resume: bool) -> Outcome:
    """Train in fresh processes of Python, of which one leaves the final weights in the folder."""
    code, said = process.run([sys.executable, *child, "resume" if resume else "start"], folder, case)
    final = folder / FINAL_FILE
    return Outcome(code, said, dict(np.load(final)) if code == 0 and final.exists() else None)
