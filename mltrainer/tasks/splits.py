"""Which sample belongs to which split: a pure function of the labels, the shares and the seed."""

from __future__ import annotations

import hashlib

import numpy as np

from mltrainer.configs.project import Split
from mltrainer.errors import InputError

SPLITS = ("train", "validation", "test")


def _generator(seed: int, *address: str | int) -> np.random.Generator:
    """Return a generator keyed by an address; a draw depends on nothing that was drawn before it."""
    text = "/".join(str(part) for part in (seed, "split", *address))
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key))


def split_ids(n: int, labels: np.ndarray | None, split: Split, seed: int) -> dict[str, np.ndarray]:
    """Return the ids of each split: disjoint, together all, sorted, int64.

    Args:
        n: Number of samples.
        labels: Integer label of each sample, to keep the classes' shares by largest remainder; None for a plain draw.
        split: The shares; `stratify` off ignores the labels.
        seed: The split's own seed, or the run's.

    Raises:
        InputError: There are fewer samples than splits, or than classes.
    """
    needed = 3 if split.test > 0 else 2
    if n < needed:
        raise InputError(f"{n} samples; at least {needed} are needed, one for each split", where="split", mend="bring more data")
    if labels is None or not split.stratify:
        return _joined([_deal(np.arange(n), _counts(n, split), _generator(seed, "all"))])
    values = np.unique(labels)
    if n < 2 * len(values):
        raise InputError(
            f"{n} samples of {len(values)} classes; each class needs one to train and one to validate on",
            where="split",
            mend="bring more data, merge rare classes, or predict another column",
        )
    parts = [np.flatnonzero(labels == value) for value in values]
    dealt = [
        _deal(ids, _counts(len(ids), split), _generator(seed, "class", int(v))) for v, ids in zip(values, parts, strict=True)
    ]
    return _joined(dealt)


def _counts(n: int, split: Split) -> dict[str, int]:
    """Return how many of n samples each split gets: largest remainder, and one each where there are enough."""
    shares = {"train": 1 - split.validation - split.test, "validation": split.validation, "test": split.test}
    exact = {name: n * share for name, share in shares.items()}
    counts = {name: int(np.floor(value + 1e-9)) for name, value in exact.items()}
    by_remainder = sorted(SPLITS, key=lambda name: (-round(exact[name] - counts[name], 9), SPLITS.index(name)))
    for name in by_remainder[: n - sum(counts.values())]:
        counts[name] += 1
    wanted = [name for name in SPLITS if shares[name] > 0][:n]  # one sample is trained on, the second is validated on
    for name in wanted:
        if counts[name] == 0:
            counts[max(counts, key=lambda other: counts[other])] -= 1
            counts[name] += 1
    return counts


def _deal(ids: np.ndarray, counts: dict[str, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
    order = generator.permutation(ids)
    ends = np.cumsum([counts[name] for name in reversed(SPLITS)])
    return dict(zip(reversed(SPLITS), np.split(order, ends[:-1]), strict=True))


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.sort(np.concatenate([part[name] for part in parts])).astype(np.int64) for name in SPLITS}


def ids_digest(ids: np.ndarray) -> str:
    """Return the SHA-256 of sample ids in their order, as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(ids, dtype="<i8").tobytes()).hexdigest()
