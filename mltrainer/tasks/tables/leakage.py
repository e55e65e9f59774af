"""Leakage: columns that give the target, alone or in pairs, on rows that the rule was not fitted on; one question for all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mltrainer.checkpointing.inference_script import DATES
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import ACCEPTED, PLACEHOLDER
from mltrainer.tasks.array_operations import evenly_spaced, joint_counts
from mltrainer.tasks.content import listed
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.leak_rules import IN_ORDER, made_of_neighbours
from mltrainer.tasks.tables.ambiguities import as_key
from mltrainer.tasks.tables.columns import CODED, NUMERIC_SHARE, Column
from mltrainer.tasks.tables.held_out import HeldOutRows
from mltrainer.tasks.tables.leak_formulas import MOST_COLUMNS, formulas

EXACT = 1e-9  # share of the target's variance that rounding may leave unexplained
LOOKED_AT = 100_000  # training rows, evenly spaced, that are searched for copies
JUDGED = (2_000, 20_000)  # rows that rules are fitted and judged on, of many columns and of few
JUDGED_CELLS = 300_000  # cells in those rows
MOST_SUMMED = 200  # columns that are searched for an exact sum
KNOWN = 0.5  # share of the rows that must have values
LEAST_GAIN = 3  # a formula must leave at most a third of the error of its better column alone
SURE = 0.999  # a column with such a score alone is left out of formulas
BINS = (2, 50)  # values of a column that may be the target cut into parts
LEAST_BINNED = 100  # rows
NEAR = 10  # neighbouring targets, by which a gap between two parts is judged
GAP = 5  # times as far apart as its neighbours are: two separate parts, and no cut
MOST_SHOWN = 8
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?")


@dataclass(frozen=True)
class Target:
    """A target: a column, and its classes.

    Attributes:
        column: The column.
        labels: The class number of each row; None where a quantity is predicted.
        names: The classes' names; none of a quantity.
    """

    column: Column
    labels: np.ndarray | None = None
    names: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    @property
    def classes(self) -> int:
        """Number of classes; 0 for a quantity."""
        return len(self.names)

    @property
    def values(self) -> np.ndarray:
        """The class number or value of each row."""
        return self.column.values if self.labels is None else self.labels


@dataclass(frozen=True)
class Answers:
    """The config's answers on columns: those left out, and the reasons that others may give the target."""

    ignored: Sequence[str] = ()
    accepted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Leak:
    """Columns that give the target, with a phrase on the way."""

    columns: tuple[str, ...]
    how: str

    def __str__(self) -> str:
        names = " and ".join([", ".join(map(repr, self.columns[:-1])), repr(self.columns[-1])][len(self.columns) == 1 :])
        return f"{names} {self.how}"


