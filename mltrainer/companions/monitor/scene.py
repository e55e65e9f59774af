"""The view of a project: its phases and gates, its runs, a running study, its reports."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mltrainer.checkpointing.ranking import best_row
from mltrainer.companions.monitor.run import KnownConfig, KnownResult, metric_of, planned_steps
from mltrainer.companions.monitor.shown import ItemShown, NextStep, PhaseShown, ProjectShown, ReportFile, RunSummary, StudyShown
from mltrainer.configs.project import Metric, load_project
from mltrainer.errors import MltrainerError
from mltrainer.follow.live import running_study, study_text
from mltrainer.follow.log import Log, ShownEvaluation, known, slim
from mltrainer.gates.digests import FileDigests
from mltrainer.gates.machine import PhaseState, advice, derive
from mltrainer.records.partial import partial
from mltrainer.records.run import Evaluation
from mltrainer.reproducibility.fingerprint import CHAIN_FILE
from mltrainer.runs.contract import ERROR_FILE, JOB_FILE, RESULT_FILE
from mltrainer.runs.find import config_of, result_of, run_ids
from mltrainer.runs.labels import Labels, labels_file, read_labels
from mltrainer.workspace import LOCK_FILE, PHASES, RUNNING_FILE, Project, is_locked, phase_folder, plain, read_if_whole

AGAIN_S = 20.0  # between checks of gates, which depend on files outside phases/, such as data and code
AGAIN_SHARE = 0.05  # most share of the time for these checks, if one takes longer than a second
AT_ONCE = 4  # runs shown without a choice


class Scene:
    """The view of a project beside the curves of its runs; it writes nothing into the project.

    Args:
        project: The project.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._digests = FileDigests(project)
        self._phases: list[PhaseState] = []
        self._derived: tuple[Any, float] = (None, 0.0)  # the files' marks, and the time until which the state is valid
        self._name = project.root.name
        self._summaries: dict[str, tuple[Any, RunSummary]] = {}
        self._logs: dict[str, Log[ShownEvaluation]] = {}
        self._labels: tuple[Any, Mapping[str, Labels]] = (None, {})
        self._unasked: list[str] = []

    def look(self) -> ProjectShown:
        """Return the project's present state."""
        study = running_study(self._project.state_dir, self._project.state_dir / RUNNING_FILE)
        is_busy = is_locked(self._project.state_dir / LOCK_FILE)
        states, runs = self._states(is_busy), self.runs()
        self._unasked = unasked(runs, self._unasked)
        return ProjectShown(
            project=self._name,
            folder=str(self._project.root),
            phases=[phase_row(state) for state in states],
            next=next_row(states),
            study=StudyShown(**study.model_dump(exclude_unset=True), text=study_text(study)) if study and is_busy else None,
            runs=runs,
            unasked=self._unasked,
            reports=reports(self._project),
        )

    def _states(self, is_busy: bool) -> list[PhaseState]:
        """Return every phase's state, derived again after a change of its files, and now and then."""
        files = [phase_folder(phase) for phase in PHASES]
        # Taken before the gates are derived: a file that changes meanwhile has another mark next time.
        marks = [is_busy, *(_mark(path) for name in files for path in sorted((self._project.root / name).glob("*.json")))]
        marks += [_mark(self._project.file), _mark(self._project.state_dir / RUNNING_FILE)]
        known, until = self._derived
        if known != marks or time.monotonic() > until:
            begun = time.monotonic()
            with contextlib.suppress(MltrainerError):  # a half-edited file: the last good state stays
                self._name = load_project(self._project.file).name
            with contextlib.suppress(MltrainerError):
                self._phases = derive(self._project, known=self._digests)
            now = time.monotonic()
            self._derived = marks, now + max(AGAIN_S, (now - begun) / AGAIN_SHARE)
        return self._phases

    def runs(self) -> list[RunSummary]:
        """Return every run's summary, the oldest first."""
        mark = _mark(labels_file(self._project))
        if mark != self._labels[0]:
            self._labels = mark, read_labels(self._project)
        return [_labelled(self._summary(run), self._labels[1]) for run in run_ids(self._project)]

    def _summary(self, run: str) -> RunSummary:
        folder = self._project.runs_dir / run
        is_running = is_locked(folder / "lock")
        mark = is_running, *(_mark(folder / name) for name in (RESULT_FILE, CHAIN_FILE, ERROR_FILE))
        known = self._summaries.get(run)
        if known is None or known[0] != mark:
            log = self._logs.setdefault(run, Log(folder, slim))
            log.poll()
            known = self._summaries[run] = mark, summary(self._project, run, is_running, log)
        return known[1]


def _labelled(run: RunSummary, labels: Mapping[str, Labels]) -> RunSummary:
    return replace(run, **vars(labels[run.id])) if run.id in labels else run


def unasked(runs: Sequence[RunSummary], before: Sequence[str]) -> list[str]:
    """Return the default runs: the training ones, else the ones shown before, else the newest.

    Args:
        runs: Summaries of all runs, the oldest first.
        before: Runs shown before.
    """
    live = [run.id for run in runs if run.state == "running"]
    there = {run.id for run in runs}
    return live[-AT_ONCE:] or [run for run in before if run in there] or [run.id for run in runs[-1:]]


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


