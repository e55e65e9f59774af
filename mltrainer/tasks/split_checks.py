"""Checks of validation samples beside training samples: other units, other distributions, near copies, shared windows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mltrainer.tasks.array_operations import evenly_spaced, row_hashes
from mltrainer.tasks.content import listed
from mltrainer.tasks.leak_checks import one_number
from mltrainer.tasks.leak_rules import CHANCE
from mltrainer.tasks.reading import SINGLE, DataView, Numbers, Reading
from mltrainer.tasks.value_checks import FEWEST, has_few_values

LOOKED_AT = 2_000  # values of each split, evenly spaced
COMPARABLE = 8  # values of each split; of fewer, quartiles say little
Pair = tuple[np.ndarray, np.ndarray]  # values of training and of validation samples


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two samples' shares up to a value (Kolmogorov and Smirnov), from 0 to 1."""
    both = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(values), both, side="right") / len(values) for values in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def is_beyond_chance(one: np.ndarray, other: np.ndarray, looked_at: int = 1) -> bool:
    """Return True if two samples of one distribution would hardly be as far apart among `looked_at` pairs (Massart, 1990)."""
    if min(len(one), len(other)) < COMPARABLE:
        return False
    weight = len(one) * len(other) / (len(one) + len(other))
    return math.log(2 * looked_at) - 2 * distance(one, other) ** 2 * weight < math.log(CHANCE)


def _known(values: np.ndarray, most: int = LOOKED_AT) -> np.ndarray:
    """Return some of the values, evenly spaced, that are finite."""
    chosen = evenly_spaced(values, most)
    known: np.ndarray = chosen[np.isfinite(chosen)]
    return known


def _beside(view: DataView) -> Iterator[tuple[str, Numbers, Numbers]]:
    """Yield the inputs that both splits have, by name."""
    for name, one in view.train.inputs.items():
        other = view.validation.inputs.get(name)
        if other is not None and one.names == other.names:
            yield name, one, other


# --- other units --------------------------------------------------------------------------------------

NUMBERS = 20_011  # values, where each sample has many: a prime, so that they are from all places
TIMES = 5.0  # chosen by us: sizes and spreads that both differ by this factor between splits are no drift
UNIT = 2.0  # chosen by us: the factor that is enough where both differ by the same one; a kilogram is 2.2 pounds, an inch 2.54 cm
SAME = 1.25  # chosen by us: the factor by which these two may differ, as estimated from a hundred values
APART = 5.0  # chosen by us: medians apart by this many times the range of the middle half are no trend over both splits
END = 0.99  # the quantile of the sizes of all numbers above which are only a few outliers


class Scale(NamedTuple):
    """The median of some numbers, the median of their sizes, and the width of their middle half."""

    median: float
    size: float
    spread: float


def units(view: DataView) -> Iterator[str]:
    """Yield a warning on inputs or quantities that validation has in other units than training."""
    parts = [(f"{view.words.before_name}{name}", one, other) for name, one, other in _beside(view)]
    target, held_out = view.train.target, view.validation.target
    if view.train.kind == "values" and target is not None and held_out is not None and target.names == held_out.names:
        parts.append((f"{view.words.before_name}the target", target, held_out))
    found = [line for name, one, other in parts for line in _other_units(name, one, other, view.has_columns)]
    if found:
        hint = "are both in the same units? Scale both splits by the training split's statistics"
        yield f"validation has another scale than training: {listed(found, separator='; ')}: {hint}"


def _other_units(name: str, one: Numbers, other: Numbers, has_columns: bool) -> list[str]:
    """Return a phrase on each number of a part that has other units in validation, or on all of them together."""
    pairs = zip(one.names, one.values.T, other.values.T, strict=True) if one.size <= SINGLE or has_columns else ()
    single = [_phrase(f"{name}{nr}", pair) for nr, a, b in pairs if (pair := _units_of_one(a, b, len(one.names)))]
    # The numbers of an image or a sequence are of one kind, at any place; of others most must differ, before
    # all of them are named.
    if has_columns or not (one.size > SINGLE or "][" in one.names[-1] or 2 * len(single) > one.size):
        return single
    whole = _units_of_all(one.values, other.values)
    return [_phrase(name, whole)] if whole else []


def _phrase(name: str, scales: tuple[Scale, Scale]) -> str:
    one, two = scales
    medians = f"median {one.median:.4g} in training and {two.median:.4g} in validation"
    return f"{name}: {medians}, middle halves {one.spread:.4g} and {two.spread:.4g} wide"


