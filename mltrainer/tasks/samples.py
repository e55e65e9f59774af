"""The samples of a user's task: checked, in memory, read or in an iterable's order, and fingerprinted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.content import add_array, add_text
from mltrainer.tasks.ids import Ids, consecutive
from mltrainer.tasks.stored.records import Part
from mltrainer.tasks.task import Task

MAX_READ = 2048  # samples of a map-style data set that its fingerprint reads
SHOWN_PARTS = 4  # parts that a message describes of a wrong value given as samples


@dataclass(frozen=True)
class Samples:
    """The samples of one split.

    Attributes:
        ids: The samples' ids in the whole set, in the split's order, int64; of very many, computed on request.
        tensors: The samples in memory: one row per sample in each tensor, targets last; None where `dataset` is given.
        dataset: A map-style data set with these samples in this order, or a stream; None where `tensors` are given.
        names: The tensors' names, where a batch is a dict of them; None where it is a tuple.
        collate: Makes a data set's samples one batch; None for torch's default.
        by_epoch: The order in which an epoch reads them, from these ids, seed and epoch; None: the addressed one.
        filled: For each slot of an epoch's order the position of its sample, -1 for an empty one; None: each sample has a slot.
        root: The project's folder, which distinguishes faults in the user's code from ours.
        loaders: Loaders of the data set by purpose, whose worker processes stay alive from one evaluation to the next.
    """

    ids: Ids
    tensors: tuple[Tensor, ...] | None = None
    dataset: Dataset[Any] | Stream | None = None
    names: tuple[str, ...] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    by_epoch: Callable[[Ids, int, int], np.ndarray] | None = None
    filled: np.ndarray | None = None
    root: Path = Path()
    loaders: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def slots(self) -> int:
        """The number of slots of an epoch's order, the empty ones among them."""
        return len(self) if self.filled is None else len(self.filled)

    @property
    def is_stream(self) -> bool:
        """Whether the samples come in the order of an iterable."""
        return isinstance(self.dataset, Stream)

    @property
    def given(self) -> Any:
        """The samples as the user's method gave them, or this split's part."""
        if self.tensors is not None:
            return self.batch(self.tensors)
        return self.dataset.iterable if isinstance(self.dataset, Stream) else self.dataset

    def order(self, seed: int, epoch: int) -> seeds.Order:
        """Return the positions of the samples in an epoch's order, -1 for an empty slot.

        A stream keeps its order, and files are read one by one.
        """
        if self.by_epoch is not None:
            return self.by_epoch(self.ids, seed, epoch)
        if isinstance(self.dataset, Part):
            return self.dataset.order(seed, epoch)
        if self.is_stream:
            return np.arange(len(self))
        order = seeds.addressed_order(seed, epoch, self.slots)
        return order if self.filled is None else _Filled(order, self.filled)

    def spread(self, wanted: int) -> np.ndarray:
        """Return at most `wanted` positions, the same each time: evenly spaced, or a stream's first ones.

        They are of evenly spaced slots; the first of the other samples take the place of empty ones.
        """
        count = min(len(self), wanted)
        if self.is_stream:
            return np.arange(count)
        slots = np.unique(np.linspace(0, self.slots - 1, min(self.slots, wanted)).round().astype(np.int64))
        if self.filled is None:
            return slots
        found = self.filled[slots]
        found = found[found >= 0][:count]
        others = np.setdiff1d(np.arange(len(self)), found)[: count - len(found)]
        return np.sort(np.concatenate([found, others]))

    def read(self, seed: int, purpose: str, epoch: int, position: int) -> Any:
        """Return a sample of the data set, whose draws are addressed by seed, purpose, epoch and the sample."""
        if isinstance(self.dataset, Stream):
            return self.dataset.read(seed, purpose, epoch, position)
        assert self.dataset is not None
        seeds.seed_everything(seeds.key(seed, purpose, epoch, int(self.ids[position])))
        return self.dataset[position]

    def batch(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Return some rows of each tensor in memory as the batch that a task gets."""
        return tuple(tensors) if self.names is None else dict(zip(self.names, tensors, strict=True))


@dataclass(frozen=True)
class _Filled:
    """An epoch's order of slots, as the positions of the samples in them."""

    order: seeds.Order
    filled: np.ndarray

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, part: slice) -> np.ndarray:
        return np.asarray(self.filled[self.order[part]])


