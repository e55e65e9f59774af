"""Sends the runs of a phase to one tracker while they are trained, and the gates' verdicts when the phase has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from mltrainer.companions.trackers.feed import Feed, Sent, TrackedJob, files_upto, verdicts
from mltrainer.companions.trackers.sink import Begin, Place, Point
from mltrainer.configs.tracking import Tracker
from mltrainer.follow.log import known
from mltrainer.gates.gate import check_gates
from mltrainer.records.reading import read_record, run_of
from mltrainer.runs.contract import JOB_FILE
from mltrainer.workspace import Project, read_json, write_json

FOLDER = "tracking"  # in a run's folder: the part that each tracker has
Late = Callable[[], None]


class PhaseSender:
    """The runs of a phase, as one tracker shows them.

    Args:
        project: The project.
        phase: The phase.
        since: Time of the phase's start, in seconds since 1970.
        tracker: Name of the tracker.
        options: The tracker's section of the config.
        begin: The adapter's `begin` function.
        late: Function called from another thread when the tracker has not answered for `options.wait_s`.
    """

    def __init__(
        self, project: Project, phase: str, since: float, tracker: str, options: Tracker, begin: Begin, late: Late
    ) -> None:
        self._project, self._phase, self._since = project, phase, since
        self._tracker, self._options, self._begin, self._late = tracker, options, begin, late
        self._shown: dict[str, _Shown] = {}

    def look(self) -> bool:
        """Send a piece of each run's updates; return True if there may be more."""
        runs = runs_since(self._project, self._phase, self._since)
        return sum(self._of(run).send(is_running=True) for run in runs) > 0

    def end(self, has_ended: bool) -> None:
        """Send the rest.

        Args:
            has_ended: The phase has a new record: the run that it is about gets reports, figures and verdicts, and what it was
                not sent yet, also where it was trained before the tracker was switched on.
        """
        while self.look():
            pass
        about = about_run(self._project, self._phase) if has_ended else None
        if about is not None:
            with within(self._options.wait_s, self._late):
                self._of(about).conclude(self._phase)
        for shown in self._shown.values():
            with within(self._options.wait_s, self._late):
                shown.close()

    def _of(self, run: str) -> _Shown:
        if run not in self._shown:
            with within(self._options.wait_s, self._late):
                self._shown[run] = _Shown(self._project, run, self._tracker, self._options, self._begin, self._late)
        return self._shown[run]

    def progress(self) -> str:
        """Return each run's sent steps in words, for the report of an incomplete transfer."""
        parts = [f"run {run}: step {shown.sent.step} of {shown.feed.last}" for run, shown in self._shown.items()]
        return "; ".join(parts) or "nothing was sent"


class _Shown:
    """A run in a tracker; the sent part is recorded on the disk, so that a later process sends nothing twice."""

    def __init__(self, project: Project, run: str, tracker: str, options: Tracker, begin: Begin, late: Late) -> None:
        self._project, self._wait_s, self._late = project, options.wait_s, late
        self.feed = Feed(project, run, options.every_n_steps)
        self._path = self.feed.folder / FOLDER / f"{tracker}.json"
        self.sent = Sent(**read_json(self._path)) if self._path.is_file() else Sent()
        known = self.sent.id
        self._sink = begin(Place(project.root, self.feed.name, run, self.feed.phase, known, self.sent.step), options)
        if known is None:
            self._sink.params(self.feed.params())
        self._sink.tags({**self.feed.tags(), "state": "running"})
        # After the config, which is not sent again to a run with a recorded id.
        self._note(replace(self.sent, id=self._sink.id))

    def send(self, is_running: bool) -> bool:
        """Send a limited piece of the run's updates; return True if something was sent."""
        self.feed.poll()
        points, then = self.feed.after(self.sent)
        if then.back != self.sent.back:
            with within(self._wait_s, self._late):
                self._sink.tags(self.feed.tags())
        # Sent, then recorded: a process killed in between sends points twice, but loses none.
        self._give(points + (self.feed.usage() if is_running else []))
        is_new = then != self.sent
        self._note(then)
        return is_new

    def _give(self, points: list[Point]) -> None:
        if points:
            with within(self._wait_s, self._late):
                self._sink.metrics(points)

    def conclude(self, phase: str) -> None:
        """Send the rest, with the verdicts, figures and files of the phases up to one."""
        while self.send(is_running=False):
            pass
        self._sink.tags(verdicts(check_gates(self._project)))
        for name, path, digest in files_upto(self._project, phase):
            if self.sent.files.get(name) != digest:
                (self._sink.figure if path.suffix == ".svg" else self._sink.artifact)(name, path)
                self._note(replace(self.sent, files={**self.sent.files, name: digest}))

    def close(self) -> None:
        """Send the run's state, and close it."""
        state = self.feed.state()
        self._sink.tags({**self.feed.tags(), "state": state})
        self._sink.close(state)

    def _note(self, sent: Sent) -> None:
        if sent != self.sent:
            self.sent = sent
            write_json(self._path, asdict(sent))


@contextmanager
def within(seconds: float, late: Late) -> Iterator[None]:
    """Call a function from another thread if a block takes longer."""
    timer = threading.Timer(seconds, late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def runs_since(project: Project, phase: str, since: float) -> list[str]:
    """Return the runs that a phase began or continued since a moment."""
    dated_runs: list[tuple[float, str]] = []
    for path in project.runs_dir.glob(f"*/{JOB_FILE}"):
        changed = path.stat().st_mtime
        if changed >= since and known(TrackedJob, read_json(path)).phase == phase:
            dated_runs.append((changed, path.parent.name))
    return [run for _, run in sorted(dated_runs)]


def about_run(project: Project, phase: str) -> str | None:
    """Return the run of a phase's record, or the baseline's if the record has none; None if it is not here."""
    for name in (phase, "baseline"):
        record = read_record(project, name)
        run = run_of(record) if record is not None else None
        if run is not None and (project.runs_dir / run / JOB_FILE).is_file():
            return run
    return None
