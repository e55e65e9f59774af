"""The assignment of samples to splits: a pure function of the labels, the shares and the seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mltrainer.configs.project import Split
from mltrainer.errors import InputError
from mltrainer.tasks.ids import HASHED, HELD, ComputedIds, Ids
from mltrainer.workspace import digest

SPLITS = ("train", "validation", "test")
T = TypeVar("T")
FEW_COPIES = 20  # chosen by us: a row with no more copies fills no split of a useful size
WORDS = {  # usual names of each split
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "publictest"),
    "test": ("test", "testing", "holdout", "privatetest"),
}


class BySplit(dict[str, T]):
    """A value for each split, by the split's name."""

    @property
    def train(self) -> T:
        """The training split's value."""
        return self["train"]

    @property
    def validation(self) -> T:
        """The validation split's value."""
        return self["validation"]

    @property
    def test(self) -> T:
        """The test split's value."""
        return self["test"]


SplitIds = BySplit[np.ndarray]  # the ids of the samples of each split


def _generator(seed: int, *address: str | int) -> np.random.Generator:
    """Return a generator keyed by an address; a draw depends on nothing that was drawn before it."""
    text = "/".join(str(part) for part in (seed, "split", *address))
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key))


def split_ids(
    n: int, labels: np.ndarray | None, split: Split, seed: int, constraints: SplitConstraints | None = None
) -> SplitIds:
    """Return the ids of each split: disjoint, together all, sorted, int64; without folds.

    Args:
        n: Number of samples.
        labels: Integer label of each sample, to keep the classes' shares by largest remainder; None for a plain draw.
        split: The shares; `stratify` off ignores the labels.
        seed: The split's seed, or the run's.
        constraints: Samples that belong together, and given splits; None for none.

    Raises:
        InputError: There are fewer samples than splits, or than classes, or groups too large to be dealt.
    """
    constraints = constraints or SplitConstraints()
    if constraints.given is not None:
        return _nonempty(_completed(constraints.given, labels, split, seed, constraints), split, "the data's own splits")
    needed = 1 + (split.validation > 0) + (split.test > 0)
    if n < needed:
        raise InputError(f"{n} samples; at least {needed} are needed, one for each split", where="split", hint="bring more data")
    if constraints.times is not None:
        return _nonempty(_in_order(constraints.times, split), split, f"the times of {split.time!r}")
    if labels is None or not split.stratify:
        return _dealt(np.zeros(n, dtype=np.int64), ["all"], split, seed, constraints)
    values = np.unique(labels)
    if n < 2 * len(values):
        raise InputError(
            f"{n} samples of {len(values)} classes; each class needs one to train and one to validate on",
            where="split",
            hint="bring more data, merge rare classes, or predict another column",
        )
    # Each class draws under its own address, so that one more in the data leaves the others where they were.
    return _dealt(np.searchsorted(values, labels), [f"class/{int(value)}" for value in values], split, seed, constraints)


@dataclass(frozen=True)
class SplitConstraints:
    """The constraints on a split: samples that belong together, and samples whose split is given.

    Attributes:
        units: A number per sample: samples with the same one are in one split.
        times: A number per sample: those of the training split are not larger than those of held-out samples.
        given: The place in `SPLITS` of each sample, where the data defines its split.
        largest: The share of the samples that a unit may have; a larger one is trained on. None: any.
    """

    units: np.ndarray | None = None
    times: np.ndarray | None = None
    given: np.ndarray | None = None
    largest: float | None = None

    def of(self, ids: np.ndarray) -> SplitConstraints:
        """Return the constraints among some of the samples, all of one split; given splits are left out."""
        units, times = (None if numbers is None else numbers[ids] for numbers in (self.units, self.times))
        return SplitConstraints(units, times, largest=self.largest)