def samples_of(given: Any, what: str, task: Task, samples: int | None = None) -> Samples:
    """Return the samples that a user's method gave, with ids from 0.

    Args:
        given: Tensors, a map-style data set, or an iterable.
        what: The method's name, for messages.
        task: The task that has the method.
        samples: Number of samples of an iterable without a length.

    Raises:
        InputError: `given` is none of them, tensors are of unequal length, or are given to a task with `collate`.
    """
    collate = task.collate if type(task).collate is not Task.collate else None
    # Its tensors are gathered in blocks, where a data set would be read row by row.
    if isinstance(given, TensorDataset):
        given = given.tensors
    if isinstance(given, (tuple, list, dict)):
        if collate is not None:
            hint = "return a data set (torch.utils.data.Dataset), or leave collate out"
            raise InputError(f"{what} gave tensors, which collate never sees", where="task.use", hint=hint)
        return _named(given, what, task.target_key) if isinstance(given, dict) else _in_memory(tuple(given), what)
    if _is_map_style(given):
        return Samples(consecutive(0, len(given)), dataset=given, collate=collate)
    if not is_iterable(given):
        raise InputError(
            what,
            expected="tensors, a data set with __len__ and __getitem__, or an iterable",
            found=type(given).__name__,
            where="task.use",
        )
    stream = stream_of(given, what, samples)
    return Samples(np.arange(len(stream)), dataset=stream, collate=collate)


def is_iterable(given: Any) -> bool:
    """Return True if a user's method gave samples that can only be read in their order."""
    arrays = (Tensor, np.ndarray, str, bytes, tuple, list, dict)
    return hasattr(given, "__iter__") and not isinstance(given, arrays) and not _is_map_style(given)


def _is_map_style(given: Any) -> bool:
    readable = hasattr(given, "__getitem__") and isinstance(given, Sized)
    return readable and not isinstance(given, (IterableDataset, Tensor, np.ndarray, str, bytes))


def _named(parts: dict[str, Any], what: str, target: str) -> Samples:
    """Return tensors by name, the targets last.

    Raises:
        InputError: There are no targets among the tensors.
    """
    if target not in parts:
        hint = 'say which part holds the targets: target_key = "..." in your class'
        raise InputError.unknown("part", target, map(str, parts), of=f"of {what}", where="task.use", hint=hint)
    names = (*(name for name in parts if name != target), target)
    return replace(_in_memory(tuple(parts[name] for name in names), what), names=names)


def _in_memory(parts: tuple[Any, ...], what: str) -> Samples:
    found = [f"{p.dtype} {list(p.shape)}" if isinstance(p, Tensor) else type(p).__name__ for p in parts]
    equal = all(isinstance(p, Tensor) and p.dim() > 0 for p in parts) and len({len(p) for p in parts}) == 1
    if len(parts) < 2 or not equal:
        shown = ", ".join(found[:SHOWN_PARTS]) + (f", ... {len(found)} in all" if len(found) > SHOWN_PARTS else "")
        raise InputError(
            what,
            expected="two or more tensors with one row per sample, targets last",
            found=f"({shown})",
            where="task.use",
            hint="stack the samples into tensors, such as (inputs, targets), or return a torch Dataset",
        )
    # On the CPU and contiguous: their bytes are hashed, and rows are gathered from them by index.
    return Samples(np.arange(len(parts[0])), tuple(part.detach().cpu().contiguous() for part in parts))


def pick(whole: Samples, places: np.ndarray) -> Samples:
    """Return some samples by their places in a set, each with a slot."""
    own: dict[str, Any] = {"ids": whole.ids[places], "filled": None, "loaders": {}}
    if whole.tensors is not None:
        index = torch.from_numpy(places)
        return replace(whole, tensors=tuple(t.index_select(0, index) for t in whole.tensors), **own)
    assert whole.dataset is not None
    assert not isinstance(whole.dataset, Stream)  # callers have refused it
    subset: Dataset[Any] = Subset(whole.dataset, places.tolist())
    return replace(whole, dataset=subset, **own)


def labels_of(samples: Samples) -> np.ndarray | None:
    """Return the class numbers of samples in memory, or None where the targets are no class numbers."""
    if samples.tensors is None:
        return None
    targets = samples.tensors[-1]
    return targets.numpy() if targets.dim() == 1 and targets.dtype == torch.int64 else None