def _units_of_one(train: np.ndarray, held_out: np.ndarray, looked_at: int) -> tuple[Scale, Scale] | None:
    """Return the scales of one of `looked_at` numbers in two splits, where it has other units; None where it need not."""
    one, other = _varied(_known(train), _known(held_out))
    # Around zero, a larger spread shows in the sizes alone.
    is_apart = is_beyond_chance(one, other, 2 * looked_at) or is_beyond_chance(abs(one), abs(other), 2 * looked_at)
    return _scales(one, other) if is_apart else None


def _units_of_all(train: np.ndarray, held_out: np.ndarray) -> tuple[Scale, Scale] | None:
    """Return the scales of all numbers of samples, [samples, features], where those of held-out samples have other units.

    The test against chance uses the mean size of each sample's numbers, as these are not independent. In other units the
    largest numbers differ, too, which they do not between pictures with and without their background.
    """
    ends = [float(np.quantile(np.abs(_known(part.ravel(), NUMBERS)), END)) for part in (train, held_out)]
    if max(ends) < UNIT / SAME * min(ends):
        return None
    if not is_beyond_chance(_known(np.abs(train).mean(axis=1)), _known(np.abs(held_out).mean(axis=1))):
        return None
    return _scales(*_varied(_known(train.ravel(), NUMBERS), _known(held_out.ravel(), NUMBERS)))


def _varied(one: np.ndarray, other: np.ndarray) -> Pair:
    """Return the numbers without zeros, where these are most of them, as among pixels and counts."""
    is_flat = not all(len(values) and all(_scale(values)[1:]) for values in (one, other))
    return (one[one != 0], other[other != 0]) if is_flat else (one, other)


def _scales(one: np.ndarray, other: np.ndarray) -> tuple[Scale, Scale] | None:
    found = _scale(one), _scale(other)
    return found if _is_other(*found) else None


def _scale(values: np.ndarray) -> Scale:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return Scale(median, float(np.median(np.abs(values))), high - low)


def _is_other(one: Scale, other: Scale) -> bool:
    if abs(one.median - other.median) >= APART * max(one.spread, other.spread):
        return True
    if 0 in (*one[1:], *other[1:]):
        return False
    times, sizes = math.log(other.spread / one.spread), math.log(other.size / one.size)
    if times * sizes < 0:
        return False
    least, most = sorted((abs(times), abs(sizes)))
    # Around zero size and spread measure the same: there the larger factor is needed.
    is_away = min(abs(part.median) / part.spread for part in (one, other)) > 1 / 2
    return least >= math.log(TIMES) or (is_away and least >= math.log(UNIT) and most - least <= math.log(SAME))


# --- other distributions ------------------------------------------------------------------------------

# Chosen by us: of the distance of two distributions, from 0 to 1; those of 160 and 40 persons are 0.35 apart by chance.
DISTANT = 0.4
OF_CLASS = 0.25  # chosen by us: the difference of a class's shares
COLUMNS = 256  # numbers of a part that are compared, evenly spaced
CAPPED, DISTINCT = 0.05, 20  # chosen by us: the share of targets at an end value, and the least number of distinct values
SAME_WAY = "are both splits prepared in the same way, from the same source? A split by time or group may differ by nature"


def shifted_inputs(view: DataView) -> Iterator[str]:
    """Yield a warning on inputs with another distribution; none on inputs that are altered on purpose, or may differ.

    Nor is there one where chance, or a drift within training, explains it.
    """
    if not (view.train.drawn is None if view.is_shift_a_fault is None else view.is_shift_a_fault):
        return
    pairs: dict[str, Pair] = {}
    for name, one, other in _beside(view):
        places = evenly_spaced(np.arange(len(one.names)), len(one.names) if view.has_columns else COLUMNS).tolist()
        pairs |= {f"{name}{one.names[nr]}": (_known(one.values[:, nr]), _known(other.values[:, nr])) for nr in places}
    apart = {name: distance(*pair) for name, pair in pairs.items() if is_beyond_chance(*pair, len(pairs))}
    by_distance = sorted(apart, key=lambda one: -apart[one])
    found = [name for name in by_distance if apart[name] >= DISTANT and not _drifts(pairs[name][0])]
    if found:
        words, shown = view.words, ", ".join(f"{name}{_medians(*pairs[name])}" for name in found[:3])
        text = f"validation {words.inputs} are distributed otherwise than training {words.inputs} (distribution shift)"
        yield f"{text}: {len(found)} of {len(pairs)} {words.numbers}, most of all {shown}; {SAME_WAY}"


