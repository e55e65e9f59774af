"""What the author's record says beside what the referee found: the same bits, within an interval, or neither."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mltrainer.companions.proof.findings import Audit, Score, Scored
from mltrainer.configs.project import TrainingConfig, meets
from mltrainer.gates.gate import Gate, why_closed
from mltrainer.records.common import Difference, Metrics
from mltrainer.records.finalization import Finalization
from mltrainer.records.run import Run
from mltrainer.records.verdict import HELD_COUNT, HELD_CRITERION, HELD_METRIC, TRAINED_PART, Checked, Outcome
from mltrainer.reports.values import counted

SHOWN = 12  # digits of a digest
SAMPLES = "samples and splits"
BY_BOTH = ", by the project's own code and by mltrainer"
ELSEWHERE = "this machine computes other bits than the author's, as another kind of CPU does"
ROUNDING = 1e-5  # of a metric that a project computes with 32 bits, as many do


def checked_digest(what: str, recorded: str | None, found: str | None) -> Checked:
    """Return a digest beside the referee's."""
    one, other = (f"sha256 {value[:SHOWN]}" if value else "none" for value in (recorded, found))
    return Checked(what=what, recorded=one, found=other, outcome="same" if recorded == found else "no")


def checked_gates(gates: Sequence[Gate]) -> Checked:
    """Return a row for the gates, recomputed from the committed records."""
    closed = next((gate for gate in gates if not gate.holds), None)
    found = "hold" if closed is None else why_closed(closed)
    return Checked(what="gates of the phases", recorded="hold", found=found, outcome="same" if closed is None else "no")


def checked_files(differences: Sequence[Difference]) -> Iterator[Checked]:
    """Yield each file of data or code that is another one than the record's; a row for each kind without one."""
    for kind, what in (("data", "files of the data"), ("code", "files of the code")):
        rows = [row for row in differences if row.kind == kind]
        for row in rows:
            yield Checked(what=f"{kind}: {row.what}", recorded=row.expected, found=row.found, outcome="no")
        if not rows:
            yield Checked(what=what, recorded="recorded", found="the same", outcome="same")


def checked_training(result: Run, again: Run) -> Iterator[Checked]:
    """Yield a row for each value of a whole training beside the record's: data, steps, weights, and every evaluation."""
    yield checked_digest(SAMPLES, result.data_sha256, again.data_sha256)
    yield checked_digest(
        f"samples, loss and gradient norm of {counted(result.steps, 'step')}", result.chain.head, again.chain.head
    )
    yield checked_digest("weights after the last step", result.weights_sha256, again.weights_sha256)
    rows = [[(row.step, repr(row.validation), repr(row.train)) for row in run.history] for run in (result, again)]
    same = rows[0] == rows[1]
    unlike = sum(one != other for one, other in zip(*rows, strict=False)) + abs(len(rows[0]) - len(rows[1]))
    yield Checked(
        what=f"metrics of {counted(len(result.history), 'evaluation')} of the training",
        recorded="recorded",
        found="the same" if same else f"{unlike} differ",
        outcome="same" if same else "no",
    )


def comparable(rows: Iterable[Checked], *, is_elsewhere: bool) -> tuple[list[Checked], list[str]]:
    """Return the rows that count, and sentences on those that do not: other bits, where the machine computes other ones.

    Args:
        rows: Rows on a whole training and on its weights.
        is_elsewhere: Whether the author's machine is of another numerics class. Numbers then count by their intervals.
    """
    counting: list[Checked] = []
    apart: list[str] = []
    for row in rows:
        has_bits = row.interval is None and row.what != SAMPLES and not row.what.endswith(BY_BOTH)
        if is_elsewhere and row.outcome == "no" and has_bits:
            apart.append(f"{row.what}: {ELSEWHERE}")
        else:
            counting.append(row)
    return counting, apart


def checked_audit(audit: Audit) -> Iterator[Checked]:
    """Yield a row for each value of a random part of the training beside the record's."""
    parted = [row for row in audit.segments if row.first_divergence is not None]
    found = "the same" if not parted else f"other bits from step {parted[0].begin + 1} on"
    if parted and any((row.kind, row.what) == ("environment", "numerics") for row in audit.differences):
        found += f" ({ELSEWHERE}: without --segments the model is judged by intervals)"
    what = f"{audit.replayed} of {counted(audit.steps, 'step')}{TRAINED_PART}"
    yield Checked(what=what, recorded="recorded", found=found, outcome="no" if parted else "same")
    for sentence in audit.unlike:
        yield Checked(what="metrics and weights", recorded="recorded", found=sentence, outcome="no")


