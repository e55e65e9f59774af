"""What a user's task hands over: checked, told apart, and fingerprinted."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.content import add_array, add_text
from mltrainer.tasks.task import Task

MAX_READ = 2048  # samples of a map-style data set that its fingerprint reads


@dataclass(frozen=True)
class Samples:
    """The samples of one split.

    Attributes:
        ids: Their ids in the whole set, in the split's order, int64.
        tensors: In memory: one row per sample in each, targets last; None where `dataset` is given.
        dataset: A map-style data set with these samples in this order; None where `tensors` are given.
        names: Of the tensors, where a batch is a dict of them; None where it is a tuple.
        collate: Makes a data set's samples one batch; None for torch's own way.
        loaders: Loaders of the data set by purpose, whose worker processes stay alive from one evaluation to the next.
    """

    ids: np.ndarray
    tensors: tuple[Tensor, ...] | None = None
    dataset: Dataset[Any] | None = None
    names: tuple[str, ...] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    loaders: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """Return some rows of each tensor in memory as the batch that a task gets."""
        return tuple(tensors) if self.names is None else dict(zip(self.names, tensors, strict=True))


def samples_of(given: Any, what: str, task: Task) -> Samples:
    """Return what a user's method gave as samples with ids from 0.

    Raises:
        InputError: It is neither tensors of equal length nor a map-style data set, or does not suit the task's `collate`.
    """
    collate = task.collate if type(task).collate is not Task.collate else None
    if isinstance(given, TensorDataset):
        given = given.tensors
    if isinstance(given, (tuple, list, dict)):
        if collate is not None:
            mend = "return a data set (torch.utils.data.Dataset), or leave collate out"
            raise InputError(f"{what} gave tensors, which collate never sees", where="task.use", mend=mend)
        return _named(given, what, task.target_key) if isinstance(given, dict) else _in_memory(tuple(given), what)
    map_style = hasattr(given, "__getitem__") and isinstance(given, Sized) and not isinstance(given, (Tensor, np.ndarray, str))
    if isinstance(given, IterableDataset) or not map_style:
        raise InputError(
            f"{what} gave {type(given).__name__}; tensors, or a data set with __len__ and __getitem__, were expected",
            where="task.use",
        )
    return Samples(np.arange(len(given)), dataset=given, collate=collate)


def _named(parts: dict[str, Any], what: str, target: str) -> Samples:
    """Return tensors by name, the targets last.

    Raises:
        InputError: There are no targets among them.
    """
    if target not in parts:
        mend = 'name the part that is the targets: target_key = "..." in your class'
        raise InputError(f"{what} has no part {target!r}; it has {', '.join(map(str, parts))}", where="task.use", mend=mend)
    names = (*(name for name in parts if name != target), target)
    return replace(_in_memory(tuple(parts[name] for name in names), what), names=names)


def _in_memory(parts: tuple[Any, ...], what: str) -> Samples:
    found = [f"{p.dtype} {list(p.shape)}" if isinstance(p, Tensor) else type(p).__name__ for p in parts]
    equal = all(isinstance(p, Tensor) and p.dim() > 0 for p in parts) and len({len(p) for p in parts}) == 1
    if len(parts) < 2 or not equal:
        raise InputError(
            f"{what} gave ({', '.join(found)}); two or more tensors with one row per sample, targets last, were expected",
            where="task.use",
        )
    return Samples(np.arange(len(parts[0])), tuple(part.detach().cpu().contiguous() for part in parts))


def pick(whole: Samples, places: np.ndarray) -> Samples:
    """Return some samples by their places in a set."""
    if whole.tensors is not None:
        index = torch.from_numpy(places)
        return replace(whole, ids=whole.ids[places], tensors=tuple(t.index_select(0, index) for t in whole.tensors), loaders={})
    assert whole.dataset is not None
    return replace(whole, ids=whole.ids[places], dataset=Subset(whole.dataset, places.tolist()), loaders={})


def labels_of(samples: Samples) -> np.ndarray | None:
    """Return the class numbers of samples in memory, or None where the targets are none."""
    if samples.tensors is None:
        return None
    targets = samples.tensors[-1]
    return targets.numpy() if targets.dim() == 1 and targets.dtype == torch.int64 else None


def fingerprint(samples: Samples, seed: int) -> tuple[str, int]:
    """Return the digest of the samples' content with labels and order, and how many were read for it.

    A data set that is not in memory is read at no more than 2048 evenly spaced places, each under its own seed,
    so that one that draws at random has a fingerprint too.
    """
    digest = hashlib.sha256(f"{len(samples)}".encode())
    if samples.tensors is not None:
        for name in samples.names or ():
            add_text(digest, name)
        for tensor in samples.tensors:
            _add(digest, tensor)
        return digest.hexdigest(), len(samples)
    spaced = np.linspace(0, max(0, len(samples) - 1), min(len(samples), MAX_READ))
    places: np.ndarray = np.unique(spaced.round().astype(np.int64))
    with generators_kept():
        for place in places:
            seeds.seed_everything(seeds.key(seed, "sample", 0, int(place)))
            _add(digest, samples.dataset[int(place)])  # type: ignore[index]
    return digest.hexdigest(), len(places)


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
        raise InputError(
            f"a sample holds a {type(value).__name__}; tensors, arrays, numbers and text were expected", where="task.use"
        )
