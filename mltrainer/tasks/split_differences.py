"""Differences of validation samples from training samples: of inputs, of targets, and of the relation between them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mltrainer.tasks.array_operations import evenly_spaced
from mltrainer.tasks.checks import DataView, Words
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.reading import Numbers, Reading
from mltrainer.tasks.units import distance, is_beyond_chance

APART = (
    0.4  # chosen by us: of the distance of two distributions, from 0 to 1; those of 160 and 40 persons are 0.35 apart by chance
)
OF_CLASS = 0.25  # chosen by us: the difference of a class's shares
ROWS = 2_000  # samples of each split that are compared
COLUMNS = 256  # numbers of a part that are compared, evenly spaced
FEWEST = 50  # samples of each split by which a linear model is fitted and judged
PER_COLUMN = 10  # training samples for each input of the linear model
TOLD = 0.3  # chosen by us: the R2 that it must reach on training samples that it was not fitted to
RIDGE = 1e-3  # the ridge penalty as a share of the number of samples
FAR = 5.0  # standard deviations, at which inputs are cut
CAPPED, DISTINCT = 0.05, 20  # chosen by us: the share of targets at an end value, and the least number of distinct values
SHOWN = 3  # numbers that are named
SAME_WAY = "are both splits prepared in the same way, from the same source? A split by time or group may differ by nature"


def shifted_inputs(view: DataView) -> list[Finding]:
    """Return a warning on inputs with another distribution; none on inputs that are altered on purpose, or may differ."""
    is_fault = view.train.drawn is None if view.is_shift_a_fault is None else view.is_shift_a_fault
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for part, one in view.train.inputs.items() if is_fault else ():
        other = view.validation.inputs.get(part)
        if other is not None and one.names == other.names:
            places = evenly_spaced(np.arange(len(one.names)), len(one.names) if view.has_columns else COLUMNS).tolist()
            pairs |= {f"{part}{one.names[place]}": (_column(one, place), _column(other, place)) for place in places}
    return _shifted(pairs, view.words)


def _shifted(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]], words: Words) -> list[Finding]:
    """Return a warning on numbers with another distribution; none where chance, or a drift within training, explains it.

    Args:
        pairs: The finite values of training and of validation samples, by name.
        words: The findings' words for the data.
    """
    apart = {name: distance(*pair) for name, pair in pairs.items() if is_beyond_chance(*pair, len(pairs))}
    found = [name for name in sorted(apart, key=lambda one: -apart[one]) if apart[name] >= APART and not _drifts(pairs[name][0])]
    if not found:
        return []
    shown = ", ".join(f"{name}{_medians(*pairs[name])}" for name in found[:SHOWN])
    text = f"validation {words.inputs} are distributed otherwise than training {words.inputs} (distribution shift)"
    return [Finding("warning", f"{text}: {len(found)} of {len(pairs)} {words.numbers}, most of all {shown}; {SAME_WAY}")]


def _drifts(values: np.ndarray) -> bool:
    """Return True if early and late training samples differ as much: such a drift continues in validation."""
    half = len(values) // 2
    return values.min() == values.max() or distance(values[:half], values[half:]) >= APART


def _medians(one: np.ndarray, other: np.ndarray) -> str:
    first, second = (f"{np.median(part):.3g}" for part in (one, other))
    return f" (median {first} in training, {second} in validation)" if first != second else ""


def _column(part: Numbers, place: int) -> np.ndarray:
    return _known(part.values[:, place])


def _known(values: np.ndarray) -> np.ndarray:
    """Return some of the values, evenly spaced, that are finite."""
    some = evenly_spaced(values, ROWS)
    finite: np.ndarray = some[np.isfinite(some)]
    return finite


def shifted_targets(view: DataView) -> list[Finding]:
    """Return a warning on targets with another distribution; a class that a split lacks has a separate finding."""
    train, validation = view.train, view.validation
    if train.labels is not None and validation.labels is not None:
        return _classes(train.labels, validation.labels)
    if train.kind != "values" or train.target is None or validation.target is None:
        return []
    if not train.target.size == validation.target.size == 1:
        return []
    one, other = _column(train.target, 0), _column(validation.target, 0)
    if not is_beyond_chance(one, other, 1) or distance(one, other) < APART:
        return []
    what = _capped(one, other) or _capped(other, one, "validation", "training")
    text = "validation targets are distributed otherwise than training targets (distribution shift)"
    return [Finding("warning", f"{text}{f': {what}' if what else _medians(one, other)}; {SAME_WAY}")]


def _capped(one: np.ndarray, other: np.ndarray, name: str = "training", beside: str = "validation") -> str | None:
    """Return words on targets that are capped at a value which others pass; None where none are."""
    for end, word in ((one.max(), "largest"), (one.min(), "smallest")):
        share = float((one == end).mean())
        passed = float(((other > end) if word == "largest" else (other < end)).mean())
        if share >= CAPPED <= passed and len(np.unique(one)) >= DISTINCT:
            at = f"{share:.0%} of the {name} targets have the {word} value, {end:.4g}, as if they were capped there"
            return f"{at}, and {passed:.0%} of the {beside} targets lie beyond it"
    return None


def _classes(one: np.ndarray, other: np.ndarray) -> list[Finding]:
    count = int(max(one.max(), other.max())) + 1
    shares = [np.bincount(labels, minlength=count) / len(labels) for labels in (one, other)]
    gap = np.abs(shares[0] - shares[1])
    most = int(gap.argmax())
    has_both = bool(((shares[0] > 0) == (shares[1] > 0)).all())
    if gap[most] < OF_CLASS or not has_both or not is_beyond_chance((one == most).astype(float), (other == most).astype(float)):
        return []
    first, second = (f"{share[most]:.0%}" for share in shares)
    text = f"class {most} has {first} of the training samples and {second} of the validation samples (distribution shift)"
    return [Finding("warning", f"{text}: the probabilities of a model follow those of training; is one split drawn by class?")]


# --- the relation of inputs and targets -------------------------------------------------------------


def other_relation(view: DataView) -> list[Finding]:
    """Return a warning where a linear model predicts targets on other training samples, and fails on validation samples."""
    train, validation = view.train, view.validation
    targets = _as_numbers(train, validation)
    if targets is None or min(len(train.places), len(validation.places)) < FEWEST:
        return []
    known, new = _standardized(train.rows, validation.rows)
    if not known.shape[1]:
        return []
    half = slice(None, None, 2)
    weights = _fitted(known[half], targets[0][half])
    own, other = _r2(known[1::2] @ weights, targets[0][1::2]), _r2(new @ weights, targets[1])
    turned = [place for place in own.argsort()[::-1] if own[place] >= TOLD and other[place] < 0]
    if not turned:
        return []
    named = f" for class {turned[0]}" if own.size > 1 else ""
    text = (
        f"inputs and targets belong together otherwise in validation than in training: a linear model{named} reaches an R2 of "
        f"{own[turned[0]]:.2f} on training samples which it has not seen, and {other[turned[0]]:.2f} on validation samples, "
        "worse than a constant answer"
    )
    hint = "look whether columns or channels stand in another order there, or targets are numbered, shifted or joined otherwise"
    return [Finding("warning", f"{text}: {hint}")]


def _as_numbers(train: Reading, validation: Reading) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the targets of both as float64 [samples, numbers], classes one by one."""
    one, other = train.labels, validation.labels
    if one is not None and other is not None:
        count = int(one.max()) + 1
        return (np.eye(count)[one], np.eye(count)[other]) if other.max() < count <= DISTINCT else None
    if train.kind != "values":
        return None
    parts = [part.target.values for part in (train, validation) if part.target is not None and part.target.size == 1]
    return (parts[0], parts[1]) if len(parts) == 2 and all(np.isfinite(part).all() for part in parts) else None


def _standardized(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
    known, new = (np.c_[part, np.ones(len(part))] for part in (known, new))
    return known, new


def _fitted(rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.linalg.solve(rows.T @ rows + RIDGE * len(rows) * np.eye(rows.shape[1]), rows.T @ targets)
    return weights


def _r2(answers: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the R2 of each number of the targets."""
    around = ((targets - targets.mean(0)) ** 2).sum(0)
    found: np.ndarray = 1 - ((answers - targets) ** 2).sum(0) / np.maximum(around, 1e-300)
    return found
