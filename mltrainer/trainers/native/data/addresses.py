"""The training batches as a pure function of (seed, step): the same with any number of workers, from any start."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import Samples
from mltrainer.tasks.strategy import Alter
from mltrainer.trainers.native.data.reading import Batch as Batch
from mltrainer.trainers.native.data.reading import batches_of, make_loader

BLOCK_BYTES = 8 * 2**20  # size of the blocks of gathered rows: one large gather is cheaper than many small ones
EVALUATION_BATCH = 256
ALIGNMENT = 64  # bytes: torch's own on a CPU


@dataclass(frozen=True)
class Step:
    """The data of one optimizer step.

    Attributes:
        ids: The ids of the step's samples, int64.
        micro_batches: One batch per forward and backward pass; with several processes, only this process's batches.
        shards: The batches' numbers, from 0; one of `count` or more is not part of the step: it is computed and discarded.
        sizes: The number of samples of each micro-batch of the whole step.
    """

    ids: np.ndarray
    micro_batches: list[Batch]
    shards: Sequence[int]
    sizes: Sequence[int]

    @property
    def count(self) -> int:
        """The number of micro-batches of the whole step; 0 if all its samples are forgotten."""
        return len(self.sizes)

    @property
    def micro_ids(self) -> list[np.ndarray]:
        """The ids of each micro-batch's samples."""
        return [self.shard_ids(shard) for shard in self.shards]

    def shard_ids(self, shard: int) -> np.ndarray:
        """Return the ids of a shard's samples; those of the first one for a shard that is not part of the step."""
        shard = shard if shard < self.count else 0
        first = sum(self.sizes[:shard])
        return self.ids[first : first + self.sizes[shard]]


NOTHING = Step(np.zeros(0, np.int64), [], (), ())  # in place of a step that is left out


@dataclass(frozen=True)
class Plan:
    """The place of each step in the run: pure arithmetic.

    Attributes:
        samples: The number of training samples, the forgotten ones among them, whose slots are empty.
        batch_size: The number of samples of a micro-batch.
        accumulate: The number of micro-batches of a step.
        epochs: The number of passes over the samples.
    """

    samples: int
    batch_size: int
    accumulate: int
    epochs: int

    @property
    def step_samples(self) -> int:
        """Samples of a full step."""
        return self.batch_size * self.accumulate

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one epoch; the last may be smaller."""
        return math.ceil(self.samples / self.step_samples)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.epochs

    def place(self, step: int) -> tuple[int, int]:
        """Return the epoch (from 0) of a step (from 1) and its number in it (from 0)."""
        return divmod(step - 1, self.steps_per_epoch)


def plan_for(config: TrainingConfig, samples: Samples) -> Plan:
    """Return the plan of a run on some training samples."""
    return Plan(samples.slots, config.batch_size, config.accumulate, config.epochs)


@dataclass(frozen=True)
class Place:
    """The place of one step in its epoch's order.

    Attributes:
        positions: The positions of all the step's samples, in order.
        shards: The numbers, from 0, of the micro-batches that this process computes.
        sizes: The number of samples of each micro-batch of the whole step.
        own: The positions of the samples of each of `shards`.
    """

    positions: np.ndarray
    shards: Sequence[int]
    sizes: Sequence[int]
    own: list[np.ndarray]


Own = Callable[[int], Sequence[int]]  # from a step's number of micro-batches to the numbers of this process's own


def places(order: seeds.Order, plan: Plan, done: int, own: Own) -> Iterator[Place]:
    """Yield the place of each step of an epoch except the first `done`."""
    for low in range(done * plan.step_samples, plan.samples, plan.step_samples):
        slots = order[low : low + plan.step_samples]
        parts = _filled([slots[start : start + plan.batch_size] for start in range(0, len(slots), plan.batch_size)])
        shards = own(len(parts)) if parts else ()
        sizes = [len(part) for part in parts]
        yield Place(slots[slots >= 0], shards, sizes, [parts[shard if shard < len(parts) else 0] for shard in shards])


def _filled(micro_batches: list[np.ndarray]) -> list[np.ndarray]:
    """Return the positions in micro-batches' slots without the empty ones; a micro-batch with nothing else is left out."""
    found = (slots[slots >= 0] for slots in micro_batches)
    return [positions for positions in found if len(positions)]


def _epochs(samples: Samples, plan: Plan, seed: int, start: int, own: Own) -> Iterator[tuple[int, Iterator[Place]]]:
    """Yield each epoch's number and the places of its steps, from the step after `start` on."""
    first, done = divmod(start, plan.steps_per_epoch)
    for epoch in range(first, plan.epochs):
        # Computed again even in mid-epoch: the order follows from the epoch, and no checkpoint holds it.
        yield epoch, places(samples.order(seed, epoch), plan, done if epoch == first else 0, own)


def training_steps(samples: Samples, plan: Plan, config: TrainingConfig, start: int, own: Own = range) -> Iterator[Step]:
    """Yield the steps after `start` with bounded memory: rows are gathered in blocks, or loaded by workers.

    Args:
        samples: The training split's samples.
        plan: The place of each step.
        config: The config, with seed, device and loader.
        start: The number of steps taken already.
        own: The choice of this process's micro-batches; by default all.
    """
    if samples.tensors is None:
        return _loaded(samples, plan, config, start, own)
    return _gathered(samples, plan, config, start, own)


