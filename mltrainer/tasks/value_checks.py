"""Checks of the values in a split: equal, missing or placeholder values, rare classes, repeated and contradicting samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.content import listed
from mltrainer.tasks.data_findings import Finding, class_findings
from mltrainer.tasks.reading import DataView, Reading
from mltrainer.tasks.tables.sentinels import suspect_ends

FEWEST = 10  # samples; of fewer, equal ones may be chance
MOST_TARGETS = 16  # numbers of a target that is not a picture or a text
CONTRADICTING = 0.01  # chosen by us: the least share of samples with contradicting classes that is a finding
ONE_TARGET = "the targets of all"  # begins a finding that a loss without targets makes void
SAME = 0.05  # chosen by us: the share of the training samples that have the same inputs
REPEATED = 0.5  # chosen by us: the share of training samples that repeat another one; a rare class drawn more often is below
PLACES = 8  # chosen by us: the least number of places of a text
UNKNOWN = 0.75  # chosen by us: the share of a text's places, up to its last other token, that one token takes


def nonfinite(read: Reading, name: str) -> Iterator[Finding]:
    """Yield a warning on samples that hold NaN or infinity, which the task may mean as a mask."""
    for part, numbers in [*read.inputs.items(), *([("targets", read.target)] if read.target is not None else [])]:
        bad = ~np.isfinite(numbers.values).all(axis=1)
        if bad.any():
            first = int(read.places[bad.argmax()])
            text = f"{int(bad.sum())} of {read.count} {name} samples hold NaN or infinity in {part}; the first is sample {first}"
            yield Finding("warning", text)


def classes(view: DataView) -> Iterator[Finding]:
    """Yield warnings on classes that a split lacks, or that are rare."""
    if view.labels is not None and len(np.unique(view.labels[0])) > 1:
        train, held_out = view.labels
        names = [str(number) for number in range(int(max(train.max(), held_out.max(initial=0))) + 1)]
        yield from class_findings(names, train, held_out, view.limits)


def equal_targets(view: DataView) -> Iterator[Finding | str]:
    """Yield the finding on targets that are the same in all samples of a split; of all training samples, it is an error."""
    for read, name in view.splits:
        if len(read.places) < FEWEST or read.target is None or not _is_constant(read.target.values).all():
            continue
        shown = f"{read.target.values[0, 0]:g}" if read.target.size == 1 else "the same"
        what = "a loss that uses them learns nothing" if name == "training" else "a metric that uses them says nothing"
        text = f"{ONE_TARGET} {read.count} {name} samples are {shown}: {what}; look at how they are read"
        yield Finding("error", text) if name == "training" and read.has_one_target else text
        return


def constant_features(view: DataView) -> Iterator[str]:
    """Yield a warning that names the features that are the same in all training samples, of inputs that are lists of numbers.

    Tokens and the numbers of images and sequences are left out: their first or last places may well be the same in all.
    """
    parts = view.train.lists
    constant = {name: _is_constant(one.values) for name, one in parts.items()}
    names = [
        f"{part}{name}"
        for part, places in constant.items()
        for name, is_same in zip(parts[part].names, places, strict=True)
        if is_same and not places.all()  # of which there is a finding on all of them
    ]
    if names:
        text = f"{listed(names)} never {'change' if len(names) > 1 else 'changes'}"
        yield f"{text} in {view.train.count} training samples: nothing is learned from that"


def equal_inputs(view: DataView) -> Iterator[str]:
    """Yield warnings on inputs that are the same in all samples of a split."""
    for read, name in view.splits:
        for part, numbers in read.inputs.items():
            if len(read.places) >= FEWEST and _is_constant(numbers.values).all():
                text = f"{part} are the same in all {read.count} {name} samples: a model cannot distinguish them by these"
                yield f"{text}; look at a few samples as the data set gives them"


def _is_constant(values: np.ndarray) -> np.ndarray:
    is_same: np.ndarray = (values == values[:1]).all(axis=0)
    return is_same


def placeholders(view: DataView) -> Iterator[str]:
    """Yield a warning on numbers that may mean a missing value, such as -999."""
    found = [
        f"{part}{name} (in {(one.values[:, place] == value).mean():.0%}: {value:g})"
        for part, one in view.train.lists.items()
        for place, name in enumerate(one.names)
        for value in suspect_ends(one.values[:, place])
    ]
    if found:
        text = f"numbers of the training samples that lie apart from all others, and may mean a missing value: {listed(found)}"
        yield f"{text}; if so, put a usual value there, and a further input that says that it was missing"


def augmented(view: DataView) -> Iterator[str]:
    """Yield a warning on validation samples that are random at each reading, as with an augmentation meant for training.

    A mask, a noise or a time that is drawn with its target is part of the task, and so is a draw for a target other than a
    class or a few numbers, such as a denoised picture.
    """
    train, validation = view.train, view.validation
    target = validation.target
    is_plain = target is not None and (validation.labels is not None or target.size <= MOST_TARGETS)
    if validation.drawn is None or (train.drawn is not None and not (validation.drawn == "inputs" and is_plain)):
        return
    beside = ", and the training samples do not" if train.drawn is None else ", as the training samples do"
    what = f"validation samples change with each reading{beside}: is that an augmentation?"
    hint = "write dataset(self, split), and alter the samples of training alone"
    yield f"{what} It makes a metric that of other samples than were held out; {hint}"


# --- samples that are alike -------------------------------------------------------------------------


def has_few_values(rows: np.ndarray, distinct: int) -> bool:
    """Return True if samples repeat by nature, given their number of distinct ones: inputs of few values, and constant ones.

    Where numbers have hardly a value twice, samples that agree in all of them are one sample.
    """
    most = max((len(np.unique(column)) for column in rows.T), default=0)
    return 2 * most <= distinct or most == 1


def repeated(view: DataView) -> Iterator[str]:
    """Yield a warning where most training samples repeat another one, as after a join or a sampler."""
    hashes = view.train.hashes if view.train.hashes is not None else np.zeros(0)
    distinct = len(np.unique(hashes))
    if len(hashes) < FEWEST or distinct > (1 - REPEATED) * len(hashes) or has_few_values(view.train.rows, distinct):
        return
    text = f"{len(hashes) - distinct} of {len(hashes)} training samples repeat another one, {distinct} are distinct"
    yield f"{text}: did a join duplicate rows, or does the data set read the same ones again?"


def same_inputs(view: DataView) -> Iterator[str]:
    """Yield a warning on one input that many training samples have, such as the placeholder for an unreadable file."""
    train, rows = view.train, view.train.rows
    hashes, places, counts = np.unique(row_hashes([rows]), return_index=True, return_counts=True)
    if len(hashes) == 1:  # of which there is a finding
        return
    most = int(counts.argmax())
    row = rows[places[most]]
    is_blank = len(row) >= PLACES and row.min() == row.max()  # pixels have few values, and yet pictures are not alike
    if counts[most] < max(FEWEST, SAME * len(rows)) or not (is_blank or not has_few_values(rows, len(hashes))):
        return
    blank = f" (blank: all numbers are {row[0]:g})" if is_blank else ""
    text = f"{counts[most]} of {train.count} training samples have the very same inputs{blank}, the first is sample"
    yield f"{text} {train.places[places[most]]}: does it replace what could not be read?"


def unknown_tokens(view: DataView) -> Iterator[str]:
    """Yield a warning on a token that takes most places of texts, such as a small vocabulary's unknown token."""
    for part, one in view.train.inputs.items():
        if not one.is_whole or one.values.shape[1] < PLACES or "][" in one.names[-1]:
            continue
        tokens, counts = np.unique(one.values[one.values != 0], return_counts=True)  # 0 is padding, or the black of a picture
        if len(tokens) < 2:
            continue
        top = tokens[counts.argmax()]
        others = (one.values != top) & (one.values != 0)
        ends = one.values.shape[1] - others[:, ::-1].argmax(axis=1)  # padding follows the last other token
        inside = (np.arange(one.values.shape[1]) < ends[:, None]) & others.any(axis=1)[:, None]
        share = float((one.values == top)[inside].mean()) if inside.any() else 0.0
        if share >= UNKNOWN:
            text = f"token {top:g} takes {share:.0%} of the places of {part}: is it the unknown one of a small vocabulary?"
            yield f"{text} A model cannot know its meaning"


def contradicting(view: DataView) -> Iterator[str]:
    """Yield a warning on samples with equal inputs and different classes; inputs of few values have them by nature."""
    train, rows, labels = view.train, view.train.rows, view.train.labels
    whole = not train.left_out and all(len(part.names) == part.size for part in train.inputs.values())
    if labels is None or not whole or not rows.shape[1]:
        return
    values, places = np.unique(row_hashes([rows]), return_inverse=True)
    pairs = np.unique(np.stack([places, labels]), axis=1)
    contradicted = int((np.bincount(pairs[0])[places] > 1).sum())
    if contradicted < max(1, CONTRADICTING * len(rows)) or has_few_values(rows, len(values)):
        return
    text = f"{contradicted} of {train.count} training samples have the inputs of another and another class: which is right?"
    yield f"{text} A model can be right on one of them alone; look at how labels come to the samples"
