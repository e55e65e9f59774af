"""The base of other trainers' adapters: torchrun starts the processes, each of which trains through `fit`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from tests.benchmarks.scorecard.case import Outcome, Weights
from tests.benchmarks.scorecard.processes.case import Case
from tests.benchmarks.scorecard.trainers.peer import trained

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
CHILD = ("-m", "tests.benchmarks.scorecard.processes.child")


class Peer(ABC):
    """A trainer that is a Python library."""

    name: str
    distribution: str
    buckets = True

    @abstractmethod
    def fit(self, folder: Path, case: Case, *, resume: bool) -> Weights:
        """Train in this process, one of several, and return the final weights; called in fresh processes."""

    def train(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        """Train in fresh processes, from the start or from the newest checkpoint in the folder."""
        return trained([*TORCHRUN, str(case.processes), *CHILD, self.name], folder, case, resume=resume)
