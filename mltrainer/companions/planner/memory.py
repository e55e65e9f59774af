"""Memory by part, of a traced config under a batch, an accumulation, an optimizer and a number of processes: pure arithmetic.

All bytes but the framework's are those of tensors. The allocator's share beyond them was measured, and is
on the planner's page.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Literal

from mltrainer.records.planner import Traced, TracedBatch, TracedVariant

Sharing = Literal["ddp", "zero1", "fsdp"]
# Of 4 bytes: two moments of a byte for each parameter, and for each block of 256 of them a scale (Dettmers et al., 2022, arXiv
# 2110.02861). Those of parameters with fewer than 4096 numbers stay in 32 bits, which is not counted.
EIGHT_BIT_STATE = 2 / 4 + 2 / 256


@dataclass(frozen=True)
class Parts:
    """Bytes of one process at its peak, by part.

    Attributes:
        weights: Bytes of the parameters.
        buffers: Bytes of buffers, such as running statistics.
        gradients: Bytes of one step's gradients; with several micro-batches also of their sums.
        optimizer: Bytes of the optimizer's state.
        activations: Bytes of activations and temporary tensors in forward and backward.
        copies: Bytes of the weights before an update, and of a checkpoint that is being written.
        framework: Bytes of the interpreter, torch and the opened data.
        fragmentation: Bytes that the allocator takes beyond all tensors.
    """

    weights: float
    buffers: float
    gradients: float
    optimizer: float
    activations: float
    copies: float
    framework: float
    fragmentation: float = 0.0

    @property
    def tensors(self) -> float:
        """Bytes of all tensors."""
        return self.weights + self.buffers + self.gradients + self.optimizer + self.activations + self.copies

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return self.tensors + self.framework + self.fragmentation


@dataclass(frozen=True)
class Setup:
    """The settings that memory depends on, beside the traced variant.

    Attributes:
        batch: Samples of a micro-batch.
        accumulate: Micro-batches of a step, of all processes together.
        processes: Number of processes that train together.
        parallel: State that they share, as in `launch.parallel`.
        observes: Whether the first steps are observed, as `signals`.
        checkpoints: Number of checkpoints written at a time: more than one if an epoch is shorter than a write.
        optimizer_bytes: Bytes of another optimizer's whole state; None: the traced optimizer's.
    """

    batch: int
    accumulate: int = 1
    processes: int = 1
    parallel: Sharing = "ddp"
    observes: bool = True
    checkpoints: int = 1
    optimizer_bytes: float | None = None


def at_batch(rows: list[TracedBatch], batch: int) -> tuple[float, float]:
    """Return a variant's `step_bytes` and `update_bytes` at a batch: on the line through its two nearest rows.

    A peak is the largest of sums that grow with the batch, and so convex: between rows this is not too low, and beyond the
    last one it is on the line of its growth there.
    """
    if len(rows) == 1:
        return rows[0].step_bytes * max(1.0, batch / rows[0].batch), float(rows[0].update_bytes)
    low, high = next(((a, b) for a, b in itertools.pairwise(rows) if batch <= b.batch), (rows[-2], rows[-1]))
    share = (batch - low.batch) / (high.batch - low.batch)
    step = low.step_bytes + share * (high.step_bytes - low.step_bytes)
    update = low.update_bytes + share * (high.update_bytes - low.update_bytes)
    return max(step, 0.0), max(update, 0.0)


def bend(rows: list[TracedBatch]) -> float:
    """Return the relative distance of the middle of three rows from the line through the others; 0 for fewer rows."""
    if len(rows) < 3:
        return 0.0
    low, middle, high = rows[0], rows[1], rows[-1]
    share = (middle.batch - low.batch) / (high.batch - low.batch)
    expected = low.step_bytes + share * (high.step_bytes - low.step_bytes)
    return abs(middle.step_bytes - expected) / max(1.0, expected)


def checkpoints(samples: int, step_samples: int, few: int) -> int:
    """Return the number of checkpoints held at a time: two if an epoch has so few steps that a second one may be due."""
    return 2 if math.ceil(samples / step_samples) <= few else 1


def held_sums(count: int) -> int:
    """Return the number of gradients' sums that a binary tree holds during the last of `count` micro-batches."""
    return max((bin(done).count("1") for done in range(count)), default=0)


