"""The data as its checks see it: of a split of a user's task, hashes of its samples and numbers of some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.items import DataLimits
from mltrainer.records.run import TargetKind
from mltrainer.tasks.samples import Samples, generators_kept, sample_bytes, sample_hash, tensor_hashes
from mltrainer.tasks.targets import class_numbers

MAX_COMPARED = 20_000  # samples of a split that are read to find samples of another
MAX_LOOKED = 2_000  # samples of a split whose numbers are examined
MAX_FEATURES = 1024  # numbers of a part of a sample that are examined
SINGLE = 256  # numbers of a part that are examined one by one; of more, as in an image, only all together
MAX_BYTES = 2**30  # of the samples that are read for either; chosen by us: 20,000 of up to 50 kB, 1,700 pictures of 224 x 224
TRIED = 3  # samples that are read twice, to detect random draws at each reading
NO_HASHES = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True)
class Numbers:
    """The same part of some samples.

    Attributes:
        values: The part's numbers, float64 [samples, features].
        names: The features' names: their indices in the part.
        size: Number of features of the whole part.
        is_whole: Whether they are integers, such as tokens or class numbers.
    """

    values: np.ndarray
    names: list[str]
    size: int
    is_whole: bool


@dataclass(frozen=True)
class Reading:
    """The reading of a split.

    Attributes:
        total: Number of samples of the split.
        hashes: A 64-bit hash of each sample that was read; None where each reading draws new samples.
        places: The places of the samples whose numbers are examined.
        inputs: The samples' inputs by name, without those that are no numbers of one shape.
        left_out: The names of the inputs left out.
        target: The samples' targets; None where they are no numbers of one shape.
        drawn: The part that is random at each reading: inputs alone, or targets too; None where two readings are the same.
        has_one_target: Whether the targets of all samples of the split were read, and are the same.
        kind: The kind of the targets; None where it is not known.
    """

    total: int
    hashes: np.ndarray | None
    places: np.ndarray
    inputs: dict[str, Numbers]
    left_out: list[str]
    target: Numbers | None
    drawn: Literal["inputs", "targets"] | None = None
    has_one_target: bool = False
    kind: TargetKind | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all samples of the split were examined."""
        return len(self.places) == self.total

    @property
    def count(self) -> str:
        """The number of samples that were examined, in words."""
        return f"{self.total}" if self.is_complete else f"{len(self.places)} of {self.total}"

    @cached_property
    def labels(self) -> np.ndarray | None:
        """The class number of each sample; None where the targets are not one class a sample."""
        if self.target is None or len(self.target.names) < self.target.size:
            return None
        found = class_numbers(torch.from_numpy(self.target.values), self.kind)
        return None if found is None else found.numpy()

    @property
    def lists(self) -> dict[str, Numbers]:
        """The inputs that are lists of numbers, which tokens, images and sequences are not."""
        return {n: one for n, one in self.inputs.items() if one.size <= SINGLE and not one.is_whole and "][" not in one.names[-1]}

    @property
    def rows(self) -> np.ndarray:
        """All inputs side by side, float64 [samples, features]."""
        parts = [numbers.values for numbers in self.inputs.values()]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(self.places), 0))

    @property
    def names(self) -> list[str]:
        """The names of the columns of `rows`."""
        return [f"{part}{name}" for part, numbers in self.inputs.items() for name in numbers.names]


class Words(NamedTuple):
    """The findings' words for the data, and their advice on samples that belong together."""

    inputs: str = "inputs"
    numbers: str = "numbers of a sample"
    before_name: str = ""
    together: str = "then write dataset(self, split), which keeps what belongs together in one split"


SAMPLES = Words()


