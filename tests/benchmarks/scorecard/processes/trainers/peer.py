"""What the adapters of other trainers share: torchrun starts the processes, each of which trains through `fit`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.benchmarks.scorecard import process
from tests.benchmarks.scorecard.case import Outcome, Weights
from tests.benchmarks.scorecard.processes.case import Case

FINAL_FILE = "final.npz"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
CHILD = ("-m", "tests.benchmarks.scorecard.processes.child")


class Peer:
    """A trainer that is a Python library."""

    name: str
    distribution: str
    buckets = True

    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train in this process, one of several, and return the final weights; called in fresh processes."""
        raise NotImplementedError

    def train(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        """Train in fresh processes, from the start or from the newest checkpoint in the folder."""
        how = "resume" if resume else "start"
        code, said = process.run([sys.executable, *TORCHRUN, str(case.processes), *CHILD, self.name, how], folder, case)
        final = folder / FINAL_FILE
        return Outcome(code, said, dict(np.load(final)) if code == 0 and final.exists() else None)
