"""Planning tells where validation comes from elsewhere, and is silent where two draws of the same samples differ by chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.records.run import TargetKind
from mltrainer.tasks.checks import CHECKS, findings_of
from mltrainer.tasks.reading import DataView, Numbers, Reading

DRAWN = np.random.default_rng(0)
ROWS = DRAWN.standard_normal((900, 6))
WEIGHTS = DRAWN.standard_normal(6)
VALUES = ROWS @ WEIGHTS + 0.3 * DRAWN.standard_normal(900)
CLASSES = np.digitize(VALUES, [-1.5, 1.5]).astype(float)
Change = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def reading(rows: np.ndarray, targets: np.ndarray, drawn: bool = False) -> Reading:
    target = Numbers(targets[:, None], [""], 1, bool((targets == np.floor(targets)).all()))
    names = [f"[{place}]" for place in range(rows.shape[1])]
    hashes = None if drawn else np.array([hash(row.tobytes()) for row in rows])
    inputs = {"inputs": Numbers(rows, names, rows.shape[1], False)}
    kind: TargetKind = "classes" if target.is_whole else "values"
    return Reading(len(rows), hashes, np.arange(len(rows)), inputs, [], target, "inputs" if drawn else None, kind=kind)


def told(train: Change, validation: Change, targets: np.ndarray = VALUES, drawn: bool = False) -> list[str]:
    one, other = train(ROWS[:600], targets[:600]), validation(ROWS[600:], targets[600:])
    return [found.what for found in findings_of(CHECKS, DataView(reading(*one, drawn=drawn), reading(*other), DataLimits()))]


def same(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, y


def first_of(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Return a change of the first column alone."""
    return lambda x, y: (np.c_[change(x[:, 0]), x[:, 1:]], y)


def of_targets(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda x, y: (x, change(y))


def without(label: float, share: float) -> Change:
    """Return a change that leaves out a share of the samples of a class."""

    def change(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = np.flatnonzero(y == label)
        left = np.setdiff1d(np.arange(len(y)), places[: int(share * len(places))])
        return x[left], y[left]

    return change


INPUTS, TARGETS, RELATION = "validation inputs are distributed", "validation targets are distributed", "belong together otherwise"


@pytest.mark.parametrize(
    ("train", "validation", "targets", "words"),
    [
        (same, first_of(lambda x: x + 1), VALUES, f"{INPUTS} otherwise than training inputs (distribution shift): 1 of 6"),
        (same, lambda x, y: (1.3 * x + 2, y), VALUES, "6 of 6 numbers of a sample"),
        (same, first_of(lambda x: np.where(x > 0, 0.0, x)), VALUES, "most of all inputs[0]"),
        (first_of(abs), same, VALUES, INPUTS),
        (first_of(lambda x: np.exp(x) / 4), same, VALUES, INPUTS),
        (of_targets(lambda y: y.clip(max=0.2)), same, VALUES, "have the largest value, 0.2, as if they were capped there"),
        (of_targets(lambda y: y.clip(min=0.2)), same, VALUES, "have the smallest value, 0.2"),
        (same, of_targets(lambda y: y.clip(max=0.2)), VALUES, "of the validation targets have the largest value"),
        (same, of_targets(lambda y: y + 2), VALUES, TARGETS),
        (of_targets(abs), same, VALUES, TARGETS),
        (without(1, 0.9), same, CLASSES, "of the training samples and"),
        (same, without(1, 0.9), CLASSES, "is one split drawn by class?"),
        (same, lambda x, y: (x[:, ::-1], y), VALUES, RELATION),
        (same, lambda x, y: (-x, y), VALUES, RELATION),
        (same, lambda x, y: (x, np.roll(y, 1)), VALUES, RELATION),
        (same, of_targets(lambda y: 2 - y), CLASSES, RELATION),
        (lambda x, y: (x, -y), same, VALUES, RELATION),
    ],
    ids=[
        *("an offset", "another device", "a column cut", "a sign lost", "another transform"),
        *("targets capped", "capped below", "validation capped", "targets moved", "the targets' sign lost"),
        *("a class left out in training", "and in validation"),
        *("columns in another order", "the sign of all", "targets joined one row off"),
        *("classes numbered otherwise", "targets negated"),
    ],
)  # fmt: skip
def test_validation_from_elsewhere_is_told(train, validation, targets, words):
    (found,) = told(train, validation, targets)
    assert words in found


@pytest.mark.parametrize(
    ("train", "validation", "targets", "drawn"),
    [
        (same, same, VALUES, False),
        (same, same, CLASSES, False),
        (same, first_of(lambda x: x + 0.1), VALUES, False),
        (first_of(lambda x: x + 1), same, CLASSES, True),
        (same, lambda x, y: (x[:12] + 0.2, y[:12]), VALUES, False),
        (of_targets(lambda y: y.clip(min=0)), of_targets(lambda y: y.clip(min=0)), VALUES, False),
        (same, without(1, 0.2), CLASSES, False),
        (same, same, DRAWN.standard_normal(900), False),
    ],
    ids=[
        *("as drawn", "classes", "a small drift", "an augmentation of training", "few samples"),
        *("both capped", "a class a little rarer", "inputs that tell nothing"),
    ],
)  # fmt: skip
def test_what_chance_or_purpose_makes_is_not(train, validation, targets, drawn):
    assert told(train, validation, targets, drawn) == []


def test_most_training_samples_repeated_are_told():
    def joined(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = np.r_[np.arange(200), np.arange(200), np.arange(200)]
        return x[places], y[places]

    (found,) = told(joined, same)
    assert found.startswith("400 of 600 training samples repeat another one, 200 are distinct")
    assert told(lambda x, y: (np.r_[x, x[:200]], np.r_[y, y[:200]]), same) == []


@pytest.mark.parametrize("value", [-999.0, 99.0])
def test_a_number_that_stands_for_no_value_is_told(value):
    def gaps(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.c_[np.where(np.arange(len(x)) % 8, x[:, 0], value), x[:, 1:]], y

    (found,) = told(gaps, gaps)
    assert f"inputs[0] (in 12%: {value:g})" in found


def texts(unknown: float, padded: int = 0) -> Reading:
    words = np.where(DRAWN.random((300, 20)) < unknown, 61, DRAWN.integers(1, 60, (300, 20))).astype(float)
    words[:, 20 - padded :] = 0
    part = Numbers(words, [f"[{place}]" for place in range(20)], 20, True)
    target = Numbers(DRAWN.integers(0, 2, (300, 1)).astype(float), [""], 1, True)
    return Reading(300, np.arange(300), np.arange(300), {"inputs": part}, [], target)


def test_a_token_that_takes_most_places_is_told_and_padding_is_not():
    views = [DataView(texts(*given), texts(*given), DataLimits()) for given in ((0.9,), (0.1, 15))]
    told = [[found.what for found in findings_of(CHECKS, view)] for view in views]
    assert "token 61 takes" in " ".join(told[0])
    assert "token" not in " ".join(told[1])


def test_one_input_that_stands_in_for_many_is_told():
    def blank(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pixels = np.round(np.c_[x, x[:, :2]])  # of few values, as those of small pictures are
        return np.where(np.arange(len(x))[:, None] % 5 == 1, -0.5, pixels), y

    (found,) = [what for what in told(blank, same) if "very same inputs" in what]
    assert "120 of 600 training samples have the very same inputs (blank: all numbers are -0.5), the first is sample 1" in found
