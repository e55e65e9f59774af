"""Findings on the samples of a user's task, read as numbers: uninformative targets and inputs, leaks, other units."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.checks import Check, DataView, not_judged
from mltrainer.tasks.data_findings import Finding, class_findings, telling_finding
from mltrainer.tasks.encoded import is_decided, is_encoded
from mltrainer.tasks.input_values import SINGLE, has_few_values, listed, lists, repeated, same_inputs, sentinels, unknown
from mltrainer.tasks.near_groups import near_group_finding
from mltrainer.tasks.order_leaks import made_of_neighbours
from mltrainer.tasks.reading import Numbers, Reading
from mltrainer.tasks.split_differences import other_relation, shifted_inputs, shifted_targets
from mltrainer.tasks.targets import KINDS
from mltrainer.tasks.telling import MOST_TELLING, telling_features
from mltrainer.tasks.units import Scale, differing, other_units_of_all, unit_findings
from mltrainer.tasks.windows import window_finding

FEWEST = 10  # samples; of fewer, equal ones may be chance
MOST_TARGETS = 16  # numbers of a target that are examined one by one
CONTRADICTING = 0.01  # chosen by us: the least share of samples with contradicting classes that is a finding
LEAK_ROWS = 1000  # samples that are examined for features that predict the target
MOST_MARKS = 0.2  # chosen by us: the largest share of features that are marks of a class; more are the nature of the data
MOST_SUMMED = 3  # features whose sum is examined
FEW = 3  # chosen by us: a sum is of few features where there are at least this many times as many
EXACT = 1e-4  # chosen by us: the share of a target's variance that an exact sum may leave; measurements leave more
ONE_TARGET = "the targets of all"  # begins a finding that a loss without targets makes void


def nonfinite(read: Reading, name: str) -> list[Finding]:
    """Return a warning on samples that hold NaN or infinity, which the task may mean as a mask."""
    found = []
    for part, numbers in [*read.inputs.items(), *([("targets", read.target)] if read.target is not None else [])]:
        bad = ~np.isfinite(numbers.values).all(axis=1)
        if bad.any():
            first = int(read.places[bad.argmax()])
            text = f"{int(bad.sum())} of {read.count} {name} samples hold NaN or infinity in {part}; the first is sample {first}"
            found.append(Finding("warning", text))
    return found


def _classes(view: DataView) -> list[Finding]:
    """Return warnings on classes that a split lacks, or that are rare."""
    if view.labels is None or len(np.unique(view.labels[0])) < 2:
        return []
    train, held_out = view.labels
    names = [str(number) for number in range(int(max(train.max(), held_out.max(initial=0))) + 1)]
    return class_findings(names, train, held_out, view.limits)


def _one_targets(view: DataView) -> list[Finding]:
    return _one_target(view.train, "training") or _one_target(view.validation, "validation")


def _one_target(read: Reading, name: str) -> list[Finding]:
    """Return the finding on targets that are the same in all samples of a split; of all training samples, it is an error."""
    if len(read.places) < FEWEST or read.target is None or not _is_constant(read.target.values).all():
        return []
    shown = f"{read.target.values[0, 0]:g}" if read.target.size == 1 else "the same"
    what = "a loss that uses them learns nothing" if name == "training" else "a metric that uses them says nothing"
    text = f"{ONE_TARGET} {read.count} {name} samples are {shown}: {what}; look at how they are read"
    if name != "training" or not read.has_one_target:
        return [Finding("warning", text)]
    return [Finding("error", text)]


def _constant_features(view: DataView) -> list[Finding]:
    """Return a warning that names the features that are the same in all training samples, of inputs that are lists of numbers.

    Tokens and the numbers of images and sequences are left out: their first or last places may well be the same in all.
    """
    parts = lists(view.train)
    constant = {name: _is_constant(one.values) for name, one in parts.items()}
    names = [
        f"{part}{name}"
        for part, places in constant.items()
        for name, is_same in zip(parts[part].names, places, strict=True)
        if is_same and not places.all()  # of which there is a finding on all of them
    ]
    text = f"{listed(names)} never {'change' if len(names) > 1 else 'changes'}"
    return [Finding("warning", f"{text} in {view.train.count} training samples: nothing is learned from that")] if names else []


def _constants(view: DataView) -> list[Finding]:
    return [*_constant(view.train, "training"), *_constant(view.validation, "validation")]


def _constant(read: Reading, name: str) -> list[Finding]:
    """Return warnings on inputs that are the same in all samples of a split."""
    if len(read.places) < FEWEST:
        return []
    found = []
    for part, numbers in read.inputs.items():
        constant = _is_constant(numbers.values)
        if constant.all():
            text = f"{part} are the same in all {read.count} {name} samples: a model cannot tell them apart by these"
            found.append(Finding("warning", f"{text}; look at a few samples as the data set gives them"))
    return found


def _is_constant(values: np.ndarray) -> np.ndarray:
    is_same: np.ndarray = (values == values[:1]).all(axis=0)
    return is_same


def _augmented(view: DataView) -> list[Finding]:
    """Return a warning on validation samples that are random at each reading, as with an augmentation meant for training.

    A mask, a noise or a time that is drawn with its target is part of the task, and so is a draw for a target other than a
    class or a few numbers, such as a denoised picture.
    """
    train, validation = view.train, view.validation
    if validation.drawn is None:
        return []
    target = validation.target
    is_plain = target is not None and (validation.labels is not None or target.size <= MOST_TARGETS)
    if train.drawn is not None and not (validation.drawn == "inputs" and is_plain):
        return []
    what = (
        "validation samples are drawn anew at each reading, and the training samples are not"
        if train.drawn is None
        else ("validation samples are drawn anew at each reading, as the training samples are")
    )
    hint = "write dataset(self, split), and alter the samples of training alone"
    return [
        Finding("warning", f"{what}: is that an augmentation? It makes a metric that of other samples than were held out; {hint}")
    ]


# --- labels that contradict one another ------------------------------------------------------------


def _contradicting(view: DataView) -> list[Finding]:
    """Return a warning on samples with equal inputs and different classes; inputs of few values have them by nature."""
    train, rows, labels = view.train, view.train.rows, view.train.labels
    whole = not train.left_out and all(len(part.names) == part.size for part in train.inputs.values())
    if labels is None or not whole or not rows.shape[1]:
        return []
    values, places = np.unique(row_hashes([rows]), return_inverse=True)
    if has_few_values(rows, len(values)):
        return []
    counts = np.bincount(places * (int(labels.max()) + 1) + labels, minlength=len(values) * (int(labels.max()) + 1))
    classes = (counts.reshape(len(values), -1) > 0).sum(axis=1)
    contradicted = int((classes[places] > 1).sum())
    if contradicted < max(1, CONTRADICTING * len(rows)):
        return []
    text = f"{contradicted} of {train.count} training samples have the inputs of another and another class: which is right?"
    return [Finding("warning", f"{text} A model can be right on one of them alone; look at how labels come to the samples")]


# --- features that are the target ------------------------------------------------------------------


def _tried(view: DataView) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the features of samples that may leak a target, and their names; None where none could be a leak."""
    rows, target = view.train.rows[:LEAK_ROWS], view.train.target
    # One feature alone is meant to predict the target; as many targets as inputs are an image, or the inputs again.
    if target is None or rows.shape[1] < 2 or target.size > MOST_TARGETS or target.size >= rows.shape[1]:
        return None
    is_whole = np.isfinite(rows).all(axis=0)
    return rows[:, is_whole], np.array(view.train.names, dtype=object)[is_whole]


