"""Starts a tool as a process of its own, with exactly the environment that determinism needs before an interpreter exists.

Torch-free: the workflow calls this. A tool reads one job file, writes one folder, and sends events as JSON
lines through a pipe; it may die at any moment without harming the workflow.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.configs.pages import tool_page
from mltrainer.errors import MltrainerError, StoppedError, error_for_exit
from mltrainer.reproducibility.secrets import redact
from mltrainer.workspace import Project, machine_faults, write_atomic, write_json

Event = dict[str, Any]
LOG_FILE = "log.txt"


def launch(project: Project, tool: str, job: dict[str, Any], on_event: Callable[[Event], None]) -> None:
    """Run a tool on a job and return when it has ended well.

    Args:
        project: The project, in whose folder the tool runs.
        tool: The tool's id in the handbook.
        job: Written to `job.json` in the folder `job["folder"]`, relative to the project.
        on_event: Called with each event that the tool sends.

    Raises:
        MltrainerError: The tool's own error, with its exit code.
        StoppedError: It was interrupted or terminated; its state is saved.
    """
    folder = project.root / job["folder"]
    write_json(folder / "job.json", job)
    page = tool_page(tool, project.root)
    read_end, write_end = os.pipe()
    with machine_faults(str(folder / LOG_FILE)):
        log = open(folder / LOG_FILE, "ab")  # noqa: SIM115 - closed below, once the child has it
    # -P: a file of the project named like a library must not take its place before the project's own code is imported
    command = [sys.executable, "-P", "-m", page.entry_point, str(folder / "job.json"), str(write_end)]
    environment = {**os.environ, **_environment(page.environment, job["threads"])}
    process = subprocess.Popen(
        command, cwd=project.root, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(write_end,)
    )
    os.close(write_end)
    log.close()
    error = _follow(process, read_end, on_event)
    _redact(folder / LOG_FILE)
    _raise_for(process, error, folder, project)


def _redact(log: Path) -> None:
    """Remove secrets that a user's code printed from the log."""
    text = log.read_text("utf-8", errors="replace")
    if (clean := redact(text)) != text:
        write_atomic(log, clean.encode())


def _environment(variables: dict[str, str], threads: int) -> dict[str, str]:
    """Return what is set before the tool's interpreter starts."""
    return {name: value.format(threads=threads) for name, value in variables.items()}


def _follow(process: subprocess.Popen[bytes], read_end: int, on_event: Callable[[Event], None]) -> Event | None:
    """Hand on a tool's events until it ends; return its error event, if it sent one.

    A first Ctrl-C (or SIGTERM) is passed on and waited for, so that the tool can save; a second one kills it.
    """
    error: Event | None = None
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    asked: list[int] = []

    def pass_on(number: int, _frame: Any) -> None:
        asked.append(number)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL if len(asked) > 1 else number)

    for number in previous:
        signal.signal(number, pass_on)
    try:
        with os.fdopen(read_end, "rb") as pipe:
            for line in pipe:
                event = json.loads(line)
                if event["event"] == "error":
                    error = event
                else:
                    on_event(event)
        process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.terminate()
            process.wait()
    if asked and error is None and process.returncode != 0:
        error = {"exit_code": 130 if asked[0] == signal.SIGINT else 143, "message": "interrupted"}
    return error


def _raise_for(process: subprocess.Popen[bytes], error: Event | None, folder: Path, project: Project) -> None:
    log = project.relative(folder / LOG_FILE)
    if error is not None:
        raised = error_for_exit(error["exit_code"], error["message"])
        raised.where, raised.mend = error.get("where"), error.get("mend")
        raise raised
    code = process.returncode
    if code == 0:
        return
    if code < 0 and -code in (signal.SIGINT, signal.SIGTERM):
        raise StoppedError("interrupted", exit_code=128 - code, mend="type the same command again to go on")
    if code == -signal.SIGKILL:
        raise MltrainerError(
            f"the tool was killed (signal 9); out of memory is the usual cause; see {log}",
            mend="type the same command again to go on from the last checkpoint, or lower batch_size",
        )
    raise MltrainerError(f"the tool ended with exit code {code} and no message; see {log}")