def parts(traced: Traced, variant: TracedVariant, setup: Setup) -> Parts:
    """Return one process's memory on the CPU, without the allocator's share, as all tensors of it at the worst moment.

    With several processes each computes its block of a step's micro-batches. ZeRO-1 divides the optimizer's state of large
    parameters by their number; FSDP2 their weights and gradients too, and holds the largest block whole (Rajbhandari et al.,
    2020, arXiv 1910.02054; Zhao et al., 2023, arXiv 2304.11277). Of a traced model whose large parameters are a share of all,
    that share of the optimizer's state is divided.
    """
    step, update = at_batch(variant.rows, setup.batch)
    gradients = float(traced.own.trainable_bytes)
    activations = max(step, update, variant.evaluation_bytes) - gradients
    own = max(1, setup.accumulate // setup.processes)  # micro-batches that this process adds up
    sums = held_sums(own) if setup.accumulate > 1 else 0
    state = float(traced.own.optimizer_bytes if setup.optimizer_bytes is None else setup.optimizer_bytes)
    whole = Parts(
        weights=traced.own.parameter_bytes,
        buffers=traced.own.buffer_bytes,
        gradients=gradients * (1 + sums),
        optimizer=state,
        activations=max(0.0, activations),
        copies=0.0,
        framework=traced.resident_bytes,
    )
    shared = _shared(whole, traced, setup)
    checkpoint = (shared.weights + shared.buffers + shared.optimizer) * setup.checkpoints
    layers = traced.own.layer_bytes
    return replace(shared, copies=layers + max(checkpoint, layers if setup.observes else 0.0))


def _shared(whole: Parts, traced: Traced, setup: Setup) -> Parts:
    """Return the parts of one of several processes."""
    if setup.processes == 1 or setup.parallel == "ddp" or not traced.own.trainable_bytes:
        return whole
    large = traced.own.shared_bytes / traced.own.trainable_bytes
    kept = 1 - large + large / setup.processes  # share that stays, of the divided tensors
    divided = replace(whole, optimizer=whole.optimizer * kept)
    if setup.parallel == "zero1":
        return divided
    weights = whole.weights - traced.own.shared_bytes * (1 - 1 / setup.processes) + traced.own.largest_block_bytes
    return replace(divided, weights=min(weights, whole.weights), gradients=whole.gradients * kept)


@dataclass(frozen=True)
class Shares:
    """The allocator's share beyond all tensors, measured on many trainings.

    Attributes:
        low: The smallest share.
        usual: The median share.
        high: The largest share.
        noise: Bytes by which a process's memory differs between starts.
    """

    low: float
    usual: float
    high: float
    noise: float


def calibrated(parts: Parts, peak: float, shares: Shares) -> tuple[float, float]:
    """Return the allocator's share and the framework's bytes, with which the parts add up to the measured peak.

    The measured share is held between the bounds, and counts beside the usual one as the tensors count beside the noise: of a
    small model a peak says little.
    """
    measured = min(max((peak - parts.framework) / parts.tensors - 1, shares.low), shares.high)
    weight = parts.tensors / (parts.tensors + shares.noise)
    share = weight * measured + (1 - weight) * shares.usual
    return share, max(0.0, peak - parts.tensors * (1 + share))


def with_fragmentation(parts: Parts, share: float) -> Parts:
    """Return parts with the allocator's share of all tensors, such as 0.1."""
    return replace(parts, fragmentation=parts.tensors * share)


def eight_bit_bytes(traced: Traced) -> float:
    """Return the bytes of the state of AdamW in 8 bits for the trained parameters."""
    return EIGHT_BIT_STATE * traced.own.trainable_bytes
