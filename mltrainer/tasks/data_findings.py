"""Findings about data: pure functions of plain values.

Data on which training is impossible raises `InputError`; a matter for a person's decision is a finding with a severity:
an error closes planning's gate, a warning or an info is in the report. The limits are on planning's page.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import CRITERION, Metric, Split, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.array_operations import distinct
from mltrainer.tasks.content import TWO_CLASSES, listed
from mltrainer.tasks.metric_names import SHARES, direction
from mltrainer.tasks.splits import FEW_COPIES

LARGEST_REPEAT = 0.02  # chosen by us: the largest share of all rows that `init` allows to a row's copies outside of training
IMBALANCE = 10  # times as many rows of one class as of another; above it, accuracy says little
SPLITS = 3  # training, validation and test
KEEP_TOGETHER = "write split: {repeats: together} in mltrainer.yaml, which keeps equal rows in one split, or remove them"
FEW_ROWS = 50  # chosen by us: of fewer, one row of the fifth that validates is more than a tenth of an accuracy
MOST_RARE = 5  # rare classes that are named


class Finding(NamedTuple):
    """A finding on the data: `severity` is "info", "warning" or "error", which stops planning."""

    severity: str
    what: str


# --- data on which training is impossible -------------------------------------------------------


def refuse_unknown_metric(name: str, known: Sequence[str]) -> None:
    """Refuse a metric that the task does not measure.

    Raises:
        InputError: The name is unknown; the message has the nearest name.
    """
    if name not in known:
        hint = "change metric.name (and metric.mode) in mltrainer.yaml"
        raise InputError.unknown("metric", name, known, of="of the task", where="metric.name", hint=hint)


def refuse_wrong_direction(metric: Metric, measured: str | None = None) -> None:
    """Refuse a direction that would keep the worst checkpoint; a metric that is not known here may have either.

    Args:
        metric: The config's metric.
        measured: The underlying metric's name, for one of several targets; None: the metric's name.

    Raises:
        InputError: The direction is wrong; the message has the right one.
    """
    name = metric.name if measured is None else measured
    right = direction(name) or metric.mode
    if metric.mode != right:
        better = "larger" if right == "max" else "smaller"
        what = f"{metric.name} is better where it is {better}: {right} was expected, found {metric.mode}"
        raise InputError(what, where="metric.mode", hint=f"metric: {{name: {metric.name}, mode: {right}}} in mltrainer.yaml")


def refuse_criteria_out_of_range(criteria: Mapping[str, str]) -> None:
    """Refuse a criterion of a built-in metric that is a share, and is asked to be beyond 0 to 1, as a percentage is.

    Raises:
        InputError: One is; the message has the bound as a share.
    """
    for name, text in criteria.items():
        match = CRITERION.match(text) if name.removeprefix("train_") in SHARES else None
        if match is not None and not 0 <= float(match[2]) <= 1:
            hint = f'{name}: "{match[1]} {float(match[2]) / 100:g}", if it was meant in percent'
            raise InputError(expected="a share, from 0 to 1", found=repr(text), where=f"acceptance.{name}", hint=hint)


def refuse_too_few(config: TrainingConfig, train: int, classes: int = 0) -> None:
    """Refuse a training split smaller than a batch or than the number of classes.

    Raises:
        InputError: The split is too small; the message has the numbers.
    """
    if train < classes:
        what = f"{train} training samples of {classes} classes; at least one of each is needed"
        raise InputError(what, where="split", hint="bring more data, or hold less out")
    if train < config.batch_size:
        raise InputError(
            f"{train} training samples are fewer than batch_size {config.batch_size}",
            where="batch_size",
            hint=f"mltrainer phase run planning --set batch_size={max(1, train // 2)}, or bring more data",
        )


def undefined_r2(targets: np.ndarray) -> list[Finding]:
    """Return an error where r2, a measure beside any metric of a regression, is not defined: all validation targets are equal."""
    if len(targets) == 0 or np.ptp(targets) > 0:
        return []
    what = f"validation has no two different targets ({len(targets)} of {targets[0]:g}), so that r2 is not defined"
    return [Finding("error", f"{what}: bring more data, or hold more out: split.validation in mltrainer.yaml")]


def few_rows(count: int) -> list[str]:
    """Return a sentence on the limits of a table of very few rows; none from `FEW_ROWS` rows."""
    if count >= FEW_ROWS:
        return []
    points = 100 / max(1, round(0.2 * count))
    few = f"{count} rows are few: a fifth of them validates, so that one row moves an accuracy by {points:.0f} points"
    shows = "whether the table is read rightly and a model trains, not whether the model is good"
    return [f"{few}. They show {shows}: bring {FEW_ROWS} rows or more"]


def refuse_one_class(names: Sequence[str], place: str) -> None:
    """Refuse labels of one class.

    Raises:
        InputError: There are fewer than two classes; the message has the class.
    """
    if len(names) < 2:
        raise InputError(f"one class only: {', '.join(map(repr, names)) or 'none'}", where=place, hint=TWO_CLASSES)


# --- classes ------------------------------------------------------------------------------------


def one_class_findings(names: Sequence[str], train: np.ndarray) -> list[Finding]:
    """Return an error where all training samples are of one class.

    Args:
        names: The classes.
        train: Class numbers of the training split.
    """
    if len(np.unique(train)) != 1:
        return []
    text = f"all {len(train)} training samples are of the class {names[train[0]]!r}: there is nothing to distinguish"
    return [Finding("error", f"{text}; bring training samples of at least two classes, or split otherwise")]


def lacking(names: Sequence[str], labels: np.ndarray) -> list[str]:
    """Return the names of the classes without a sample, from the samples' class numbers."""
    counts = np.bincount(labels, minlength=len(names))
    return [name for name, count in zip(names, counts, strict=True) if not count]