def leakage_findings(
    columns: list[Column],
    wanted: Target,
    train: np.ndarray,
    limits: DataLimits,
    answers: Answers,
    in_time: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[Finding]:
    """Return the findings on columns that give the target: one error that asks about all of them, and a warning for each answer.

    Args:
        columns: The features.
        wanted: The target.
        train: The training rows.
        limits: The limits of the findings, among them a rule's score that is a leak.
        answers: The config's answers.
        in_time: The training rows in the order of time, and the place of each in it; None: the order of the file.
    """
    leaks = [leak for column in columns if (leak := _copied(column, wanted, evenly_spaced(train, LOOKED_AT))) is not None]
    if not wanted.classes:
        leaks += _in_order(_without(columns, leaks), wanted.column, *(one[:IN_ORDER] for one in in_time or [np.sort(train)] * 2))
    judged = _Judged(_without(columns, leaks), wanted, train, limits.leak_accuracy if wanted.classes else limits.leak_r2)
    leaks += judged.alone()
    leaks += judged.together()
    # A column that gives the target would be a part of every exact sum as well, and be named twice.
    sums = [] if wanted.classes else _sums(_without(columns, leaks), wanted.column, train)
    leaks += [one for one in sums if isinstance(one, Leak)]
    return [*_leak_findings(leaks, answers), *(one for one in sums if isinstance(one, Finding))]


def _leak_findings(leaks: Sequence[Leak], answers: Answers) -> list[Finding]:
    answered = [leak for leak in leaks if _named([leak]) <= answers.accepted.keys()]
    found = [
        Finding("warning", f"{ACCEPTED}{leak}, because: {'; '.join(answers.accepted[name] for name in leak.columns)}")
        for leak in answered
    ]
    asked = [leak for leak in leaks if leak not in answered]
    return [*([Finding("error", _question(asked, answers))] if asked else []), *found]


def _question(leaks: Sequence[Leak], answers: Answers) -> str:
    """Return the question about all columns that give the target, with the two possible answers as lines of the config."""
    names = list(dict.fromkeys(name for leak in leaks for name in leak.columns))
    shown = listed([*map(str, leaks)], MOST_SHOWN, separator="; ")
    ignore = ", ".join(map(as_key, dict.fromkeys([*answers.ignored, *names])))
    accept = [*(f"{as_key(name)}: {_quoted(why)}" for name, why in answers.accepted.items())]
    accept += [f"{as_key(name)}: {PLACEHOLDER}" for name in names if name not in answers.accepted]
    return (
        f"leakage: {shown}. Is each column known before the target? If not, leave it out: in mltrainer.yaml, under data, write "
        f"`ignore: [{ignore}]`. If it is, say why in place of {PLACEHOLDER}: `leak_accepted: {{{', '.join(accept)}}}`"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _named(leaks: Iterable[Leak]) -> set[str]:
    return {name for leak in leaks for name in leak.columns}


def _without(columns: Iterable[Column], leaks: Iterable[Leak]) -> list[Column]:
    named = _named(leaks)
    return [column for column in columns if column.name not in named]


# --- copies, in every row -------------------------------------------------------------------------


def _copied(column: Column, wanted: Target, rows: np.ndarray) -> Leak | None:
    values, target = column.values[rows], wanted.column
    same_form = column.kind == target.kind and column.texts == target.texts
    if same_form and np.array_equal(values, target.values[rows], equal_nan=values.dtype == np.float64):
        return Leak((column.name,), "equals the target")
    if wanted.labels is None and _is_scaled(column, target, rows):
        return Leak((column.name,), "is the target under another scale")
    return None


def _is_scaled(column: Column, target: Column, train: np.ndarray) -> bool:
    """Return True if a column is the target times a factor plus a constant, in nearly every row, and wherever it is known."""
    if column.values.dtype != np.float64:
        return False
    known = train[~np.isnan(column.values[train])]
    values, wanted = column.values[known], target.values[known]
    # A line runs through any two points.
    if len(known) < max(3, KNOWN * len(train)) or values.std() == 0 or wanted.std() == 0:
        return False
    return bool(1 - np.corrcoef(values, wanted)[0, 1] ** 2 < EXACT)


def _in_order(columns: list[Column], target: Column, rows: np.ndarray, places: np.ndarray) -> list[Leak]:
    """Return the leaks of columns that are made from the targets of their row or of later ones."""
    numbers = [column for column in columns if column.values.dtype == np.float64]
    found = made_of_neighbours([column.values[rows] for column in numbers], target.values[rows], places)
    return [Leak((numbers[place].name,), how) for place, how in found.items()]


# --- rules, judged on held-out rows ---------------------------------------------------------------


class _Judged:
    """The columns of the rows on which rules are judged."""

    def __init__(self, columns: Sequence[Column], wanted: Target, train: np.ndarray, least: float) -> None:
        rows = evenly_spaced(np.sort(train), int(np.clip(JUDGED_CELLS / max(1, len(columns)), *JUDGED)))
        self._wanted = wanted
        self._columns = [column.take_rows(rows) for column in columns]
        self._target = wanted.values[rows]
        self._held_out = HeldOutRows(self._target, wanted.classes)
        self._least = max(least, self._of_series())
        self._measure = "balanced accuracy" if wanted.classes else "R2"
        self._scores = {column.name: 0.0 for column in columns}

    def alone(self) -> list[Leak]:
        """Return the columns that give the target by themselves, and those that give one class each."""
        if not self._held_out.are_enough:
            return []
        found = [leak for column in self._columns if (leak := self._of_column(column)) is not None]
        rest = _without(self._columns, found)
        return [*found, *self._one_class_each(rest)]

    def _of_series(self) -> float:
        """Return the score that a column needs beside the rows' order, which gives a series that is smooth in time; else 0.

        In a series any column that grows with time gives the target. A file that is sorted by its target is no series.
        """
        steps = np.diff(self._target)
        if self._wanted.classes or (steps >= 0).all() or (steps <= 0).all():
            return 0.0
        return 1 - (1 - self._held_out.score(np.arange(len(self._target), dtype=np.float64))) / LEAST_GAIN

    def _of_column(self, column: Column) -> Leak | None:
        for said, values in _readings(column, self._wanted):
            score = self._held_out.score(values)
            self._scores[column.name] = max(score, self._scores[column.name])
            if score >= self._least:
                return self._leak((column.name,), f"gives the target {said}".rstrip(), score)
        if not self._wanted.classes and _is_cut(column, self._target):
            return Leak((column.name,), "is the target cut into parts, whose edges leave no gap")
        return None

    def _leak(self, names: tuple[str, ...], how: str, score: float) -> Leak:
        return Leak(names, f"{how} (of held-out training rows, {self._measure} {score:.4g})")

    def _one_class_each(self, columns: Sequence[Column]) -> list[Leak]:
        """Return the columns of few values that give one class each, such as its one-hot code, where they give all but one."""
        if self._wanted.classes < 3:
            return []
        best: dict[int, tuple[str, np.ndarray]] = {}
        for column in columns:
            distinct, places = np.unique(column.values, return_inverse=True)
            if not 2 <= len(distinct) <= 3:
                continue
            for label, value in _given_alone(places, self._target, self._wanted.classes, self._least):
                best.setdefault(label, (column.name, places == value))
        if len(best) < self._wanted.classes - 1:
            return []
        named = np.full(len(self._target), -1)
        for label, (_, rows) in best.items():
            named[rows] = label
        score = self._held_out.score(named)
        names = tuple(dict.fromkeys(name for name, _ in best.values()))
        self._scores |= dict.fromkeys(names, score)
        return [self._leak(names, "give the target, one class each", score)] if score >= self._least else []

    def together(self) -> list[Leak]:
        """Return the pairs of columns of which a simple formula gives the target, far better than either column alone."""
        if not self._held_out.are_enough:
            return []
        columns = [c for c in self._columns if self._scores[c.name] < SURE and c.kind != "text" and not _is_constant(c)]
        related = sorted(columns, key=lambda column: (column.kind not in DATES, -self._scores[column.name]))[:MOST_COLUMNS]
        columns = [column for column in columns if column in related]
        best: dict[tuple[int, int], tuple[float, str]] = {}
        for one in formulas([column.values for column in columns], self._target, self._wanted.classes):
            pair, score = (min(one.first, one.second), max(one.first, one.second)), self._held_out.score(one.values)
            best[pair] = max(best.get(pair, (0.0, "")), (score, one.what), key=lambda scored: scored[0])
        found = []
        for pair, (score, what) in best.items():
            names = tuple(columns[place].name for place in pair)
            alone = max(self._scores[name] for name in names)
            if score >= self._least and LEAST_GAIN * (1 - score) <= 1 - alone:
                found.append(self._leak(names, f"give the target, as their {what}", score))
        return found


def _is_constant(column: Column) -> bool:
    return bool((column.values == column.values[0]).all())


def _readings(column: Column, wanted: Target) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the values by which a column may give the target, each with a description before it."""
    # A sample's time is known before its target, and targets that grow with time follow it closely.
    if wanted.classes or column.kind not in DATES:
        yield "", column.values
    if column.missing.any() and not column.missing.all():
        yield "by its gaps", column.missing.astype(np.int64)
    if column.kind in CODED and len(column.texts) > wanted.classes:
        yield "by a name in its text", _named_in(column, wanted.names)
        yield "by a number in its text", _numbers_in(column)


def _named_in(column: Column, names: Sequence[str]) -> np.ndarray:
    """Return the only class whose name is in each row's text, int64; -1 for none or several."""
    if not names:
        return np.full(len(column.values), -1)
    longest = sorted(names, key=len, reverse=True)
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest))})(?!\w)", re.IGNORECASE)
    places = {name.lower(): place for place, name in enumerate(names)}
    found = [{match.lower() for match in pattern.findall(text)} for text in column.texts]
    # Not each letter that the pattern takes for another one has its lower case, such as the Turkish dotted I.
    codes = np.array([*(places.get(one.pop(), -1) if len(one) == 1 else -1 for one in found), -1])
    picked: np.ndarray = codes[column.values]
    return picked


