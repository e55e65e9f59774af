"""Lookups of runs: by id, prefix or phase; their descriptions, comparisons and diagnoses."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.checkpointing.ranking import rank
from mltrainer.configs.loading import flatten
from mltrainer.configs.project import Metric
from mltrainer.diagnostics.rules import diagnose, suggested_changes
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.follow.log import interruptions, read_rows, steps_written
from mltrainer.records.common import Part
from mltrainer.records.diagnostics import AdvisedDiagnosis, Diagnosis
from mltrainer.records.partial import partial
from mltrainer.records.reading import Record, read_record, run_of, sound_record, sound_records
from mltrainer.records.run import Evaluation, TrainingResult
from mltrainer.reports.runs import Difference, MetricDifference, RunComparison, RunRow, SpeedDifference, noise_of_comparison
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.packs import packed, read_packed, restore
from mltrainer.runs.contract import ERROR_FILE, JOB_FILE, RESULT_FILE
from mltrainer.tasks.statistics import SeedNoise, metric_verdict, seed_noise
from mltrainer.workspace import OF_MANY, PHASES, Project, digest, is_locked, is_sealed, read_if_whole

if TYPE_CHECKING:
    from mltrainer.records.envelope import Envelope

Results = dict[str, dict[str, Any]]  # by run
DIGESTS = (
    *("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "inputs_sha256"),
    *("numerics_class", "weights_sha256", "weights_tree_sha256"),
)
TREE_DIGEST = DIGESTS[-1]
BESIDE = (*OF_MANY, "diagnose")  # what runs name as their phase that can train at the same time as others
_SHOWN = [entry.name for entry in fields(RunRow)]
_ID = re.compile(r"[0-9a-f]{12}")  # a run that was set aside has a longer name


class _Job(Part):
    """The part of a job that is shown of a run that trains, or has not ended."""

    phase: str | None
    parent: str | None
    contract: dict[str, str]
    config: dict[str, Any]


def find_run(project: Project, name: str | None) -> str:
    """Return the id of a run; a packed run gets its folder back.

    Args:
        project: The project.
        name: A run's id, a unique prefix of one, a phase's name for its current run, or None for the newest phase's.

    Raises:
        InputError: There is no such run, a prefix fits several, or a pack is damaged.
    """
    if name is None or name in PHASES:
        return _phase_run(project, name)
    packs = packed(project.runs_dir)
    matches = [run for run in dict.fromkeys([*packs, *run_ids(project)]) if name and run.startswith(name)]
    if len(matches) == 1 or name in matches:
        run = name if name in matches else matches[0]
        restore(project.runs_dir, run, packs)
        return run
    if matches:
        raise InputError(f"{name!r} matches {len(matches)} runs: {', '.join(matches[:5])}", hint="type more of the id")
    raise InputError.unknown("run", name or "", [*packs, *run_ids(project)], hint="mltrainer runs list")


def _phase_run(project: Project, phase: str | None) -> str:
    """Return the run that a phase trains now, else its record's; without a phase, the run of the newest in the present chain.

    A phase without a record that names one has the run that it began last, and did not end.
    """
    begun = _own_runs(project, phase) if phase else []
    if begun and is_locked(project.runs_dir / begun[-1] / "lock"):
        return begun[-1]
    for record in [read_record(project, phase)] if phase else reversed(_chain(project)):
        if record is not None and (run := run_of(record)) is not None:
            return run
    if begun:
        return begun[-1]
    if phase == PHASES[0]:
        raise InputError("planning has no run: its two probes only show that a few steps repeat", hint="mltrainer runs list")
    skipped = phase is not None and (record := read_record(project, phase)) and record.evidence.get("skipped") is True
    why = "was skipped and has no run" if skipped else "has no run yet"
    raise InputError(f"{phase or 'the project'} {why}", hint="mltrainer runs list" if skipped else "mltrainer run")


def _own_runs(project: Project, phase: str) -> list[str]:
    """Return the runs here that a phase itself began, oldest first, without forks."""
    jobs = {run: _job_of(project.runs_dir / run) for run in runs_here(project)}
    return [run for run, job in jobs.items() if job.phase == phase and "parent_sha256" not in job.contract]


def _job_of(folder: Path) -> _Job:
    return partial(_Job, read_if_whole(folder / JOB_FILE))


def _chain(project: Project) -> list[Record]:
    """Return the records from planning on, as far as each continues the one before."""
    chain: list[Record] = []
    for phase in PHASES:
        record = read_record(project, phase)
        if record is None or record.faults or record.trusted.previous != (chain[-1].sha256 if chain else None):
            break
        chain.append(record)
    return chain


def run_ids(project: Project) -> list[str]:
    """Return the ids of all runs, oldest first; those known only from a phase's record, as in a fresh clone, come last.

    Packed runs are not among them.
    """
    return list(dict.fromkeys([*runs_here(project), *recorded_runs(project)]))


def runs_here(project: Project) -> list[str]:
    """Return the ids of the runs whose folders are here, oldest first."""
    folders = project.runs_dir.iterdir() if project.runs_dir.is_dir() else []
    here = [folder for folder in folders if _ID.fullmatch(folder.name) and (folder / JOB_FILE).is_file()]
    here.sort(key=lambda folder: ((folder / JOB_FILE).stat().st_mtime, folder.name))
    return [folder.name for folder in here]


def recorded_runs(project: Project) -> Results:
    """Return the results that the phases' records hold, by run."""
    runs = (record.evidence.get("run") for phase in PHASES if (record := read_record(project, phase)))
    return {run["id"]: run for run in runs if isinstance(run, dict) and _ID.fullmatch(str(run.get("id")))}


