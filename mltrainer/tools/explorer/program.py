"""One question about a training, answered by real steps of it in a process of their own; no run comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.errors import StoppedError
from mltrainer.records.job import ExplorationJob
from mltrainer.tools.explorer.batch_sizes import try_sizes
from mltrainer.tools.explorer.landscape import survey
from mltrainer.tools.explorer.learning_curve import extrapolate
from mltrainer.tools.explorer.profiling import profile_steps
from mltrainer.tools.explorer.range_test import test_range
from mltrainer.tools.program import EXIT_CODES, Events, StopSignals
from mltrainer.trainers.native.session import Session
from mltrainer.workspace import write_json

ANSWERS: dict[str, Callable[[Session, ExplorationJob], dict[str, Any]]] = {
    "lr_find": test_range,
    "batch_size": try_sizes,
    "profile": profile_steps,
    "landscape": survey,
    "extrapolate": extrapolate,
}


def work(job: ExplorationJob, events: Events) -> int:
    """Answer a job's question; the answer goes to `result.json` in the job's folder.

    Args:
        job: The question.
        events: Where progress goes.

    Raises:
        StoppedError: A signal stopped it.
    """
    folder = Path.cwd() / job.folder
    session = Session(job, folder, events, stopping(StopSignals(events)))
    session.prepare()
    session.model.train()
    write_json(folder / "result.json", ANSWERS[job.question](session, job))
    return 0


def stopping(caught: Callable[[], str | None]) -> Callable[[], None]:
    """Return a session's check after each step: it raises where a signal came, because there is nothing to save."""

    def ask() -> None:
        if (cause := caught()) is not None:
            raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], mend="type the same command again")

    return ask
