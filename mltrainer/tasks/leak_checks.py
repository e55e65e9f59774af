"""Checks of inputs that predict the target by themselves, or are made from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mltrainer.tasks.content import listed
from mltrainer.tasks.data_findings import telling_finding
from mltrainer.tasks.leak_rules import MOST_TELLING, is_decided, is_encoded, made_of_neighbours, telling_features
from mltrainer.tasks.reading import SINGLE, DataView, Reading
from mltrainer.tasks.value_checks import FEWEST, MOST_TARGETS

LEAK_ROWS = 1000  # samples that are examined for features that predict the target
MOST_MARKS = 0.2  # chosen by us: the largest share of features that are marks of a class; more are the nature of the data
MOST_SUMMED = 3  # features whose sum is examined
FEW = 3  # chosen by us: a sum is of few features where there are at least this many times as many
EXACT = 1e-4  # chosen by us: the share of a target's variance that an exact sum may leave; measurements leave more
KNOWN_BEFORE = "would they be known before it? If not, leave them out of the inputs"


def _tried(view: DataView) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the features of samples that may leak a target, and their names; None where none could be a leak."""
    rows, target = view.train.rows[:LEAK_ROWS], view.train.target
    # One feature alone is meant to predict the target; as many targets as inputs are an image, or the inputs again.
    if target is None or rows.shape[1] < 2 or target.size > MOST_TARGETS or target.size >= rows.shape[1]:
        return None
    is_whole = np.isfinite(rows).all(axis=0)
    return rows[:, is_whole], _names(view)[is_whole]


def _names(view: DataView) -> np.ndarray:
    return np.array(view.train.names, dtype=object)


def _targets(view: DataView) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield the name of each number of the targets, its values, and its number of classes, 0 for a quantity."""
    train = view.train
    if train.labels is not None:
        yield "the target", train.labels[:LEAK_ROWS], int(train.labels.max()) + 1
    elif train.target is not None and train.kind == "values":
        for place, values in enumerate(train.target.values[:LEAK_ROWS].T):
            if np.isfinite(values).all():
                yield "the target" if train.target.size == 1 else f"number {place} of the target", values, 0


def telling(view: DataView) -> Iterator[str]:
    """Yield warnings on features that predict a target by themselves, or equal it."""
    if (tried := _tried(view)) is None:
        return
    rows, names = tried
    for of, values, classes in _targets(view):
        scores = telling_features(rows, values, classes, view.limits)
        best = sorted(scores, key=lambda place: -scores[place])
        equal = [place for place in best if np.array_equal(rows[:, place], values.astype(np.float64))]
        if equal:
            yield f"{names[equal[0]]} of each training sample is {of} (a leak): leave it out of the inputs"
        elif best:
            who = f"{listed(names[best])} of a training sample {'predict' if len(best) > 1 else 'predicts'}"
            yield telling_finding(who, scores[best[0]], of).what


def telling_classes(view: DataView) -> Iterator[str]:
    """Yield a warning where each class, or all but one, has a feature that predicts it, such as a mark in an image's corner."""
    if (tried := _tried(view)) is None or view.train.labels is None:
        return
    (rows, names), labels = tried, view.train.labels[:LEAK_ROWS]
    classes = np.unique(labels)
    if not 3 <= len(classes) <= MOST_TARGETS:
        return
    scores = [telling_features(rows, (labels == label).astype(np.int64), 2, view.limits) for label in classes]
    marks = list(dict.fromkeys(max(one, key=lambda place: one[place]) for one in scores if one))
    if len(classes) - 1 <= len(marks) <= MOST_MARKS * rows.shape[1]:
        text = f"{listed(names[marks])} of a training sample each predict a class of the target almost by themselves"
        yield f"{text}: {KNOWN_BEFORE}"


def exact_sum(view: DataView) -> Iterator[str]:
    """Yield a warning where a target is, up to rounding, a weighted sum of a few of many features."""
    if (tried := _tried(view)) is None:
        return
    for of, values, _ in _targets(view):
        if chosen := _summed(tried[0], values):
            text = f"the sum of {listed(tried[1][chosen])} of a training sample, each times a number, is {of} almost by itself"
            yield f"{text}: {KNOWN_BEFORE}"
            return


def _summed(rows: np.ndarray, values: np.ndarray) -> list[int]:
    """Return the features of which a sum, fitted on half of the rows, is the target in the others; none where there is none."""
    half = len(rows) // 2
    if half < 2 * FEWEST or not values.std() or rows.shape[1] < FEW * MOST_SUMMED:
        return []
    spread = rows.std(axis=0)
    known = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    chosen: list[int] = []
    left = values[:half] - values[:half].mean()
    for _ in range(MOST_SUMMED):
        chosen.append(int(np.abs(known[:half].T @ left).argmax()))
        terms = np.c_[known[:, chosen], np.ones(len(known))]
        errors = values - terms @ np.linalg.lstsq(terms[:half], values[:half], rcond=None)[0]
        left = errors[:half]
        if len(chosen) > 1 and (errors[half:] ** 2).mean() <= EXACT * values[half:].var():
            return chosen
    return []


def decided(view: DataView) -> Iterator[str]:
    """Yield a warning on features that the target decides."""
    target, rows = one_number(view.train), view.train.rows
    if target is None or rows.shape[1] < 2:
        return
    found = [place for place in _finite(rows) if is_decided(rows[:LEAK_ROWS, place], target[:LEAK_ROWS])]
    if 0 < len(found) <= MOST_MARKS * rows.shape[1]:
        text = f"{listed(_names(view)[found])} of a training sample follows from the target"
        yield f"{text}: if it is made of it, leave it out of the inputs"


def encoded(view: DataView) -> Iterator[str]:
    """Yield a warning on features that are the target's mean over the samples which share them."""
    target, rows, other = one_number(view.train), view.train.rows, one_number(view.validation)
    if target is None or rows.shape[1] < 2:
        return
    samples = [(rows, target)]
    if other is not None and view.train.names == view.validation.names:
        samples.append((np.concatenate([rows, view.validation.rows]), np.concatenate([target, other])))
    found = [place for place in _finite(rows) if any(is_encoded(x[:, place], y) for x, y in samples)]
    if 0 < len(found) <= MOST_TELLING * rows.shape[1]:
        text = f"{listed(_names(view)[found])} of a sample is the mean of the target over the samples that share it"
        yield f"{text}, its own among them: leave it out of the inputs, or make it of other samples alone"


def _finite(rows: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.isfinite(rows).all(axis=0))


def in_order(view: DataView) -> Iterator[str]:
    """Yield a warning on features that are made from the targets of their row or of later ones."""
    if view.in_order is None:
        return
    train, places = view.in_order
    target, columns = one_number(train), train.rows.T
    found = made_of_neighbours([*columns], target, places) if target is not None and 1 < len(columns) <= SINGLE else {}
    if found:
        text = f"{listed(np.array(train.names, dtype=object)[[*found]])} of a training sample {next(iter(found.values()))}"
        yield f"{text}: leave it out of the inputs, or make it of earlier rows alone"


def one_number(read: Reading) -> np.ndarray | None:
    """Return the target of each sample as one number, 0 and 1 for two classes; None for other targets, which have no mean."""
    if read.target is None or read.target.size > 1 or not np.isfinite(read.target.values).all():
        return None
    if read.kind == "values":
        return read.target.values[:, 0]
    return read.labels.astype(np.float64) if read.labels is not None and len(np.unique(read.labels)) <= 2 else None