def _numbers_in(column: Column) -> np.ndarray:
    """Return the first number in each row's text, NaN where there is none; of a column that mostly has none, NaN alone."""
    found = [NUMBER.search(text) for text in column.texts]
    numbers = np.array([*(np.nan if one is None else float(one[0].replace(",", ".")) for one in found), np.nan])
    values: np.ndarray = numbers[column.values]
    return values if (~np.isnan(values)).mean() >= NUMERIC_SHARE else np.full(len(values), np.nan)


def _given_alone(places: np.ndarray, labels: np.ndarray, classes: int, least: float) -> Iterator[tuple[int, int]]:
    """Yield the classes of which one value of a column is the sign, with its place."""
    counts = joint_counts(places, labels, int(places.max()) + 1, classes)
    own = counts / np.maximum(counts.sum(axis=0), 1)
    others = (counts.sum(axis=1, keepdims=True) - counts) / np.maximum(len(labels) - counts.sum(axis=0), 1)
    for value, label in np.argwhere((own + 1 - others) / 2 >= least):
        yield int(label), int(value)


def _is_cut(column: Column, target: np.ndarray) -> bool:
    """Return True if each value of a column holds the targets of one range, and two ranges meet without a gap.

    Where values of an honest column are so far apart that their targets do not mix, the targets have a gap between them.
    """
    distinct, places = np.unique(column.values, return_inverse=True)
    if len(target) < LEAST_BINNED or not BINS[0] <= len(distinct) <= BINS[1] or column.missing.any():
        return False
    order = np.argsort(target, kind="stable")
    along, sorted_target = places[order], target[order]
    cuts = np.flatnonzero(np.diff(along))
    if len(cuts) != len(distinct) - 1:
        return False
    low, high = np.maximum(cuts - NEAR, 0), np.minimum(cuts + 1 + NEAR, len(target) - 1)
    usual = (sorted_target[high] - sorted_target[low]) / (high - low)
    return bool((sorted_target[cuts + 1] - sorted_target[cuts] <= GAP * usual).all())


