"""The work that every trainer is given: data, model, loss, and the faults that befall a run."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import Dataset

from tests.benchmarks.scorecard.case import CHECKPOINTS, PER_EPOCH, Case

VARIABLE = "SCORECARD_CASE"
DATA_FILE, WRITES_FILE = "data.npz", "writes.json"
VALIDATION = 64
SETTLE_S = 0.5  # a trainer that saves in the background may take so long until its checkpoint is on the disk


def write_data(folder: Path, samples: int, seed: int) -> None:
    """Write two noisy classes, training and validation samples."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(samples + VALIDATION, 8)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + 0.3 * draw.normal(size=len(x)) > 0).astype(np.int64)
    np.savez(folder / DATA_FILE, x=x, y=y)


class Samples(Dataset[Any]):
    """The samples of one split; with noise, each one is moved by draws from all three global generators."""

    def __init__(self, folder: Path, split: str, noise: bool) -> None:
        data = np.load(folder / DATA_FILE)
        part = slice(-VALIDATION, None) if split == "validation" else slice(None, -VALIDATION)
        self.x, self.y = torch.from_numpy(data["x"][part]), torch.from_numpy(data["y"][part])
        self.noise = noise

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        x = self.x[place]
        if self.noise:
            x = x + 0.1 * (torch.randn(8) + random.gauss(0, 1) + float(np.random.normal()))
        return x, self.y[place]


def make_net() -> nn.Sequential:
    """Return a new model; the caller has seeded."""
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))


def weights_of(net: nn.Module) -> dict[str, np.ndarray]:
    """Return a model's weights by name."""
    return {name: value.detach().cpu().numpy().copy() for name, value in net.state_dict().items()}


class Probe:
    """The loss, which knows how many steps the optimizer has made and brings the faults of a case about.

    Args:
        case: What befalls the run.
        folder: The run's folder.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.done = 0
        self.asked = False
        self.net: nn.Module | None = None
        self.writes: list[str] = []
        register_optimizer_step_post_hook(self._stepped)
        if case.stop_after and not case.gently:
            self._watch_writes()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a training step, or of an evaluation, to which nothing happens."""
        return self.befall(nn.functional.cross_entropy(outputs, targets))

    def befall(self, loss: Tensor) -> Tensor:
        """Return a loss, to which happens what the case has for its step; to one of an evaluation nothing."""
        if not torch.is_grad_enabled():
            return loss
        if self.done and self.done == self.case.stop_after and not self.case.gently:
            self._end()
        step = self.done + 1
        # Once: a strategy may ask for the loss of a step again, and a second SIGINT ends a run without saving.
        if self.case.gently and step == self.case.stop_after and not self.asked:
            self.asked = True
            os.kill(os.getpid(), signal.SIGINT)
        self._monitor(loss, step)
        return loss * float("nan") if step == self.case.nan_at else loss

    def _stepped(self, *_: Any) -> None:
        self.done += 1

    def _monitor(self, loss: Tensor, step: int) -> None:
        if self.case.draw and step % PER_EPOCH == 0:
            torch.rand(1)
        if self.case.watch and self.net is not None:
            norms = [float(p.grad.norm()) for p in self.net.parameters() if p.grad is not None]
            with open(self.folder / "watch.txt", "a") as file:
                file.write(f"{step} {float(loss)} {norms}\n")

    # --- the end, and what is written before it ---

    def _end(self) -> None:
        time.sleep(SETTLE_S)
        (self.folder / WRITES_FILE).write_text(json.dumps(self.writes))
        os.kill(os.getpid(), signal.SIGKILL)

    def _watch_writes(self) -> None:
        """Count what is done to the checkpoints' folder after the last step: files opened, written, renamed, folders made."""
        sys.addaudithook(self._audit)
        import safetensors.torch

        torch.save = self._counted(torch.save, 1)  # type: ignore[assignment]
        safetensors.torch.save_file = self._counted(safetensors.torch.save_file, 1)
        os.write = self._counted_write(os.write)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in ("os.rename", "os.mkdir"):
            self._count(event, f"{arguments[0]} {arguments[1]}")  # what is renamed may come from elsewhere

    def _count(self, what: str, path: str) -> bool:
        """Count a write; the one that is meant ends the process at its begin, or is to be cut short by the caller."""
        if self.done != self.case.stop_after or CHECKPOINTS not in path:
            return False
        self.writes.append(what)
        if len(self.writes) != self.case.kill_at:
            return False
        if what != "save":
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def _counted(self, save: Any, place: int) -> Any:
        """Return a save whose file is cut to half its size when the process is to die in it."""

        def counted(*arguments: Any, **named: Any) -> Any:
            target = arguments[place] if len(arguments) > place else named.get("f", named.get("filename", ""))
            name = str(target) if isinstance(target, (str, Path)) else str(getattr(target, "name", ""))
            cut = self._count("save", name)
            done = save(*arguments, **named)
            if cut:
                os.truncate(name, os.path.getsize(name) // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return counted

    def _counted_write(self, write: Any) -> Any:
        """Return `os.write`, of which only half is done when the process is to die in it."""

        def counted(descriptor: int, data: Any) -> int:
            if self._count("save", _path_of(descriptor)):
                write(descriptor, bytes(data)[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return int(write(descriptor, data))

        return counted


class Faults:
    """A callback that only watches, by which the faults of a case befall a task that comes with mltrainer."""

    def __init__(self) -> None:
        self.probe = probe = Probe(case_of_process(), Path.cwd())
        measured = nn.functional.cross_entropy

        def disturbed(*arguments: Any, **named: Any) -> Tensor:
            return probe.befall(measured(*arguments, **named))

        nn.functional.cross_entropy = disturbed

    def on_step(self, step: int, loss: float, grad_norm: float) -> None:
        """Note loss and gradient norm, where the case asks for that."""
        if self.probe.case.watch:
            with open(self.probe.folder / "watch.txt", "a") as file:
                file.write(f"{step} {loss} {grad_norm}\n")


def _path_of(descriptor: int) -> str:
    """Return the path of an open file, where the system tells."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def case_of_process() -> Case:
    """Return the case of this process; outside of a measurement, a run without faults."""
    text = os.environ.get(VARIABLE)
    return Case.loads(text) if text else Case()