def class_findings(names: Sequence[str], train: np.ndarray, validation: np.ndarray, limits: DataLimits) -> list[Finding]:
    """Return warnings on classes that a split lacks and on imbalance.

    Args:
        names: The classes.
        train: Class numbers of the training split.
        validation: Class numbers of the validation split.
        limits: The limits of the findings, among them the imbalance.
    """
    counts = np.bincount(train, minlength=len(names))
    absent, unseen = lacking(names, train), lacking(names, validation)
    found = [Finding("warning", f"classes without a training sample: {listed([*map(repr, absent)], 8)}")] if absent else []
    if unseen:
        found.append(Finding("warning", f"classes without a validation sample: {listed([*map(repr, unseen)], 8)}"))
    present = counts[counts > 0]
    if len(present) and present.max() > limits.class_imbalance * present.min():
        # A class without samples is no minority here: it has a separate warning.
        most, least = int(counts.argmax()), int(np.where(counts > 0, counts, counts.max() + 1).argmin())
        text = f"classes are imbalanced: {counts[most]} training samples of {names[most]!r}, {counts[least]} of {names[least]!r}"
        found.append(Finding("warning", text))
    return found


def rare_classes(names: Sequence[str], counts: np.ndarray) -> list[str]:
    """Return a sentence on the classes with fewer samples than there are splits; none where each has enough.

    Args:
        names: The classes.
        counts: Number of samples of each class, in all splits together.
    """
    rare = [f"{names[int(nr)]!r} has {counts[nr]}" for nr in np.flatnonzero(counts < SPLITS)]
    more = f" and {len(rare) - MOST_RARE} more classes" if len(rare) > MOST_RARE else ""
    return [f"too few samples for every split: {', '.join(rare[:MOST_RARE])}{more}"] if rare else []


def label_findings(
    names: Sequence[str], labels: np.ndarray, train: np.ndarray, held_out: Mapping[str, np.ndarray]
) -> list[Finding]:
    """Return the findings on labels of held-out samples that no training sample has, each with the nearest that one has.

    It is an error where a label differs from a training label by capitals or punctuation at its ends alone, or where half of a
    split has such labels: whatever is trained, it is wrong there.

    Args:
        names: The classes.
        labels: The class number of each sample.
        train: The training samples.
        held_out: The held-out samples of each split, by the split's name in sentences.
    """
    known = {names[number] for number in np.unique(labels[train])}
    found = []
    for place, ids in held_out.items():
        counts = np.bincount(labels[ids], minlength=len(names))
        unknown = {name: int(count) for name, count in zip(names, counts, strict=True) if count and name not in known}
        if not unknown:
            continue
        nearest = {name: _nearest(name, known) for name in unknown}
        shown = [f"{name!r} ({unknown[name]} rows{f', near {near!r}' if near else ''})" for name, near in nearest.items()]
        misspelt = [name for name, near in nearest.items() if near is not None and _core(near) == _core(name)]
        is_error = bool(misspelt) or 2 * sum(unknown.values()) >= len(ids)
        text = f"labels of {place} that no training row has: {listed(shown, 8)}"
        hint = "; write them as the training rows do" if misspelt else "; no model can predict them"
        found.append(Finding("error" if is_error else "warning", text + hint))
    return found


