"""The processes that take one training's steps together: which shards each computes, and how their sums become one.

A step with `accumulate: L` is L logical shards (`shards.py`). W processes, a power of two, take contiguous blocks of them, so
that the tree over each block is a subtree of the tree over all, and the tree over the processes is its top: the sum has the
bits that one process gives, whatever W is. A process without a shard adds -0.0, because x + -0.0 is x for every x, -0.0 too.
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
LONGEST_WAIT = datetime.timedelta(minutes=30)  # for a process that lives; one that died or hangs is noticed by the executor
Poll = Callable[[], int]
PARTS_APART = (
    "what is not in the model's tp_plan must be used outside of what lies between a colwise and a rowwise module, where each "
    "process sees a part: mend the plan, or train in one process: mltrainer phase run planning --set tensor_parallel=1"
)


class Ranks:
    """One process alone, which needs nobody; `Group` is several.

    Attributes:
        rank: Which process this is, from 0.
        size: How many there are.
        polls: What rank 0 alone can know and all must act on after the same step, such as a signal: numbers, 0 for nothing.
        shares_steps: Whether each computes micro-batches of its own.
    """

    rank, size, shares_steps = 0, 1, True

    def __init__(self) -> None:
        self.polls: Sequence[Poll] = ()

    @property
    def writes(self) -> bool:
        """Whether this process writes files and tells people: all compute, one writes."""
        return self.rank == 0

    def own(self, count: int, planned: int) -> range:
        """Return the numbers of this process's shards: a block of as many as are planned, padded to a power of two.

        A step that is one shard has no sum, and every process computes it.

        Args:
            count: The step's shards; the last step of an epoch may have fewer than planned.
            planned: `accumulate`.
        """
        if count == 1:
            return range(1)
        each = padded(planned) // self.size
        return range(min(count, self.rank * each), min(count, (self.rank + 1) * each))

    def tree_sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors, each now its sum over all processes in the order of the tree."""
        return tensors

    def room(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return memory for blocks that `scatter_sum` is to take: [processes, numbers]; what stands in it is not defined."""
        return torch.empty(1, count, dtype=dtype)

    def scatter_sum(self, blocks: Tensor) -> Tensor:
        """Return this process's block of the sum over all processes, in the order of the tree.

        Args:
            blocks: [processes, numbers], in memory that `room` gave; what stands in it afterwards is not defined, nor is what
                this returns, after the next call.
        """
        return blocks[0]

    def gather_blocks(self, block: Tensor) -> Tensor:
        """Return every process's block of so many numbers, in the order of ranks: [processes, numbers].

        What stands in it after the next call is not defined.
        """
        return block[None]

    def decided(self) -> list[int]:
        """Return the numbers that rank 0 polled at the last sum, or of polls made now where this process is alone."""
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
        rank: Which one it is.
        size: How many there are.
        device: Where its tensors are.
    """

    def __init__(self, rank: int, size: int, device: str = "cpu") -> None:
        super().__init__()
        self.rank, self.size, self._device = rank, size, device
        self._decided: list[int] = []
        self._exchange = exchange_of(rank, size, device)

    def tree_sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors, each now its sum over all processes; what rank 0 polls rides along."""
        # In the step's own sum and not in a message of their own: it costs nothing, and all read the flags after the same step.
        polled = [float(poll()) if self.writes else -0.0 for poll in self.polls]
        flags = torch.tensor(polled, dtype=torch.float32, device=self._device)
        *sums, summed = self._summed([*tensors, flags])
        self._decided = [int(number) for number in summed.tolist()]
        return sums

    def decided(self) -> list[int]:
        """Return the numbers that rank 0 polled at the step's sum; a step of one shard needs none, and they travel alone."""
        if not self._decided:
            self.tree_sum([])
        decided, self._decided = self._decided, []
        return decided

    def gather(self, value: T) -> list[T]:
        """Return every process's value, in the order of ranks."""
        return gathered(value, self.size)

    def _summed(self, tensors: list[Tensor]) -> list[Tensor]:
        """Sum tensors of several types; a type's tensors travel as one."""
        sums: dict[int, Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
            sums |= zip(places, self._summed_alike(dtype, [tensors[place] for place in places]), strict=True)
        return [sums[place] for place in range(len(tensors))]

    def _summed_alike(self, dtype: torch.dtype, tensors: list[Tensor]) -> list[Tensor]:
        """Sum tensors of one type in place: each process adds up one slice of everybody's numbers, and hands its sum to all.

        2 (W - 1) / W of the numbers leave each process, as in a ring, but each sum's order is the tree's.
        """
        sizes = [tensor.numel() for tensor in tensors]
        each = -(-sum(sizes) // self.size)
        sent = self._exchange.room(dtype, each * self.size)
        torch._foreach_copy_(_parts(sent, tensors), tensors)
        summed = self._exchange.spread(self._exchange.own_sum(sent))
        # Back into the layout of the gradients: fused optimizers pair numbers by their place in memory, and norms add them so.
        torch._foreach_copy_(tensors, _parts(summed, tensors))
        return tensors

    def room(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return memory for blocks that `scatter_sum` is to take."""
        return self._exchange.room(dtype, self.size * count).view(self.size, count)

    def scatter_sum(self, blocks: Tensor) -> Tensor:
        """Return this process's block of the sum over all processes; all of them hand over a block for each."""
        return self._exchange.own_sum(blocks.view(-1))

    def gather_blocks(self, block: Tensor) -> Tensor:
        """Return every process's block, in the order of ranks: [processes, numbers]."""
        return self._exchange.gather(block)


def _parts(numbers: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return views of numbers that lie one after another, shaped as some tensors."""
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
        """Return the tensors: those of one process are of all."""
        return tensors

    def decided(self) -> list[int]:
        """Return the numbers that rank 0 polls now."""
        super().tree_sum([])
        return super().decided()


@contextmanager
def joined(device: str, environment: Mapping[str, str] = os.environ, is_team: bool = False) -> Iterator[Ranks]:
    """Yield this process's place among those that its executor started for one training; alone, where it started one.

    Args:
        device: Where the model is trained, "cpu" or "cuda"; each process takes the GPU of its number.
        environment: The executor's variables.
        is_team: Whether they compute each micro-batch together.

    Raises:
        InputError: There are fewer GPUs than processes.
    """
    if RENDEZVOUS not in environment:  # torchrun's variables alone may be those of a program that this one was started by
        yield Ranks()
        return
    rank, size = int(environment[RANK]), int(environment[WORLD_SIZE])
    if device == "cuda":
        _take_gpu(int(environment[LOCAL_RANK]), int(environment[LOCAL_SIZE]))
    # In a folder of this start alone: in a store that outlives its processes, gloo finds the addresses of those that died.
    store = FileStore(str(Path(environment[RENDEZVOUS])), size)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    try:
        yield (Team if is_team else Group)(rank, size, device)
    finally:
        dist.destroy_process_group()


def _take_gpu(place: int, size: int) -> None:
    """Take the GPU of this process's place among those of its machine.

    Raises:
        InputError: There are fewer than processes.
    """
    count = torch.cuda.device_count()
    if size > count:
        hint = f"--processes {1 << (count.bit_length() - 1)}" if count else "device: cpu"
        raise InputError(f"{size} processes need a GPU each, and this machine has {count}", where="processes", hint=hint)
    torch.cuda.set_device(place)


def require_alike(ranks: Ranks, facts: Mapping[str, Any], hint: str) -> None:
    """Refuse that processes differ in something that decides the bits.

    Args:
        ranks: The processes.
        facts: Of this process, by name.
        hint: What to do about a difference.

    Raises:
        InputError: Naming the first rank that differs from rank 0, and in what.
    """
    first, *others = ranks.gather(dict(facts))
    for rank, other in enumerate(others, 1):
        for name, value in first.items():
            if other.get(name) != value:
                what = f"{name} of process {rank} is {other.get(name)}, of process 0 {value}"
                raise InputError(what, where="processes", hint=hint)


def require_no_synchronized_norm(ranks: Ranks, model: nn.Module) -> None:
    """Refuse a model that normalizes over all processes' samples: with another number of them it would compute something else.

    Raises:
        InputError: With the module's name.
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
    """Have torchmetrics' metrics of a model or a task count this process's samples alone.

    Where processes are joined, such a metric asks the others for their counts when it is computed, at a moment of its own;
    here each process measures all that a metric is to count, or only one computes it.
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
