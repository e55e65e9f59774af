"""The review of a change: two versions of a project's records compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from mltrainer.configs.items import is_weaker
from mltrainer.configs.pages import numbers, recorded_page, shipped_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.common import FileRow, Measured, MetricChoice, Metrics, Part
from mltrainer.records.envelope import Envelope, Waiver
from mltrainer.records.finalization import Finalization, Opening
from mltrainer.records.openings import missing
from mltrainer.records.run import Run
from mltrainer.reports.changes import DIGESTS, decided, differences, digests
from mltrainer.reports.criteria import MovedCriterion
from mltrainer.reports.runs import noise_of_comparison
from mltrainer.reports.values import as_float, finite
from mltrainer.reports.views import flat
from mltrainer.reproducibility import environment
from mltrainer.tasks.statistics import SeedNoise, metric_verdict
from mltrainer.workspace import PHASES, TRAINING, canonical

Record = Envelope[Any]
Pairs = Mapping[str, tuple[Record, Record]]


@dataclass(frozen=True)
class Side:
    """One version of a project.

    Attributes:
        records: The records that can be trusted, by phase.
        waivers: The waivers that count for them, by phase.
        committed: The committer of each waiver, by phase; None where git cannot be asked.
        pages: The digests of the declarations of the project's own pages and templates that it has, whether a record names them
            or not.
        damaged: The phases whose record is there and cannot be trusted.
    """

    records: Records
    waivers: Mapping[str, Sequence[Waiver]]
    committed: Mapping[str, Mapping[Waiver, str | None]] = field(default_factory=dict)
    pages: Mapping[str, str] = field(default_factory=dict)
    damaged: Collection[str] = ()


# --- findings -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricChange:
    """The metric that chose a phase's checkpoint, on one split; the last five fields are the result of `metric_verdict`."""

    phase: str
    split: str
    metric: str
    mode: str
    before: Measured | None
    after: Measured | None
    difference: float | None = None
    samples: int | None = None
    interval: list[float] | None = None
    verdict: str = "not comparable"
    least: float | None = None


@dataclass(frozen=True)
class SharedChange:
    """A key whose value differs, with the phases in whose records it does."""

    key: str
    before: Any
    after: Any
    phases: list[str]


@dataclass(frozen=True)
class FileChange:
    """A file that is `new`, `gone` or `changed`."""

    path: str
    change: str


@dataclass(frozen=True)
class EnvironmentChange:
    """A part of the environment that differs."""

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class PolicyChange:
    """A changed number of a phase's policy, or an item by its id; `weaker`: whether it asks for less, None where unknown."""

    phase: str
    key: str
    before: Any
    after: Any
    weaker: bool | None


@dataclass(frozen=True)
class NewWaiver:
    """A waiver that the other version does not have."""

    phase: str
    item: str
    reason: str
    by: str
    when: str | None
    committed_by: str | None


@dataclass(frozen=True)
class FailingItem:
    """An item of a gate that does not hold, and the next step."""

    id: str
    statement: str
    mend: str | None


@dataclass(frozen=True)
class PhaseVerdict:
    """The state of a phase's gate here.

    Attributes:
        run: The id of the run that its record is about; None where it is about none.
        verdicts: The number of items with each verdict.
        not_recomputed: The ids of the items that a custom check of the project judged.
    """

    name: str
    state: str
    holds: bool
    run: str | None
    verdicts: dict[str, int]
    not_recomputed: list[str]
    failing: list[FailingItem]
    stale: list[str]


@dataclass(frozen=True)
class Differences:
    """The differences between two versions of a project; `added` and `removed` are phases, `unchanged` names of digests."""

    is_new: bool
    added: list[str]
    removed: list[str]
    metrics: list[MetricChange]
    config: list[SharedChange]
    digests: list[SharedChange]
    unchanged: list[str]
    data: list[FileChange]
    code: list[FileChange]
    environment: list[EnvironmentChange]
    decisions: list[SharedChange]
    policy: list[PolicyChange]
    pages: list[SharedChange]
    waivers: list[NewWaiver]
    impossible: list[Contradiction]
    openings: list[LostOpening]