@dataclass(frozen=True)
class DataView:
    """The view of the data that the checks read.

    Attributes:
        train: Numbers of some training samples, evenly spaced.
        validation: Numbers of validation samples.
        limits: The limits of the findings.
        words: The findings' words for the data.
        labels: Class numbers of all training and all validation samples; None where they are not all known.
        in_order: Neighbouring training samples, with their places in the order of time; None where none were read.
        near: Numbers of training and validation samples that are searched for near copies; None: those of the readings.
        is_shift_a_fault: Whether both splits should be distributed alike; None: yes, unless the training samples are altered.
        has_columns: Whether each number of a sample is a separate feature, as a table's column is.
        classes: Number of classes, where the readings do not give it; 0 for quantities.
    """

    train: Reading
    validation: Reading
    limits: DataLimits
    words: Words = SAMPLES
    labels: tuple[np.ndarray, np.ndarray] | None = None
    in_order: tuple[Reading, np.ndarray] | None = None
    near: tuple[np.ndarray, np.ndarray] | None = None
    is_shift_a_fault: bool | None = None
    has_columns: bool = False
    classes: int = 0

    @property
    def splits(self) -> tuple[tuple[Reading, str], tuple[Reading, str]]:
        """Both readings, each with its split's name in sentences."""
        return (self.train, "training"), (self.validation, "validation")


@dataclass(frozen=True)
class Budget:
    """The numbers of samples that are read of a split that is not in memory: those to examine, and those to hash."""

    looked: int
    compared: int


def planning_budget(*, is_sealed: bool = False) -> Budget:
    """Return the budget of planning for a split; the numbers of a sealed one are not examined."""
    return Budget(0 if is_sealed else MAX_LOOKED, MAX_COMPARED)


def read_split(samples: Samples, target_key: str, seed: int, budget: Budget) -> Reading:
    """Return hashes of a split's samples, and numbers of evenly spaced ones; for a stream, of its first ones.

    Args:
        samples: The split's samples.
        target_key: The key of the target, where a sample is a dict.
        seed: The data's seed.
        budget: The numbers of samples to read; samples in memory are all hashed.
    """
    looked = samples.spread(budget.looked)
    if samples.tensors is not None:
        names = [repr(name) for name in samples.names[:-1]] if samples.names else _by_place(len(samples.tensors) - 1)
        *inputs, target = [_numbers(list(tensor[torch.from_numpy(looked)])) for tensor in samples.tensors]
        hashes = tensor_hashes(samples.tensors) if len(samples) else NO_HASHES
        found = _reading(samples, hashes, looked, dict(zip(names, inputs, strict=True)), target)
        whole = samples.tensors[-1]
        return replace(found, has_one_target=bool(len(whole)) and bool((whole == whole[:1]).all()))
    if samples.dataset is None or not len(samples):
        return _reading(samples, NO_HASHES, np.zeros(0, dtype=np.int64), {}, None)
    with generators_kept():
        return _read(samples, target_key, seed, budget)


def _read(samples: Samples, target_key: str, seed: int, budget: Budget) -> Reading:
    tried = samples.spread(TRIED).tolist()
    first = [samples.read(seed, "sample", 0, place) for place in tried]
    # By their size, not by a clock: the findings must not depend on the machine's load.
    most = MAX_BYTES // max(map(sample_bytes, first))
    drawn = None
    if budget.compared:  # Another purpose, which changes the draws alone: a sample that differs is random at each reading.
        drawn = _drawn(first, [samples.read(seed, "again", 0, place) for place in tried], target_key)
    looked = set(samples.spread(min(budget.looked, most)).tolist())
    compared = samples.spread(min(budget.compared, most) if drawn is None else 0).tolist()
    found: dict[int, int] = {}
    kept: dict[int, tuple[dict[str, Any], Any]] = {}
    targets = _OneTarget(target_key)
    for place in sorted({*compared, *looked}):
        sample = samples.read(seed, "sample", 0, place)
        found[place] = sample_hash(sample)
        targets.see(sample)
        if place in looked:
            kept[place] = _divided(sample, target_key)
    hashes = np.array(list(found.values()), dtype=np.uint64) if drawn is None else None
    names = list(dict.fromkeys(name for inputs, _ in kept.values() for name in inputs))
    inputs = {name: _numbers([part.get(name) for part, _ in kept.values()]) for name in names}
    target = _numbers([one for _, one in kept.values()])
    read = _reading(samples, hashes, np.array(list(kept), dtype=np.int64), inputs, target)
    return replace(read, drawn=drawn, has_one_target=targets.is_one and len(found) == len(samples))