def _drifts(values: np.ndarray) -> bool:
    """Return True if early and late training samples differ as much: such a drift continues in validation."""
    half = len(values) // 2
    return values.min() == values.max() or distance(values[:half], values[half:]) >= DISTANT


def _medians(one: np.ndarray, other: np.ndarray) -> str:
    first, second = (f"{np.median(part):.3g}" for part in (one, other))
    return f" (median {first} in training, {second} in validation)" if first != second else ""


def shifted_targets(view: DataView) -> Iterator[str]:
    """Yield a warning on targets with another distribution; a class that a split lacks has a separate finding."""
    labels = view.train.labels, view.validation.labels
    if labels[0] is not None and labels[1] is not None:
        yield from _shifted_classes(labels[0], labels[1])
        return
    targets = [read.target for read, _ in view.splits if read.target is not None and read.target.size == 1]
    if view.train.kind != "values" or len(targets) < 2:
        return
    one, other = (_known(target.values[:, 0]) for target in targets)
    if is_beyond_chance(one, other) and distance(one, other) >= DISTANT:
        capped = _capped(one, other) or _capped(other, one, "validation", "training")
        text = "validation targets are distributed otherwise than training targets (distribution shift)"
        yield f"{text}{f': {capped}' if capped else _medians(one, other)}; {SAME_WAY}"


def _capped(one: np.ndarray, other: np.ndarray, name: str = "training", beside: str = "validation") -> str | None:
    """Return words on targets that are capped at a value which others pass; None where none are."""
    for end, word in ((one.max(), "largest"), (one.min(), "smallest")):
        share = float((one == end).mean())
        passed = float(((other > end) if word == "largest" else (other < end)).mean())
        if share >= CAPPED <= passed and len(np.unique(one)) >= DISTINCT:
            at = f"{share:.0%} of the {name} targets have the {word} value, {end:.4g}, as if they were capped there"
            return f"{at}, and {passed:.0%} of the {beside} targets lie beyond it"
    return None


def _shifted_classes(one: np.ndarray, other: np.ndarray) -> Iterator[str]:
    count = int(max(one.max(), other.max())) + 1
    shares = [np.bincount(labels, minlength=count) / len(labels) for labels in (one, other)]
    gap = np.abs(shares[0] - shares[1])
    most = int(gap.argmax())
    has_both = bool(((shares[0] > 0) == (shares[1] > 0)).all())
    if gap[most] >= OF_CLASS and has_both and is_beyond_chance((one == most).astype(float), (other == most).astype(float)):
        first, second = (f"{share[most]:.0%}" for share in shares)
        text = f"class {most} has {first} of the training samples and {second} of the validation samples (distribution shift)"
        yield f"{text}: the probabilities of a model follow those of training; is one split drawn by class?"


# --- the relation of inputs and targets ---------------------------------------------------------------

FITTED = 50  # samples of each split by which a linear model is fitted and judged
PER_COLUMN = 10  # training samples for each input of the linear model
PREDICTED = 0.3  # chosen by us: the R2 that it must reach on training samples that it was not fitted to
RIDGE = 1e-3  # the ridge penalty as a share of the number of samples
FAR = 5.0  # standard deviations, at which inputs are cut


def other_relation(view: DataView) -> Iterator[str]:
    """Yield a warning where a linear model predicts targets on other training samples, and fails on validation samples."""
    targets = _as_numbers(view.train, view.validation)
    if targets is None or min(len(read.places) for read, _ in view.splits) < FITTED:
        return
    known, new = _standardized(view.train.rows, view.validation.rows)
    half = known[::2]
    weights = np.linalg.solve(half.T @ half + RIDGE * len(half) * np.eye(half.shape[1]), half.T @ targets[0][::2])
    own, other = _r2(known[1::2] @ weights, targets[0][1::2]), _r2(new @ weights, targets[1])
    turned = [place for place in own.argsort()[::-1] if own[place] >= PREDICTED and other[place] < 0]
    if turned:
        named = f" for class {turned[0]}" if own.size > 1 else ""
        yield (
            f"inputs and targets belong together otherwise in validation than in training: a linear model{named} reaches an R2 "
            f"of {own[turned[0]]:.2f} on training samples which it has not seen, and {other[turned[0]]:.2f} on validation "
            "samples, worse than a constant answer: check whether columns or channels are in another order there, or targets "
            "are numbered, shifted or joined otherwise"
        )