def list_runs(project: Project) -> list[RunRow]:
    """Return every run, packed ones first, then oldest first; each record is read once."""
    recorded, packs = recorded_runs(project), packed(project.runs_dir)
    here = dict.fromkeys([*runs_here(project), *recorded])
    results = {run: result for path in dict.fromkeys(packs.values()) for run, result in read_packed(path, RESULT_FILE)}
    shown = [_row({**result, "id": run}) for run, result in results.items() if run not in here]
    return shown + [_described(project, run, lambda: recorded) for run in here]


def describe_run(project: Project, run: str) -> RunRow:
    """Return a run; from the committed records where the run's folder is not here.

    Of a run that trains now, and of one that ended without a result, it has the values written so far.

    Raises:
        InputError: Its folder is not here, and no record holds its result.
    """
    return _described(project, run, lambda: recorded_runs(project))


def _described(project: Project, run: str, recorded: Callable[[], Results]) -> RunRow:
    folder = project.runs_dir / run
    is_running = is_locked(folder / "lock")
    result = None if is_running else _own_result(project, run) or recorded().get(run)
    if result is None and not folder.is_dir():
        hint = "look at it where it was trained"
        raise InputError(f"run {run} is not here, and no record holds its result", where=project.relative(folder), hint=hint)
    if result is None:
        result = {**_so_far(folder), "id": run, "state": "failed" if (folder / ERROR_FILE).exists() else "interrupted"}
    shown = _row(result)
    # The lock file is written when a process takes it, so that its time is that of the start.
    return replace(shown, state="running", wall_s=time.time() - (folder / "lock").stat().st_mtime) if is_running else shown


def _row(result: Mapping[str, Any]) -> RunRow:
    known: dict[str, Any] = {key: result.get(key) for key in _SHOWN}
    if partial(TrainingResult, result).is_without_steps:
        known["steps"] = None
    return RunRow(**known)


def _so_far(folder: Path) -> dict[str, Any]:
    """Return the state of a run without a result, by its job and its log; the metrics are those of the best evaluation so far."""
    job, history = _job_of(folder), read_rows(folder)
    best = _best(job, history)
    measured = {
        "steps": steps_written(folder),
        "epochs": history[-1]["epoch"] if history else 0,
        "metrics": partial(Evaluation, best).flat if best else {},
        "step_time_us": {"median": None, "p95": None},  # known once a run's process has ended
        "interruptions": [stop.written() for stop in interruptions(folder)],
    }
    return {**job.contract, "phase": job.phase, "parent": job.parent, **measured}


