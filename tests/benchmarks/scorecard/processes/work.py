"""The work that every trainer is given, and the witness of who took its steps."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import Dataset

from tests.benchmarks.scorecard.case import Weights
from tests.benchmarks.scorecard.processes.case import Case
from tests.benchmarks.scorecard.work import SETTLE_S, VARIABLE

DATA_FILE, WITNESS = "sequences.npz", "steps.txt"
TOKENS, FEATURES, WIDTH, VALIDATION = 6, 8, 128, 32
HIDDEN = 5 * WIDTH  # a layer's matrices have so many numbers that they are split among processes where parameters are


def write_data(folder: Path, samples: int) -> None:
    """Write two noisy classes of sequences, training and validation samples."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(samples + VALIDATION, TOKENS, FEATURES)).astype(np.float32)
    y = (x[:, 0, 0] * x[:, 1, 0] + x[:, :, 1].sum(1) + 0.3 * draw.normal(size=len(x)) > 0).astype(np.int64)
    np.savez(folder / DATA_FILE, x=x, y=y)


class Sequences(Dataset[Any]):
    """The samples of one split."""

    def __init__(self, folder: Path, split: str = "train") -> None:
        data = np.load(folder / DATA_FILE)
        part = slice(-VALIDATION, None) if split == "validation" else slice(None, -VALIDATION)
        self.x, self.y = torch.from_numpy(data["x"][part]), torch.from_numpy(data["y"][part])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.x[place], self.y[place]


def make_net(dropout: float) -> nn.Sequential:
    """Return a new model, a transformer of two layers; the caller has seeded."""
    layer = nn.TransformerEncoderLayer(WIDTH, 4, HIDDEN, dropout, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), encoder, nn.Flatten(), nn.Linear(TOKENS * WIDTH, 2))


def final_loss(folder: Path, weights: Weights) -> float:
    """Return the loss of a model's weights over the training data, without dropout."""
    net = make_net(0.0).eval()
    net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    data = Sequences(folder)
    with torch.no_grad():
        return float(nn.functional.cross_entropy(net(data.x), data.y))


class Probe:
    """The loss, which notes each step of this process in a file, and kills the process where a case says so.

    Args:
        case: What befalls the run.
        folder: The run's folder.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder, self.done = case, folder, 0
        self._has_begun = False  # before, FSDP2 makes room for an optimizer's states by a step of zeros
        register_optimizer_step_post_hook(self._stepped)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a training step or of an evaluation; the last process of several may be killed here."""
        if torch.is_grad_enabled():
            self._has_begun = True
            if self.done == self.case.kill_at and self._is_last():
                time.sleep(SETTLE_S)
                os.kill(os.getpid(), signal.SIGKILL)
        return nn.functional.cross_entropy(outputs, targets)

    def _is_last(self) -> bool:
        return self.case.kill_at > 0 and int(os.environ.get("RANK", "0")) == self.case.processes - 1

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        # What mltrainer observes of answers, it fits by LBFGS beside the training.
        if not self._has_begun or isinstance(optimizer, torch.optim.LBFGS):
            return
        self.done += 1
        with open(self.folder / WITNESS, "a") as file:
            file.write(f"{os.getpid()}\n")


def forget_steps(folder: Path) -> None:
    """Empty the file in which steps are noted."""
    (folder / WITNESS).write_text("")


def steps_taken(folder: Path) -> tuple[int, ...]:
    """Return the steps that each process took since the file was emptied."""
    return tuple(sorted(Counter((folder / WITNESS).read_text().split()).values()))


def case_of_process() -> Case:
    """Return the case of this process."""
    return Case.loads(os.environ[VARIABLE])
