"""The view of one run: its steps, evaluations, alerts and facts, followed as its files grow."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mltrainer.companions.monitor.shown import Facts, FindingShown, MetricShown, News, Planned
from mltrainer.configs.loading import flatten
from mltrainer.errors import MltrainerError
from mltrainer.figures.series import followed
from mltrainer.follow.log import ALERTS_FILE, Log, ShownEvaluation, known, read_lines, slim
from mltrainer.follow.steps import Steps, StepsView
from mltrainer.follow.tail import Tail
from mltrainer.follow.usage import Usage
from mltrainer.records.partial import partial
from mltrainer.records.run import Speed
from mltrainer.reports.views import speed_words
from mltrainer.runs.contract import ERROR_FILE, RESULT_FILE
from mltrainer.runs.find import config_of, diagnose_run, result_of
from mltrainer.workspace import Project, is_locked, plain

POINTS = 1000  # a screen has hardly more columns
PACE_S = 5.0  # time over which the rate of steps is measured
SEVERITIES = {"critical": 0, "warning": 1, "info": 2}

Seen = tuple[int, int, int, int]  # a viewer's state of a run: number of rewinds, steps, rows and facts


@dataclass(frozen=True)
class KnownConfig:
    """The shown entries of a config, and those that decide its run's length; any may be missing."""

    metric: Any = None
    device: Any = None
    batch_size: Any = None
    accumulate: Any = None
    epochs: Any = None


@dataclass(frozen=True)
class KnownResult:
    """The shown entries of a result; any may be missing."""

    phase: str | None = None
    state: str | None = None
    stop_reason: str | None = None
    metric: Any = None
    metrics: Mapping[str, Any] | None = None
    best: Mapping[str, Any] | None = None
    layers: Sequence[str] | None = None
    steps: int | None = None
    epochs: float | None = None
    planned_steps: int | None = None
    wall_s: float | None = None
    speed: Mapping[str, Any] | None = None
    nonfinite: Mapping[str, Any] | None = None
    interruptions: Sequence[Mapping[str, Any]] | None = None
    history: Sequence[Mapping[str, Any]] = field(default=(), repr=False)


