"""The records of a run in training: chain, history, timings. Numbers stay on the device between fetches."""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from mltrainer.checkpointing.format import Settled
from mltrainer.errors import GateError
from mltrainer.records.run import Percentiles
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head
from mltrainer.trainers.native.interval import Interval
from mltrainer.trainers.native.signals.steps import Losses
from mltrainer.workspace import machine_faults

FETCH_STEPS = 64  # steps between fetches: their numbers leave the device together
RECENT_TIMES = 10_000  # steps in the summary of step times
GRADIENTS_FILE = "gradients.f32"
GRADIENTS_BYTES = 256 * 2**20  # above it, norms per parameter and step are not kept; the chain still is


class EvaluationRow(Settled):
    """A row of the history, as `HistoryRow` describes it."""

    @property
    def step(self) -> int:
        """The step that the evaluation follows."""
        return int(self["step"])

    @property
    def validation(self) -> dict[str, float]:
        """The metrics of the validation set by name."""
        return cast("dict[str, float]", self["validation"])


class Timings:
    """The last `RECENT_TIMES` times of this process's steps, and their waits for data; they are not reproduced."""

    def __init__(self) -> None:
        self.step_s: deque[float] = deque(maxlen=RECENT_TIMES)
        self.wait_s: deque[float] = deque(maxlen=RECENT_TIMES)

    def summary(self) -> Percentiles:
        """Return median and 95th percentile of the step time, in microseconds."""
        if not self.step_s:
            return Percentiles(median=0.0, p95=0.0)
        ordered = sorted(self.step_s)
        return Percentiles(median=statistics.median(ordered) * 1e6, p95=ordered[int(0.95 * (len(ordered) - 1))] * 1e6)

    def pace_us(self, processes: int) -> float:
        """Return the time of a step at the pace of a long run, in microseconds.

        Without loader processes it is the median; with them, the mean over their bursts: they finish their batches
        together, so that most steps do not wait. The first step, in which they start, does not count; a burst
        longer than the measured steps goes unnoticed.
        """
        times = list(self.step_s)
        if not processes or not times:
            return float(self.summary().median)
        in_bursts = (len(times) - 1) // processes * processes
        return statistics.fmean(times[1 : 1 + in_bursts] or times[1:] or times) * 1e6

    def share_out(self, seconds: float, steps: int) -> None:
        """Add a wait for the device to the last steps, which the device still computed while the loop queued the next ones."""
        for place in range(1, min(steps, len(self.step_s)) + 1):
            self.step_s[-place] += seconds / steps

    def busy_s(self) -> list[float]:
        """Return each step's time without its wait for data."""
        return [step - wait for step, wait in zip(self.step_s, self.wait_s, strict=True)]

    def shortest_us(self) -> float:
        """Return the shortest time of a step, in microseconds: the one least disturbed by reading and by other processes."""
        return min(self.busy_s(), default=0.0) * 1e6

    def rate(self) -> float:
        """Return steps per second over the last 200 steps."""
        last = list(itertools.islice(reversed(self.step_s), 200))
        return len(last) / sum(last) if last else 0.0


class NonFiniteError(Exception):
    """A loss or gradient norm that is not a finite number, at a known step.

    Args:
        step: The step.
        what: "loss" or "gradient".
        ids: The ids of the step's samples.
        recent: The last losses and gradient norms up to that step, which show how it arose.
    """

    def __init__(self, step: int, what: str, ids: list[int], recent: dict[str, list[float]]) -> None:
        super().__init__(f"{what} is not finite at step {step}")
        self.step, self.what, self.ids, self.recent = step, what, ids, recent


