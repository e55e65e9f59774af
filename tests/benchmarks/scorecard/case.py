"""What one training run is to do, what came of it, and what a trainer must be able to do to be measured."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

SAMPLES, BATCH, EPOCHS, SEED, LR = 256, 16, 4, 42, 0.01
PER_EPOCH = SAMPLES // BATCH
MID_EPOCH = 40  # a step in the third epoch
CHECKPOINTS = "checkpoints"  # every trainer's checkpoints lie in a folder of this name

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class AsText:
    """Settings that go to another process as text."""

    def dumps(self) -> str:
        """Return them as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def loads(cls, text: str) -> Self:
        """Return those that another process wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Case(AsText):
    """One run: settings that a user chooses, and faults that befall it.

    Attributes:
        noise: The data set adds random noise to each sample.
        workers: Loader processes.
        validate_every: Steps between two validations; 0: no validation set.
        log: The trainer's own logging at each step.
        watch: A monitor notes loss and gradient norms at each step.
        draw: A monitor draws one random number at the end of each epoch.
        lr: The learning rate.
        save_every: Steps between two checkpoints; 0: none.
        nan_at: The step at which the loss becomes NaN; 0: never.
        stop_after: The run ends hard when this step is done and saved; 0: it runs to its end.
        gently: It is asked to end with SIGINT instead.
        kill_at: It is killed at this write (from 1) of the checkpoint after `stop_after`; 0: after the save.
    """

    noise: bool = False
    workers: int = 0
    validate_every: int = 0
    log: bool = False
    watch: bool = False
    draw: bool = False
    lr: float = LR
    save_every: int = 0
    nan_at: int = 0
    stop_after: int = 0
    gently: bool = False
    kill_at: int = 0

    def unharmed(self) -> Case:
        """Return the same run without faults."""
        return dataclasses.replace(self, nan_at=0, stop_after=0, gently=False, kill_at=0)


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        code: The exit code; negative: the signal that ended it.
        said: Standard output and standard error.
        weights: The final weights; None where the run did not reach its end.
    """

    code: int
    said: str
    weights: Weights | None


class Trainer(Protocol):
    """A trainer under measurement. `folder` is a run's own; a resumed run gets a copy of an interrupted one's."""

    name: str
    distribution: str
    saves_when_asked: bool  # with SIGINT, at any step

    def train(self, folder: Path, case: Case, *, resume: bool) -> Outcome:
        """Train in a fresh process, from the start or from the newest checkpoint in the folder."""

    def write_data(self, folder: Path, seed: int) -> None:
        """Write the data that a seed draws, in place of what is there."""

    def newest_weights(self, folder: Path) -> Path:
        """Return the file that holds the weights of the checkpoint from which a run would be resumed."""

    def drop_optimizer(self, folder: Path) -> None:
        """Remove the optimizer's state from that checkpoint."""
