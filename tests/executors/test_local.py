"""Processes of this machine: how they end, and how long somebody waits for one."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from mltrainer.executors import local
from mltrainer.executors.executor import Command


def started(folder: Path, code: str) -> local.LocalProcess:
    arguments = [sys.executable, "-c", code]
    return local.start(Command(arguments=arguments, folder=folder, environment=dict(os.environ), output=folder / "log.txt"))


@pytest.mark.parametrize(("code", "expected"), [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.abort()", -6)])
def test_a_process_tells_its_exit_code_to_each_who_asks(tmp_path, code, expected):
    process = started(tmp_path, code)
    assert [process.wait(30), process.wait(), process.poll()] == [expected] * 3
    process.signal(signal.SIGTERM)  # nobody's any more


def test_the_end_of_a_process_whose_exit_code_is_lost_is_no_success(tmp_path):
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert started(tmp_path, "pass").wait(30) == local.UNKNOWN
    finally:
        signal.signal(signal.SIGCHLD, earlier)


def test_whoever_waits_for_a_while_is_told_that_it_still_runs_and_for_good_once_it_is_killed(tmp_path):
    process = started(tmp_path, "import time; time.sleep(60)")
    assert process.wait(0.05) is None
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_process_is_waited_for_where_an_interrupt_left_the_lock_of_subprocess_locked(tmp_path):
    process = started(tmp_path, "import time; time.sleep(60)")
    process._popen._waitpid_lock.acquire()  # as Ctrl-C does between the lock and what would open it
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