def checked_scores(evidence: Finalization, scored: Scored) -> Iterator[Checked]:
    """Yield the delivered weights, and each metric on validation and on the author's test split, beside the referee's."""
    yield checked_digest("delivered weights", evidence.delivered_sha256, scored.weights_sha256)
    recorded = {"validation": evidence.run.best.validation if evidence.run.best else {}, "test": evidence.test.metrics}
    for split, metrics in recorded.items():
        if split in scored.splits:
            yield from _numbers(split, metrics, scored.splits[split])
            yield from _evaluators(split, scored.splits[split])


def _evaluators(split: str, found: Score) -> Iterator[Checked]:
    """Yield a row for each metric of the project's own evaluator beside mltrainer's, of the same outputs."""
    for name, own in found.own.items():
        theirs = found.metrics.get(name)
        is_same = isinstance(theirs, int | float) and isinstance(own, int | float) and math.isclose(theirs, own, rel_tol=ROUNDING)
        outcome: Outcome = "same" if is_same else "no"
        yield Checked(what=f"{name} on {split}{BY_BOTH}", recorded=repr(theirs), found=repr(own), outcome=outcome)


def _numbers(split: str, recorded: Metrics, found: Score) -> Iterator[Checked]:
    for name, value in recorded.items():
        other, ends = found.metrics.get(name), found.intervals.get(name)
        is_within = ends is not None and isinstance(value, int | float) and ends[0] <= value <= ends[1]
        outcome: Outcome = "same" if repr(value) == repr(other) else "within" if is_within else "no"
        yield Checked(what=f"{name} on {split}", recorded=repr(value), found=repr(other), outcome=outcome, interval=ends)


def checked_judged(sha256: str, rows: int | None, place: str, scored: Scored) -> Iterator[Checked]:
    """Yield the held file beside what was judged: the digest of the file that was read, and how many of its rows were measured.

    Args:
        sha256: The digest of the held file.
        rows: The number of its rows; None: not known.
        place: Its path in the copy.
        scored: What was measured.
    """
    yield checked_digest("file of the held rows, as it was judged", sha256, scored.files.get(place))
    if rows is not None:
        found = scored.splits["test"].samples
        outcome: Outcome = "same" if found == rows else "no"
        yield Checked(what=HELD_COUNT, recorded=str(rows), found=str(found), outcome=outcome)


def checked_held(config: TrainingConfig, recorded: Metrics, validation: Score, held: Score) -> Iterator[Checked]:
    """Yield the chosen metric on the held rows, which must not be worse than recorded on validation, and each criterion.

    Args:
        config: The config of the run.
        recorded: The metrics on validation as recorded.
        validation: What the referee measured on validation.
        held: What the referee measured on the held rows.
    """
    name, mode = config.metric.name, config.metric.mode
    value, found, ends = recorded.get(name), held.metrics.get(name), _range(name, validation, held)
    if isinstance(value, int | float) and ends is not None:
        is_within = value <= ends[1] if mode == "max" else value >= ends[0]
        outcome: Outcome = "within" if is_within else "no"
        what = HELD_METRIC.format(name)
        yield Checked(what=what, recorded=repr(value), found=repr(found), outcome=outcome, interval=ends)
    yield from _criteria(config.acceptance, held)


def _range(name: str, validation: Score, held: Score) -> list[float] | None:
    """Return the values on validation that differ from the one on the held rows by no more than both splits' rows explain.

    An interval of a difference, from those of its parts: Zou and Donner, Statistics in Medicine 27 (2008), 1693-1702.
    """
    (found, ends), (value, others) = ((one.metrics.get(name), one.intervals.get(name)) for one in (held, validation))
    if ends is None or others is None or not isinstance(found, int | float) or not isinstance(value, int | float):
        return ends
    return [found - math.hypot(found - ends[0], others[1] - value), found + math.hypot(ends[1] - found, value - others[0])]


def _criteria(acceptance: Mapping[str, str], held: Score) -> Iterator[Checked]:
    for name, criterion in acceptance.items():
        value = held.metrics.get(name)
        if value is None:
            continue
        outcome: Outcome = "met" if isinstance(value, int | float) and meets(value, criterion) else "no"
        what, ends = HELD_CRITERION.format(name), held.intervals.get(name)
        yield Checked(what=what, recorded=criterion, found=repr(value), outcome=outcome, interval=ends)


def named_modules(config: Mapping[str, Any], root: Path) -> Iterator[str]:
    """Yield the file of each module of the project's own that a config names by `use: module:Class`, at any depth."""
    for key, value in config.items():
        if key == "use" and isinstance(value, str) and ":" in value:
            path = value.partition(":")[0].replace(".", "/")
            yield f"{path}/__init__.py" if (root / path).is_dir() else f"{path}.py"
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Mapping):
                yield from named_modules(part, root)