def _targets(view: DataView) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield the name of each number of the targets, its values, and its number of classes, 0 for a quantity."""
    train = view.train
    if train.labels is not None:
        yield "the target", train.labels[:LEAK_ROWS], int(train.labels.max()) + 1
    elif train.target is not None and train.kind == "values":
        for place, values in enumerate(train.target.values[:LEAK_ROWS].T):
            if np.isfinite(values).all():
                yield "the target" if train.target.size == 1 else f"number {place} of the target", values, 0


def _telling(view: DataView) -> list[Finding]:
    """Return warnings on features that predict a target by themselves, or equal it."""
    tried = _tried(view)
    if tried is None:
        return []
    found, (rows, names) = [], tried
    for name, values, classes in _targets(view):
        found += _told(telling_features(rows, values, classes, view.limits), rows, values.astype(np.float64), names, name)
    return found


def _told_by_sum(view: DataView) -> list[Finding]:
    """Return a warning where a target is, up to rounding, a weighted sum of a few of many features."""
    tried = _tried(view)
    if tried is None:
        return []
    return next((found for name, values, _ in _targets(view) if (found := _sum(*tried, values, name))), [])


def _decided(view: DataView) -> list[Finding]:
    """Return a warning on features that the target decides."""
    target, rows = _one_number(view.train), view.train.rows
    if target is None or rows.shape[1] < 2:
        return []
    found = [place for place in _finite(rows) if is_decided(rows[:LEAK_ROWS, place], target[:LEAK_ROWS])]
    if not found or len(found) > MOST_MARKS * rows.shape[1]:
        return []
    text = f"{listed(np.array(view.train.names, dtype=object)[found])} of a training sample follows from the target"
    return [Finding("warning", f"{text}: if it is made of it, leave it out of the inputs")]


def _encoded(view: DataView) -> list[Finding]:
    """Return a warning on features that are the target's mean over the samples which share them."""
    train, validation = view.train, view.validation
    target, rows, other = _one_number(train), train.rows, _one_number(validation)
    if target is None or rows.shape[1] < 2:
        return []
    samples = [(rows, target)]
    if other is not None and train.names == validation.names:
        samples.append((np.concatenate([rows, validation.rows]), np.concatenate([target, other])))
    found = [place for place in _finite(rows) if any(is_encoded(x[:, place], y) for x, y in samples)]
    if not found or len(found) > MOST_TELLING * rows.shape[1]:
        return []
    names = listed(np.array(train.names, dtype=object)[found])
    text = f"{names} of a sample is the mean of the target over the samples that share it, its own among them"
    return [Finding("warning", f"{text}: leave it out of the inputs, or make it of other samples alone")]