class _OneTarget:
    """Whether all samples that were seen have one target; after the first other one, no more are compared."""

    def __init__(self, target_key: str) -> None:
        self.is_one, self._key = True, target_key
        self._first: _Thinned | None = None

    def see(self, sample: Any) -> None:
        if not self.is_one:
            return
        target: _Thinned | None = _divided(sample, self._key)[1]
        self._first = self._first or target
        self.is_one = target is not None and self._first is not None and np.array_equal(target.values, self._first.values)


def _drawn(first: list[Any], second: list[Any], target_key: str) -> Literal["inputs", "targets"] | None:
    """Return the part in which two readings of the same samples differ."""
    if [*map(sample_hash, first)] == [*map(sample_hash, second)]:
        return None
    targets = [[_divided(sample, target_key)[1] for sample in samples] for samples in (first, second)]
    pairs = zip(*targets, strict=True)
    is_same = all(one is not None and other is not None and np.array_equal(one.values, other.values) for one, other in pairs)
    return "inputs" if is_same else "targets"


def _reading(
    samples: Samples,
    hashes: np.ndarray | None,
    places: np.ndarray,
    inputs: dict[str, Numbers | None],
    target: Numbers | None,
) -> Reading:
    numbers = {name: part for name, part in inputs.items() if part is not None}
    return Reading(len(samples), hashes, places, numbers, [name for name in inputs if name not in numbers], target)


def _by_place(count: int) -> list[str]:
    """Return the names of the inputs that a tuple holds before its target."""
    return ["inputs"] if count == 1 else [f"inputs[{place}]" for place in range(count)]


def _divided(sample: Any, target_key: str) -> tuple[dict[str, Any], Any]:
    """Return a sample's inputs by name, a few numbers of each, and its target."""
    if isinstance(sample, Mapping):
        named = {repr(str(key)): part for key, part in sample.items() if key != target_key}
        target = sample.get(target_key)
    elif isinstance(sample, (tuple, list)) and len(sample) > 1:
        *parts, target = sample
        named = dict(zip(_by_place(len(parts)), parts, strict=True))
    else:
        named, target = {"inputs": sample}, None
    return {name: _thinned(part) for name, part in named.items()}, _thinned(target)


@dataclass(frozen=True)
class _Thinned:
    """Evenly spaced numbers of an array; shape and kind are the whole array's."""

    values: np.ndarray
    shape: tuple[int, ...]
    is_whole: bool


def _thinned(value: Any) -> _Thinned | None:
    """Return evenly spaced numbers of a part of a sample; None where it holds something else."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = None if value.is_complex() else value.numpy() if value.dtype != torch.bfloat16 else value.float().numpy()
    array = np.asarray(value) if isinstance(value, (np.ndarray, np.generic, int, float)) else None
    if array is None or array.dtype.kind not in "biuf":
        return None
    flat = array.reshape(-1)
    return _Thinned(flat[_chosen(flat.size)].astype(np.float64), array.shape, array.dtype.kind in "biu")


def _chosen(size: int) -> np.ndarray:
    return np.linspace(0, max(0, size - 1), min(size, MAX_FEATURES)).round().astype(np.int64)


def _numbers(parts: list[Any]) -> Numbers | None:
    """Return the same part of all samples; None where it is no numbers of one shape."""
    found = [part if isinstance(part, _Thinned) else _thinned(part) for part in parts]
    known = [part for part in found if part is not None]
    if not known or len(known) < len(found) or len({part.shape for part in known}) > 1:
        return None
    shape, size = known[0].shape, int(np.prod(known[0].shape))
    names = [
        "".join(f"[{int(place)}]" for place in np.unravel_index(one, shape)) if shape else "" for one in _chosen(size).tolist()
    ]
    return Numbers(np.stack([part.values for part in known]), names, size, all(part.is_whole for part in known))
