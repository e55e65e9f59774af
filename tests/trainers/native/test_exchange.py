"""Numbers of several processes, through memory that they share and by messages: the same bits in the same order."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch._C._distributed_c10d import FileStore

from mltrainer.errors import InputError, MachineError
from mltrainer.trainers.native.exchange import Exchange, Messages, SharedMemory, exchange_of
from mltrainer.trainers.native.shards import TreeSum

COUNTS = (24, 8, 4096, 0, 16)  # numbers that grow, shrink and are none


def drawn(rank: int, turn: int, count: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(100 * turn + rank)).to(dtype)


def tree_of(blocks: list[Tensor]) -> Tensor:
    tree = TreeSum()
    for block in blocks:
        tree.add([block.clone()])
    return tree.total()[0]


def check(exchange: Exchange, rank: int, size: int) -> None:
    """Compare what a process gets with what all are known to have given."""
    for turn, (count, dtype) in enumerate((c, d) for c in COUNTS for d in (torch.float32, torch.float64, torch.bfloat16)):
        given = [drawn(other, turn, count * size, dtype) for other in range(size)]
        whole = tree_of(given)
        sent = exchange.room(dtype, count * size)
        sent.copy_(given[rank])
        own = exchange.own_sum(sent)
        assert torch.equal(own, whole[rank * count : (rank + 1) * count])
        if turn % 2:  # else the sum stays with the process that made it
            assert torch.equal(exchange.spread(own), whole)
        blocks = [block[:count] for block in given]
        assert torch.equal(exchange.gather(blocks[rank]), torch.stack(blocks))


def check_refused(memory: SharedMemory, rank: int) -> None:
    """See other counts and types refused, where a message would not have fitted."""
    for count, dtype in ((8 + 8 * rank, torch.float32), (8, (torch.float32, torch.int32)[min(rank, 1)])):
        with pytest.raises(InputError, match="processes exchange different numbers"):
            memory.own_sum(memory.room(dtype, count))


def in_process(rank: int, size: int, store: str) -> None:
    dist.init_process_group("gloo", store=FileStore(store, size), rank=rank, world_size=size)
    chosen = exchange_of(rank, size, "cpu")
    assert isinstance(chosen, SharedMemory)
    for exchange in (chosen, Messages(size, "cpu"), chosen):
        check(exchange, rank, size)
    check_refused(chosen, rank)
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_all_get_the_sums_and_blocks_of_all(tmp_path, size):
    mp.spawn(in_process, (size, str(tmp_path / "store")), nprocs=size)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """One process that exchanges as several do."""
    dist.init_process_group("gloo", store=FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_between_gpus_numbers_travel_as_messages(alone):
    assert isinstance(exchange_of(0, 1, "cuda"), Messages)


def test_where_the_first_process_cannot_make_memory_messages_are_sent(alone, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    assert isinstance(exchange_of(0, 1, "cpu"), Messages)


def test_where_a_process_reads_other_memory_than_the_first_made_messages_are_sent(alone, monkeypatch):
    monkeypatch.setattr(Path, "read_bytes", lambda _path: bytes(16))  # as under another machine's process of that number
    assert isinstance(exchange_of(0, 1, "cpu"), Messages)


def test_memory_that_the_machine_does_not_have_is_named(alone, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(MachineError, match="Cannot allocate memory") as caught:
        SharedMemory(0, 1).room(torch.float32, 8)
    assert caught.value.where == "memory that processes share"


def test_shared_memory_keeps_no_file_open(alone):
    before = len(os.listdir("/proc/self/fd"))
    memory = SharedMemory(0, 1)
    for count in (8, 8192, 65536):
        memory.room(torch.float32, count).zero_()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # mmap's own duplicate of the newest memory's