def _finite(rows: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.isfinite(rows).all(axis=0))


def _in_order(view: DataView) -> list[Finding]:
    """Return a warning on features that are made from the targets of their row or of later ones."""
    if view.in_order is None:
        return []
    train, places = view.in_order
    target, columns = _one_number(train), train.rows.T
    if target is None or not 1 < len(columns) <= SINGLE:
        return []
    told = made_of_neighbours([*columns], target, places)
    if not told:
        return []
    text = f"{listed(np.array(train.names, dtype=object)[[*told]])} of a training sample {next(iter(told.values()))}"
    return [Finding("warning", f"{text}: leave it out of the inputs, or make it of earlier rows alone")]


def _one_number(read: Reading) -> np.ndarray | None:
    """Return the target of each sample as one number, 0 and 1 for two classes; None for other targets, which have no mean."""
    if read.target is None or read.target.size > 1 or not np.isfinite(read.target.values).all():
        return None
    if read.kind == "values":
        return read.target.values[:, 0]
    return read.labels.astype(np.float64) if read.labels is not None and len(np.unique(read.labels)) <= 2 else None


def _told_by_class(view: DataView) -> list[Finding]:
    """Return a warning where each class, or all but one, has a feature that predicts it, such as a mark in an image's corner."""
    tried = _tried(view)
    if tried is None or view.train.labels is None:
        return []
    (rows, names), labels = tried, view.train.labels[:LEAK_ROWS]
    classes = np.unique(labels)
    if not 3 <= len(classes) <= MOST_TARGETS:
        return []
    best = []
    for label in classes:
        scores = telling_features(rows, (labels == label).astype(np.int64), 2, view.limits)
        best += [max(scores, key=lambda place: scores[place])] if scores else []
    told = list(dict.fromkeys(best))
    if len(told) < len(classes) - 1 or len(told) > MOST_MARKS * rows.shape[1]:
        return []
    text = f"{listed(names[told])} of a training sample tell each a class of the target almost by itself"
    return [Finding("warning", f"{text}: would they be known before it? If not, leave them out of the inputs")]


