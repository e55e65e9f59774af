"""Samples of a data set that is not in memory: read here or by worker processes, the same either way, and moved to the device."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MachineError, MltrainerError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import Samples
from mltrainer.tasks.structures import mapped, tensors_in
from mltrainer.tasks.user_code import user_code

Batch = tuple[Any, ...] | dict[str, Any]
Address = tuple[int, int]
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
AGAIN = "then type the same command again"
UNEQUAL = f"give every sample the same shapes and types, or write collate(self, rows) in your task, {AGAIN}"


def make_loader(
    samples: Samples,
    config: TrainingConfig,
    purpose: str,
    addresses: Iterable[list[Address]],
    *,
    keep_workers: bool = False,
    timeout_s: float = 0,
) -> DataLoader[Any]:
    """Return a loader; its settings decide when a sample is read and by which process, never what it is.

    Args:
        samples: With a data set.
        config: Seed, device and loader.
        purpose: What addresses the samples' draws.
        addresses: (epoch, position) of each sample of each batch; with a length.
        keep_workers: Whether worker processes stay when the batches have been read, for the next time.
        timeout_s: How long a batch of a worker may take; 0 for ever.
    """
    own = torch.Generator().manual_seed(seeds.key(config.seed, "loader"))  # else iterating draws from the global generator
    workers: dict[str, Any] = {"num_workers": readers(samples, config)}
    if workers["num_workers"]:
        workers |= {"prefetch_factor": config.loader.prefetch, "persistent_workers": keep_workers, "timeout": timeout_s}
        workers["worker_init_fn"] = _end_with_the_reader if sys.platform == "linux" else None
    return DataLoader(
        _Addressed(samples, config.seed, purpose),
        batch_sampler=addresses,
        collate_fn=_Collate(samples),
        pin_memory=config.loader.pin_memory and config.device == "cuda",
        generator=own,
        **workers,
    )


def readers(samples: Samples, config: TrainingConfig) -> int:
    """Return the number of processes that read samples: 0 for those in memory, at most 1 for a stream, whose order is its own."""
    if samples.tensors is not None:
        return 0
    return min(1, config.loader.processes) if samples.is_stream else config.loader.processes


def _end_with_the_reader(_worker: int) -> None:
    """Have the system end this worker when the process that it reads for dies; one that hangs would never notice."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def batches_of(loader: DataLoader[Any], device: torch.device) -> Iterator[Batch]:
    """Yield a loader's batches on a device.

    Raises:
        InputError: The user's data set failed; with its file and line, whichever process that was in.
        MachineError: The disk failed.
    """
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    batches = iter(loader)
    while (batch := _next(batches)) is not None:
        if isinstance(batch, _Fault):
            raise batch.error()
        yield _moved(batch, device, stream)


def _next(batches: Iterator[Any]) -> Any:
    """Return the next batch, or None; read here, it has one thread for an operation as in a worker: bits depend on it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return next(batches, None)
    finally:
        torch.set_num_threads(threads)


def _moved(batch: Any, device: torch.device, stream: torch.cuda.Stream | None) -> Batch:
    """Return a batch on a device.

    A GPU copies it on a separate stream, while it still computes the steps before: the loop queues them and does not wait.
    """
    if isinstance(batch, Mapping):
        given: Batch = dict(batch)
    else:
        given = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    if stream is None:
        return _to(given, device, waits=True)
    with torch.cuda.stream(stream):
        moved = _to(given, device, waits=False)
    current = torch.cuda.current_stream(device)
    # The step must not read before the copy has arrived, and the allocator must not hand the memory to the next
    # copy while a step still reads it: it knows of the copying stream alone, unless it is told of the other.
    current.wait_stream(stream)
    for tensor in tensors_in(moved):
        tensor.record_stream(current)
    return moved


def _to(batch: Batch, device: torch.device, waits: bool) -> Batch:
    moved: Batch = mapped(lambda tensor: tensor.to(device, non_blocking=not waits), batch)
    return moved


@dataclass(frozen=True)
class _Fault:
    """What went wrong with a sample, in place of its batch: an exception would leave its file and line in the worker."""

    kind: type[MltrainerError]
    message: str
    where: str | None
    hint: str

    def error(self) -> MltrainerError:
        return self.kind(self.message, where=self.where, hint=self.hint)


class _Addressed(Dataset[Any]):
    """A map-style data set whose samples draw from generators keyed by (seed, purpose, epoch, sample id)."""

    def __init__(self, samples: Samples, seed: int, purpose: str) -> None:
        self.samples, self.seed, self.purpose = replace(samples, loaders={}, collate=None), seed, purpose

    def __getitem__(self, address: Address) -> Any:
        epoch, position = address
        try:
            with user_code(self.samples.root, f"sample {int(self.samples.ids[position])} of your data set"):
                return self.samples.read(self.seed, self.purpose, epoch, position)
        except InputError as error:
            return _Fault(InputError, error.message, error.where, error.hint or f"fix your code, {AGAIN}")
        except OSError as error:  # the machine's
            return _Fault(MachineError, error.strerror or str(error), str(error.filename or ""), f"check the disk, {AGAIN}")


class _Collate:
    """Makes samples one batch, by the task's way or torch's own; a fault among them takes the batch's place."""

    def __init__(self, samples: Samples) -> None:
        self.own, self.root = samples.collate, samples.root

    def __call__(self, rows: list[Any]) -> Any:
        # Before collating, to which a fault among samples would be just a sample of another type.
        fault = next((row for row in rows if isinstance(row, _Fault)), None)
        if fault is not None:
            return fault
        return self._torchs(rows) if self.own is None else self._own(rows)

    def _own(self, rows: list[Any]) -> Any:
        assert self.own is not None
        try:
            with user_code(self.root, "collate of your task"):
                return self.own(rows)
        except InputError as error:
            return _Fault(InputError, error.message, error.where, f"fix your code, {AGAIN}")

    def _torchs(self, rows: list[Any]) -> Any:
        try:
            return default_collate(rows)
        except Exception as error:
            return _Fault(InputError, f"the samples of your data set do not make one batch: {error}", None, UNEQUAL)