def fingerprint(samples: Samples, seed: int) -> tuple[str, int]:
    """Return the digest of the samples' content with labels and order, and the number of samples read for it.

    A data set that is not in memory is read at no more than 2048 evenly spaced places, a stream at its first ones, each under
    its own seed, so that one that draws at random has a fingerprint too.
    """
    digest = hashlib.sha256(f"{len(samples)}".encode())
    if samples.tensors is not None:
        for name in samples.names or ():
            add_text(digest, name)
        for tensor in samples.tensors:
            _add(digest, tensor)
        return digest.hexdigest(), len(samples)
    places = samples.spread(MAX_READ)
    with generators_kept():
        for place in places:
            _add(digest, samples.read(seed, "sample", 0, int(place)))
        if isinstance(samples.dataset, Stream) and len(places) == len(samples):
            samples.dataset.refuse_more()
    return digest.hexdigest(), len(places)


def sample_hash(sample: Any) -> int:
    """Return a 64-bit hash of a sample's content and structure."""
    digest = hashlib.blake2b(digest_size=8)
    _add(digest, sample)
    return int.from_bytes(digest.digest(), "little")


def sample_bytes(sample: Any) -> int:
    """Return the number of bytes of a sample's content and structure."""
    counted = _Bytes()
    _add(counted, sample)
    return counted.count


class _Bytes:
    """A stand-in for a digest that counts the bytes it is given."""

    def __init__(self) -> None:
        self.count = 0

    def update(self, data: Any) -> None:
        self.count += memoryview(data).nbytes


def tensor_hashes(tensors: Sequence[Tensor]) -> np.ndarray:
    """Return a 64-bit hash of each sample over tensors of equal length, uint64.

    The hash is of the numbers as float32 where float32 holds all of a sample exactly: the ledger of the test split's openings
    recognizes samples by such hashes. Others, such as whole numbers above 2**24, are hashed with all their bits.
    """
    parts = [torch.view_as_real(one.resolve_conj()) if one.is_complex() else one for one in tensors]
    found = row_hashes([part.float().numpy() for part in parts])
    wide = [part.numpy() for part in parts if part.dtype.itemsize >= 4 and part.dtype != torch.float32]
    beyond = np.logical_or.reduce([_beyond_float32(part) for part in wide]) if wide else np.zeros(len(found), dtype=bool)
    if beyond.any():
        found[beyond] = row_hashes([found[beyond], *(part[beyond] for part in wide)])
    return found


def _beyond_float32(rows: np.ndarray) -> np.ndarray:
    """Return a mask of the rows with a number that float32 cannot hold; it holds NaN."""
    with np.errstate(all="ignore"):
        back = rows.astype(np.float32).astype(rows.dtype)
    lost = (back != rows) & ~np.isnan(rows)
    return np.asarray(lost.any(axis=tuple(range(1, rows.ndim))))


def chosen_hashes(samples: Samples, most: int, seed: int) -> np.ndarray:
    """Return a hash of the content of at most `most` samples of a data set, or of a stream's first ones, uint64.

    The choice follows from the samples' ids alone, so that two splits of one set read those that both have; of more
    than 2^20, evenly spaced ones are read.
    """
    places = np.arange(min(len(samples), most)) if samples.is_stream else _chosen(samples, most)
    with generators_kept():
        found = [sample_hash(samples.read(seed, "sample", 0, place)) for place in places.tolist()]
    return np.array(found, dtype=np.uint64)