def _sum(rows: np.ndarray, names: np.ndarray, values: np.ndarray, of: str) -> list[Finding]:
    """Return a warning where some numbers are, up to rounding, a weighted sum of a few of many features."""
    half = len(rows) // 2
    spread = rows.std(axis=0)
    if half < 2 * FEWEST or not values.std() or rows.shape[1] < FEW * MOST_SUMMED:
        return []
    known = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    chosen: list[int] = []
    left = values[:half] - values[:half].mean()
    for _ in range(MOST_SUMMED):
        chosen.append(int(np.abs(known[:half].T @ left).argmax()))
        terms = np.c_[known[:, chosen], np.ones(len(known))]
        weights = np.linalg.lstsq(terms[:half], values[:half], rcond=None)[0]
        left = values[:half] - terms[:half] @ weights
        errors = values[half:] - terms[half:] @ weights
        if len(chosen) > 1 and (errors**2).mean() <= EXACT * values[half:].var():
            text = f"the sum of {listed(names[chosen])} of a training sample, each times a number, is {of} almost by itself"
            return [Finding("warning", f"{text}: would they be known before it? If not, leave them out of the inputs")]
    return []


def _told(scores: dict[int, float], rows: np.ndarray, target: np.ndarray, names: np.ndarray, of: str) -> list[Finding]:
    """Return a finding on the features that predict a target, with the names of the best."""
    if not scores:
        return []
    best = sorted(scores, key=lambda place: -scores[place])
    equal = [place for place in best if np.array_equal(rows[:, place], target)]
    if equal:
        return [Finding("warning", f"{names[equal[0]]} of each training sample is {of} (a leak): leave it out of the inputs")]
    return [
        telling_finding(f"{listed(names[best])} of a training sample {'tell' if len(best) > 1 else 'tells'}", scores[best[0]], of)
    ]


# --- two splits beside each other --------------------------------------------------------------------


def _units(view: DataView) -> list[Finding]:
    """Return a warning on inputs or quantities that validation has in other units than training."""
    train, validation = view.train, view.validation
    parts = [(name, numbers, validation.inputs.get(name)) for name, numbers in train.inputs.items()]
    if train.kind == "values" and train.target is not None:
        parts.append(("the target", train.target, validation.target))
    found: dict[str, tuple[Scale, Scale]] = {}
    for name, one, other in parts:
        if other is not None and one.names == other.names:
            found |= _other_units(f"{view.words.before_name}{name}", one, other, view.has_columns)
    return unit_findings(found)


def _other_units(name: str, one: Numbers, other: Numbers, has_columns: bool) -> dict[str, tuple[Scale, Scale]]:
    """Return the scales of the numbers of a part that have other units in validation, or of all of them together."""
    single = differing(_columns(name, one), _columns(name, other)) if one.size <= SINGLE or has_columns else {}
    # The numbers of an image or a sequence are of one kind, at any place; of others most must differ, before
    # all of them are named.
    if has_columns or not (one.size > SINGLE or "][" in one.names[-1] or 2 * len(single) > one.size):
        return single
    whole = other_units_of_all(one.values, other.values)
    return {} if whole is None else {name: whole}


def _windows(view: DataView) -> list[Finding]:
    """Return a warning on windows of one series on both sides."""
    parts = [(part, view.validation.inputs.get(name)) for name, part in view.train.inputs.items()]
    return next((found for one, other in parts if other is not None and (found := window_finding(one, other))), [])


