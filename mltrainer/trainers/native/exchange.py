"""The exchange of numbers among the processes of one training: through shared memory, or by messages.

Either way every process receives the numbers of all in the order of ranks, so that a sum of them has the same tree.
The next call overwrites a call's result.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from mltrainer.errors import InputError, KilledError
from mltrainer.tools.life import NOW
from mltrainer.trainers.native.shards import TreeSum
from mltrainer.workspace import machine_faults

T = TypeVar("T")
PATIENCE_S = 20.0  # longer than an executor takes to notice that a process ended
ALONE = "let all processes call the collective operations of your code (torch.distributed), or none"
_PAGE = mmap.PAGESIZE
_HEAD = 64  # bytes before a slot's numbers: their count, their type, and which sum they are of


class Exchange(Protocol):
    """A process's access to the numbers of the others; all make the same calls, with equal counts, in the same order."""

    def room(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return memory for the numbers that `own_sum` will take; its content is undefined."""

    def own_sum(self, sent: Tensor) -> Tensor:
        """Return the sum, in the order of the tree, of all processes' blocks for this one.

        Args:
            sent: A block of numbers for each process, in the order of ranks; in memory from `room`.
        """

    def spread(self, own: Tensor) -> Tensor:
        """Return the blocks of all processes after `own_sum`, concatenated.

        Args:
            own: The result of `own_sum`.
        """

    def gather(self, block: Tensor) -> Tensor:
        """Return the blocks of all processes, [processes, numbers]."""


class Messages:
    """torch's collective operations, over gloo or NCCL: between GPUs, and where memory cannot be shared.

    Args:
        size: The number of processes.
        device: The device of the numbers.
    """

    def __init__(self, size: int, device: str) -> None:
        self._size, self._device = size, device
        self._kept: dict[torch.dtype, tuple[Tensor, Tensor]] = {}
        self._sent = torch.empty(0)

    def room(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return memory that is reused: new pages for each step would cost more than the sum."""
        kept = self._kept.get(dtype)
        if kept is None or kept[0].numel() < count:
            sent = torch.zeros(count, dtype=dtype, device=self._device)
            kept = self._kept[dtype] = sent, torch.zeros_like(sent)
        return kept[0][:count]

    def own_sum(self, sent: Tensor) -> Tensor:
        """Return the sum of the blocks, each of which is sent to the process that adds it."""
        received = self._kept[sent.dtype][1][: sent.numel()]
        with others_may_be_lost():
            dist.all_to_all_single(received, sent)
        self._sent = sent
        return _tree_sum(received.view(self._size, -1))

    def spread(self, own: Tensor) -> Tensor:
        """Return the blocks, in the memory of the summands."""
        with others_may_be_lost():
            dist.all_gather_single(self._sent, own)
        return self._sent

    def gather(self, block: Tensor) -> Tensor:
        """Return the blocks."""
        found = torch.empty(self._size * len(block), dtype=block.dtype, device=block.device)
        with others_may_be_lost():
            dist.all_gather_single(found, block)
        return found.view(self._size, -1)


class SharedMemory:
    """Memory of one machine in which each process writes its numbers and reads all others': no message copies them.

    Each process has a slot for its numbers, after a header with count, type and number of the sum; the last slot is for sums. The
    memory belongs to no file, and is freed with the processes.

    Args:
        rank: This process's rank.
        size: The number of processes.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._slots = torch.empty(size + 1, _HEAD, dtype=torch.uint8)
        self._is_read = False  # whether others may still read this process's slot
        self._sums = 0

    def room(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return this process's slot, once nobody reads its earlier content."""
        self._reserve(_HEAD + count * dtype.itemsize)
        if self._is_read:
            self._meet()
            self._is_read = False
        self._sums += 1
        head = torch.tensor([count, zlib.crc32(str(dtype).encode()), self._sums])
        self._heads[self._rank].copy_(head)
        return self._numbers(dtype, count)[self._rank]

    def own_sum(self, sent: Tensor) -> Tensor:
        """Return the sum of the blocks, added in place: no other process reads them."""
        self._meet()
        self._is_read = True
        self._require_same_numbers()
        blocks = self._numbers(sent.dtype, sent.numel())[: self._size].unflatten(1, (self._size, -1))
        return _tree_sum(blocks[:, self._rank])

    def spread(self, own: Tensor) -> Tensor:
        """Return the blocks from the slot of sums."""
        sums = self._numbers(own.dtype, own.numel() * self._size)[-1]
        sums.view(self._size, -1)[self._rank].copy_(own)
        self._meet()
        self._is_read = False  # all have added their blocks; sums are overwritten only after all meet again
        return sums

    def gather(self, block: Tensor) -> Tensor:
        """Return the blocks in place, without a copy."""
        self.room(block.dtype, block.numel()).copy_(block)
        self._meet()
        self._is_read = True
        self._require_same_numbers()
        return self._numbers(block.dtype, block.numel())[: self._size]

    @property
    def _heads(self) -> Tensor:
        return self._slots[: self._size, :_HEAD].view(torch.int64)[:, :3]

    def _require_same_numbers(self) -> None:
        """Refuse a sum of numbers that do not belong together; a message would not have fitted either.

        Raises:
            InputError: The processes wrote different counts or types, or are not at the same sum.
        """
        if not torch.equal(self._heads, self._heads[:1].expand(self._size, 3)):
            raise InputError(
                f"processes exchange different numbers: count, type and number of the sum are {self._heads.tolist()}", hint=ALONE
            )

    def _numbers(self, dtype: torch.dtype, count: int) -> Tensor:
        """Return the first numbers of each slot."""
        return self._slots[:, _HEAD : _HEAD + count * dtype.itemsize].view(dtype)

    @staticmethod
    def _meet() -> None:
        with others_may_be_lost():
            dist.barrier()

    def _reserve(self, size: int) -> None:
        """Make slots of at least this number of bytes; their earlier numbers are lost.

        Raises:
            MachineError: The machine does not have enough memory.
        """
        if size <= self._slots.shape[1]:
            return
        slot = -(-size // _PAGE) * _PAGE
        descriptor = -1
        with machine_faults("memory that processes share"):
            if self._rank == 0:
                descriptor = os.memfd_create("mltrainer")
                # Now, and not page by page while writing: a write that finds no page ends a process without a message.
                os.posix_fallocate(descriptor, 0, (self._size + 1) * slot)
        place = gathered(f"/proc/{os.getpid()}/fd/{descriptor}", self._size)[0]
        opened = os.open(place, os.O_RDWR)
        self._slots = torch.frombuffer(mmap.mmap(opened, 0), dtype=torch.uint8).view(self._size + 1, slot)
        os.close(opened)
        self._meet()
        if self._rank == 0:
            os.close(descriptor)


def exchange_of(rank: int, size: int, device: str) -> Exchange:
    """Return the fastest exchange between these processes."""
    return SharedMemory(rank, size) if device == "cpu" and _share_memory(rank, size) else Messages(size, device)


def _share_memory(rank: int, size: int) -> bool:
    """Return True if every process can read memory that the first one made."""
    mark, descriptor = os.urandom(16), -1
    if rank == 0:
        with contextlib.suppress(OSError, AttributeError):  # the second: not Linux
            descriptor = os.memfd_create("mltrainer")
            os.write(descriptor, mark)
    place, mark = gathered((f"/proc/{os.getpid()}/fd/{descriptor}", mark), size)[0]
    found = b""
    # On another machine, that path may name an unrelated file or pipe.
    with contextlib.suppress(OSError):
        found = Path(place).read_bytes() if Path(place).stat().st_size == len(mark) else b""
    shares = all(gathered(found == mark, size))
    if descriptor >= 0:
        os.close(descriptor)
    return shares


def gathered(value: T, size: int) -> list[T]:
    """Return every process's value, in the order of ranks."""
    found: list[Any] = [None] * size
    with others_may_be_lost():
        dist.all_gather_object(found, value)
    return found


def _tree_sum(blocks: Tensor) -> Tensor:
    """Return the sum of rows in the order of the tree, stored in the first row's memory."""
    tree = TreeSum()
    for block in blocks:
        tree.add([block])
    return tree.total()[0]


def tells_of_others(error: Exception) -> bool:
    """Return True if an error of combined computations and exchanges comes from an exchange."""
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)


@contextlib.contextmanager
def others_may_be_lost(means_loss: Callable[[Exception], bool] | None = None) -> Iterator[None]:
    """Wait, if another process is gone, for the executor to end this one: it knows which process and why.

    Args:
        means_loss: The test whether an error means a lost process; None: every error does, of a block that is one exchange.

    Raises:
        KilledError: Nobody ended this process.
    """
    try:
        with NOW.exchanging(sys._getframe(2).f_code.co_name.lstrip("_")) if means_loss is None else contextlib.nullcontext():
            yield
    except (RuntimeError, dist.DistError) as error:
        if means_loss is not None and not means_loss(error):
            raise
        time.sleep(PATIENCE_S)
        raise KilledError(f"another process of this training was lost: {error}", hint="type the same command again") from error