def _chosen(samples: Samples, most: int) -> np.ndarray:
    """Return the places of at most `most` samples: those whose ids have the smallest hashes; evenly spaced ones of very many."""
    if isinstance(samples.ids, np.ndarray):
        return np.argsort(row_hashes([samples.ids.astype(np.int64)]), kind="stable")[:most]
    return samples.spread(most)


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Leave the generators of Python, NumPy and torch as they were."""
    python, numpy, torches = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torches)


def _add(digest: Any, value: Any) -> None:
    """Add a sample to a digest, with its structure."""
    digest.update(type(value).__name__.encode())
    if isinstance(value, Tensor):
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    elif isinstance(value, np.ndarray) and value.dtype != object:
        # A single number has no axis along which its bytes could be viewed.
        add_array(digest, np.atleast_1d(value))
    elif isinstance(value, (tuple, list)):
        for item in value:
            _add(digest, item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            add_text(digest, str(key))
            _add(digest, item)
    elif isinstance(value, (int, float, str, bool, np.generic)):
        add_text(digest, repr(value))
    elif isinstance(value, bytes):
        digest.update(value)
    else:
        kinds, hint = "tensors, arrays, numbers and text", "convert it in the data set's __getitem__"
        raise InputError("a sample", expected=kinds, found=type(value).__name__, where="task.use", hint=hint)


def _nothing(_epoch: int) -> None:
    """Replace the `set_epoch` of an iterable that gives the same in every epoch."""


class Stream:
    """Reads an iterable in order, from its beginning in each epoch; a later place is reached by reading up to it.

    The sample at a position is the iterable's there, after `set_epoch(epoch)` where it has that, with the generators of
    Python, NumPy and torch seeded at (seed, purpose, epoch, position) for each sample. So it does not depend on other reads
    from the iterable, as long as each `iter` starts over.

    Args:
        iterable: The user's iterable.
        samples: Number of samples of an epoch.
        has_length: Whether the iterable has that length; else it may give more.
    """

    def __init__(self, iterable: Iterable[Any], samples: int, has_length: bool = True) -> None:
        self.iterable, self.samples, self.has_length = iterable, samples, has_length
        self._place: tuple[Any, ...] | None = None
        self._next = 0
        self._rows: Iterator[Any] = iter(())

    def __len__(self) -> int:
        return self.samples

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: without an open iterator."""
        return {**vars(self), "_place": None, "_rows": iter(())}

    def read(self, seed: int, purpose: str, epoch: int, position: int) -> Any:
        """Return the sample at a position of an epoch.

        Raises:
            InputError: The iterable ends before it.
        """
        place = (seed, purpose, epoch, os.getpid())  # a forked process must not read on in its parent's open files
        if place != self._place or position < self._next:
            self._begin(place)
        while True:
            found, sample = self._advance()
            if found == position:
                return sample

    def refuse_more(self) -> None:
        """Refuse an iterable that gives a sample beyond its length.

        Raises:
            InputError: There is such a sample.
        """
        if self.has_length and next(self._rows, self) is not self:
            what = f"your iterable gives more samples than the {self.samples} of its __len__"
            raise InputError(what, where="task.use", hint="return the number of samples of an epoch from __len__")

    def _begin(self, place: tuple[Any, ...]) -> None:
        seed, purpose, epoch, _ = place
        # Before iter(), in which an iterable takes its epoch's order.
        getattr(self.iterable, "set_epoch", _nothing)(epoch)
        seeds.seed_everything(seeds.key(seed, f"{purpose}-begin", epoch))
        self._rows, self._next, self._place = iter(self.iterable), 0, place

    def _advance(self) -> tuple[int, Any]:
        assert self._place is not None
        seed, purpose, epoch, _ = self._place
        position = self._next
        seeds.seed_everything(seeds.key(seed, purpose, epoch, position))
        for sample in self._rows:
            self._next += 1
            return position, sample
        raise InputError(
            f"your iterable in epoch {epoch + 1}",
            expected=f"{self.samples} samples",
            found=position,
            where="task.use",
            hint="set __len__, or task.samples_per_epoch, to a number of samples that every epoch has",
        )


def stream_of(given: Iterable[Any], what: str, samples: int | None) -> Stream:
    """Return an iterable as a stream of the number of samples that its length or the config gives.

    Raises:
        InputError: The number of samples is not given, or is given twice, or the iterable can be read only once.
    """
    # An iterator gives itself and is used up after one pass.
    if iter(given) is given:
        hint = "return an object whose __iter__ starts over, such as a torch.utils.data.IterableDataset"
        raise InputError(f"{what} gave a {type(given).__name__}, which can be read only once", where="task.use", hint=hint)
    try:
        count = len(given)  # type: ignore[arg-type]  # it may have no length
    except (TypeError, NotImplementedError):
        count = None
    if count is not None and samples is not None:
        what = f"{what} gave an iterable of {count} samples, and {samples} are asked for"
        raise InputError(what, where="task.samples_per_epoch", hint="leave the key out, or __len__")
    if count is None and samples is None:
        hint = "add __len__; for the training split, task.samples_per_epoch in mltrainer.yaml works too"
        raise InputError(f"{what} gave an iterable without a length", where="task.use", hint=hint)
    return Stream(given, count if count is not None else samples or 0, count is not None)