def _numbered(view: DataView) -> list[Finding]:
    """Return a warning on validation samples that equal training samples except for a unique number of each sample."""
    train, validation = view.train, view.validation
    if train.left_out or train.rows.shape[1] < 3:
        return []
    both = np.concatenate([train.rows, validation.rows])
    counts = [len(np.unique(column)) for column in both.T]
    own = np.array([count == len(both) for count in counts]) & (both == np.floor(both)).all(axis=0)
    rest = both[:, ~own]
    if not own.any() or rest.shape[1] < 2:
        return []
    hashes = row_hashes([rest])
    first, second = hashes[: len(train.rows)], hashes[len(train.rows) :]
    copied = int(np.isin(second, first).sum())
    if has_few_values(rest, len(np.unique(hashes))) or copied < max(FEWEST, view.limits.leak_rows * len(second)):
        return []
    name = listed(np.array(train.names, dtype=object)[own])
    text = f"but for {name}, {copied} of {len(second)} validation samples are in the training split too"
    return [Finding("warning", f"{text}: {view.words.together}")]


def _columns(name: str, numbers: Numbers) -> dict[str, np.ndarray]:
    return {f"{name}{index}": column for index, column in zip(numbers.names, numbers.values.T, strict=True)}


def _groups(view: DataView) -> list[Finding]:
    """Return a warning on validation samples that nearly equal training samples, by the numbers that both have."""
    rows = view.near or (view.train.rows, view.validation.rows)
    classes = view.classes if view.train.labels is None else int(view.train.labels.max()) + 1
    return near_group_finding(*rows, classes, view.words.together)


UNITS = Check("units", _units)
SHIFTED_INPUTS = Check("shifted inputs", shifted_inputs, unless=("units",))
# The samples of each class may be a separate cluster, so that the kind of targets must be known.
NEAR_COPIES = Check("near copies", _groups, KINDS, needs_same_numbers=True, unless=("nearly equal rows",))
LEAKS = ("a number that tells the target", "a number that tells each class", "a sum that is the target")
DIFFERENCES = ("units", "shifted inputs")
CHECKS = (
    Check("classes that are rare or missing", _classes, ("classes",)),
    Check("equal targets", _one_targets),
    Check("equal inputs", _constants),
    Check("numbers that never change", _constant_features, fewest=FEWEST),
    Check("numbers that stand for no value", sentinels),
    Check("repeated samples", repeated),
    Check("inputs that many samples have", same_inputs, fewest=FEWEST, unless=("repeated samples",)),
    Check("unknown tokens", unknown, fewest=FEWEST),
    Check("augmented validation samples", _augmented),
    Check("contradicting labels", _contradicting, ("classes",)),
    Check(LEAKS[0], _telling, ("classes", "values")),
    Check(LEAKS[1], _told_by_class, ("classes",), unless=LEAKS[:1]),
    Check(LEAKS[2], _told_by_sum, ("values",), unless=LEAKS[:1]),
    Check("a number that follows from the target", _decided, ("values",), unless=LEAKS),
    Check("a mean of the target", _encoded, ("classes", "values"), unless=(*LEAKS, "a number that follows from the target")),
    UNITS,
    SHIFTED_INPUTS,
    Check("shifted targets", shifted_targets, ("classes", "values"), unless=DIFFERENCES),
    Check(
        "another relation of inputs and targets",
        other_relation,
        ("classes", "values"),
        needs_same_numbers=True,
        unless=(*DIFFERENCES, "shifted targets"),
    ),
    NEAR_COPIES,
    Check("windows of one series", _windows),
    Check("numbered copies", _numbered, needs_same_numbers=True),
    Check("numbers made of later targets", _in_order, ("classes", "values")),
)


def not_looked_at(train: Reading, validation: Reading) -> list[str]:
    """Return a line on each gap of the findings."""
    found = [f"{name} of the samples: no numbers of one shape" for name in train.left_out]
    if train.target is None:
        found.append("targets: the samples have none, or none that are numbers of one shape")
    found += not_judged(CHECKS, train)
    parts = [
        f"{one.count} {name} samples" for one, name in ((train, "training"), (validation, "validation")) if not one.is_complete
    ]
    if parts:
        found.append(
            f"classes, constant numbers, features that tell the target, units, near copies: beyond {' and '.join(parts)}"
        )
    sizes = [(name, len(part.names), part.size) for name, part in train.inputs.items() if len(part.names) < part.size]
    return found + [f"features that tell the target: beyond {seen} of {size} numbers of {name}" for name, seen, size in sizes]