def equal_rows(split: Split, keys: Callable[[], np.ndarray]) -> SplitConstraints:
    """Return the constraint that samples with equal features, by hash, stay together; none where `split.repeats` is anywhere."""
    return SplitConstraints(units=keys(), largest=split.largest_repeat) if split.repeats == "together" else SplitConstraints()


def giant_units(units: np.ndarray, constraints: SplitConstraints, split: Split) -> np.ndarray:
    """Return the units that are trained on because they would fill another split, the largest first.

    These are units above `SplitConstraints.largest`: those that together fit the training split's share, and always
    the largest.

    Args:
        units: A number per sample, from 0.
        constraints: The constraints, with the largest share.
        split: The config's split, with the shares.
    """
    if constraints.largest is None:
        return np.zeros(0, dtype=np.int64)
    sizes = np.bincount(units)
    found = np.argsort(-sizes, kind="stable")[: int((sizes > max(constraints.largest * len(units), FEW_COPIES)).sum())]
    fitting = np.cumsum(sizes[found]) <= (1 - split.validation - split.test) * len(units)
    fitting[:1] = True
    return found[fitting]


# --- folds ----------------------------------------------------------------------------------------


def fold_places(
    n: int, labels: np.ndarray | None, split: Split, seed: int, constraints: SplitConstraints | None = None
) -> np.ndarray:
    """Return the fold in which each sample validates, int64; -1 for those of the test split.

    By time the latest fold is 0, and the earliest samples, which only train, have the number of folds as theirs.

    Args:
        n: Number of samples; this and the others as for `split_ids`.
        labels: Integer label of each sample; each fold has the classes' shares, as nearly as whole units allow.
        split: The number of folds, and the test split's share.
        seed: The seed of the folds.
        constraints: Samples that belong together, which are in one fold.

    Raises:
        InputError: The data comes with predefined splits, or has fewer units than folds need.
    """
    constraints = constraints or SplitConstraints()
    if constraints.given is not None:
        hint = "leave folds out, or give the data as one file"
        raise InputError("the data comes with its own validation samples", where="split.folds", hint=hint)
    # The test split is taken first, without regard to folds, so that it is the same whichever of them validates.
    rest = split.model_copy(update={"validation": 0.0, "folds": 0})
    train = split_ids(n, labels, rest, seed, constraints).train
    within = constraints.of(train)
    if within.times is not None:
        found = _blocks(within.times, split.folds)
    else:
        strata = np.zeros(len(train), dtype=np.int64) if labels is None or not split.stratify else labels[train]
        found = _folds(strata, within, split, seed)
    always_trained = within.times is None and bool((found == split.folds).any())  # by time, some must be
    if len(np.unique(found)) - always_trained < split.folds + (within.times is not None):
        what = split.group or split.time or "whole units"
        raise InputError(
            f"{len(train)} samples by {what!r} do not fill {split.folds} folds", where="split.folds", hint="set fewer folds"
        )
    places = np.full(n, -1, dtype=np.int64)
    places[train] = found
    return places


def of_fold(places: np.ndarray, split: Split) -> SplitIds:
    """Return the ids of each split where one fold validates: the others train; by time, the earlier ones."""
    trains = places > split.fold if split.time is not None else (places >= 0) & (places != split.fold)
    masks = {"train": trains, "validation": places == split.fold, "test": places == -1}
    return BySplit({name: np.flatnonzero(mask).astype(np.int64) for name, mask in masks.items()})