@dataclass(frozen=True, kw_only=True)
class Review(Differences):
    """The gates' verdicts here, beside the differences from another version.

    Attributes:
        project: The project's name.
        place: The project's folder in its repository.
        against: The revision that it is compared with, as it was named.
        commit: The commit of that revision.
        moved: The criteria that moved after numbers were known.
        holds: Whether every existing gate holds, the records do not contradict each other, and no record of the other version
            is missing here.
        phases: The state of each phase's gate.
        notes: Notes for a reviewer on checks that could not be made.
    """

    project: str
    place: str
    against: str
    commit: str
    moved: list[MovedCriterion]
    holds: bool
    phases: list[PhaseVerdict]
    notes: list[str]

    def written(self) -> dict[str, Any]:
        """Return the review as `mltrainer report --json` prints it."""
        return asdict(self)


# --- comparing ----------------------------------------------------------------------------------


def compare(now: Side, before: Side) -> Differences:
    """Return the differences between two versions of a project.

    Args:
        now: The version that is reviewed.
        before: The version that it is compared with.
    """
    here, there = now.records, before.records
    pairs = {phase: (here[phase], there[phase]) for phase in PHASES if phase in here and phase in there}
    trained = {phase: pairs[phase] for phase in ("planning", *TRAINING) if phase in pairs}  # in 0.1, diagnostics had a run, too
    return Differences(
        is_new=not there,
        added=[phase for phase in PHASES if phase in here and phase not in there],
        removed=[phase for phase in PHASES if phase in there and phase not in here and phase not in now.damaged],
        metrics=[row for phase in TRAINING for row in _metrics(phase, here.get(phase), there.get(phase), _noise(here, there))],
        config=_merged(pairs, _config),
        digests=_merged(trained, digests),
        unchanged=[name for name in DIGESTS if trained and all(_same(name, *pair) for pair in trained.values())],
        data=_data(pairs),
        code=_code(pairs),
        environment=_environment(pairs),
        decisions=_merged(pairs, decided),
        policy=[row for phase in here for row in _policy(phase, here[phase], there.get(phase))],
        pages=_pages(here, before),
        waivers=_new_waivers(now, before),
        impossible=contradictions(here, there),
        openings=[] if "finalization" in now.damaged else lost(here, there),
    )


def _merged(pairs: Mapping[str, tuple[Record, Record | None]], part: Callable[[Record], Mapping[str, Any]]) -> list[SharedChange]:
    """Return the differences in one part of all phases' records; the same difference in several phases is one row."""
    return _shared({phase: (part(now), part(before) if before else {}) for phase, (now, before) in pairs.items()})


