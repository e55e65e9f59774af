"""One training job from its file to its result: the same bits under any condition that should not matter."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.errors import StoppedError
from mltrainer.leftovers import sweep
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import RunResult
from mltrainer.tools.program import EXIT_CODES, Events, StopSignals, noting_errors, run_lock
from mltrainer.trainers.native.data.workers import Limits
from mltrainer.trainers.native.ranks import Ranks, joined
from mltrainer.trainers.native.result import build_result
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.speed import speed_of
from mltrainer.trainers.result import UnsoundDataError, unsound_data, write_result

ERROR_FILE = "error.json"


def work(job: TrainingJob, root: Path, events: Events) -> int:
    """Run one job; the tool's entry point.

    Raises:
        MltrainerError: The job was refused, or a signal stopped it.
    """
    result = run_job(job, root, events, StopSignals(events), is_launched=True)
    if result is not None and result.stop_reason == "signal":
        cause, is_saved = result.interruptions[-1].cause, job.purpose == "train"
        place = f"step {result.steps} of {result.planned_steps}" + ("; the state is saved" if is_saved else "")
        then = "to go on" if is_saved else "to start afresh"
        raise StoppedError(
            f"stopped by {cause} at {place}", exit_code=EXIT_CODES[cause], hint=f"type the same command again {then}"
        )
    return 0


def _take_part(job: TrainingJob, root: Path, events: Events, ranks: Ranks) -> None:
    """Take the steps of a job together with the first process, which writes the result, and stop when it stops."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the first one stops all
    ranks.gather(None)  # the files read next are in their final state once the first process has the run's lock
    session = Session(job, root / job.folder, events, lambda: None, root, ranks=ranks)
    with contextlib.suppress(UnsoundDataError):  # which the first process reports
        session.prepare()
        session.train()
    session.task.close()


def run_job(
    job: TrainingJob,
    root: Path,
    events: Events,
    stop_signal: Callable[[], str | None],
    *,
    is_launched: bool = False,
) -> RunResult | None:
    """Train a job and return its result, which is also written to `result.json`; an error goes to `error.json`.

    Of several processes that train together, the first one writes both; in the others the result is None.

    Args:
        job: The training.
        root: The project's folder.
        events: The destination of progress.
        stop_signal: The function that returns the name of a caught SIGINT or SIGTERM, or None.
        is_launched: Whether the workflow started this process, after it checked the gates. If not, the result's purpose is
            `explore`, which no phase accepts as evidence.
    """
    with joined(job.config.device, is_team=job.config.tensor_parallel > 1) as ranks:
        if ranks.writes:
            return _lead(job, root, events, stop_signal, is_launched, ranks)
        _take_part(job, root, events, ranks)
        return None


def _lead(
    job: TrainingJob, root: Path, events: Events, stop_signal: Callable[[], str | None], is_launched: bool, ranks: Ranks
) -> RunResult:
    """Train a job as the first of the processes that train it, and return its result."""
    started = time.perf_counter()
    folder = root / job.folder
    # The lock comes first: `noting_errors` and `sweep` remove files of a process that may still be running.
    with run_lock(job, root, events, stop_signal), noting_errors(folder / ERROR_FILE):
        sweep(folder)
        # The other processes wait in `gather`: they read the folder after the sweep and under the lock.
        ranks.gather(None)
        session = Session(job, folder, events, stop_signal, root, ranks=ranks)
        try:
            found = _trained(session, started)
        except UnsoundDataError:
            found = unsound_data(job, session.facts, root)
        result = write_result(found, folder, is_launched=is_launched)
        if session.opened is not None and result.state != "interrupted":
            session.opened.remove_notes()  # after the result, which a process that is killed before it writes from these notes
        session.task.close()
    return result


def _trained(session: Session, started: float) -> dict[str, Any]:
    """Train, and return the result.

    Args:
        session: The session, not prepared yet.
        started: The value of `time.perf_counter()` when the process began.

    Raises:
        UnsoundDataError: The job checks the data, and the check found an error.
    """
    session.prepare()
    outcome = session.train()
    result = build_result(session, outcome, started)
    # After the costs were measured: samples read here for a measurement are no part of the training's time and memory.
    if (limits := session.job.measure_loader) is not None:
        result["loader"] = session.measure_loader(Limits(**limits)).written()
    if session.job.purpose == "train":
        result["speed"] = speed_of(session, counts=result["state"] == "finished").written()
    if session.not_restored:
        result["not_restored"] = [call.written() for call in session.not_restored]
    return result
