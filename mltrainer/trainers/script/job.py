"""One job of a program that trains by itself: run under observation in a copy of its folder, without changes to the program."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, StoppedError, interrupted
from mltrainer.observe.file_rows import require_as_recorded
from mltrainer.observe.process import Settings
from mltrainer.programs.checking import COMPARES_LEFT, Check, calls_in
from mltrainer.programs.starting import WrappedProgram, stall_reporter
from mltrainer.records.common import Cause
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import Resumed, RunResult
from mltrainer.redaction import tail
from mltrainer.reproducibility.causes import HASH_SEEDS
from mltrainer.tools.program import EXIT_CODES, Events, noting_errors, run_lock
from mltrainer.trainers.result import has_error, unsound_data, write_result
from mltrainer.trainers.script.observed import Observed, observed
from mltrainer.trainers.script.result import judged_table, require_left, result_of
from mltrainer.workspace import write_text

SCRATCH, PRINTED = "scratch", "program.txt"
ERROR_FILE = "error.json"
AFRESH = "type the same command again: the program begins again"
KEPT_BYTES = 1 << 20  # at each end of the program's printed text
NOTE_S = 10.0  # seconds between two notes of a program's progress


def work(job: TrainingJob, root: Path, events: Events) -> None:
    """Run one job; the tool's entry point.

    Raises:
        MltrainerError: The program failed, or differs from planning's record.
    """
    try:
        run_job(job, root, events, lambda: "SIGTERM" if events.listener_gone else None, is_launched=True)
    except KeyboardInterrupt as error:
        raise interrupted(error, AFRESH) from error


def run_job(
    job: TrainingJob, root: Path, events: Events, stop: Callable[[], str | None], *, is_launched: bool = False
) -> RunResult:
    """Run a job and return its result, which is also written to `result.json`.

    Args:
        job: The training.
        root: The project's folder.
        events: The destination of progress.
        stop: A function that returns the name of a signal that does not end this process by itself, or None.
        is_launched: Whether the workflow started this, after it checked the gates; else the result's purpose is `explore`.

    Raises:
        MltrainerError: The program failed, differs from planning's record, or a signal stopped it: it starts from scratch then.
    """
    folder = root / job.folder
    _put_first_on_path(Path(sys.executable).parent)
    # The lock comes first: entering the other two removes files of a process that may still be running.
    with run_lock(job, root, events, stop), _scratch(folder / SCRATCH) as scratch, noting_errors(folder / ERROR_FILE):
        if job.purpose != "reproduction":  # a reproduction goes on with other data, and shows its effect
            require_as_recorded(job.data_files or (), root)
        table = judged_table(job, root)
        if has_error(table):
            found = unsound_data(job, table, root)
        else:
            found = _trained(job, root, scratch, table, events, stop)
        return write_result(found, folder, is_launched=is_launched)


def _trained(
    job: TrainingJob, root: Path, scratch: Path, table: dict[str, Any], events: Events, stop: Callable[[], str | None]
) -> dict[str, Any]:
    """Run the program, and return the result; `table`: planning's record of the program's table."""
    config = job.config
    found = _ran(job, root, scratch, _pace(events, stop))
    _require_own_packages(found, f"task.script ({config.task.script})")
    if found.left is not None and job.rehearse:  # only in planning's first probe
        events.send("note", text=COMPARES_LEFT)
    result = result_of(job, found, root, root / job.folder, table)
    if job.trace_from is not None:
        # The record uses this process's own hash seed: with it, sets keep one order, and a cause of that kind would never show.
        free = dataclasses.replace(_program(config, root), hash_seeds=HASH_SEEDS)
        cause = _cause(_check(free, scratch / "cause", events, stop), found.steps)
        result["cause"] = cause and cause.written()
    if job.resumable and config.task.resume is not None and found.left is None:  # without steps there is no place to kill it
        check = _check(_program(config, root), scratch / "resumed", events, stop)
        result["program"]["resumed"] = _resumed(config, check, events).written()
    return result


def _put_first_on_path(folder: Path) -> None:
    """Make `python` start this interpreter, whose packages planning records."""
    before = os.environ.get("PATH", os.defpath)
    if before.partition(os.pathsep)[0] != str(folder):
        os.environ["PATH"] = f"{folder}{os.pathsep}{before}"


def _require_own_packages(found: Observed, command: str) -> None:
    """Refuse a program that ran with other packages than those that planning records.

    Raises:
        InputError: It ran with other packages.
    """
    if found.judged.prefix and Path(found.judged.prefix).resolve() != Path(sys.prefix).resolve():
        what = f"it ran on the packages of {found.judged.prefix}; those of {sys.prefix}, where mltrainer is, are what is recorded"
        raise InputError(
            what, where=command, hint="install mltrainer where the program runs, or type `python` for its interpreter"
        )


@contextlib.contextmanager
def _scratch(path: Path) -> Any:
    """Yield an empty folder, and remove it with everything that the program left there."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _ran(job: TrainingJob, root: Path, scratch: Path, on_step: Callable[[int], None]) -> Observed:
    """Run the program with the job's settings, and keep its printed text."""
    is_disturbed = bool(job.disturbances) or job.purpose == "reproduction"
    settings = Settings(steps=job.max_steps or 0, signals=job.config.signals)
    try:
        return observed(_program(job.config, root), scratch, settings, is_disturbed, on_step)
    finally:
        # Also for a failed program, whose text is often the only hint at the reason.
        with contextlib.suppress(OSError):
            write_text(scratch.parent / PRINTED, _ends_of(scratch / "run" / "log.txt"))


