"""One run as it is to be seen: its steps, evaluations, alerts and what is known of it, followed as its files grow."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from mltrainer.configs.loading import flatten
from mltrainer.errors import MltrainerError
from mltrainer.follow.log import ALERTS_FILE, Log, read_lines, slim
from mltrainer.follow.steps import Steps
from mltrainer.follow.tail import Tail
from mltrainer.follow.usage import Usage
from mltrainer.runs.contract import ERROR_FILE, RESULT_FILE
from mltrainer.runs.find import config_of, diagnose_run, result_of
from mltrainer.workspace import Project, is_locked, plain

POINTS = 1000  # a screen has hardly more columns
PACE_S = 5.0  # over so long the rate of steps is taken
SHOWN = ("id", "severity", "title", "reason", "page", "evidence", "changes")

Row = dict[str, Any]
Seen = tuple[int, int, int, int]  # how much of a run somebody has seen: how often it went back, its steps, rows and facts


class WatchedRun:
    """A run that is looked at.

    Args:
        project: Its project.
        id: The run.
    """

    def __init__(self, project: Project, id: str) -> None:
        self._project, self.id = project, id
        self.folder = project.runs_dir / id
        self.steps = Steps(self.folder)
        self._log, self._alerts = Log(self.folder, slim), Tail(self.folder / ALERTS_FILE)
        self._config = config_of(project, id)
        self._usage = Usage(self.folder / "lock", str(self._config.get("device")))
        self._pace: deque[tuple[float, int]] = deque()
        self._findings: dict[str, Row] = {}
        self._recorded: list[Row] = []
        self._ended: Row = {}
        self._state = ""
        self._times_back = self._facts_seen = 0

    # --- following ---

    def poll(self) -> bool:
        """Take what is new in the run's files; return whether anything is."""
        back, more = self.steps.poll()
        self._times_back += back
        if more:
            self._note_pace()
        logged, warned = self._log.poll(), self._take_alerts()
        self._facts_seen += warned or (logged and len(self._log.rows) < 2)  # facts reported at the start stand before them
        return more or logged or warned

    def look(self) -> bool:
        """Look at what changes seldom, and costs more to see: whether a process works on it, its result, its memory."""
        state = "running" if is_locked(self.folder / "lock") else self._end_state()
        usage = self._usage.sample() if state == "running" else None
        if state == self._state and usage is None:
            return False
        if state != self._state and state != "running":
            self.poll()  # what the process wrote last
            self._ended = self._result()
        self._state = state
        self._facts_seen += 1
        return True

    def _end_state(self) -> str:
        if (self.folder / RESULT_FILE).is_file() or not self.folder.is_dir():
            return "ended"
        return "failed" if (self.folder / ERROR_FILE).exists() else "interrupted"

    def _result(self) -> Row:
        """Return a run's result; its history and the findings of `diagnose` over it replace those noted while it ran."""
        found = result_of(self._project, self.id) or {}
        self._recorded = [slim(row) for row in found.get("history", [])]
        with contextlib.suppress(MltrainerError):
            if found:
                fired = [row for row in diagnose_run(self._project, self.id) if row["state"] == "fired"]
                told = self._findings  # while it trained, with the step
                self._findings = {row["id"]: {**told.get(row["id"], {}), **{key: row[key] for key in SHOWN}} for row in fired}
        return found

    def _take_alerts(self) -> bool:
        _, data = self._alerts.read()
        found = list(read_lines(data))
        for alert in found:
            self._findings.setdefault(str(alert.get("diagnostic")), {**alert, "id": alert.get("diagnostic")})
        return bool(found)

    def _note_pace(self) -> None:
        now = time.monotonic()
        self._pace.append((now, self.steps.last))
        while now - self._pace[0][0] > PACE_S:
            self._pace.popleft()

    # --- telling ---

    @property
    def rows(self) -> list[Row]:
        """The evaluations; of a clone, which has no log of the run, as the record holds them."""
        return self._log.rows or self._recorded

    @property
    def seen(self) -> Seen:
        """How much there is to be seen."""
        return self._times_back + self._log.times_back, self.steps.last, len(self.rows), self._facts_seen

    def since(self, seen: Seen | None) -> Row | None:
        """Return the run's updates since a state that was seen, everything if the run began anew; None where nothing is new."""
        if seen == self.seen:
            return None
        whole = seen is None or seen[0] != self.seen[0]
        _, last, rows, facts = seen if seen is not None and not whole else (0, 0, 0, -1)
        return {
            "run": self.id,
            "whole": whole,
            "last": self.steps.last,
            "rate": self._rate(),
            "steps": self.steps.view(last + 1, points=POINTS),
            "rows": self.rows[rows:],
            **({"facts": self.facts()} if facts != self._facts_seen else {}),
        }

    def picture(self, points: int) -> Row:
        """Return all there is to be seen, with the steps thinned to so many points."""
        shown = {"id": self.id, "first": self.steps.first, "last": self.steps.last, "rate": self._rate()}
        return {**shown, "steps": self.steps.view(points=points), "rows": self.rows, "facts": self.facts()}

    def facts(self) -> Row:
        """Return a run's facts beside its curves: state, metric, planned length, findings, usage and config."""
        found, config = self._ended, self._config
        return dict(
            plain(
                {
                    "state": found.get("state", "ended") if self._state == "ended" else self._state,
                    "stop_reason": found.get("stop_reason"),
                    "metric": metric_of(config, found),
                    "layers": self._log.observed.get("layers") or found.get("layers") or [],
                    "planned": {"steps": self._planned_steps(), "epochs": config.get("epochs")},
                    "wall_s": found.get("wall_s") if found else self._worked(),
                    "nonfinite": found.get("nonfinite"),
                    "interruptions": found.get("interruptions") or self._log.stopped,
                    "findings": sorted(self._findings.values(), key=lambda row: SEVERITIES.get(str(row.get("severity")), 9)),
                    "usage": self._usage.last if self._state == "running" else None,
                    "config": flatten(config) if config else {},
                }
            )
        )

    def _planned_steps(self) -> int | None:
        if self._ended.get("planned_steps"):
            return int(self._ended["planned_steps"])
        return planned_steps(self._config, self._log.observed.get("train_samples"))

    def _rate(self) -> float | None:
        """Return steps per second over the last seconds, None where none came."""
        if self._state != "running" or len(self._pace) < 2:
            return None
        (begun, first), (ended, last) = self._pace[0], self._pace[-1]
        return (last - first) / (ended - begun) if ended > begun and time.monotonic() - ended < PACE_S else None

    def _worked(self) -> float | None:
        with contextlib.suppress(OSError):
            return time.time() - (self.folder / "lock").stat().st_mtime if self._state == "running" else None
        return None


SEVERITIES = {"critical": 0, "warning": 1, "info": 2}


def metric_of(*known: Mapping[str, Any]) -> Row:
    """Return name and mode of the metric that chooses the best checkpoint, from what first tells it: a config, or a result."""
    told = (one["metric"] for one in known if isinstance(one.get("metric"), dict))
    found: Mapping[str, Any] = next(told, {})
    return {"name": str(found.get("name", "loss")), "mode": str(found.get("mode", "min"))}


def planned_steps(config: Mapping[str, Any], samples: Any) -> int | None:
    """Return the steps of a whole run, as its trainer plans them; None where not enough is known yet."""
    try:
        return math.ceil(int(samples) / int(config["batch_size"] * config["accumulate"])) * int(config["epochs"])
    except (KeyError, TypeError, ZeroDivisionError):
        return None
