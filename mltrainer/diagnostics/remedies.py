"""Changes of a config that may cure the diagnostics' findings, and the verdict on the effect of each.

Pure. That a finding is gone proves little, for a model that learns nothing shows few of them: the fit and the metric count, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from mltrainer.configs.components import swaps_of
from mltrainer.configs.loading import EXCLUSIVE, flatten, validate_values
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.diagnostics.rules import assess, changes_to_try
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.tasks.statistics import SHARES, share_difference

CURES, HELPS, NOT_TOLD_APART, NOTHING, WORSE = VERDICTS = (
    "cures",
    "helps",
    "no clear difference",
    "changes nothing",
    "makes it worse",
)
TEMPLATE, TOGETHER = "the shipped baseline template", "all suggestions together"
TEMPLATE_KEYS = (  # keys that decide how a model learns; a template's rest is about the machine and kept files
    *("batch_size", "accumulate", "class_weights", "optimizer", "schedule", "clip", "gradients"),
    *("averaging", "augment", "label_smoothing", "precision", "early_stopping"),
)
EQUAL = 0.005  # chosen by us: a metric within this share of the other one is neither better nor worse

Values = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A change that may cure.

    Attributes:
        name: Name of the change.
        changes: New values by dotted key.
        why: Source or purpose of the change.
    """

    name: str
    changes: Values
    why: str


# --- candidates -----------------------------------------------------------------------------------


def candidates(
    rows: Sequence[Diagnosis], config: TrainingConfig, template: Values, *, is_shorter: bool = False
) -> tuple[list[Candidate], list[dict[str, str]]]:
    """Return the changes that are worth a try, each once, and those that cannot be tried.

    Args:
        rows: Rows of `diagnose`; those that fired suggest changes.
        config: The config that was trained.
        template: The shipped baseline template's training keys.
        is_shorter: Whether the user has set the epochs of each training, so that no change may.

    Returns:
        The template's keys where the config differs, as one change; each suggestion; those that do not exclude each other, as
        one. And `name` and `reason` of each that is left out.
    """
    symptoms = symptoms_of(rows)
    if not symptoms:
        return [], []
    rows = [row for row in rows if row.id in symptoms]
    asked = [_without_epochs(one) if is_shorter else one for one in _suggested(rows, config.model_dump(), template)]
    kept, left_out, digests = [], [], set[str]()
    for one in (one for one in asked if one.changes):
        try:
            (swap,) = swaps_of(config, [one.changes])
            digest = config_digest(swap.applied(config))
        except InputError as error:
            left_out.append({"name": one.name, "reason": error.message})
            continue
        # Compared by the resulting config: two suggestions may result in the same one, or in the template's.
        if digest not in digests:
            kept.append(one)
        digests.add(digest)
    return kept, left_out


def symptoms_of(rows: Sequence[Diagnosis]) -> list[str]:
    """Return the fired diagnostics whose cure a trial can show: those for information are about time alone."""
    return [row.id for row in rows if row.state == "fired" and row.severity != "info"]


def _suggested(rows: Sequence[Diagnosis], values: Values, template: Values) -> Iterator[Candidate]:
    suggested = changes_to_try(rows, values)
    # First: of faults of the config alone it cured 17 of 22, where single suggestions cured 3.
    yield Candidate(TEMPLATE, template_changes(values, template), "where the config differs from it")
    for one in suggested:
        yield Candidate(named(one.set), one.set, one.why)
    yield Candidate(TOGETHER, together([one.set for one in suggested]), "those that do not exclude each other")


def named(changes: Mapping[str, Any]) -> str:
    """Return a change in words."""
    return " + ".join(f"{key}={'null' if value is None else value}" for key, value in changes.items())


def _without_epochs(one: Candidate) -> Candidate:
    return Candidate(one.name, {key: value for key, value in one.changes.items() if key != "epochs"}, one.why)


def template_changes(config: Values, template: Values) -> Values:
    """Return the changes that take over a template's training keys; its epochs only if they are more.

    Args:
        config: A training config as nested plain values.
        template: A baseline template's keys.

    Raises:
        InputError: The config has other keys that conflict with them.
    """
    parts = {key: template[key] for key in TEMPLATE_KEYS if key in template}
    if template.get("epochs", 0) > config["epochs"]:
        parts["epochs"] = template["epochs"]
    wanted = validate_values(TrainingConfig, {**config, **parts}, TEMPLATE).model_dump()
    changes: Values = {}
    for key in parts:
        if wanted[key] != config[key]:
            changes |= _changes_of(key, config[key], wanted[key], parts[key])
    return changes


def _changes_of(key: str, held: Any, wanted: Any, stated: Any) -> Values:
    """Return the dotted keys that turn one group into another; keys of another name get the template's value."""
    if not isinstance(held, dict) or not isinstance(wanted, dict):
        return flatten({key: stated}) if isinstance(stated, dict) else {key: wanted}
    if held.get("name") != wanted.get("name"):
        return flatten({key: stated})
    before, after = flatten({key: held}), flatten({key: wanted})
    return {name: value for name, value in after.items() if name not in before or before[name] != value}


def together(changes: Sequence[Mapping[str, Any]]) -> Values:
    """Return several changes as one; of those that exclude each other the first stays."""
    joined: Values = {}
    for one in changes:
        if not any(_excludes(key, value, joined) for key, value in one.items()):
            joined |= one
    return joined


