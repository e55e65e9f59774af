"""The supervisor of a worker on another machine: what it counts as silence, and what becomes of the worker where it fails."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from mltrainer.errors import MachineError
from mltrainer.executors import supervisor
from mltrainer.executors.executor import EVENTS
from mltrainer.executors.local import LocalProcess
from mltrainer.executors.supervisor import LINES_FILE, ORDER_FILE, Order, Supervisor
from mltrainer.workspace import read_json, write_json

TALKS = """
import os, sys, time
open("pid", "w").write(str(os.getpid()))
os.write(int(sys.argv[1]), b"{}\\n")
time.sleep(60)
"""


class Killed:
    """A worker that says nothing."""

    def __init__(self) -> None:
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1

    def signal(self, number: int) -> None:
        raise AssertionError(number)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its handlers
    order = Order(
        arguments=[sys.executable, "-c", TALKS, EVENTS],
        root=str(tmp_path),
        line="",
        beat=str(tmp_path / "beat.json"),
        alive_s=5.0,
        silent_s=60.0,
        orphan_s=300.0,
        grace_s=60.0,
    )
    write_json(tmp_path / ORDER_FILE, asdict(order))
    return Supervisor(tmp_path)


def looks(made: Supervisor, worker: Any, every_s: float, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    for _ in range(count):
        now += every_s
        monkeypatch.setattr(supervisor.time, "monotonic", lambda at=now: at)
        made._look_after(worker, [])


def test_a_worker_is_silent_while_its_supervisor_listens_and_not_while_both_are_suspended(made, monkeypatch):
    worker = Killed()
    looks(made, worker, 3600.0, 10, monkeypatch)
    assert worker.kills == 0
    looks(made, worker, 0.2, 60, monkeypatch)
    assert worker.kills > 0


TOGETHER = """
import json, os, sys
order = sys.stdin.readline().strip()
if os.environ["RANK"] == "0":
    os.write(int(sys.argv[1]), json.dumps({"order": order, "of": os.environ["WORLD_SIZE"]}).encode() + b"\\n")
else:
    open("other", "w").write(order)
"""


def test_several_processes_of_a_run_are_given_the_same_order(made, tmp_path):
    asked = {**read_json(tmp_path / ORDER_FILE), "arguments": [sys.executable, "-c", TOGETHER, EVENTS], "processes": 2}
    write_json(tmp_path / ORDER_FILE, {**asked, "line": "run 7"})
    assert Supervisor(tmp_path).run().code == 0
    assert read_json(tmp_path / LINES_FILE) == {"order": "run 7", "of": "2"}
    assert (tmp_path / "other").read_text() == "run 7"


REPORTS = """
import json, os, sys, time
if os.environ["RANK"] == "1":
    os.write(int(sys.argv[1]), json.dumps({"event": "end", "nr": 7, "reason": "no such loss"}).encode() + b"\\n")
else:
    time.sleep(600)
"""
DIES = """
import os, subprocess, sys, time
if os.environ["RANK"] == "1":
    while not os.path.exists("started"):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
started = subprocess.Popen(["sleep", "20"], start_new_session=True, pass_fds=[int(sys.argv[1])])
open("new", "w").write(str(started.pid))
os.rename("new", "started")
time.sleep(600)
"""

IS_KILLED = "import os, time; os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else time.sleep(600)"
NAMED = "process 1 of 2 was ended by signal 9 (SIGKILL); the others were ended with it"


def ending_of_two(folder: Path, code: str) -> tuple[supervisor.Ending, Any]:
    """Return the end of a run of two processes, and what they reported."""
    asked = {**read_json(folder / ORDER_FILE), "arguments": [sys.executable, "-c", code, EVENTS], "processes": 2}
    write_json(folder / ORDER_FILE, asked)
    return Supervisor(folder).run(), read_json(folder / LINES_FILE)


def test_a_failure_that_one_of_several_processes_reports_ends_the_others_at_once(made, tmp_path):
    begun = time.monotonic()
    ending, told = ending_of_two(tmp_path, REPORTS)
    assert time.monotonic() - begun < 15
    assert (ending.stopped, told["reason"]) == (None, "no such loss")


def test_one_of_several_that_is_killed_is_named_though_a_program_that_it_started_keeps_their_pipe(made, tmp_path):
    try:
        ending, told = ending_of_two(tmp_path, DIES)
        assert ending.code == -signal.SIGKILL
        assert told["message"] == NAMED
    finally:
        psutil.Process(int((tmp_path / "started").read_text())).kill()


def test_one_of_several_that_is_killed_is_named_though_their_ends_are_known_after_their_pipes_ends(made, tmp_path, monkeypatch):
    seen: dict[int, float] = {}

    def late(process: LocalProcess) -> int | None:
        code, now = process.wait(0), time.monotonic()
        return code if code is not None and now - seen.setdefault(process.pid, now) > 0.1 else None

    monkeypatch.setattr(LocalProcess, "poll", late)
    assert ending_of_two(tmp_path, IS_KILLED)[1]["message"] == NAMED


def test_a_supervisor_that_cannot_write_leaves_no_worker_behind(made, tmp_path, monkeypatch):
    def full(*_: Any) -> None:
        raise MachineError("no space left on device")

    monkeypatch.setattr(supervisor, "append_json_lines", full)
    with pytest.raises(MachineError, match="no space left"):
        made.run()
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid)