def _shared(parts: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[SharedChange]:
    rows: dict[bytes, SharedChange] = {}
    for phase, (now, before) in parts.items():
        for row in differences(now, before):
            content = row.written()
            rows.setdefault(canonical(content), SharedChange(**content, phases=[])).phases.append(phase)
    return list(rows.values())


def _config(record: Record) -> dict[str, Any]:
    """Return the keys of the config as phases read it; the unchanged keys where a revision's config is not valid here."""
    config = getattr(record.evidence, "config", {})
    try:
        keys = flat(TrainingConfig.model_validate(config).model_dump()) if config else []
    except ValidationError:
        keys = flat(config)
    return {key: value for key, value in keys if value != {}}  # a mapping is reported by its entries


def _same(name: str, now: Record, before: Record) -> bool:
    found = digests(now).get(name)
    return found is not None and found == digests(before).get(name)


def _noise(*sides: Records) -> SeedNoise | None:
    """Return the noise of seeds on validation, from the comparison that either side's search made; None without one."""
    records = (records["optimization"] for records in sides if "optimization" in records)
    return next(filter(None, (noise_of_comparison(record.evidence) for record in records)), None)


def _metrics(phase: str, now: Record | None, before: Record | None, noise: SeedNoise | None) -> Iterator[MetricChange]:
    """Yield the metric that chose a phase's checkpoint, on each split that it was measured on.

    The noise of seeds is known on validation alone.
    """
    here, there = (_measured(record) for record in (now, before))
    for split in here | there:
        choice: MetricChoice = next(record.evidence.run.metric for record in (now, before) if record)
        new, old = (side.get(split, {}).get(choice.name) for side in (here, there))
        verdict = _verdict(choice, old, new, _rows(split, now, before), noise if split == "validation" else None)
        yield MetricChange(phase, split, choice.name, choice.mode, old, new, **verdict)


def _rows(split: str, *records: Record | None) -> int | None:
    """Return the number of rows on which both sides measured a split; None where that is not one number, as over folds."""
    counts = {_samples(split, record.evidence) if record else None for record in records}
    return counts.pop() if len(counts) == 1 else None


def _samples(split: str, evidence: Any) -> int | None:
    if _fold_metrics(evidence):
        return None
    count: int | None = evidence.test.samples if split == "test" else evidence.run.validation_samples
    return count


def _fold_metrics(evidence: Any) -> Metrics:
    folds = getattr(evidence, "folds", None)
    return folds.metrics if folds else {}


def _measured(record: Record | None) -> dict[str, Metrics]:
    """Return the metrics of a phase's run by split; with folds, the mean over them."""
    if record is None:
        return {}
    evidence = record.evidence
    test = getattr(evidence, "test", None)
    validated = _fold_metrics(evidence) or getattr(evidence, "validation", evidence.run.metrics)
    splits = {"validation": validated, "test": test.metrics if test else {}}
    return {split: metrics for split, metrics in splits.items() if metrics}


def _verdict(
    choice: MetricChoice, before: Measured | None, after: Measured | None, count: int | None, noise: SeedNoise | None
) -> dict[str, Any]:
    if finite(before) and finite(after):
        return metric_verdict(choice.name, choice.mode, as_float(before), as_float(after), count, noise)
    return {"verdict": "new"} if before is None else {"verdict": "gone"} if after is None else {}


def _code(pairs: Pairs) -> list[FileChange]:
    """Return the files of code that differ, by the records of the newest phase that both sides have."""
    return _files(*(side.source.files for side in list(pairs.values())[-1])) if pairs else []


def _data(pairs: Pairs) -> list[FileChange]:
    """Return the files of data that differ, as planning recorded them; a task may make its data without files."""
    found = [getattr(side.evidence, "data", None) for side in pairs.get("planning", ())]
    return _files(*(data.files if data else [] for data in found)) if found else []


def _files(now: Sequence[FileRow], before: Sequence[FileRow]) -> list[FileChange]:
    found = differences(*({row.path: row.sha256 for row in rows} for rows in (now, before)))
    return [FileChange(row.key, change_of(row.before, row.after)) for row in found]


def change_of(before: Any, after: Any) -> str:
    """Return the kind of change in a word: "new", "gone" or "changed"."""
    return "new" if before is None else "gone" if after is None else "changed"


def _environment(pairs: Pairs) -> list[EnvironmentChange]:
    recorded = [[getattr(side.evidence, "environment", None) for side in pair] for pair in pairs.values()]
    found = (row for now, before in recorded if now and before for row in environment.difference(before, now))
    rows = [EnvironmentChange(row.what, row.expected, row.found) for row in found]
    # Each phase records its environment: the same difference would be reported for every one of them.
    return list({row.what: row for row in rows}.values())


def _policy(phase: str, now: Record, before: Record | None) -> list[PolicyChange]:
    """Return the changes of a phase's policy as rows; a phase without an earlier record is compared with the shipped page."""
    # One that is not valid is reported by the gate.
    page, other = recorded_page(now.policy), recorded_page(before.policy) if before else shipped_page(phase)
    if page is None or other is None:
        return []
    items, others = ({item.id for item in side.items} for side in (page, other))
    left_out = [_required(phase, item, item in items) for item in sorted(items ^ others)]
    # The row of an item that only one side has covers its numbers: each would be another row of the same.
    changed = [row for row in differences(numbers(page), numbers(other)) if row.key.partition(".")[0] not in items ^ others]
    weaker = (is_weaker(phase, row.key, row.before, row.after) for row in changed)
    return left_out + [PolicyChange(phase, **row.written(), weaker=less) for row, less in zip(changed, weaker, strict=True)]


def _required(phase: str, item: str, is_required: bool) -> PolicyChange:
    words = ("not asked for", "asked for")
    return PolicyChange(phase, item, words[not is_required], words[is_required], not is_required)


def _pages(here: Records, before: Side) -> list[SharedChange]:
    """Return the changes of the project's own pages and templates.

    One that no record there names, as where its phase had not run, is compared with its file there.
    """
    parts = {}
    for phase, record in here.items():
        own, earlier = _own_pages(record), before.records.get(phase)
        there = {path: before.pages[path] for path in own if path in before.pages}
        parts[phase] = own, {**there, **(_own_pages(earlier) if earlier else {})}
    return _shared(parts)


def _own_pages(record: Record) -> dict[str, str | None]:
    """Return the project's own pages and templates, in place of the shipped ones, with the digests of their declarations."""
    return {path: record.handbook.get(path) for path in record.policy_overrides}


def _new_waivers(now: Side, before: Side) -> list[NewWaiver]:
    known = {_identity(phase, waiver) for phase, given in before.waivers.items() for waiver in given}
    return [
        NewWaiver(phase, waiver.item, waiver.reason, waiver.by, waiver.when, now.committed.get(phase, {}).get(waiver))
        for phase, given in now.waivers.items()
        for waiver in given
        if _identity(phase, waiver) not in known
    ]


def _identity(phase: str, waiver: Waiver) -> tuple[str, ...]:
    return (phase, waiver.item, waiver.reason, waiver.by)


Records = Mapping[str, Envelope[Any]]
OF_A_RUN = (  # entries that a run's bits decide; times, memory and signals are not among them
    *("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "weights_sha256", "init_sha256"),
    *("steps", "chain", "metrics", "final", "first_loss", "parameters", "seed", "weights_tree_sha256"),
)


@dataclass(frozen=True)
class Contradiction:
    """A value on which the sides contradict each other: `what` it belongs to, its `key`, and the value of each side."""

    what: str
    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class LostOpening:
    """An opening of the test split that only one side knows; `change`: `lost`, or `replaced` by another of the same run."""

    run: str
    weights_sha256: str | None
    data_sha256: str | None
    change: str


def contradictions(now: Records, before: Records) -> list[Contradiction]:
    """Return the values on which both sides contradict each other.

    Args:
        now: The records by phase.
        before: The records of the version that it is compared with; a run may be in another phase's record there.
    """
    return [*_of_runs(now, before), *_of_weights(now, before)]


def _of_runs(now: Records, before: Records) -> Iterator[Contradiction]:
    """Yield the differing results of runs that are on both sides and must have the same bits."""
    known = _runs(before)
    for name, run in _runs(now).items():
        other = known.get(name)
        if other and _has_the_same_bits(run, other):
            for key in OF_A_RUN:
                yield from _parts(f"run {name}", key, getattr(other, key), getattr(run, key))


def _has_the_same_bits(run: Run, other: Run) -> bool:
    """Return True if both runs must have the same bits: one numerics class, and for a program the same hash chain."""
    return (not run.program or run.chain == other.chain) and run.numerics_class == other.numerics_class


def _runs(records: Records) -> dict[str, Run]:
    runs = (getattr(records[phase].evidence, "run", None) for phase in PHASES if phase in records)
    return {run.id: run for run in runs if run}


def _parts(what: str, key: str, before: Any, after: Any) -> Iterator[Contradiction]:
    """Yield the difference of two values; of a part or a mapping, the difference of each entry."""
    old, new = (side.written() if isinstance(side, Part) else side for side in (before, after))
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield Contradiction(what, f"{key}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield Contradiction(what, key, old, new)


def _of_weights(now: Records, before: Records) -> Iterator[Contradiction]:
    """Yield the differing test metrics of the same delivered weights, measured on the same data by the same code."""
    here, there = _final(now), _final(before)
    if here and there and here.test.samples and there.test.samples and _measured_by(here) == _measured_by(there):
        what = f"weights {here.delivered_sha256[:12]} on the test split"
        yield from _parts(what, "metrics", there.test.metrics, here.test.metrics)


def _final(records: Records) -> Finalization | None:
    return records["finalization"].evidence if "finalization" in records else None


def _measured_by(found: Finalization) -> tuple[str, ...]:
    """Return the digests that decide test metrics: of weights, data, code, environment and numerics."""
    run = found.run
    return (found.delivered_sha256, run.data_sha256, run.code_sha256, run.environment_sha256, run.numerics_class)


# --- the ledger -----------------------------------------------------------------------------------


def lost(now: Records, before: Records) -> list[LostOpening]:
    """Return the openings that the other side knows and this one does not: lost, or replaced by another."""
    here, there = (final.test.openings if (final := _final(side)) else [] for side in (now, before))
    by_run = {row.run: row for row in here}
    replaced = {
        row.run
        for row in there
        if (other := by_run.get(row.run))
        and any(known not in (None, theirs) for known, theirs in zip(_ledger(row), _ledger(other), strict=True))
    }
    gone = [row["run"] for row in missing(*([row.written() for row in rows] for rows in (there, here)))]
    rows = [(row, "lost") for row in there if row.run in gone and row.run not in replaced]
    rows += [(row, "replaced") for row in there if row.run in replaced]
    return [LostOpening(row.run, row.weights_sha256, row.data_sha256, change) for row, change in rows]


def _ledger(row: Opening) -> tuple[str | None, ...]:
    return (row.data_sha256, row.weights_sha256, row.purpose)