# --- phases ---------------------------------------------------------------------------------------


def phase_row(state: PhaseState) -> PhaseShown:
    """Return a phase with its gate."""
    items = [ItemShown(item.id, item.statement, item.verdict, item.mend, plain(item.evidence)) for item in state.gate.items]
    return PhaseShown(state.name, state.state, state.reasons, items)


def next_row(states: list[PhaseState]) -> NextStep | None:
    """Return the next step; None if the project is done."""
    advised = advice(states) if states else None
    return None if advised is None else NextStep(advised.phase, advised.command, advised.explained)


def reports(project: Project) -> list[ReportFile]:
    """Return the rendered reports in the phases' folders."""
    folders = {phase: project.phase_dir(phase) for phase in PHASES}
    paths = [(phase, path) for phase in PHASES for depth in ("*.md", "*/*.md") for path in sorted(folders[phase].glob(depth))]
    return [
        ReportFile(
            path=project.relative(path),
            phase=phase,
            title=path.relative_to(folders[phase]).with_suffix("").as_posix().replace("_", " "),
        )
        for phase, path in paths
    ]


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownJob:
    """The shown entries of a run's job; any may be missing."""

    phase: str | None = None
    parent: str | None = None
    contract: Mapping[str, Any] | None = None

    @property
    def forked_from(self) -> str | None:
        """The id of the run that it was forked from."""
        return self.parent if "parent_sha256" in (self.contract or {}) else None


@dataclass(frozen=True)
class _Progress:
    """A run's progress in steps, and the metrics of its summary."""

    step: int | None
    steps: int | None
    epoch: float | None
    metrics: Mapping[str, Any]


def summary(project: Project, run: str, is_running: bool, log: Log[ShownEvaluation]) -> RunSummary:
    """Return a run's summary: its purpose, its progress and the metric that chooses its best checkpoint.

    Args:
        project: The project.
        run: The run's id.
        is_running: Whether a process works on it.
        log: The run's log so far.
    """
    folder = project.runs_dir / run
    job = known(KnownJob, read_if_whole(folder / JOB_FILE))
    result = None if is_running else _result(project, run)
    config = known(KnownConfig, config_of(project, run))
    came = _so_far(folder, config, log) if result is None else _ended(result)
    ended = (result and result.state) or ("failed" if (folder / ERROR_FILE).exists() else "interrupted")
    return RunSummary(
        id=run,
        phase=(result and result.phase) or job.phase,
        parent=job.forked_from,
        state="running" if is_running else ended,
        begun=_start_time(folder),
        metric=metric_of(config.metric, result and result.metric),
        planned=config.epochs,
        step=came.step,
        steps=came.steps,
        epoch=came.epoch,
        metrics=came.metrics,
        seconds=result.wall_s if result else None,
    )


def _result(project: Project, run: str) -> KnownResult | None:
    """Return a run's result from its folder, without a check of its seal, else from a record."""
    found = read_if_whole(project.runs_dir / run / RESULT_FILE) or result_of(project, run)
    return known(KnownResult, {key: value for key, value in found.items() if key != "history"}) if found else None


def _ended(result: KnownResult) -> _Progress:
    metrics = partial(Evaluation, result.best).flat if result.best else result.metrics or {}
    return _Progress(result.steps, result.planned_steps, result.epochs, metrics)


def _so_far(folder: Path, config: KnownConfig, log: Log[ShownEvaluation]) -> _Progress:
    """Return the progress of a run without a result; the metrics are those of its best evaluation."""
    best = _best(log.rows, config)
    train = {f"train_{name}": value for name, value in best.train.items()} if best else {}
    return _Progress(
        step=_last_step(folder),
        steps=planned_steps(config, log.observed.train_samples),
        epoch=log.rows[-1].epoch if log.rows else 0,
        metrics={**best.validation, **train} if best else {},
    )


def _best(rows: Sequence[ShownEvaluation], config: KnownConfig) -> ShownEvaluation | None:
    """Return the evaluation of a run's summary, of those that have the metric."""
    shown_metric, given = metric_of(config.metric), config.metric
    ties: Literal["first", "loss"] = "loss" if isinstance(given, dict) and given.get("ties") == "loss" else "first"
    metric = Metric.model_construct(name=shown_metric.name, mode=shown_metric.mode, ties=ties)  # type: ignore[arg-type]  # as its file has it
    return best_row((row for row in rows if row.validation.get(metric.name) is not None), metric)


def _last_step(folder: Path) -> int:
    """Return the last step of a run's chain, of which only the end is read."""
    try:
        with open(folder / CHAIN_FILE, "rb") as file:
            start = file.seek(max(0, os.fstat(file.fileno()).st_size - 512))
            # The first line may be cut by the reading offset, and the last may still be written.
            lines = file.read().split(b"\n")[1 if start else 0 : -1]
    except OSError:
        return 0
    steps = [line.split(b" ")[0 if not line.startswith(b"w ") else 1] for line in lines]
    return int(steps[-1]) if steps and steps[-1].isdigit() else 0


def _start_time(folder: Path) -> float | None:
    with contextlib.suppress(OSError):
        return (folder / JOB_FILE).stat().st_mtime
    return None