def _best(job: _Job, history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the best evaluation so far; None if there is none, or if the job names no metric to choose it by."""
    try:
        metric = Metric.model_validate(job.config["metric"])
        return max(history, key=lambda row: rank(row["validation"], metric), default=None)
    except (KeyError, TypeError, ValueError):
        return None


def result_of(project: Project, run: str) -> dict[str, Any] | None:
    """Return a run's result: its own if it is unchanged, else the one in a phase's record."""
    return _own_result(project, run) or recorded_runs(project).get(run)


def _own_result(project: Project, run: str) -> dict[str, Any] | None:
    """Return a run's own result if it is unchanged."""
    own = read_if_whole(project.runs_dir / run / RESULT_FILE)
    return own if is_sealed(own) else None


def steps_of(project: Project, run: str) -> list[dict[str, Any]]:
    """Return loss and gradient norm of each step that a run has written; empty if its folder is not here."""
    lines = (line.split() for line in fingerprint.read(project.runs_dir / run / fingerprint.CHAIN_FILE))
    value = fingerprint.float_of
    return [{"step": int(w[0]), "loss": value(w[2]), "grad_norm": value(w[3])} for w in lines if w[0] != "w"]


def compare_runs(project: Project, first: str, second: str) -> RunComparison:
    """Return the differences of two runs: config keys, digests, metrics, and the first step at which they differ."""
    sides = [_side(project, run) for run in (first, second)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    # Of two runs of which one has digests of weights over all bytes alone, those are compared.
    names = [name for name in names if name != TREE_DIGEST or all(side.get(name) for side in sides)]
    names = [name for name in names if not _is_compared_by_entries(name, sides)]
    differences = [Difference(n, sides[0].get(n), sides[1].get(n)) for n in names if sides[0].get(n) != sides[1].get(n)]
    results = [result_of(project, run) or {} for run in (first, second)]
    chains = [fingerprint.read(project.runs_dir / run / fingerprint.CHAIN_FILE) for run in (first, second)]
    return RunComparison(
        first,
        second,
        differences,
        fingerprint.first_divergence(*chains),
        steps_compared=min(sum(not line.startswith("w ") for line in chain) for chain in chains),
        metric=metric_difference(project, *results),
        speed=_speed_difference(project, *results) if first != second else None,
    )


def _is_compared_by_entries(name: str, sides: Sequence[Mapping[str, Any]]) -> bool:
    """Return True for a group that is empty on one side, where the other side has entries in it."""
    is_empty = any(side.get(name) == {} for side in sides)
    return is_empty and any(key.startswith(f"{name}.") for side in sides for key in side)


def _speed_difference(project: Project, first: Mapping[str, Any], second: Mapping[str, Any]) -> SpeedDifference | None:
    one, other = (partial(TrainingResult, side) for side in (first, second))
    if one.speed is None or other.speed is None:
        return None
    rates = ([run.speed.samples_per_s for run in runs if run.speed] for runs in _runs_by_config(project, one))
    noise = seed_noise([math.log(rate) for rate in each if rate] for each in rates)
    beside = [run.phase for run in (one, other) if run.phase in BESIDE]
    return SpeedDifference.of(one.speed, other.speed, noise, beside[0] if len(beside) == 1 else None)


def metric_difference(project: Project, first: Mapping[str, Any], second: Mapping[str, Any]) -> MetricDifference | None:
    """Return the difference in two results' chosen metric, judged by its samples and by the noise of seeds in the project.

    None where the two have no such metric in common.
    """
    sides = [partial(TrainingResult, side) for side in (first, second)]
    name, mode = sides[0].metric.name, sides[0].metric.mode
    old, new = (side.metrics.get(name) for side in sides)
    if sides[0].metric != sides[1].metric or not isinstance(old, int | float) or not isinstance(new, int | float):
        return None
    counts = {side.measured_samples.get("validation") for side in sides}
    count = counts.pop() if len(counts) == 1 else None
    noise = noise_of_seeds(project, sides[0])
    better = sides[(new > old) == (mode == "max")]
    return MetricDifference(name, mode, **metric_verdict(name, mode, old, new, count, noise), tries=_tries(project, better))


def noise_of_seeds(project: Project, like: TrainingResult) -> SeedNoise | None:
    """Return the noise of a run's metric among runs on the same data and code whose configs differ in the seed alone.

    In a clone, which has no runs, it is that of the comparison that the record of optimization holds.
    """
    values = ([run.metrics.get(like.metric.name) for run in runs] for runs in _runs_by_config(project, like))
    known = [[value for value in each if isinstance(value, int | float)] for each in values]
    record = sound_record(project, "optimization")
    return seed_noise(known) or (noise_of_comparison(record.evidence) if record else None)


def _runs_by_config(project: Project, like: TrainingResult) -> list[list[TrainingResult]]:
    """Return the finished runs on a run's data and code with its metric; in one list are those that differ in the seed alone."""
    groups: dict[str, list[TrainingResult]] = {}
    for run in runs_here(project):
        result = partial(TrainingResult, _own_result(project, run) or {})
        same = (result.data_sha256, result.code_sha256, result.metric) == (like.data_sha256, like.code_sha256, like.metric)
        if same and result.state == "finished":
            groups.setdefault(digest({**config_of(project, run), "seed": 0}), []).append(result)
    return [*groups.values()]


def _tries(project: Project, better: TrainingResult) -> int:
    """Return the number of trials of which a run's config was chosen as the best; 1 where it was not chosen by a search."""
    record = sound_record(project, "optimization")
    trials = getattr(record.evidence, "trials", []) if record is not None else []
    if record is None or not trials or better.phase not in ("optimization", "finalization"):
        return 1
    return len(trials) if better.phase == "optimization" or record.evidence.promoted == "candidate" else 1


def _side(project: Project, run: str) -> dict[str, Any]:
    row = describe_run(project, run)
    digests = {key: getattr(row, key) for key in DIGESTS}
    return {**flatten(config_of(project, run)), **digests, **(row.metrics if isinstance(row.metrics, dict) else {})}


def diagnoses_of(project: Project, run: str) -> list[Diagnosis]:
    """Return every diagnostic's finding on a run.

    Raises:
        InputError: The run has no result.
    """
    result = result_of(project, run)
    if result is None:
        raise InputError(f"run {run} has no result yet", hint="mltrainer run")
    return diagnose(Run.of(result, references_of(project, run), config_of(project, run)), project.root)


def diagnose_run(project: Project, run: str) -> list[AdvisedDiagnosis]:
    """Return `diagnoses_of` a run, with concrete config changes for those that fired.

    Raises:
        InputError: The run has no result.
    """
    rows, config = diagnoses_of(project, run), config_of(project, run)
    return [AdvisedDiagnosis(**vars(row), changes=suggested_changes([row], config)) for row in rows]


def references_of(project: Project, run: str) -> dict[str, Any] | None:
    """Return the plain models that a run was compared with, from a phase's record."""
    evidences = (record.evidence for record in sound_records(project) if _has_run(record, run))
    references = next((getattr(evidence, "references", None) for evidence in evidences), None)
    return references.written() if references is not None else None


def _has_run(record: Envelope[Any], run: str) -> bool:
    """Return True if a record's evidence holds a run's result."""
    held = getattr(record.evidence, "run", None)
    return held is not None and held.id == run


def config_of(project: Project, run: str) -> dict[str, Any]:
    """Return a run's config; in a fresh clone from the records, where the final training's config is beside its run.

    Empty for a run that is not here and whose result no record holds.
    """
    if config := _job_of(project.runs_dir / run).config:
        return config
    records = sound_records(project)
    holding = [record for record in records if _has_run(record, run)]
    configs = [record.evidence.config for record in [*holding, *records] if hasattr(record.evidence, "config")]
    return dict(configs[0]) if holding and configs else {}
