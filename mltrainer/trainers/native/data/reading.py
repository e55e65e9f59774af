"""Samples of a data set that is not in memory: read in this process or in workers, with equal results, then moved to a device."""

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
PR_SET_PDEATHSIG = 1  # from linux/prctl.h
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
    """Return a loader; its settings decide when and in which process a sample is read, never its content.

    Args:
        samples: The samples, with a data set.
        config: The config, with seed, device and loader.
        purpose: The name that addresses the samples' random draws.
        addresses: The (epoch, position) of each sample of each batch; it has a length.
        keep_workers: Whether worker processes stay alive after the last batch, for the next iteration.
        timeout_s: The seconds that a worker may take for a batch; 0 for no limit.
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
    """Return the number of processes that read samples: 0 for samples in memory, at most 1 for a stream, to keep its order."""
    if samples.tensors is not None:
        return 0
    return min(1, config.loader.processes) if samples.is_stream else config.loader.processes


def _end_with_the_reader(_worker: int) -> None:
    """Have the system end this worker when its parent process dies; a worker that hangs would never notice."""
    if sys.platform == "linux":  # no other system can
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def batches_of(loader: DataLoader[Any], device: torch.device) -> Iterator[Batch]:
    """Yield a loader's batches on a device.

    Raises:
        InputError: The user's data set failed, in this process or a worker; with file and line.
        MachineError: The disk failed.
    """
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    batches = iter(loader)
    while (batch := _next(batches)) is not None:
        if isinstance(batch, _Fault):
            raise batch.error()
        yield _moved(batch, device, stream)


def _next(batches: Iterator[Any]) -> Any:
    """Return the next batch, or None; with one thread per operation, as in a worker, because bits depend on it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return next(batches, None)
    finally:
        torch.set_num_threads(threads)


def _moved(batch: Any, device: torch.device, stream: torch.cuda.Stream | None) -> Batch:
    """Return a batch on a device.

    A GPU copies it on a separate stream while it still computes earlier steps: the loop queues steps and does not wait.
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
    # The step must not read before the copy has arrived, and the allocator must not give the memory to the next
    # copy while a step still reads it: it knows only the copying stream unless `record_stream` names the other.
    current.wait_stream(stream)
    for tensor in tensors_in(moved):
        tensor.record_stream(current)
    return moved


def _to(batch: Batch, device: torch.device, waits: bool) -> Batch:
    moved: Batch = mapped(lambda tensor: tensor.to(device, non_blocking=not waits), batch)
    return moved


@dataclass(frozen=True)
class _Fault:
    """A sample's error, in place of its batch: a raised exception would lose its file and line in the worker."""

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
    """Makes a batch of samples, with the task's `collate` or torch's own; a fault among the samples replaces the batch."""

    def __init__(self, samples: Samples) -> None:
        self.own, self.root = samples.collate, samples.root

    def __call__(self, rows: list[Any]) -> Any:
        # Before collating, which would treat a fault as a sample of another type.
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