# --- exact sums -----------------------------------------------------------------------------------


def _sums(columns: list[Column], target: Column, train: np.ndarray) -> list[Leak | Finding]:
    """Return a leak where a sum of number columns gives the target exactly, a finding where a sum with other weights does."""
    rows = evenly_spaced(train, JUDGED[1])
    numbers = [c for c in columns if c.values.dtype == np.float64 and c.width == 1]
    # Gaps may be in different rows: where each column lacks no more than its part of the allowed gaps,
    # enough whole rows are left.
    numbers = [c for c in numbers if np.isnan(c.values[rows]).mean() <= (1 - KNOWN) / len(numbers)]
    rows = rows[~np.any([np.isnan(c.values[rows]) for c in numbers], axis=0)] if numbers else rows
    varying = [c for c in numbers if len(rows) and c.values[rows].std() > 0]
    wanted = target.values[rows]
    # Nearly as many columns as rows fit any target exactly.
    if not 2 <= len(varying) <= min(MOST_SUMMED, len(rows) // 5) or wanted.std() == 0:
        return []
    matrix = np.stack([c.values[rows] for c in varying], axis=1)
    scaled = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)
    weights, *_ = np.linalg.lstsq(scaled, wanted - wanted.mean(), rcond=None)
    left = wanted - wanted.mean() - scaled @ weights
    if left.var() > EXACT * wanted.var():
        return []
    used = [nr for nr, weight in enumerate(weights) if abs(weight) > 1e-6 * wanted.std()]
    names = tuple(varying[nr].name for nr in used)
    factors = np.array([weights[nr] / matrix[:, nr].std() for nr in used])
    if len(used) > 1 and np.allclose(np.abs(factors), 1, atol=1e-4):
        return [Leak(names, f"give the target, as their {'sum' if (factors > 0).all() else 'sum and difference'}")]
    listed = ", ".join(map(repr, names))
    return [Finding("warning", f"{listed} together give the target exactly: are they known before the target is?")]
