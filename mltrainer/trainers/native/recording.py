"""The records of a run in training: chain, history, timings. Numbers stay on the device between fetches."""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from mltrainer.checkpointing.format import Settled, Tree
from mltrainer.errors import GateError
from mltrainer.records.run import Percentiles
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head
from mltrainer.trainers.native.signals.steps import Losses
from mltrainer.workspace import machine_faults

KEPT_STEPS = 4096  # the most steps of an interval that medians are taken over, evenly spaced
SUMMED_STEPS = 64  # losses that are summed at once: as many as are fetched together if nothing else is due
RECENT_STEPS = 8  # the steps that are shown before a number that is not finite
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
    """The last `RECENT_TIMES` times of this process's steps, their samples, and waits for data; they are not reproduced."""

    def __init__(self) -> None:
        self.samples: deque[int] = deque(maxlen=RECENT_TIMES)
        self.step_s: deque[float] = deque(maxlen=RECENT_TIMES)
        self.wait_s: deque[float] = deque(maxlen=RECENT_TIMES)

    def summary(self) -> Percentiles:
        """Return median and 95th percentile of the step time, in microseconds."""
        if not self.step_s:
            return Percentiles(median=0.0, p95=0.0)
        return Percentiles.of(seconds * 1e6 for seconds in self.step_s)

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

    def rates(self) -> tuple[float, float]:
        """Return steps and samples per second over the last 200 steps."""
        times, samples = (list(itertools.islice(reversed(kept), 200)) for kept in (self.step_s, self.samples))
        seconds = sum(times)
        return (len(times) / seconds, sum(samples) / seconds) if seconds else (0.0, 0.0)


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
        self.head = Head()
        self.interval = Interval()
        self.losses = Losses()
        self.first_loss: float | None = None
        self._clip_norm = clip_norm
        self.timings = Timings()
        self.fetched: list[tuple[int, float, float]] = []  # step, loss and gradient norm of the last fetch's steps
        self._measured: list[tuple[Tensor, ...]] = []  # loss, norms, total and terms of each noted step, on the device
        self._ids: list[np.ndarray] = []
        self._counts: list[bool] = []  # of each noted step
        self._first_step = 0
        self._gradients = hashlib.sha256()
        self._keeps_gradients = writes and planned_steps * parameters * 4 <= GRADIENTS_BYTES

    @property
    def full(self) -> bool:
        """Whether the numbers must be fetched before the next step."""
        return len(self._ids) == FETCH_STEPS

    def note(
        self,
        step: int,
        ids: np.ndarray,
        loss: Tensor,
        norms: Tensor,
        total: Tensor,
        terms: Tensor | None = None,
        counts: bool = True,
    ) -> None:
        """Note one step; nothing waits for the device.

        Args:
            step: The step, from 1.
            ids: The ids of its samples.
            loss: Its mean loss.
            norms: The norm of each parameter's gradient.
            total: The norm of all gradients together.
            terms: The mean terms of the loss.
            counts: Whether its numbers enter the row of the history; those of a skipped step, which need not be finite, do not.
        """
        if not self._ids:
            self._first_step = step
        self._measured.append((loss, norms, total) if terms is None else (loss, norms, total, terms))
        self._ids.append(ids)
        self._counts.append(counts)

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
        losses, norms, totals, terms = self._on_host()
        self.timings.share_out(time.perf_counter() - begun, count)
        self.fetched = list(zip(range(self._first_step, self._first_step + count), losses, totals, strict=True))
        counts, self._counts = self._counts, []
        good = [
            not counted or (math.isfinite(loss) and (overflows or math.isfinite(total)))
            for counted, loss, total in zip(counts, losses, totals, strict=True)
        ]
        bad = good.index(False) if False in good else None
        kept = count if bad is None else bad + 1
        entries = [
            fingerprint.step_entry(self._first_step + i, fingerprint.ids_digest(self._ids[i].tobytes()), losses[i], totals[i])
            for i in range(kept)
        ]
        ids, sizes = self._ids, [len(i) if counted else 0 for i, counted in zip(self._ids, counts, strict=True)]
        self._ids = []
        lines = self._append(entries)
        self._keep_gradients(norms[:kept])
        self.losses.extend(self._first_step, losses[:kept], sizes[:kept], self._batch_size)
        if bad is not None:
            what = "gradient" if math.isfinite(losses[bad]) else "loss"
            # Noted only: the steps of an interval with this end make no row, but the last numbers before it are shown.
            self.interval.note(losses[:kept], totals[:kept])
            raise NonFiniteError(self._first_step + bad, what, ids[bad].tolist(), self.interval.recent)
        if self.first_loss is None:  # of a step with samples: without any, the loss is 0
            self.first_loss = next((loss for loss, size in zip(losses, sizes, strict=True) if size), None)
        # Not a number: without a norm in the row, as a step whose gradients overflowed.
        both = torch.cat([torch.tensor(totals)[:, None], norms], 1).where(torch.tensor(counts)[:, None], math.nan)
        self.interval.extend(losses, sizes, both, self._clip_norm, terms)
        return lines

    def _on_host(self) -> tuple[list[float], Tensor, list[float], dict[str, list[float]]]:
        """Return losses, norms [steps, parameters], totals and named terms of the noted steps, as fp32, and discard them."""
        stacked = (torch.stack([part.float() for part in parts]) for parts in zip(*self._measured, strict=True))
        losses, norms, totals, *terms = stacked
        self._measured = []
        columns = terms[0].T.tolist() if terms else []
        return losses.flatten().tolist(), norms.cpu(), totals.tolist(), dict(zip(self._term_names, columns, strict=False))

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
                "the gradient norms that the checkpoint continues",
                expected=f"sha256 {gradients_sha256[:12]}",
                found=self.gradients_sha256[:12],
                where=str(self.folder / GRADIENTS_FILE),
                hint="bring the file back, or remove the run's folder to train it again",
            )
        self.head, self.interval = head, interval

    def keep_nothing(self) -> None:
        """Write no file from here on: what is trained has its records already."""
        self._writes = self._keeps_gradients = False

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