def _folds(strata: np.ndarray, constraints: SplitConstraints, split: Split, seed: int) -> np.ndarray:
    """Return the fold of each sample: unit by unit, the larger first, into the one with the fewest of the unit's stratum.

    A unit that would fill a fold is in none: it has the number of folds, and is always trained on.
    """
    folds = split.folds
    units = np.arange(len(strata)) if constraints.units is None else np.unique(constraints.units, return_inverse=True)[1]
    giants = giant_units(units, constraints, split)
    _, firsts, sizes = np.unique(units, return_index=True, return_counts=True)
    drawn = _generator(seed, "folds").permutation(len(firsts))
    # Stable, so that units of equal size stay in the drawn order.
    order = drawn[np.argsort(-sizes[drawn], kind="stable")]
    own = strata[firsts]
    chosen = np.zeros(len(firsts), dtype=np.int64)
    filled = {stratum: [0] * folds for stratum in np.unique(own).tolist()}
    total = [0] * folds
    chosen[giants] = folds
    order = order[~np.isin(order, giants)]
    for unit, stratum, size in zip(order.tolist(), own[order].tolist(), sizes[order].tolist(), strict=True):
        there = filled[stratum]
        fold = min(range(folds), key=lambda nr: (there[nr], total[nr]))
        chosen[unit] = fold
        there[fold] += size
        total[fold] += size
    return chosen[units]