class Recorder:
    """Collects each step's numbers on the device and appends them to the run's files when fetched.

    Args:
        parameters: The number of trainable parameter tensors.
        planned_steps: The steps of the whole run, which bound the size of the gradients' file.
        clip_norm: The norm above which a step's gradients are clipped, to count those steps.
        batch_size: The number of samples of a full step.
        writes: Whether this process writes files: only one of several does.
        terms: The names of the loss's terms; empty without terms.
    """

    def __init__(
        self,
        folder: Path,
        parameters: int,
        planned_steps: int,
        clip_norm: float | None = None,
        batch_size: int = 1,
        writes: bool = True,
        terms: Sequence[str] = (),
    ) -> None:
        self.folder, self._batch_size, self._writes = folder, batch_size, writes
        self._term_names = terms
        self._terms: list[Tensor] = []  # the terms of each noted step, on the device
        self.head = Head()
        self.interval = Interval()
        self.losses = Losses()
        self.first_loss: float | None = None
        self._clip_norm = clip_norm
        self.timings = Timings()
        self.fetched: list[tuple[int, float, float]] = []  # step, loss and gradient norm of the last fetch's steps
        self._measured: list[tuple[Tensor, Tensor, Tensor]] = []  # loss, norms and total of each noted step, on the device
        self._ids: list[np.ndarray] = []
        self._first_step = 0
        self._gradients = hashlib.sha256()
        self._keeps_gradients = writes and planned_steps * parameters * 4 <= GRADIENTS_BYTES

    @property
    def full(self) -> bool:
        """Whether the numbers must be fetched before the next step."""
        return len(self._ids) == FETCH_STEPS

    def note(self, step: int, ids: np.ndarray, loss: Tensor, norms: Tensor, total: Tensor, terms: Tensor | None = None) -> None:
        """Note one step; nothing waits for the device."""
        if terms is not None:
            self._terms.append(terms)
        if not self._ids:
            self._first_step = step
        self._measured.append((loss, norms, total))
        self._ids.append(ids)

    def fetch(self, overflows: bool = False) -> list[str]:
        """Bring the noted steps to the host, extend the chain and return its new lines.

        Args:
            overflows: Whether gradients may overflow because the loss is scaled; such a step is skipped.
            NonFiniteError: A loss or a gradient norm is NaN or infinite; the lines up to that step are written.
        """
        count, begun = len(self._ids), time.perf_counter()
        self.fetched = []
        if count == 0:
            return []
        losses, norms, totals = self._on_host()
        terms = self._terms_on_host()
        self.timings.share_out(time.perf_counter() - begun, count)
        self.fetched = list(zip(range(self._first_step, self._first_step + count), losses, totals, strict=True))
        good = [math.isfinite(loss) and (overflows or math.isfinite(total)) for loss, total in zip(losses, totals, strict=True)]
        bad = good.index(False) if False in good else None
        kept = count if bad is None else bad + 1
        entries = [
            fingerprint.step_entry(self._first_step + i, fingerprint.ids_digest(self._ids[i].tobytes()), losses[i], totals[i])
            for i in range(kept)
        ]
        ids, sizes = self._ids, [len(i) for i in self._ids]
        self._ids = []
        lines = self._append(entries)
        self._keep_gradients(norms[:kept])
        self.losses.extend(self._first_step, losses[:kept], sizes[:kept], self._batch_size)
        if bad is not None:
            what = "gradient" if math.isfinite(losses[bad]) else "loss"
            # Noted only: the steps of an interval with this end make no row, but the last numbers before it are shown.
            self.interval.note(losses[:kept], totals[:kept])
            raise NonFiniteError(self._first_step + bad, what, ids[bad].tolist(), self.interval.recent)
        self.first_loss = losses[0] if self.first_loss is None else self.first_loss
        both = torch.cat([torch.tensor(totals)[:, None], norms], 1)
        self.interval.extend(losses, sizes, both, self._clip_norm, terms)
        return lines

    def _on_host(self) -> tuple[list[float], Tensor, list[float]]:
        """Return losses, norms [steps, parameters] and totals of the noted steps, as fp32 on the host, and discard them."""
        losses, norms, totals = (torch.stack([part.float() for part in parts]) for parts in zip(*self._measured, strict=True))
        self._measured = []
        return losses.flatten().tolist(), norms.cpu(), totals.tolist()

    def _terms_on_host(self) -> dict[str, list[float]]:
        """Return the terms of the noted steps by name, and discard them."""
        columns = torch.stack([each.float() for each in self._terms], 1).tolist() if self._terms else []
        self._terms = []
        return dict(zip(self._term_names, columns, strict=False))

    def note_weights(self, step: int, sha256: str) -> list[str]:
        """Extend the chain by the tree digest of all weights after a step."""
        return self._append([fingerprint.weights_entry(step, sha256, is_tree=True)])

    def _append(self, entries: list[str]) -> list[str]:
        self.head, lines = fingerprint.extend(self.head, entries)
        if self._writes:
            # Appended in place: `rewind` cuts off lines that a killed process wrote after the last checkpoint.
            fingerprint.append(self.folder / fingerprint.CHAIN_FILE, lines)
        return lines

    @property
    def gradients_sha256(self) -> str:
        """The digest of the gradients' file so far, which a checkpoint checks."""
        return self._gradients.hexdigest()

    def _keep_gradients(self, norms: Tensor) -> None:
        if self._keeps_gradients:
            path, data = self.folder / GRADIENTS_FILE, norms.float().numpy().tobytes()
            with machine_faults(str(path)), open(path, "ab") as file:
                file.write(data)
            self._gradients.update(data)

    def rewind(self, head: Head, interval: Interval, gradients_sha256: str, size: int) -> None:
        """Go back to a checkpoint: later lines and rows are cut off.

        Args:
            head: The head of the chain at the checkpoint.
            interval: The steps since the last row of the history.
            gradients_sha256: The digest of the gradients' file at the checkpoint.
            size: The size of that file at the checkpoint in bytes, if it is kept.

        Raises:
            GateError: The chain's file does not lead to the checkpoint, or the gradients' file is another.
        """
        if self._writes:
            fingerprint.cut(self.folder / fingerprint.CHAIN_FILE, head)
        self.begin(size)
        if self._writes and self.gradients_sha256 != gradients_sha256:
            raise GateError(
                f"the checkpoint continues gradient norms of digest {gradients_sha256[:12]}, "
                f"the file has {self.gradients_sha256[:12]}",
                where=str(self.folder / GRADIENTS_FILE),
                hint="bring the file back, or remove the run's folder to train it again",
            )
        self.head, self.interval = head, interval

    def begin(self, size: int) -> None:
        """Begin after a step: the gradients' file keeps its rows up to it, or gets zeros."""
        if self._keeps_gradients:
            path = self.folder / GRADIENTS_FILE
            with machine_faults(str(path)), open(path, "a+b") as file:
                # Zeros if a fork has no norms of its parent's steps: a step's row is found by its number.
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
