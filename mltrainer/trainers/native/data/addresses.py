"""The training batches as a pure function of (seed, step): the same with any number of workers, from any start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.batch_transform import BatchTransform
from mltrainer.tasks.opening import Samples
from mltrainer.trainers.native.data.reading import Batch as Batch
from mltrainer.trainers.native.data.reading import batches_of, make_loader

BLOCK_BYTES = 8 * 2**20  # rows are gathered in blocks of this size: one large gather is cheaper than many small ones
EVALUATION_BATCH = 256


@dataclass(frozen=True)
class Step:
    """What one optimizer step reads.

    Attributes:
        ids: The ids of its samples, int64.
        micro_batches: One batch per forward and backward pass.
    """

    ids: np.ndarray
    micro_batches: list[Batch]


@dataclass(frozen=True)
class Plan:
    """Where each step lies: pure arithmetic.

    Attributes:
        samples: Training samples.
        batch_size: Samples of a micro-batch.
        accumulate: Micro-batches of a step.
        epochs: Passes over the samples.
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


def plan_for(config: TrainingConfig, samples: int) -> Plan:
    """Return the plan of a run."""
    return Plan(samples, config.batch_size, config.accumulate, config.epochs)


def training_steps(samples: Samples, plan: Plan, config: TrainingConfig, start: int) -> Iterator[Step]:
    """Yield the steps after `start`, without end of memory: rows are gathered in blocks, or loaded by workers."""
    if samples.tensors is None:
        return _loaded(samples, plan, config, start)
    return _gathered(samples, plan, config, start)


def altered(steps: Iterator[Step], plan: Plan, start: int, alter: BatchTransform | None) -> Iterator[Step]:
    """Return the steps after `start` with their batches altered one by one; where nothing is to do, the steps themselves."""
    return steps if alter is None else _altered(steps, plan, start, alter)


def _altered(steps: Iterator[Step], plan: Plan, start: int, alter: BatchTransform) -> Iterator[Step]:
    for number, step in enumerate(steps, start + 1):
        epoch, _ = plan.place(number)
        ids = np.split(step.ids, range(plan.batch_size, len(step.ids), plan.batch_size))
        yield Step(step.ids, [alter(*each, epoch) for each in zip(step.micro_batches, ids, strict=True)])


def _gathered(samples: Samples, plan: Plan, config: TrainingConfig, start: int) -> Iterator[Step]:
    assert samples.tensors is not None
    tensors = samples.tensors
    row_bytes = max(1, sum(t[:1].numel() * t.element_size() for t in tensors))
    block_steps = max(1, BLOCK_BYTES // (row_bytes * plan.step_samples))
    device = torch.device(config.device)
    first_epoch, done = divmod(start, plan.steps_per_epoch)
    for epoch in range(first_epoch, plan.epochs):
        order = seeds.epoch_order(config.seed, epoch, np.arange(plan.samples))
        ids = samples.ids[order]
        for low in range(done if epoch == first_epoch else 0, plan.steps_per_epoch, block_steps):
            rows = slice(low * plan.step_samples, (low + block_steps) * plan.step_samples)
            index = torch.from_numpy(order[rows])
            block = [t.index_select(0, index).to(device, non_blocking=True) for t in tensors]
            yield from _cut(ids[rows], block, plan, samples)


def _cut(ids: np.ndarray, block: list[Tensor], plan: Plan, samples: Samples) -> Iterator[Step]:
    """Cut a block of rows into steps and their micro-batches."""
    micros: list[Batch] = list(zip(*(t.split(plan.batch_size) for t in block), strict=True))
    if samples.names is not None:
        micros = [samples.batch(micro) for micro in micros]  # type: ignore[arg-type]
    for number in range(math.ceil(len(ids) / plan.step_samples)):
        rows = slice(number * plan.step_samples, (number + 1) * plan.step_samples)
        yield Step(ids[rows], micros[number * plan.accumulate : (number + 1) * plan.accumulate])


@dataclass(frozen=True)
class Addresses:
    """The (epoch, position) of every sample of every micro-batch after a step, in order."""

    plan: Plan
    samples: Samples
    seed: int
    start: int

    def __len__(self) -> int:
        return math.ceil(self.plan.samples / self.plan.batch_size) * self.plan.epochs

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        first, done = divmod(self.start, self.plan.steps_per_epoch)
        for epoch in range(first, self.plan.epochs):
            order = self.samples.order(self.seed, epoch).tolist()
            skip = done * self.plan.step_samples if epoch == first else 0
            for low in range(skip, self.plan.samples, self.plan.batch_size):
                yield [(epoch, position) for position in order[low : low + self.plan.batch_size]]


def _loaded(samples: Samples, plan: Plan, config: TrainingConfig, start: int) -> Iterator[Step]:
    """Yield steps from one loader, whose workers live as long as the run."""
    device = torch.device(config.device)
    micros = batches_of(make_loader(samples, config, "sample", Addresses(plan, samples, config.seed, start)), device)
    first_epoch, done = divmod(start, plan.steps_per_epoch)
    for epoch in range(first_epoch, plan.epochs):
        order = samples.order(config.seed, epoch)
        skip = done * plan.step_samples if epoch == first_epoch else 0
        for low in range(skip, plan.samples, plan.step_samples):
            positions = order[low : low + plan.step_samples]
            count = math.ceil(len(positions) / plan.batch_size)
            yield Step(samples.ids[positions], [next(micros) for _ in range(count)])


def evaluation_batches(samples: Samples, positions: np.ndarray, config: TrainingConfig, split: str) -> Iterator[Batch]:
    """Yield the samples at some positions in order; their draws are addressed by the split, not by the run's position."""
    device = torch.device(config.device)
    if samples.tensors is not None:
        index = torch.from_numpy(positions)
        for part in index.split(EVALUATION_BATCH):
            yield samples.batch([t.index_select(0, part).to(device, non_blocking=True) for t in samples.tensors])
        return
    if split not in samples.loaders:
        samples.loaders[split] = make_loader(samples, config, f"evaluate-{split}", _Chosen(), keep_workers=True)
    samples.loaders[split].batch_sampler.positions = positions
    yield from batches_of(samples.loaders[split], device)


class _Chosen:
    """The (epoch, position) of every sample of every batch of an evaluation; the positions are set before each."""

    def __init__(self) -> None:
        self.positions = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return math.ceil(len(self.positions) / EVALUATION_BATCH)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for low in range(0, len(self.positions), EVALUATION_BATCH):
            yield [(0, position) for position in self.positions[low : low + EVALUATION_BATCH].tolist()]