def _as_numbers(train: Reading, validation: Reading) -> Pair | None:
    """Return the targets of both as float64 [samples, numbers], classes one by one."""
    one, other = train.labels, validation.labels
    if one is not None and other is not None:
        count = int(one.max()) + 1
        return (np.eye(count)[one], np.eye(count)[other]) if other.max() < count <= DISTINCT else None
    numbers = [one_number(part) for part in (train, validation)] if train.kind == "values" else [None, None]
    return None if numbers[0] is None or numbers[1] is None else (numbers[0][:, None], numbers[1][:, None])


def _standardized(one: np.ndarray, other: np.ndarray) -> Pair:
    """Return the inputs that vary, of mean 0 and deviation 1, and a constant; too many are projected to fewer."""
    kept = np.isfinite(one).all(0) & np.isfinite(other).all(0)
    one, other = one[:, kept], other[:, kept]
    mean, spread = one.mean(0), one.std(0)
    varies = spread > 0
    known, new = (np.clip((part - mean)[:, varies] / spread[varies], -FAR, FAR) for part in (one, other))
    most = max(1, len(one) // (2 * PER_COLUMN))
    if known.shape[1] > most:
        drawn = np.random.default_rng(0).standard_normal((known.shape[1], most)) / math.sqrt(known.shape[1])
        known, new = known @ drawn, new @ drawn
    return np.c_[known, np.ones(len(known))], np.c_[new, np.ones(len(new))]


def _r2(answers: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the R2 of each number of the targets."""
    around = ((targets - targets.mean(0)) ** 2).sum(0)
    found: np.ndarray = 1 - ((answers - targets) ** 2).sum(0) / np.maximum(around, 1e-300)
    return found


# --- samples that belong together ---------------------------------------------------------------------

HELD_OUT = 250  # validation samples that are compared, evenly spaced
TRAINED = 4_000  # training samples that are searched for their nearest neighbours
MOST_EQUAL = 0.1  # chosen by us: a feature of which one value has a larger share makes steps in the distances, as groups do
RARE = 0.01  # chosen by us: the share of samples without groups whose nearest one is as near by chance
SHARE = 0.1  # chosen by us: the least share of such samples that is a finding
FARTHEST = 50  # chosen by us: the k of the k-th and 2k-th neighbours; of few samples, a tenth of their number


def near_copies(view: DataView) -> Iterator[str]:
    """Yield a warning on validation samples that are far nearer to a training sample than chance allows.

    Features with gaps or with a frequent value are left out. Each class may be a separate cluster.
    """
    train, held_out = view.near or (view.train.rows, view.validation.rows)
    classes = view.classes if view.train.labels is None else int(view.train.labels.max()) + 1
    looked_at = evenly_spaced(held_out, HELD_OUT)
    near, total = _near(evenly_spaced(train, TRAINED), looked_at, classes), len(looked_at)
    if near >= max(FEWEST, SHARE * total):
        text = f"{near} of {total} validation samples lie far nearer to one training sample than others do to one another"
        yield f"{text}: are they of one person, recording or day? {view.words.together}"


def _near(train: np.ndarray, held_out: np.ndarray, classes: int) -> int:
    """Return the number of held-out samples whose nearest neighbour is that near; equal samples are left to other checks.

    In d dimensions, the distance to the nearest of k neighbours is below r times that to the k-th with the chance
    1 - (1 - r^d)^(k - 1); d is estimated from the growth of distances from the k-th to the 2k-th one (Levina and Bickel, 2004,
    Maximum likelihood estimation of intrinsic dimension). A group has fewer samples than k, so that it does not change d.
    """
    neighbours = min(FARTHEST, len(train) // 10)
    # Fewer samples of a class than neighbours: then the neighbours reach beyond its class's cluster, as they do beyond a group.
    if neighbours < 10 or len(train) < 4 * neighbours * max(1, classes // 2):
        return 0
    ranked = _ranked(train, held_out)
    if not ranked.shape[1]:
        return 0
    distances = _distances(ranked[: len(train)], ranked[len(train) :])
    distances[distances <= 1e-6] = np.inf
    nearest = np.sort(np.partition(distances, 2 * neighbours, axis=1)[:, : 2 * neighbours + 1], axis=1)
    nearest = nearest[np.isfinite(nearest).all(axis=1)]
    if len(nearest) < FEWEST:
        return 0
    growth = float(np.log(nearest[:, 2 * neighbours - 1] / nearest[:, neighbours - 1]).mean())
    # Where nothing grows, as on a grid, the number of dimensions is not known.
    if growth <= 0:
        return 0
    limit = (RARE / (neighbours - 1)) ** (growth / np.log(2))
    return int((nearest[:, 0] < limit * nearest[:, neighbours - 1]).sum())


def _ranked(train: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Return the ranks of the features without a frequent value, from 0 to 1: a few large values would decide all distances."""
    both = np.concatenate([train, held_out])
    columns = [np.unique(column, return_inverse=True, return_counts=True) for column in both.T if np.isfinite(column).all()]
    smooth = [places / (len(values) - 1) for values, places, counts in columns if counts.max() <= MOST_EQUAL * len(both)]
    return np.stack(smooth, axis=1) if smooth else np.zeros((len(both), 0))


def _distances(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    squared = (rows**2).sum(axis=1)[:, None] + (train**2).sum(axis=1)[None] - 2 * rows @ train.T
    found: np.ndarray = np.sqrt(np.maximum(squared, 0))
    return found


def numbered(view: DataView) -> Iterator[str]:
    """Yield a warning on validation samples that equal training samples except for a unique number of each sample."""
    train, validation = view.train, view.validation
    if train.left_out or train.rows.shape[1] < 3:
        return
    both = np.concatenate([train.rows, validation.rows])
    own = np.array([len(np.unique(column)) == len(both) for column in both.T]) & (both == np.floor(both)).all(axis=0)
    rest = both[:, ~own]
    if not own.any() or rest.shape[1] < 2:
        return
    first, second = np.split(hashes := row_hashes([rest]), [len(train.rows)])
    copied = int(np.isin(second, first).sum())
    if copied >= max(FEWEST, view.limits.leak_rows * len(second)) and not has_few_values(rest, len(np.unique(hashes))):
        name = listed(np.array(train.names, dtype=object)[own])
        text = f"but for {name}, {copied} of {len(second)} validation samples are in the training split too"
        yield f"{text}: {view.words.together}"


# --- windows of one series ----------------------------------------------------------------------------

SHORTEST = 8  # places of a stretch; shorter ones of few values are alike by chance
LONGEST = 256  # places of a window that are compared
SHIFTED = 0.5  # chosen by us: the share of the validation windows; a split by time has some at its border alone
REPEATED = 0.05  # chosen by us: the share of the training windows; where more begin alike, windows are alike by nature


def shared_windows(view: DataView) -> Iterator[str]:
    """Yield a warning on validation windows of which a part is in training windows, shifted."""
    for _, one, other in _beside(view):
        train, held_out = _windows(one), _windows(other)
        shared = _shared(train, held_out) if train is not None and held_out is not None else 0
        if shared:
            text = f"parts of {shared} of {len(other.values)} validation samples are in the training split too, shifted"
            hint = "split the series first, by time perhaps, and cut windows from each part"
            yield f"{text}: windows that overlap, of one series? {hint}"
            return


def _shared(train: np.ndarray, held_out: np.ndarray) -> int:
    """Return the number of validation windows of which a part is in training windows, shifted; 0 where they are too few."""
    places = train.shape[1]
    length = max(SHORTEST, places // 4)
    last = places - length
    blocks = [_hashes(train, start, length) for start in range(last + 1)]
    if len(np.unique(blocks[0])) < (1 - REPEATED) * len(train):
        return 0
    # Equal beginnings are copies, or common to all windows; a shifted one is of the same series.
    shared = _found(held_out, 0, length, blocks[1:]) | _found(held_out, last, length, blocks[:last])
    return int(shared.sum()) if shared.mean() >= SHIFTED else 0


def _windows(numbers: Numbers) -> np.ndarray | None:
    """Return windows as [samples, places, numbers of a place]; None of inputs that are no windows."""
    if len(numbers.names) < numbers.size or not len(numbers.values):
        return None
    shape = [int(last) + 1 for last in re.findall(r"\[(\d+)\]", numbers.names[-1])]
    if len(shape) not in (1, 2) or not 2 * SHORTEST <= shape[0] <= LONGEST:
        return None
    return numbers.values.reshape(len(numbers.values), shape[0], -1)


def _hashes(windows: np.ndarray, start: int, length: int) -> np.ndarray:
    return row_hashes([windows[:, start : start + length]])


def _found(windows: np.ndarray, start: int, length: int, known: list[np.ndarray]) -> np.ndarray:
    """Return a mask of the windows whose stretch is a known one; False for padding, and for an end that several windows share."""
    hashes = _hashes(windows, start, length)
    _, places, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    ordered = np.sort(windows[:, start : start + length].reshape(len(windows), -1), axis=1)
    different = (np.diff(ordered, axis=1) != 0).sum(axis=1) + 1
    found: np.ndarray = np.isin(hashes, np.concatenate(known)) & (counts[places] == 1) & (different >= SHORTEST // 2)
    return found
