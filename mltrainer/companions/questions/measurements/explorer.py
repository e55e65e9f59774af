"""One question about a training, answered by real steps of it in a separate process, without making a run."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mltrainer.companions.questions.catalogue import EXPLORED
from mltrainer.companions.questions.findings import ExplorerSettings
from mltrainer.errors import StoppedError
from mltrainer.records.job import ExplorationJob
from mltrainer.records.partial import partial
from mltrainer.tools.program import EXIT_CODES, Events, StopSignals
from mltrainer.trainers.native.data.addresses import Plan, Step, altered, training_steps
from mltrainer.trainers.native.session import Session
from mltrainer.workspace import write_json


def work(job: ExplorationJob, root: Path, events: Events) -> int:
    """Answer a job's question; the answer goes to `result.json` in the job's folder.

    Args:
        job: The question.
        root: The project's folder.
        events: Sink of progress events.

    Raises:
        StoppedError: A signal stopped it.
    """
    measurement = importlib.import_module(f"mltrainer.companions.questions.measurements.{EXPLORED[job.question]}")
    folder = root / job.folder
    session = Session(job, folder, events, stopping(StopSignals(events)), root)
    session.prepare()
    session.model.train()
    write_json(
        folder / "result.json", measurement.measure(session, partial(ExplorerSettings, job.settings), **job.asked).written()
    )
    return 0


class Ticker:
    """Reports each step's loss as progress, with the rate, and stops after a signal.

    Args:
        session: The session.
        total: Number of steps.
    """

    def __init__(self, session: Session, total: int) -> None:
        self._session, self._total, self._done, self._start = session, total, 0, time.perf_counter()

    def __call__(self, loss: float) -> None:
        """Report one more step."""
        self._session.stop_signal()
        self._done += 1
        rate = self._done / (time.perf_counter() - self._start)
        self._session.events.send("progress", step=self._done, steps=self._total, loss=loss, steps_per_s=rate)


def stopping(caught: Callable[[], str | None]) -> Callable[[], None]:
    """Return a session's check after each step: it raises after a signal, because there is nothing to save."""

    def ask() -> None:
        if (cause := caught()) is not None:
            raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], hint="type the same command again")

    return ask


def first_steps(session: Session, count: int, plan: Plan | None = None) -> Iterator[Step]:
    """Yield the first `count` steps of a plan, the config's own by default, with as many epochs as they take."""
    plan = plan or session.plan
    enough = dataclasses.replace(plan, epochs=math.ceil(count / plan.steps_per_epoch))
    steps = training_steps(session.task.split("train"), enough, session.config, 0)
    return itertools.islice(altered(steps, enough, 0, session.task.alterations), count)
