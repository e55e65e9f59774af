"""Commands run to their end, or killed with all that they started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from mltrainer.executors.executor import Command
from mltrainer.executors.local import KILLED, answered, run
from tests.waiting import has_ended, until


def python(code: str, *arguments: str) -> Command:
    return Command(arguments=[sys.executable, "-c", code, *arguments], folder=Path(), environment=os.environ)


def test_a_command_is_asked_and_answers():
    ended = answered(python("import sys; print(sys.stdin.read()[::-1]); print('so', file=sys.stderr); sys.exit(3)"), b"abc")
    assert (ended.code, ended.out, ended.last_words, ended.in_time) == (3, b"cba\n", "so", True)


def test_of_a_long_answer_no_more_is_read_than_was_asked_for():
    assert answered(python("print('x' * 100)"), most=7).out == b"x" * 7


def test_a_signal_is_the_shells_exit_code():
    assert answered(python("import os; os.kill(os.getpid(), 15)")).code == 128 + 15
    assert run(python("import os; os.kill(os.getpid(), 15)")) == -15


@pytest.mark.slow
def test_what_a_command_started_is_killed_with_it_when_its_time_is_over(tmp_path):
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
        "print('begun', flush=True)\n"
        "time.sleep(60)\n"
    )
    begun = time.monotonic()
    ended = answered(python(code, str(tmp_path / "pid")), timeout=2)
    assert (ended.code, ended.out, ended.in_time) == (KILLED, b"begun\n", False)
    assert time.monotonic() - begun < 30
    pid = int((tmp_path / "pid").read_text())
    until(lambda: has_ended(pid))


def test_a_program_that_is_not_there_cannot_be_started():
    with pytest.raises(FileNotFoundError):
        run(Command(arguments=["/no/such/program"], folder=Path(), environment={}))