# --- the steps before a row of the history ---------------------------------------------------------


@dataclass
class Interval:
    """The steps since the last row of the history: part of a checkpoint, so that a resumed row is the same row.

    Attributes:
        steps: The number of steps.
        skipped: The number of steps skipped, because their gradients overflowed or they were spikes; they have no norms.
        samples: The number of samples of all steps.
        loss_sum: The sum of the losses, each times its samples, without those in `rest`.
        rest: The last of these weighted losses, fewer than `SUMMED_STEPS`.
        clipped: The number of norms above the clip norm.
        smallest: The smallest norm.
        largest: The largest norm.
        recent: The last losses and the last norms.
        stride: The distance between steps whose norms are kept.
        kept: Those norms: of all gradients together, then of each parameter; float32 of shape (steps, 1 + parameters).
        terms: The terms of the loss, by name: for each a sum as in `loss_sum`, followed by values as in `rest`.
    """

    steps: int = 0
    skipped: int = 0
    samples: int = 0
    loss_sum: float = 0.0
    rest: list[float] = field(default_factory=list)
    clipped: int = 0
    smallest: float = math.inf
    largest: float = 0.0
    recent: dict[str, list[float]] = field(default_factory=lambda: {"losses": [], "norms": []})
    stride: int = 1
    kept: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    terms: dict[str, list[float]] = field(default_factory=dict)

    def tree(self) -> Tree:
        """Return the state for a checkpoint."""
        recent = {name: list(values) for name, values in self.recent.items()}
        terms = {name: list(sums) for name, sums in self.terms.items()}
        return {**vars(self), "rest": list(self.rest), "recent": recent, "terms": terms}

    def extend(
        self,
        losses: list[float],
        sizes: list[int],
        norms: Tensor,
        clip_norm: float | None,
        terms: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> None:
        """Add the next steps.

        Args:
            losses: The loss of each step.
            sizes: The number of samples of each step.
            norms: The norms of each step, shaped as `kept`.
            clip_norm: The limit above which a norm counts as clipped.
            terms: The terms of the losses by name, one value per step.
        """
        totals = norms[:, 0].tolist()
        finite = [norm for norm in totals if math.isfinite(norm)]
        self.note(losses, totals)
        # Before `steps` grows: the choice of the new norms counts from the interval's first step.
        self._keep(norms)
        for place, (loss, size) in enumerate(zip(losses, sizes, strict=True)):
            self._sum_up(
                loss * size if size else 0.0, {name: values[place] * size if size else 0.0 for name, values in terms.items()}
            )
        self.skipped += len(totals) - len(finite)
        self.samples += sum(sizes)
        self.clipped += sum(norm > clip_norm for norm in finite) if clip_norm is not None else 0
        self.smallest, self.largest = min([self.smallest, *finite]), max([self.largest, *finite])

    def _sum_up(self, loss: float, terms: Mapping[str, float]) -> None:
        """Count a step, and sum the losses, and their terms, once there are `SUMMED_STEPS` of them.

        Each addition rounds, so that otherwise the last bit of a row's loss would depend on where the steps were fetched.
        """
        self.steps += 1
        self.rest.append(loss)
        for name, term in terms.items():
            self.terms.setdefault(name, [0.0]).append(term)
        if self.steps % SUMMED_STEPS == 0:
            self.loss_sum, self.rest = self.loss_sum + math.fsum(self.rest), []
            self.terms = {name: [sums[0] + math.fsum(sums[1:])] for name, sums in self.terms.items()}

    def note(self, losses: list[float], norms: list[float]) -> None:
        """Remember the last losses and norms."""
        for name, values in (("losses", losses), ("norms", norms)):
            self.recent[name] = (self.recent[name] + values)[-RECENT_STEPS:]

    def _keep(self, norms: Tensor) -> None:
        """Keep the norms of every `stride`-th step; when there are too many, drop every second one and double the stride."""
        # By the step's place in the interval, not in this fetch: an interrupted run fetches at other steps.
        chosen = norms[-self.steps % self.stride :: self.stride].float()
        self.kept = torch.cat([self.kept, chosen]) if len(self.kept) else chosen
        if len(self.kept) > KEPT_STEPS:
            self.kept, self.stride = self.kept[::2].clone(), self.stride * 2

    def row(self, layer_places: list[int]) -> dict[str, Any]:
        """Return the interval's part of a history row: losses, norms before clipping; None where no step counts."""
        finite = self.kept[torch.isfinite(self.kept[:, 0])].numpy()
        medians = np.median(finite, axis=0).tolist() if len(finite) else [None] * self.kept.shape[1]
        stepped = self.steps - self.skipped
        ends = {"max": self.largest, "min": self.smallest} if stepped else {"max": None, "min": None}
        return {
            "train_loss": (self.loss_sum + math.fsum(self.rest)) / self.samples if self.samples else None,
            "grad_norm": {"median": medians[0], **ends},
            "layer_norms": [medians[1 + place] for place in layer_places],
            "clipped": self.clipped / stepped if stepped else None,
            "skipped": self.skipped / max(1, self.steps),
            **({"terms": self._term_means()} if self.terms else {}),
        }

    def _term_means(self) -> dict[str, float]:
        return {name: (sums[0] + math.fsum(sums[1:])) / max(1, self.samples) for name, sums in self.terms.items()}