def _excludes(key: str, value: Any, taken: Mapping[str, Any]) -> bool:
    """Return True if a value conflicts with the others: its key has another value, or an exclusive key is given."""
    group, _, last = key.rpartition(".")
    rivals = [f"{group}.{rival}" for rival in EXCLUSIVE.get(group, ()) if rival != last]
    return (key in taken and taken[key] != value) or any(rival in taken for rival in rivals)


# --- verdicts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Outcome of a training.

    Attributes:
        fired: The diagnostics that fired.
        critical: The critical ones of them.
        fit: good, overfitting, underfitting or unknown.
        value: The metric on validation; NaN for a failed run.
        samples: Number of rows that the metric is a share of; None if it is no share, so that one seed does not show its spread.
        beats_constant: Whether the metric is better than a constant answer's; None if unknown.
    """

    fired: list[str]
    critical: list[str]
    fit: str
    value: float
    samples: int | None = None
    beats_constant: bool | None = None

    @classmethod
    def of(cls, rows: Sequence[Diagnosis], run: Run, value: float) -> Self:
        """Return the outcome of a run: the findings of `diagnose`, the fit, and the metric with its number of samples."""
        fired = [row for row in rows if row.state == "fired"]
        critical = [row.id for row in fired if row.severity == "critical"]
        samples = run.result.validation_samples if run.result.metric.name in SHARES else None
        assessment = assess(rows, run)
        return cls([row.id for row in fired], critical, assessment.fit, value, samples or None, assessment.beats_constant)


def verdict(before: Outcome, after: Outcome, symptoms: Sequence[str], mode: str, comparisons: int = 1) -> tuple[str, str]:
    """Judge a change by the outcomes of training without and with it.

    A change cures where none of the symptoms fires any more, nothing critical fires, the fit is good or the metric better, and
    the metric no worse. A metric is better or worse only outside the interval that the rows leave to chance; of a metric
    that has none, one seed shows neither, and what looks worse is never said to help, nor is what no constant answer is behind.

    Args:
        before: Outcome of the unchanged config.
        after: Outcome of the changed config.
        symptoms: Diagnostics to cure: the ones that fired on the unchanged config.
        mode: max or min: which metric is better.
        comparisons: Number of changes that are compared with the same unchanged config.

    Returns:
        One of `VERDICTS`, and why, in words.
    """
    change = compared(before, after, mode, comparisons)
    gone = [name for name in symptoms if name not in after.fired]
    stay = [name for name in symptoms if name in after.fired]
    fresh = [name for name in after.critical if name not in before.fired]
    why = "; ".join(filter(None, (_listed("no more", gone), _listed("still", stay), _listed("new", fresh), f"metric {change}")))
    if change == "worse" or (fresh and change != "better"):
        return WORSE, why
    if after.beats_constant is False:
        return NOTHING, f"{why}; still no better than a constant answer"
    if change == NOT_TOLD_APART and before.samples is None and not _is_larger(before.value, after.value, mode):
        return NOT_TOLD_APART, why
    is_well = after.fit == "good" or (change == "better" and not math.isnan(before.value))
    if gone and not stay and not after.critical and is_well:
        return CURES, why
    if change == "better" or (gone and not math.isnan(after.value)):
        return HELPS, why
    return (NOT_TOLD_APART if change == NOT_TOLD_APART else NOTHING), why


def _listed(word: str, names: Sequence[str]) -> str:
    return f"{word} {', '.join(names)}" if names else ""


def compared(before: Outcome, after: Outcome, mode: str, comparisons: int = 1) -> str:
    """Return the verdict on a metric: better, worse, equal or no clear difference; NaN is worse than any number.

    Args:
        before: Outcome of one training.
        after: Outcome of another training on the same seed.
        mode: max or min.
        comparisons: Number of comparisons.
    """
    old, new = before.value, after.value
    if math.isnan(old) or math.isnan(new):
        return "equal" if math.isnan(old) and math.isnan(new) else "better" if math.isnan(old) else "worse"
    if abs(new - old) <= EQUAL * abs(old):
        return "equal"
    ends = share_difference(old, new, before.samples, comparisons) if before.samples else None
    if ends is None or ends[0] <= 0 <= ends[1]:
        return NOT_TOLD_APART
    return "better" if _is_larger(old, new, mode) else "worse"


def _is_larger(old: float, new: float, mode: str) -> bool:
    """Return True if a metric moved in its better direction."""
    return (new > old) == (mode == "max")


class Judged(Protocol):
    """A judged candidate."""

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        ...

    @property
    def value(self) -> float:
        """The metric; NaN for a failed run."""
        ...


AnyJudged = TypeVar("AnyJudged", bound=Judged)


def ranked(rows: Sequence[AnyJudged], mode: str) -> list[AnyJudged]:
    """Return candidates, the best first: by verdict, then by the metric, then in the order in which they came."""
    sign = -1.0 if mode == "max" else 1.0

    def place(row: AnyJudged) -> tuple[int, float]:
        return VERDICTS.index(row.verdict), math.inf if math.isnan(row.value) else sign * row.value

    return sorted(rows, key=place)