class WatchedRun:
    """A followed run.

    Args:
        project: The run's project.
        id: The run's id.
    """

    def __init__(self, project: Project, id: str) -> None:
        self._project, self.id = project, id
        self.folder = project.runs_dir / id
        self.steps = Steps(self.folder)
        self._log, self._alerts = Log(self.folder, slim), Tail(self.folder / ALERTS_FILE)
        self._config = config_of(project, id)
        self._run_config = known(KnownConfig, self._config)
        self._usage = Usage(self.folder / "lock", str(self._run_config.device))
        self._pace: deque[tuple[float, int]] = deque()
        self._findings: dict[str, FindingShown] = {}
        self._recorded: list[ShownEvaluation] = []
        self._ended: KnownResult | None = None
        self._state = ""
        self._times_back = self._facts_seen = 0

    # --- following ---

    def poll(self) -> bool:
        """Read new content of the run's files; return whether there is any."""
        back, more = self.steps.poll()
        self._times_back += back
        if more:
            self._note_pace()
        logged, warned = self._log.poll(), self._take_alerts()
        self._facts_seen += warned or (logged and len(self._log.rows) < 2)  # facts reported at the start come before them
        return more or logged or warned

    def look(self) -> bool:
        """Refresh the costly facts that change seldom: whether a process works on it, its result, its memory."""
        state = "running" if is_locked(self.folder / "lock") else self._end_state()
        usage = self._usage.sample() if state == "running" else None
        if state == self._state and usage is None:
            return False
        if state != self._state and state != "running":
            self.poll()  # the process's last lines
            self._ended = self._result()
        self._state = state
        self._facts_seen += 1
        return True

    def _end_state(self) -> str:
        if (self.folder / RESULT_FILE).is_file() or not self.folder.is_dir():
            return "ended"
        return "failed" if (self.folder / ERROR_FILE).exists() else "interrupted"

    def _result(self) -> KnownResult | None:
        """Return a run's result; its history and the findings of `diagnose` replace those from the training."""
        recorded = result_of(self._project, self.id)
        if not recorded:
            self._recorded = []
            return None
        result = known(KnownResult, recorded)
        self._recorded = [slim(row) for row in result.history]
        with contextlib.suppress(MltrainerError):
            fired = [
                known(FindingShown, row.model_dump()) for row in diagnose_run(self._project, self.id) if row.state == "fired"
            ]
            self._findings = {row.id: self._placed(row) for row in fired}
        return result

    def _placed(self, finding: FindingShown) -> FindingShown:
        """Return a finding over the whole run, with the epoch and step of its report during training."""
        reported = self._findings.get(finding.id)
        return replace(finding, epoch=reported.epoch, step=reported.step) if reported else finding

    def _take_alerts(self) -> bool:
        _, data = self._alerts.read()
        lines = list(read_lines(data))
        for alert in lines:
            name = str(alert.get("diagnostic"))
            self._findings.setdefault(name, replace(known(FindingShown, alert), id=name))
        return bool(lines)

    def _note_pace(self) -> None:
        now = time.monotonic()
        self._pace.append((now, self.steps.last))
        while now - self._pace[0][0] > PACE_S:
            self._pace.popleft()

    # --- telling ---

    @property
    def rows(self) -> list[ShownEvaluation]:
        """The evaluations; in a clone, which has no log of the run, the record's."""
        return self._log.rows or self._recorded

    @property
    def seen(self) -> Seen:
        """The present state, to compare with a viewer's."""
        return self._times_back + self._log.times_back, self.steps.last, len(self.rows), self._facts_seen

    def since(self, seen: Seen | None) -> News | None:
        """Return the run's updates since a viewer's state, everything if the run was restarted; None without updates."""
        if seen == self.seen:
            return None
        whole = seen is None or seen[0] != self.seen[0]
        _, last, rows, facts = seen if seen is not None and not whole else (0, 0, 0, -1)
        steps = self.steps_view(last + 1, None, POINTS)
        facts_now = self.facts() if facts != self._facts_seen else None
        return News(self.id, whole, self.steps.first, self.steps.last, self._rate(), steps, self.rows[rows:], facts_now)

    def steps_view(self, first: int | None, last: int | None, points: int) -> StepsView:
        """Return the steps of a range, with gaps for those that were left out because of a spike."""
        return self.steps.view(first, last, points, self._log.left_out)

    def facts(self) -> Facts:
        """Return a run's facts beside its curves."""
        ended, observed = self._ended or KnownResult(), self._log.observed
        metric, layers = metric_of(self._run_config.metric, ended.metric), observed.layers or ended.layers or []
        first = self.rows[0] if self.rows else ShownEvaluation()
        return Facts(
            state=(ended.state or "ended") if self._state == "ended" else self._state,
            stop_reason=ended.stop_reason,
            metric=metric,
            layers=layers,
            planned=Planned(self._planned_steps(), self._run_config.epochs),
            wall_s=ended.wall_s if self._ended else self._worked(),
            speed=speed_words(partial(Speed, ended.speed)) if ended.speed else None,
            tokens_per_sample=observed.tokens_per_sample,
            nonfinite=ended.nonfinite,
            interruptions=ended.interruptions or plain(self._log.stopped),
            findings=sorted(self._findings.values(), key=lambda one: SEVERITIES.get(str(one.severity), 9)),
            usage=self._usage.last if self._state == "running" else None,
            config=plain(flatten(self._config)) if self._config else {},
            charts=followed(metric.name, layers, first.terms, [*first.validation, *first.train]),
        )

    def _planned_steps(self) -> int | None:
        if self._ended and self._ended.planned_steps:
            return int(self._ended.planned_steps)
        return planned_steps(self._run_config, self._log.observed.train_samples)

    def _rate(self) -> float | None:
        """Return steps per second over the last seconds, None without a step."""
        if self._state != "running" or len(self._pace) < 2:
            return None
        (begun, first), (ended, last) = self._pace[0], self._pace[-1]
        return (last - first) / (ended - begun) if ended > begun and time.monotonic() - ended < PACE_S else None

    def _worked(self) -> float | None:
        with contextlib.suppress(OSError):
            return time.time() - (self.folder / "lock").stat().st_mtime if self._state == "running" else None
        return None


def metric_of(*sources: Any) -> MetricShown:
    """Return the metric that chooses the best checkpoint, from the first source that has one: a config, or a result."""
    source = next((one for one in sources if isinstance(one, dict)), {})
    return MetricShown(**{key: str(source[key]) for key in ("name", "mode") if key in source})


def planned_steps(config: KnownConfig, samples: Any) -> int | None:
    """Return the steps of a whole run, by its trainer's plan; None if too little is known yet."""
    try:
        return math.ceil(int(samples) / int(config.batch_size * config.accumulate)) * int(config.epochs)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
