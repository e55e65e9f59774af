"""One training job from its file to its result: the same bits whatever should not matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.errors import StoppedError
from mltrainer.tools.program import Events, StopSignals
from mltrainer.tools.training_orchestrator.result import build_result
from mltrainer.tools.training_orchestrator.session import Session
from mltrainer.workspace import locked, write_json

EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}


def work(job: dict[str, Any], events: Events) -> int:
    """Run one job; the tool's entry point.

    Raises:
        MltrainerError: The job was refused, or a signal stopped it.
    """
    result = run_job(job, events, StopSignals(events))
    if result["stop_reason"] == "signal":
        cause = result["interruptions"][-1]["cause"]
        raise StoppedError(
            f"stopped by {cause} at step {result['steps']} of {result['planned_steps']}; the state is saved",
            exit_code=EXIT_CODES[cause],
            mend="type the same command again to go on",
        )
    return 0


def run_job(job: dict[str, Any], events: Events, stop_signal: Callable[[], str | None]) -> dict[str, Any]:
    """Train what a job describes and return its result, which is also written to `result.json`."""
    started = time.perf_counter()
    folder = Path.cwd() / job["folder"]
    with locked(folder / "lock", f"run {job['run']}"):
        session = Session(job, folder, events, stop_signal)
        session.prepare()
        outcome = session.train()
        result = build_result(session, outcome, started)
        write_json(folder / "result.json", result)
    return result