def _blocks(times: np.ndarray, folds: int) -> np.ndarray:
    """Return the fold of each sample: blocks of equal size in the order of time, the latest is 0; one moment is not parted."""
    ordered = np.sort(times)
    starts = [ordered[len(times) * nr // (folds + 1)] for nr in range(1, folds + 1)]
    return folds - np.searchsorted(np.asarray(starts), times, side="right").astype(np.int64)


def _completed(given: np.ndarray, labels: np.ndarray | None, split: Split, seed: int, constraints: SplitConstraints) -> SplitIds:
    """Return the predefined splits; a missing validation or test split is drawn from the training samples."""
    found = BySplit({name: np.flatnonzero(given == place).astype(np.int64) for place, name in enumerate(SPLITS)})
    shares = {name: 0.0 if len(found[name]) else getattr(split, name) for name in SPLITS[1:]}
    train = found.train
    if not any(shares.values()) or not len(train):
        return found
    rest = split.model_copy(update=shares)
    drawn = split_ids(len(train), None if labels is None else labels[train], rest, seed, constraints.of(train))
    found = BySplit({**found, "train": train[:0]})
    return BySplit({name: np.concatenate([found[name], train[drawn[name]]]) for name in SPLITS})


def _dealt(strata: np.ndarray, names: list[str], split: Split, seed: int, constraints: SplitConstraints) -> SplitIds:
    """Return the samples dealt stratum by stratum, whole units at a time; a unit belongs to the stratum of its first sample."""
    n = len(strata)
    units = np.arange(n) if constraints.units is None else np.unique(constraints.units, return_inverse=True)[1]
    sizes, firsts = np.bincount(units), np.empty(n, dtype=np.int64)
    firsts[units[::-1]] = np.arange(n)[::-1]  # of a unit that is assigned several times, the last one stays
    is_first = np.equal(firsts[units], np.arange(n))
    giants = giant_units(units, constraints, split)
    parts = [SplitIds(train=giants, validation=giants[:0], test=giants[:0])]
    for number, name in enumerate(names):
        whole = units[is_first & (strata == number)]
        members = whole[~np.isin(whole, giants)]
        if len(members):
            # By the whole stratum: samples already in the training split are a part of its share.
            counts = _left(_counts(int(sizes[whole].sum()), split), int(sizes[members].sum()))
            parts.append(_deal(members, sizes, counts, _generator(seed, *name.split("/"))))
    chosen = {name: np.isin(units, np.concatenate([part[name] for part in parts])) for name in SPLITS}
    found = BySplit({name: np.flatnonzero(mask).astype(np.int64) for name, mask in chosen.items()})
    return found if constraints.units is None else _nonempty(found, split, f"the groups of {split.group or 'equal rows'!r}")


def _in_order(times: np.ndarray, split: Split) -> SplitIds:
    """Return the earliest samples for training, the latest for testing; those of one moment are not parted."""
    order = np.argsort(times, kind="stable")
    counts = _counts(len(times), split)
    cuts = np.cumsum([counts[name] for name in SPLITS])[:-1]
    moments = times[order]
    # A cut within one moment goes back to its beginning: the same moment must not be both past and future.
    ends = [int(np.searchsorted(moments, moments[min(cut, len(moments) - 1)])) if cut < len(moments) else cut for cut in cuts]
    parts = np.split(order, ends)
    return BySplit({name: np.sort(part).astype(np.int64) for name, part in zip(SPLITS, parts, strict=True)})


def _nonempty(found: SplitIds, split: Split, why: str) -> SplitIds:
    """Return splits after checking that no required one is empty.

    Raises:
        InputError: A required split is empty; the message has the sizes.
    """
    needed = [name for name in SPLITS if name == "train" or getattr(split, name) > 0]
    if all(len(found[name]) for name in needed):
        return found
    sizes = ", ".join(f"{name} {len(found[name])}" for name in SPLITS)
    hint = "change split.validation and split.test, split by something else, or bring more data"
    raise InputError(f"a split is empty by {why}: {sizes}", where="split", hint=hint)


def _counts(n: int, split: Split) -> BySplit[int]:
    """Return each split's number of samples out of n: largest remainder, and one each where there are enough."""
    shares = {"train": 1 - split.validation - split.test, "validation": split.validation, "test": split.test}
    exact = {name: n * share for name, share in shares.items()}
    # A product such as 100 * 0.29 may be just below a whole number.
    counts = BySplit({name: int(np.floor(value + 1e-9)) for name, value in exact.items()})
    # Rounded, as two equal remainders may differ in their last bits; ties go to the first split.
    by_remainder = sorted(SPLITS, key=lambda name: (-round(exact[name] - counts[name], 9), SPLITS.index(name)))
    for name in by_remainder[: n - sum(counts.values())]:
        counts[name] += 1
    wanted = [name for name in SPLITS if shares[name] > 0][:n]  # one sample is trained on, the second is validated on
    for name in wanted:
        if counts[name] == 0:
            counts[max(counts, key=lambda other: counts[other])] -= 1
            counts[name] += 1
    return counts


def _left(counts: BySplit[int], n: int) -> BySplit[int]:
    """Return the counts of the splits for n samples, those that are trained on already taken from them."""
    held_out = sum(counts[name] for name in SPLITS[1:])
    if n >= held_out:
        return BySplit({**counts, "train": n - held_out})
    validation = min(n, max(int(counts.validation > 0), round(n * counts.validation / held_out)))
    return BySplit(train=0, validation=validation, test=n - validation)


def _deal(units: np.ndarray, sizes: np.ndarray, counts: BySplit[int], generator: np.random.Generator) -> SplitIds:
    """Return each split's units: in drawn order, the test split first, as many as come nearest to its count."""
    order = generator.permutation(units)
    filled = np.concatenate([[0], np.cumsum(sizes[order])])
    cuts, names = [0], [*reversed(SPLITS)]
    for place, end in enumerate(np.cumsum([counts[name] for name in names])[:-1]):
        wanted, later = int(counts[names[place]] > 0), sum(counts[name] > 0 for name in names[place + 1 :])
        nearest = int(np.abs(filled - end).argmin())
        # Each split with a share gets a unit, and leaves one for every split after it.
        cuts.append(max(cuts[-1], min(max(nearest, cuts[-1] + wanted), len(order) - later)))
    return BySplit(zip(names, np.split(order, cuts[1:]), strict=True))


def ids_digest(ids: Ids) -> str:
    """Return the SHA-256 of sample ids in their order, as little-endian int64.

    For more than 2^24 computed ids it is the digest of their parameters: their bytes would take seconds.
    """
    if isinstance(ids, ComputedIds) and len(ids) > HASHED:
        return digest(ids.description)
    found = hashlib.sha256()
    for low in range(0, len(ids), HELD):
        found.update(np.ascontiguousarray(ids[low : low + HELD], dtype="<i8").data)
    return found.hexdigest()