def _ends_of(log: Path) -> str:
    """Return a program's printed text; of a long one the beginning and the end, with the size of the gap.

    The words next to the gap are left out too: a secret without its other part would not be recognized.
    """
    left_out = log.stat().st_size - 2 * KEPT_BYTES
    if left_out <= 0:
        return tail(log, 2 * KEPT_BYTES)
    with log.open("rb") as file:
        head = file.read(KEPT_BYTES).decode("utf-8", "replace")
    *whole, _ = head.rsplit(maxsplit=1) or [""]
    return f"{''.join(whole)}\n[{left_out:,} bytes are left out here]\n{tail(log, KEPT_BYTES)}"


def _program(config: TrainingConfig, root: Path) -> WrappedProgram:
    """Return the program to run; its metrics and outputs are left out of the copy, so that every run writes its own."""
    seed = os.environ.get("PYTHONHASHSEED", HASH_SEEDS[0])  # this process's own, which the run's record has
    command = config.task.command(config.seed)
    return WrappedProgram(
        command,
        root,
        leaves=config.task.writes,
        delivers=tuple(config.task.outputs),
        where="task.script",
        hash_seeds=(seed, seed),
        seed=config.seed,
    )


def _pace(events: Events, stop: Callable[[], str | None]) -> Callable[[int], None]:
    """Return a callback of the number of steps: it notes step and rate from time to time, and ends the program on a signal."""
    first: tuple[int, float] | None = None
    last, noted = time.monotonic(), 0
    quiet, go_on = stall_reporter(lambda text: events.send("note", text=text)), _ended_by(stop)

    def count(step: int) -> None:
        nonlocal first, last, noted
        go_on()
        quiet(step)
        now = time.monotonic()
        first = first or ((step, now) if step else None)
        if first is not None and step > max(first[0], noted) and now - last > NOTE_S:
            last, noted = now, step
            events.send("note", text=f"step {step:,}, {(step - first[0]) / (now - first[1]):.3g} steps/s")

    return count


def _ended_by(stop: Callable[[], str | None]) -> Callable[[], None]:
    """Return a check that raises StoppedError once a signal, or the end of the workflow, asks the program to end."""

    def go_on() -> None:
        if (cause := stop()) is not None:
            raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], hint=AFRESH)

    return go_on


# --- the cause of a difference, and resuming ------------------------------------------------------


def _check(program: WrappedProgram, scratch: Path, events: Events, stop: Callable[[], str | None]) -> Check:
    return Check(program, scratch, lambda event: events.send(**event), _ended_by(stop))


def _cause(check: Check, steps: int) -> Cause | None:
    """Return the cause of steps that do not repeat; None if they repeat now."""
    verdict = check.repeats(steps)
    if verdict.cause is None:
        return None
    cause, step = verdict.cause, verdict.difference.step if verdict.difference else 0
    shown = cause.shown or ("the steps" if verdict.left is None else "what it leaves")
    return Cause(kind=cause.kind, step=cause.step or step, what=shown, calls=calls_in(cause.lines))


def _resumed(config: TrainingConfig, check: Check, events: Events) -> Resumed:
    """Return the comparison of the program, killed in mid-run and resumed, with the undisturbed run: `same` bits or not."""
    events.send("note", text="trained to its end; once more killed and resumed: does it end in the same bits?")
    resumed = check.resumes(
        config.task.resuming(config.seed), where="task.resume", on_whole=lambda place: require_left(config, place)
    )
    return Resumed(**{key: getattr(resumed, key) for key in Resumed.model_fields})