def _nearest(name: str, known: Collection[str]) -> str | None:
    alike = [other for other in sorted(known) if _core(other) == _core(name)]
    return next(iter([*alike, *difflib.get_close_matches(name, sorted(known), n=1)]), None)


def _core(name: str) -> str:
    """Return a label without capitals, and without blanks and punctuation at its ends."""
    return name.strip(" .,;:_'\"\t").casefold()


def suited_metric(names: Sequence[str], counts: np.ndarray, of: str = "rows") -> tuple[str, list[str]]:
    """Return the metric that suits the classes' sizes, and a warning where they are far from equal.

    Of two unequal classes it is the rare one's average precision, which rests on no threshold (Saito and Rehmsmeier, 2015,
    PLOS ONE 10(3)).
    """
    if counts.max() <= IMBALANCE * counts.min():
        return "accuracy", []
    most, least = int(counts.argmax()), int(counts.argmin())
    metric = "average_precision" if len(names) == 2 else "f1_macro"
    why = f"is that of {names[least]}, at every threshold" if len(names) == 2 else "weighs all classes equally"
    text = f"classes are imbalanced: {names[most]} has {counts[most]} {of}, {names[least]} {counts[least]}; {metric} {why}"
    return metric, [f"{text}; mltrainer phase run planning --set class_weights=balanced lets rare samples count more in the loss"]


# --- repeated rows ------------------------------------------------------------------------------


def repeats_finding(features: np.ndarray, whole: np.ndarray) -> list[Finding]:
    """Return an info on rows that repeat others, where equal rows are kept in one split.

    Args:
        features: A hash of each row's features.
        whole: A hash of each row's features with its target.
    """
    alike, same = len(features) - len(distinct(features)), len(whole) - len(distinct(whole))
    if not alike:
        return []
    text = f"{alike} of {len(features)} rows repeat the features of another, {same} of them its target too"
    return [Finding("info", f"{text}; equal rows lie together in one split")]


def giant_finding(place: Callable[[], str], copies: int, total: int, split_name: str, split: Split) -> list[Finding]:
    """Return a warning on one row whose copies would fill a split, or have filled one.

    Args:
        place: Returns the place of its first copy, for which the whole file is read again; called only where there is a finding.
        copies: Number of its copies.
        total: Number of all rows.
        split_name: The split that holds them.
        split: The config's split, with the largest share that one row's copies may have.
    """
    if copies <= max(FEW_COPIES, (split.largest_repeat or LARGEST_REPEAT) * total):
        return []
    text = f"{copies} of {total} rows have the same features as {place()} ({copies / total:.0%})"
    if split_name == "train":
        return [Finding("warning", f"{text}: they are trained on, and each copy counts")]
    hint = f"write split: {{largest_repeat: {LARGEST_REPEAT}}} in mltrainer.yaml, which trains on them, or remove copies"
    return [Finding("warning", f"{text} and fill the {split_name} split, whose metric is theirs: {hint}")]


def duplicate_findings(
    validation: int, total: int, test: int, excuse: str | None, limits: DataLimits, hint: str = KEEP_TOGETHER
) -> list[Finding]:
    """Return the finding on repeated rows; none without them.

    Args:
        validation: Number of validation rows that the training split has too.
        total: Number of validation rows.
        test: Number of test rows that the training split has too.
        excuse: The reason that they may be no leakage, or None.
        limits: The limits of the findings, among them the share of repeats that is leakage.
        hint: The advice on leakage.
    """
    if not validation and not test:
        return []
    text = f"{validation} of {total} validation rows and {test} test rows are in the training split too"
    if validation < limits.leak_rows * total:
        return [Finding("warning", text)]
    if excuse:
        return [Finding("warning", f"{text}; {excuse}")]
    return [Finding("error", f"leakage: {text}; the validation metric would measure memory: {hint}")]


# --- features -----------------------------------------------------------------------------------


def constant_findings(constant: Sequence[str]) -> list[Finding]:
    """Return a warning on columns with one value in the training split."""
    text = f"columns with one value only in the training split: {listed([*map(repr, constant)], 8)}"
    return [Finding("warning", text)] if constant else []


def telling_finding(who: str, score: float, target: str = "the target") -> Finding:
    """Return the warning on an input that predicts the target by itself; `who` ends in the verb."""
    return Finding("warning", f"{who} {target} almost by itself ({score:.2%}): is it known before the target is?")


def scale_finding(largest: float, limits: DataLimits) -> list[Finding]:
    """Return an info on inputs far from 1, in the source's units."""
    text = f"inputs reach {largest:.4g} in magnitude; the model standardizes them itself"
    return [Finding("info", text)] if largest > limits.large_input else []
