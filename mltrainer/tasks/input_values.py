"""Values of training inputs that carry little information: placeholders, unknown tokens, repeated samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.checks import DataView
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.reading import Numbers, Reading
from mltrainer.tasks.tables.sentinels import suspect_ends

FEWEST = 10  # samples
SINGLE = 256  # numbers of a part that are examined one by one; of more, as in an image, only all together
SAME = 0.05  # chosen by us: the share of the training samples that have the same inputs
REPEATED = 0.5  # chosen by us: the share of training samples that repeat another one; a rare class drawn more often is below
PLACES, UNKNOWN = (
    8,
    0.75,
)  # chosen by us: of a text, and the share of its places, up to its last other token, that one token takes
SHOWN = 3  # features that are named


def lists(read: Reading) -> dict[str, Numbers]:
    """Return the inputs that are lists of numbers, which tokens, images and sequences are not."""
    return {n: one for n, one in read.inputs.items() if one.size <= SINGLE and not one.is_whole and "][" not in one.names[-1]}


def listed(names: Sequence[str] | np.ndarray) -> str:
    """Return the first of some names in words, and the number of the others."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def sentinels(view: DataView) -> list[Finding]:
    """Return a warning on numbers that may mean a missing value, such as -999."""
    found = [
        f"{part}{name} (in {(one.values[:, place] == value).mean():.0%}: {value:g})"
        for part, one in lists(view.train).items()
        for place, name in enumerate(one.names)
        for value in suspect_ends(one.values[:, place])
    ]
    if not found:
        return []
    text = f"numbers of the training samples that lie apart from all others, and may stand for no value: {listed(found)}"
    return [Finding("warning", f"{text}; if so, put a usual value there, and a further input that says that it was missing")]


def has_few_values(rows: np.ndarray, distinct: int) -> bool:
    """Return True if samples repeat by nature, given their number of distinct ones: inputs of few values, and constant ones.

    Where numbers have hardly a value twice, samples that agree in all of them are one sample.
    """
    most = max((len(np.unique(column)) for column in rows.T), default=0)
    return 2 * most <= distinct or most == 1


def repeated(view: DataView) -> list[Finding]:
    """Return a warning where most training samples repeat another one, as after a join or a sampler."""
    train = view.train
    hashes = train.hashes if train.hashes is not None else np.zeros(0)
    distinct = len(np.unique(hashes))
    if len(hashes) < FEWEST or distinct > (1 - REPEATED) * len(hashes) or has_few_values(train.rows, distinct):
        return []
    text = f"{len(hashes) - distinct} of {len(hashes)} training samples repeat another one, {distinct} are distinct"
    return [Finding("warning", f"{text}: did a join duplicate rows, or does the data set read the same ones again?")]


def same_inputs(view: DataView) -> list[Finding]:
    """Return a warning on one input that many training samples have, such as the placeholder for an unreadable file."""
    train = view.train
    if not train.rows.shape[1]:
        return []
    hashes, places, counts = np.unique(row_hashes([train.rows]), return_index=True, return_counts=True)
    most = int(counts.argmax())
    row = train.rows[places[most]]
    is_blank = len(row) >= PLACES and row.min() == row.max()  # pixels have few values, and yet pictures are not alike
    if counts[most] < max(FEWEST, SAME * len(train.rows)) or not (is_blank or not has_few_values(train.rows, len(hashes))):
        return []
    if len(hashes) == 1:  # of which there is a finding
        return []
    blank = f" (blank: all numbers are {row[0]:g})" if is_blank else ""
    text = f"{counts[most]} of {train.count} training samples have the very same inputs{blank}, the first is sample"
    return [Finding("warning", f"{text} {train.places[places[most]]}: does it stand in for what could not be read?")]


def unknown(view: DataView) -> list[Finding]:
    """Return a warning on a token that takes most places of texts, such as a small vocabulary's unknown token."""
    found = []
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
            found.append(Finding("warning", f"{text} A model cannot tell what it stands for"))
    return found
