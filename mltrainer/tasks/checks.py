"""The checks of the data, of a user's task or of a table: their list, and their order over one view of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mltrainer.records.run import UNDECLARED, TargetKind
from mltrainer.tasks import leak_checks, split_checks, value_checks
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.reading import DataView, Reading
from mltrainer.tasks.targets import KINDS
from mltrainer.tasks.value_checks import FEWEST


@dataclass(frozen=True)
class Check:
    """One check of the data.

    Attributes:
        name: The subject of the check.
        rule: Yields the findings on a view; a sentence is a warning.
        kinds: The kinds of targets that it applies to; empty: any, known or not.
        fewest: The least number of training samples that it needs.
        needs_same_numbers: Whether samples of both splits must have the same numbers.
        unless: The names of earlier checks; a finding of one of them makes this check superfluous.
    """

    name: str
    rule: Callable[[DataView], Iterable[Finding | str]]
    kinds: tuple[TargetKind, ...] = ()
    fewest: int = 0
    needs_same_numbers: bool = False
    unless: tuple[str, ...] = ()

    def find(self, view: DataView) -> list[Finding]:
        """Return the findings on a view."""
        return [Finding("warning", one) if isinstance(one, str) else one for one in self.rule(view)]

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


UNITS = Check("units", split_checks.units)
SHIFTED_INPUTS = Check("shifted inputs", split_checks.shifted_inputs, unless=("units",))
# The samples of each class may be a separate cluster, so that the kind of targets must be known.
NEAR_COPIES = Check("near copies", split_checks.near_copies, KINDS, needs_same_numbers=True, unless=("nearly equal rows",))
LEAKS = ("a number that predicts the target", "a number that predicts each class", "a sum that is the target")
DIFFERENCES = ("units", "shifted inputs")
CHECKS = (
    Check("classes that are rare or missing", value_checks.classes, ("classes",)),
    Check("equal targets", value_checks.equal_targets),
    Check("equal inputs", value_checks.equal_inputs),
    Check("numbers that never change", value_checks.constant_features, fewest=FEWEST),
    Check("numbers that mean a missing value", value_checks.placeholders),
    Check("repeated samples", value_checks.repeated),
    Check("inputs that many samples have", value_checks.same_inputs, fewest=FEWEST, unless=("repeated samples",)),
    Check("unknown tokens", value_checks.unknown_tokens, fewest=FEWEST),
    Check("augmented validation samples", value_checks.augmented),
    Check("contradicting labels", value_checks.contradicting, ("classes",)),
    Check(LEAKS[0], leak_checks.telling, ("classes", "values")),
    Check(LEAKS[1], leak_checks.telling_classes, ("classes",), unless=LEAKS[:1]),
    Check(LEAKS[2], leak_checks.exact_sum, ("values",), unless=LEAKS[:1]),
    Check("a number that follows from the target", leak_checks.decided, ("values",), unless=LEAKS),
    Check(
        "a mean of the target",
        leak_checks.encoded,
        ("classes", "values"),
        unless=(*LEAKS, "a number that follows from the target"),
    ),
    UNITS,
    SHIFTED_INPUTS,
    Check("shifted targets", split_checks.shifted_targets, ("classes", "values"), unless=DIFFERENCES),
    Check(
        "another relation of inputs and targets",
        split_checks.other_relation,
        ("classes", "values"),
        needs_same_numbers=True,
        unless=(*DIFFERENCES, "shifted targets"),
    ),
    NEAR_COPIES,
    Check("windows of one series", split_checks.shared_windows),
    Check("numbered copies", split_checks.numbered, needs_same_numbers=True),
    Check("numbers made of later targets", leak_checks.in_order, ("classes", "values")),
)


def not_looked_at(train: Reading, validation: Reading) -> list[str]:
    """Return a line on each gap of the findings."""
    found = [f"{name} of the samples: no numbers of one shape" for name in train.left_out]
    if train.target is None:
        found.append("targets: the samples have none, or none that are numbers of one shape")
    elif train.kind is None:
        found.append(f"{', '.join(check.name for check in CHECKS if check.kinds)}: {UNDECLARED}")
    parts = [
        f"{one.count} {name} samples" for one, name in ((train, "training"), (validation, "validation")) if not one.is_complete
    ]
    if parts:
        found.append(
            f"classes, constant numbers, features that predict the target, units, near copies: beyond {' and '.join(parts)}"
        )
    sizes = [(name, len(part.names), part.size) for name, part in train.inputs.items() if len(part.names) < part.size]
    return found + [f"features that predict the target: beyond {seen} of {size} numbers of {name}" for name, seen, size in sizes]