def altered(steps: Iterator[Step], plan: Plan, start: int, alterations: Sequence[Alter]) -> Iterator[Step]:
    """Return the steps after `start`, their batches changed by each alteration in turn; without any, the steps themselves."""
    for alter in alterations:
        steps = _altered(steps, plan, start, alter)
    return steps


def _altered(steps: Iterator[Step], plan: Plan, start: int, alter: Alter) -> Iterator[Step]:
    for number, step in enumerate(steps, start + 1):
        epoch, _ = plan.place(number)
        each = zip(step.micro_batches, step.micro_ids, strict=True)
        yield replace(step, micro_batches=[alter(*one, epoch) for one in each])


def _gathered(samples: Samples, plan: Plan, config: TrainingConfig, start: int, own: Own) -> Iterator[Step]:
    assert samples.tensors is not None
    row_bytes = max(1, sum(t[:1].numel() * t.element_size() for t in samples.tensors))
    block_steps = max(1, BLOCK_BYTES // (row_bytes * plan.step_samples))
    for _, steps in _epochs(samples, plan, config.seed, start, own):
        while block := list(itertools.islice(steps, block_steps)):
            micros = _micro_batches(samples, [part for place in block for part in place.own], config.device)
            for place in block:
                yield Step(samples.ids[place.positions], [next(micros) for _ in place.own], place.shards, place.sizes)


def _micro_batches(samples: Samples, parts: list[np.ndarray], device: str) -> Iterator[Batch]:
    """Yield the samples at each part's positions, all gathered at once."""
    assert samples.tensors is not None
    # A process may have no shard in a whole block, and NumPy joins no empty list.
    index, sizes = torch.from_numpy(np.concatenate(parts or [np.zeros(0, np.int64)])), [len(part) for part in parts]
    rows = [tensor.index_select(0, index).to(device, non_blocking=True) for tensor in samples.tensors]
    for views in zip(*(tensor.split(sizes) for tensor in rows), strict=True):
        micro = tuple(map(_aligned, views))
        yield micro if samples.names is None else samples.batch(micro)


def _aligned(rows: Tensor) -> Tensor:
    """Return rows that begin where torch would have put a tensor of their own.

    Kernels for few rows add in another order by the address, which in a block depends on the rows before: on the step at which a
    run went on, and on the number of processes.
    """
    return rows if rows.data_ptr() % ALIGNMENT == 0 else rows.clone()


@dataclass(frozen=True)
class Addresses:
    """The (epoch, position) pairs of each micro-batch after a step, in order; only micro-batches that `own` chooses."""

    plan: Plan
    samples: Samples
    seed: int
    start: int
    own: Own = range

    def __len__(self) -> int:
        return math.ceil(self.plan.samples / self.plan.batch_size) * self.plan.epochs

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for epoch, steps in _epochs(self.samples, self.plan, self.seed, self.start, self.own):
            for part in itertools.chain.from_iterable(place.own for place in steps):
                yield [(epoch, position) for position in part.tolist()]


def _loaded(samples: Samples, plan: Plan, config: TrainingConfig, start: int, own: Own) -> Iterator[Step]:
    """Yield steps read by one loader, whose workers live as long as the run."""
    addresses = Addresses(plan, samples, config.seed, start, own)
    micros = batches_of(make_loader(samples, config, "sample", addresses), torch.device(config.device))
    for _, steps in _epochs(samples, plan, config.seed, start, own):
        for place in steps:
            yield Step(samples.ids[place.positions], [next(micros) for _ in place.own], place.shards, place.sizes)


def own_batches(positions: np.ndarray, rank: int = 0, size: int = 1) -> tuple[range, np.ndarray]:
    """Return the numbers of the batches that a process measures (every `size`-th from `rank` on), and their sample positions."""
    numbers = range(math.ceil(len(positions) / EVALUATION_BATCH))[rank::size]
    own = [positions[number * EVALUATION_BATCH : (number + 1) * EVALUATION_BATCH] for number in numbers]
    return numbers, np.concatenate(own) if own else positions[:0]


def evaluation_batches(samples: Samples, positions: np.ndarray, config: TrainingConfig, split: str) -> Iterator[Batch]:
    """Yield the samples at some positions in order; their random draws depend on the split, not on the run's position."""
    device = torch.device(config.device)
    if samples.tensors is not None:
        parts = (
            torch.from_numpy(positions).split(EVALUATION_BATCH) if len(positions) else ()
        )  # split() turns an empty tensor into one empty part
        for part in parts:
            yield samples.batch([t.index_select(0, part).to(device, non_blocking=True) for t in samples.tensors])
        return
    if split not in samples.loaders:
        samples.loaders[split] = make_loader(samples, config, f"evaluate-{split}", _Chosen(), keep_workers=True)
    # Set from outside: the loader and its workers live from one evaluation to the next.
    samples.loaders[split].batch_sampler.positions = positions
    yield from batches_of(samples.loaders[split], device)


class _Chosen:
    """The (epoch, position) pairs of each batch of an evaluation; the positions are set before each evaluation."""

    def __init__(self) -> None:
        self.positions = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return math.ceil(len(self.positions) / EVALUATION_BATCH)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for low in range(0, len(self.positions), EVALUATION_BATCH):
            yield [(0, position) for position in self.positions[low : low + EVALUATION_BATCH].tolist()]
