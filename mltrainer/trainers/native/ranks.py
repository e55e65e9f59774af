"""The processes that take one training's steps together: each one's shards, and the sum over all.

A step with `accumulate: L` is L logical shards (`shards.py`). W processes, a power of two, take contiguous blocks of them, so
that the tree over each block is a subtree of the tree over all, and the tree over the processes is its top: the sum has the
bits of one process, whatever W is. A process without a shard adds -0.0, because x + -0.0 is x for every x, -0.0 too.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore

from mltrainer.errors import InputError
from mltrainer.executors.executor import LOCAL_RANK, LOCAL_SIZE, RANK, RENDEZVOUS, WORLD_SIZE
from mltrainer.trainers.native.exchange import exchange_of, gathered

T = TypeVar("T")
LONGEST_WAIT = datetime.timedelta(minutes=30)  # for a live process; the executor notices one that died or hangs
Poll = Callable[[], int]
PARTS_APART = (
    "what is not in the model's tp_plan must be used outside of the part between a colwise and a rowwise module, where each "
    "process sees a part: fix the plan, or train in one process: mltrainer phase run planning --set tensor_parallel=1"
)


class Ranks:
    """One process alone; `Group` is one of several.

    Attributes:
        rank: The number of this process, from 0.
        size: The number of processes.
        polls: Functions of numbers that only rank 0 knows and all act on after the same step, such as a signal; 0 for none.
        shares_steps: Whether each process computes its own micro-batches.
    """

    rank, size, shares_steps = 0, 1, True

    def __init__(self) -> None:
        self.polls: Sequence[Poll] = ()

    @property
    def writes(self) -> bool:
        """Whether this process writes files and messages: all compute, one writes."""
        return self.rank == 0

    def own(self, count: int, planned: int) -> range:
        """Return the numbers of this process's shards: a block of the planned ones, padded to a power of two.

        A step of one shard has no sum, and every process computes it.

        Args:
            count: The step's number of shards; the last step of an epoch may have fewer than planned.
            planned: The planned number of shards, `accumulate`.
        """
        if count == 1:
            return range(1)
        each = padded(planned) // self.size
        return range(min(count, self.rank * each), min(count, (self.rank + 1) * each))

    def tree_sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return each tensor's sum over all processes, in the order of the tree."""
        return tensors

    def room(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return memory for the blocks of `scatter_sum`, [processes, numbers]; its content is undefined."""
        return torch.empty(1, count, dtype=dtype)

    def scatter_sum(self, blocks: Tensor) -> Tensor:
        """Return this process's block of the sum over all processes, in the order of the tree; valid until the next call.

        Args:
            blocks: The blocks, [processes, numbers], in memory from `room`; their content is undefined afterwards.
        """
        return blocks[0]

    def gather_blocks(self, block: Tensor) -> Tensor:
        """Return the blocks of all processes, of equal size, in the order of ranks: [processes, numbers].

        The result is valid until the next call.
        """
        return block[None]

    def decided(self) -> list[int]:
        """Return the numbers that rank 0 polled at the last sum; a process alone polls now."""
        return [poll() for poll in self.polls]

    def gather(self, value: T) -> list[T]:
        """Return every process's value, in the order of ranks."""
        return [value]


def padded(count: int) -> int:
    """Return the smallest power of two that is not below a count."""
    return 1 << (count - 1).bit_length()


class Group(Ranks):
    """This process among others, which all make the same calls in the same order.

    Args:
        rank: The number of this process, from 0.
        size: The number of processes.
        device: The device of its tensors.
    """

    def __init__(self, rank: int, size: int, device: str = "cpu") -> None:
        super().__init__()
        self.rank, self.size, self._device = rank, size, device
        self._decided: list[int] = []
        self._exchange = exchange_of(rank, size, device)

    def tree_sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return each tensor's sum over all processes; the same exchange carries rank 0's polls."""
        # Part of the step's own sum instead of a separate message: it costs nothing, and all read the flags after the same step.
        polled = [float(poll()) if self.writes else -0.0 for poll in self.polls]
        flags = torch.tensor(polled, dtype=torch.float32, device=self._device)
        *sums, summed = self._summed([*tensors, flags])
        self._decided = [int(number) for number in summed.tolist()]
        return sums

    def decided(self) -> list[int]:
        """Return the numbers that rank 0 polled at the step's sum; a step of one shard has no sum, and exchanges them alone."""
        if not self._decided:
            self.tree_sum([])
        decided, self._decided = self._decided, []
        return decided

    def gather(self, value: T) -> list[T]:
        """Return every process's value, in the order of ranks."""
        return gathered(value, self.size)

    def _summed(self, tensors: list[Tensor]) -> list[Tensor]:
        """Sum tensors of several types; tensors of one type share a message."""
        sums: dict[int, Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
            sums |= zip(places, self._summed_alike(dtype, [tensors[place] for place in places]), strict=True)
        return [sums[place] for place in range(len(tensors))]

    def _summed_alike(self, dtype: torch.dtype, tensors: list[Tensor]) -> list[Tensor]:
        """Sum tensors of one type in place: each process sums one slice of all processes' numbers, and sends its sum to all.

        2 (W - 1) / W of the numbers leave each process, as in a ring, but each sum has the order of the tree.
        """
        sizes = [tensor.numel() for tensor in tensors]
        each = -(-sum(sizes) // self.size)
        sent = self._exchange.room(dtype, each * self.size)
        torch._foreach_copy_(_parts(sent, tensors), tensors)
        summed = self._exchange.spread(self._exchange.own_sum(sent))
        # Back into the gradients' layout: fused optimizers pair numbers by place in memory, and norms add them in that order.
        torch._foreach_copy_(tensors, _parts(summed, tensors))
        return tensors

    def room(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return memory for the blocks of `scatter_sum`."""
        return self._exchange.room(dtype, self.size * count).view(self.size, count)

    def scatter_sum(self, blocks: Tensor) -> Tensor:
        """Return this process's block of the sum over all processes; each process provides a block for every process."""
        return self._exchange.own_sum(blocks.view(-1))

    def gather_blocks(self, block: Tensor) -> Tensor:
        """Return the blocks of all processes, in the order of ranks: [processes, numbers]."""
        return self._exchange.gather(block)


def _parts(numbers: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return views of consecutive numbers, shaped as some tensors."""
    sizes = [tensor.numel() for tensor in tensors]
    parts = numbers[: sum(sizes)].split(sizes)
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


class Team(Group):
    """This process among others that compute every micro-batch together, each with its parts of the model."""

    shares_steps = False

    def own(self, count: int, planned: int) -> range:
        """Return the numbers of all shards."""
        return range(count)

    def tree_sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors unchanged: every process has the same ones."""
        return tensors

    def decided(self) -> list[int]:
        """Return the numbers that rank 0 polls now."""
        super().tree_sum([])
        return super().decided()


@contextmanager
def joined(device: str, environment: Mapping[str, str] = os.environ, is_team: bool = False) -> Iterator[Ranks]:
    """Yield this process's place among those that its executor started for one training; `Ranks()` for a process alone.

    Args:
        device: The device of the model, "cpu" or "cuda"; each process takes the GPU of its number.
        environment: The executor's environment variables.
        is_team: Whether the processes compute each micro-batch together.

    Raises:
        InputError: There are fewer GPUs than processes.
    """
    if RENDEZVOUS not in environment:  # torchrun's variables alone may belong to a program that started this one
        yield Ranks()
        return
    rank, size = int(environment[RANK]), int(environment[WORLD_SIZE])
    if device == "cuda":
        _take_gpu(int(environment[LOCAL_RANK]), int(environment[LOCAL_SIZE]))
    # In a folder of this start only: in a store that outlives its processes, gloo finds the addresses of dead ones.
    store = FileStore(str(Path(environment[RENDEZVOUS])), size)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    try:
        yield (Team if is_team else Group)(rank, size, device)
    finally:
        dist.destroy_process_group()


def _take_gpu(place: int, size: int) -> None:
    """Take the GPU of this process's number on its machine.

    Raises:
        InputError: There are fewer GPUs than processes.
    """
    count = torch.cuda.device_count()
    if size > count:
        hint = f"--processes {1 << (count.bit_length() - 1)}" if count else "device: cpu"
        raise InputError(f"{size} processes need a GPU each, and this machine has {count}", where="processes", hint=hint)
    torch.cuda.set_device(place)


def require_alike(ranks: Ranks, facts: Mapping[str, Any], hint: str) -> None:
    """Refuse processes that differ in a fact that decides the bits.

    Args:
        ranks: The processes.
        facts: This process's facts, by name.
        hint: The error's hint.

    Raises:
        InputError: A process differs; with the first rank that differs from rank 0, and the fact.
    """
    first, *others = ranks.gather(dict(facts))
    for rank, other in enumerate(others, 1):
        for name, value in first.items():
            if other.get(name) != value:
                what = f"{name} of process {rank} is {other.get(name)}, of process 0 {value}"
                raise InputError(what, where="processes", hint=hint)


def require_no_synchronized_norm(ranks: Ranks, model: nn.Module) -> None:
    """Refuse a model that normalizes over all processes' samples: its results would depend on the number of processes.

    Raises:
        InputError: The model has a SyncBatchNorm; with the module's name.
    """
    names = [name for name, module in model.named_modules() if isinstance(module, nn.SyncBatchNorm)]
    if names and ranks.size > 1:
        hint = (
            "use nn.BatchNorm1d, 2d or 3d, and leave out convert_sync_batchnorm: its statistics are those of each micro-batch of "
            "batch_size samples, whatever the number of processes; or train in one process: launch.processes: 1, or --processes 1"
        )
        raise InputError(
            f"{names[0]} is a SyncBatchNorm, whose results depend on the number of processes", where="model", hint=hint
        )


def measure_alone(ranks: Ranks, *holders: object) -> None:
    """Have torchmetrics' metrics of a model or a task count only this process's samples.

    In a group of processes, such a metric exchanges its counts with the others whenever it is computed;
    here each process measures all samples that a metric must count, or only one computes it.
    """
    if ranks.size == 1:
        return
    for holder in holders:
        parts = holder.modules() if isinstance(holder, nn.Module) else vars(holder).values()
        for part in parts:
            if hasattr(part, "distributed_available_fn"):
                part.distributed_available_fn = _never


def _never() -> bool:
    return False
