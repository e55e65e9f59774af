"""What one training by several processes is to do, and what came of it.

A step is `SHARDS` micro-batches of `MICRO` samples, whoever computes them, so that every trainer's global batch is the same with
1, 2 and 4 processes, and so are the shapes that a process computes with.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.benchmarks.scorecard import case

MICRO, SHARDS, EPOCHS, SEED, LR = 8, 4, 4, 42, 0.001
BATCH = MICRO * SHARDS
EVEN = 8 * BATCH
UNEVEN = 7 * BATCH + MICRO + 2  # the last step has two of four micro-batches, the second one of two samples
SMALL_MB = 0.4  # a fifth of the model's gradients


@dataclass(frozen=True)
class Case(case.AsText):
    """One run.

    Attributes:
        processes: That train together: 1, 2 or 4.
        dropout: The model's.
        samples: In an epoch.
        small: Gradients are exchanged in other portions than by default: buckets of `SMALL_MB`, or one unit of all layers.
        save: A checkpoint at each epoch's end.
        kill_at: The last process is killed when it has taken so many steps; 0: never.
    """

    processes: int = 1
    dropout: float = 0.1
    samples: int = EVEN
    small: bool = False
    save: bool = False
    kill_at: int = 0

    @property
    def steps(self) -> int:
        """The steps of the whole training."""
        return EPOCHS * -(-self.samples // BATCH)

    @property
    def accumulate(self) -> int:
        """The micro-batches of a step that each process computes."""
        return SHARDS // self.processes

    def unharmed(self) -> Case:
        """Return the same run, in which no process is killed."""
        return dataclasses.replace(self, kill_at=0)


@dataclass(frozen=True)
class Outcome(case.Outcome):
    """What came of a run.

    Attributes:
        taken: The steps that each process took which took any.
        loss: Of the final weights over the training data, without dropout; None without weights.
    """

    taken: tuple[int, ...] = ()
    loss: float | None = None


class Trainer(Protocol):
    """A trainer under measurement. `folder` is a run's own; a resumed run gets a copy of an interrupted one's."""

    name: str
    distribution: str
    buckets: bool  # it exchanges gradients in portions that a user chooses

    def train(self, folder: Path, case: Case, *, resume: bool) -> case.Outcome:
        """Train in fresh processes, from the start or from the newest checkpoint in the folder."""
