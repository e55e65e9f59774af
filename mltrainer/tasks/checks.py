"""The engine of the data checks: a list of checks over one view of the data, of a custom task or of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.records.run import UNDECLARED, TargetKind
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.reading import Reading


class Words(NamedTuple):
    """The findings' words for the data, and their advice on samples that belong together."""

    inputs: str = "inputs"
    numbers: str = "numbers of a sample"
    before_name: str = ""
    together: str = "then write dataset(self, split), which keeps what belongs together in one split"


SAMPLES = Words()


@dataclass(frozen=True)
class DataView:
    """The view of the data that the checks read.

    Attributes:
        train: Numbers of some training samples, evenly spaced.
        validation: Numbers of validation samples.
        limits: The limits of the findings.
        words: The findings' words for the data.
        labels: Class numbers of all training and all validation samples; None where they are not all known.
        in_order: Neighbouring training samples, with their places in the order of time; None where none were read.
        near: Numbers of training and validation samples that are searched for near copies; None: those of the readings.
        is_shift_a_fault: Whether both splits should be distributed alike; None: yes, unless the training samples are altered.
        has_columns: Whether each number of a sample is a separate feature, as a table's column is.
        classes: Number of classes, where the readings do not give it; 0 for quantities.
    """

    train: Reading
    validation: Reading
    limits: DataLimits
    words: Words = SAMPLES
    labels: tuple[np.ndarray, np.ndarray] | None = None
    in_order: tuple[Reading, np.ndarray] | None = None
    near: tuple[np.ndarray, np.ndarray] | None = None
    is_shift_a_fault: bool | None = None
    has_columns: bool = False
    classes: int = 0


@dataclass(frozen=True)
class Check:
    """One check of the data.

    Attributes:
        name: The subject of the check.
        find: Returns the findings on a view.
        kinds: The kinds of targets that it applies to; empty: any, known or not.
        fewest: The least number of training samples that it needs.
        needs_same_numbers: Whether samples of both splits must have the same numbers.
        unless: The names of earlier checks; a finding of one of them makes this check superfluous.
    """

    name: str
    find: Callable[[DataView], list[Finding]]
    kinds: tuple[TargetKind, ...] = ()
    fewest: int = 0
    needs_same_numbers: bool = False
    unless: tuple[str, ...] = ()

    def applies_to(self, view: DataView) -> bool:
        """Return True if a view has all that the check needs."""
        has_kind = not self.kinds or view.train.kind in self.kinds
        has_numbers = not self.needs_same_numbers or view.train.names == view.validation.names
        return has_kind and has_numbers and len(view.train.places) >= self.fewest


def run(checks: Sequence[Check], view: DataView) -> Mapping[str, list[Finding]]:
    """Return the findings on a view by the check's name, in the checks' order; none for a check that did not run."""
    found: dict[str, list[Finding]] = {}
    for check in checks:
        if check.applies_to(view) and not any(found.get(name) for name in check.unless):
            found[check.name] = check.find(view)
    return found


def findings_of(checks: Sequence[Check], view: DataView) -> list[Finding]:
    """Return the findings on a view."""
    return [one for found in run(checks, view).values() for one in found]


def not_judged(checks: Sequence[Check], train: Reading) -> list[str]:
    """Return a line that names the checks which need the kind of the targets; none where it is known."""
    if train.target is None or train.kind is not None:
        return []
    return [f"{', '.join(check.name for check in checks if check.kinds)}: {UNDECLARED}"]
