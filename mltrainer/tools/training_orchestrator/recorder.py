"""What a run writes down: the chain, the history, the timings. Numbers stay on the device between fetches."""

from __future__ import annotations

import hashlib
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.errors import GateError
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head
from mltrainer.workspace import machine_faults

FETCH_STEPS = 64  # numbers are fetched from the device together, every so many steps
RECENT_STEPS = 8  # how many steps before a number that is not finite are shown with it
GRADIENTS_FILE = "gradients.f32"
GRADIENTS_BYTES = 256 * 2**20  # beyond this, norms per parameter and step are not kept; the chain still is


@dataclass
class Interval:
    """The steps since the last row of the history: part of a checkpoint, so that a resumed row is the same row."""

    losses: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    parameter_norms: list[Tensor] = field(default_factory=list)

    def tree(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it."""
        blocks = torch.cat(self.parameter_norms) if self.parameter_norms else torch.zeros(0, 0)
        kept = {"losses": list(self.losses), "sizes": list(self.sizes), "norms": list(self.norms), "skipped": self.skipped}
        return {**kept, "parameters": blocks}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Interval:
        """Return the interval that a checkpoint holds."""
        blocks = [tree["parameters"]] if len(tree["parameters"]) else []
        return cls(list(tree["losses"]), list(tree["sizes"]), list(tree["norms"]), tree["skipped"], blocks)

    def extend(self, losses: list[float], sizes: list[int], norms: list[float], parameter_norms: Tensor) -> None:
        """Take in steps; of one that was skipped, because its gradients overflowed, there are no norms."""
        finite = [math.isfinite(norm) for norm in norms]
        self.losses += losses
        self.sizes += sizes
        self.norms += [norm for norm in norms if math.isfinite(norm)]
        self.skipped += finite.count(False)
        self.parameter_norms.append(parameter_norms[torch.tensor(finite)].float())

    def row(self, clip_norm: float | None, layer_places: list[int]) -> dict[str, Any]:
        """Return the interval's part of a history row: losses and gradient norms before clipping."""
        total = sum(self.sizes)
        norms = self.norms or [0.0]  # every step was skipped
        columns = torch.cat(self.parameter_norms)[:, layer_places].numpy() if self.norms else np.zeros((1, len(layer_places)))
        clipped = sum(norm > clip_norm for norm in norms) if clip_norm is not None else 0
        return {
            "train_loss": math.fsum(loss * size for loss, size in zip(self.losses, self.sizes, strict=True)) / max(1, total),
            "grad_norm": {"median": statistics.median(norms), "max": max(norms), "min": min(norms)},
            "layer_norms": [float(v) for v in np.median(columns, axis=0)],
            "clipped": clipped / len(norms),
            "skipped": self.skipped / len(self.sizes),
        }


@dataclass
class Timings:
    """Durations of this process; they are not part of what is reproduced."""

    step_s: list[float] = field(default_factory=list)
    wait_s: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return median and 95th percentile of the step time, in microseconds."""
        if not self.step_s:
            return {"median": 0.0, "p95": 0.0}
        ordered = sorted(self.step_s)
        return {"median": statistics.median(ordered) * 1e6, "p95": ordered[int(0.95 * (len(ordered) - 1))] * 1e6}

    def shortest_us(self) -> float:
        """Return the shortest step time in microseconds, which other work on the machine disturbs least."""
        return min(self.step_s, default=0.0) * 1e6


class NonFiniteError(Exception):
    """A loss or gradient norm that is not a finite number, at a known step.

    Args:
        step: The step.
        what: "loss" or "gradient".
        ids: The ids of the step's samples.
        recent: The last losses and gradient norms up to that step, which show how it came.
    """

    def __init__(self, step: int, what: str, ids: list[int], recent: dict[str, list[float]]) -> None:
        super().__init__(f"{what} is not finite at step {step}")
        self.step, self.what, self.ids, self.recent = step, what, ids, recent


class Recorder:
    """Collects each step's numbers on the device and appends them to the run's files when fetched.

    Args:
        folder: The run's folder.
        parameters: How many trainable parameter tensors the model has.
        device: Where the numbers are collected.
        planned_steps: Steps of the whole run, which bounds the size of the gradients' file.
    """

    def __init__(self, folder: Path, parameters: int, device: torch.device, planned_steps: int) -> None:
        self.folder = folder
        self.head = Head()
        self.interval = Interval()
        self.timings = Timings()
        self._losses = torch.zeros(FETCH_STEPS, device=device)
        self._totals = torch.zeros(FETCH_STEPS, device=device)
        self._norms = torch.zeros(FETCH_STEPS, parameters, device=device)
        self._ids: list[np.ndarray] = []
        self._first_step = 0
        self._gradients = hashlib.sha256()
        self._keeps_gradients = planned_steps * parameters * 4 <= GRADIENTS_BYTES

    @property
    def full(self) -> bool:
        """Whether the numbers must be fetched before the next step."""
        return len(self._ids) == FETCH_STEPS

    def note(self, step: int, ids: np.ndarray, loss: Tensor, norms: Tensor, total: Tensor) -> None:
        """Note one step; nothing waits for the device."""
        place = len(self._ids)
        if place == 0:
            self._first_step = step
        self._losses[place] = loss
        self._totals[place] = total
        self._norms[place] = norms
        self._ids.append(ids)

    def fetch(self, overflows: bool = False) -> list[str]:
        """Bring the noted steps to the host, extend the chain and return its new lines.

        Args:
            overflows: Whether gradients may overflow, because the loss is scaled and such a step is skipped.

        Raises:
            NonFiniteError: A loss or a gradient norm is NaN or infinite; the lines up to that step are written.
        """
        count = len(self._ids)
        if count == 0:
            return []
        losses, totals = self._losses[:count].tolist(), self._totals[:count].tolist()
        norms = self._norms[:count].cpu()
        good = [math.isfinite(loss) and (overflows or math.isfinite(total)) for loss, total in zip(losses, totals, strict=True)]
        bad = good.index(False) if False in good else None
        kept = count if bad is None else bad + 1
        entries = [
            fingerprint.step_entry(self._first_step + i, fingerprint.ids_digest(self._ids[i].tobytes()), losses[i], totals[i])
            for i in range(kept)
        ]
        ids = self._ids
        self._ids = []
        lines = self._append(entries)
        self._keep_gradients(norms[:kept])
        if bad is not None:
            what = "gradient" if math.isfinite(losses[bad]) else "loss"
            recent = {
                "losses": (self.interval.losses + losses[:kept])[-RECENT_STEPS:],
                "norms": (self.interval.norms + totals[:kept])[-RECENT_STEPS:],
            }
            raise NonFiniteError(self._first_step + bad, what, ids[bad].tolist(), recent)
        self.interval.extend(losses, [len(i) for i in ids], totals, norms)
        return lines

    def note_weights(self, step: int, sha256: str) -> list[str]:
        """Extend the chain by the digest of all weights after a step."""
        return self._append([fingerprint.weights_entry(step, sha256)])

    def _append(self, entries: list[str]) -> list[str]:
        self.head, lines = fingerprint.extend(self.head, entries)
        fingerprint.append(self.folder / fingerprint.CHAIN_FILE, lines)
        return lines

    @property
    def gradients_sha256(self) -> str:
        """The digest of the gradients' file so far, by which a checkpoint knows it again."""
        return self._gradients.hexdigest()

    def _keep_gradients(self, norms: Tensor) -> None:
        if self._keeps_gradients:
            path, data = self.folder / GRADIENTS_FILE, norms.float().numpy().tobytes()
            with machine_faults(str(path)), open(path, "ab") as file:
                file.write(data)
            self._gradients.update(data)

    def rewind(self, head: Head, interval: Interval, gradients_sha256: str, size: int) -> None:
        """Go back to a checkpoint: what was written after it is cut off.

        Args:
            head: Where the chain stood.
            interval: The steps since the last row of the history.
            gradients_sha256: The digest of the gradients' file as it was.
            size: Its bytes then, where it is kept.

        Raises:
            GateError: The chain's file does not lead to the checkpoint, or the gradients' file is another.
        """
        fingerprint.cut(self.folder / fingerprint.CHAIN_FILE, head)
        self.begin(size)
        if self.gradients_sha256 != gradients_sha256:
            raise GateError(
                f"the checkpoint continues gradient norms of digest {gradients_sha256[:12]}, "
                f"the file has {self.gradients_sha256[:12]}",
                where=str(self.folder / GRADIENTS_FILE),
                mend="bring the file back, or remove the run's folder to train it again",
            )
        self.head, self.interval = head, interval

    def begin(self, size: int) -> None:
        """Begin after a step: the rows of the gradients' file before it are those that stand there, or zeros."""
        if self._keeps_gradients:
            path = self.folder / GRADIENTS_FILE
            with machine_faults(str(path)), open(path, "a+b") as file:
                file.truncate(size)
                file.seek(0)
                self._gradients = hashlib.sha256(file.read())


def gradient_row(folder: Path, step: int, parameters: int) -> list[float] | None:
    """Return the recorded norm of each parameter's gradient at a step (from 1), or None if it was not kept."""
    path = folder / GRADIENTS_FILE
    size = parameters * 4
    if not path.exists() or path.stat().st_size < step * size:
        return None
    with open(path, "rb") as file:
        file.seek((step - 1) * size)
        return [float(value) for value in np.frombuffer(file.read(size), dtype="<f4")]
