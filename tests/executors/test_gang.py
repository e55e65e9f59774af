"""Several processes of one command: all go on, or none does, and the message names the one that was lost."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.executors import gang
from mltrainer.executors.executor import EVENTS, Command
from tests.waiting import until

WAITS = "import time; time.sleep(60)"
ALIVE = """
import os, time
while True:
    os.write(int(os.environ["MLTRAINER_LIFE"]), os.environ["RANK"].encode() + b"\\n")
    time.sleep(0.05)
"""


def started(folder: Path, code: str, processes: int = 3) -> gang.Gang:
    arguments = [sys.executable, "-c", code, EVENTS]
    own = {"environment": dict(os.environ), "output": folder / "log.txt", "processes": processes, "life_sign_s": 15.0}
    return gang.start(Command(arguments=arguments, folder=folder, **own))


def told(process: gang.Gang) -> list[Any]:
    """Wait for the end of all and return what they told."""
    found: list[Any] = []
    late = time.monotonic() + 30
    while (lines := process.listen(0.05)) is not None and time.monotonic() < late:
        process.poll()
        found += [json.loads(line) for line in lines]
    while (lines := process.listen()) is not None:
        found += [json.loads(line) for line in lines]
    process.close()
    return found


def pids(process: gang.Gang) -> list[int]:
    return [child.pid for child in process.children.values()]


def are_gone(numbers: list[int]) -> bool:
    return not any(Path(f"/proc/{number}").exists() for number in numbers)


def test_processes_that_all_end_well_end_well_together(tmp_path):
    process = started(tmp_path, "import os, sys; os.write(int(sys.argv[1]), os.environ['RANK'].encode() + b'\\n')")
    assert process.wait(30) == 0
    assert sorted(told(process)) == [0, 1, 2]
    assert not process._meeting.exists()


@pytest.mark.parametrize("rank", [0, 2])
def test_one_that_is_killed_is_named_and_ends_the_others(tmp_path, rank):
    process = started(tmp_path, WAITS)
    numbers = pids(process)
    os.kill(numbers[rank], signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    assert are_gone(numbers)
    (error,) = told(process)
    assert error["message"] == f"process {rank} of 3 was ended by signal 9 (SIGKILL); the others were ended with it"
    assert error["exit_code"] == 7


def test_the_first_one_is_named_though_its_pipe_ends_before_it_is_known_to_be_gone(tmp_path, monkeypatch):
    process = started(tmp_path, WAITS)
    first, known = process.children[0], process.children[0].poll
    late = time.monotonic() + 0.5
    monkeypatch.setattr(first, "poll", lambda: None if time.monotonic() < late else known())
    os.kill(first.pid, signal.SIGKILL)
    (error,) = told(process)
    assert error["message"].startswith("process 0 of 3 was ended by signal 9")


class Clock:
    """Time that goes on by itself, and further when it is set forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(gang, "time", found)
    return found


def goes_by(seconds: float, clock: Clock, process: gang.Gang, alive: list[int]) -> None:
    """Set the clock forward in steps that are no pause, in each of which those that live show it, until a gang has ended."""
    late = clock.monotonic() + seconds
    while process.poll() is None and clock.monotonic() < late:
        clock.ahead += gang.LOOK_S
        step = process._watched_s
        until(lambda step=step: process.poll() is not None or all(process._signed[rank] > step for rank in alive))


@pytest.mark.slow
def test_one_that_shows_no_sign_of_life_is_named_and_ends_the_others(tmp_path, clock):
    process = started(tmp_path, ALIVE)
    numbers = pids(process)
    goes_by(30, clock, process, [0, 1, 2])
    assert process.poll() is None
    os.kill(numbers[1], signal.SIGSTOP)
    goes_by(60, clock, process, [0, 2])
    assert process.wait(30) == -signal.SIGKILL
    (error,) = told(process)
    how = "gave no sign of life and used no CPU time for 15 s (launch.life_sign_s)"
    assert error["message"] == f"process 1 of 3 {how}; the others were ended with it"
    assert are_gone(numbers)


# Its own thread that shows life is never run: what computes holds the interpreter, or the machine is too busy.
COMPUTES = "while True: sum(range(10_000))"
SLEEPS = "import time\ntime.sleep(600)"


@pytest.mark.slow
def test_one_that_computes_without_a_sign_of_life_goes_on(tmp_path, clock):
    process = started(tmp_path, COMPUTES, processes=2)
    late = clock.monotonic() + 60
    while clock.monotonic() < late:
        clock.ahead += 0.5
        time.sleep(0.03)  # some ticks of the clock by which CPU time is counted
        assert process.poll() is None
    process.kill()
    process.wait()
    process.close()


@pytest.mark.slow
def test_one_that_sleeps_for_ever_is_named_and_ends_the_others(tmp_path, clock):
    process = started(tmp_path, f"import os\nif os.environ['RANK'] == '1':\n    {SLEEPS.replace(chr(10), '; ')}\n{ALIVE}")
    goes_by(90, clock, process, [0, 2])
    assert process.wait(30) == -signal.SIGKILL
    (error,) = told(process)
    assert error["message"].startswith("process 1 of 3 gave no sign of life and used no CPU time for 15 s")


def test_a_supervisor_that_was_kept_waiting_counts_a_second_for_each_look(tmp_path, clock):
    process = started(tmp_path, SLEEPS, processes=2)
    for _ in range(20):  # 20 looks in 20 minutes
        clock.ahead += 60
        assert process.poll() is None
    process.kill()
    process.wait()
    process.close()


@pytest.mark.slow
def test_whoever_was_stopped_with_them_does_not_take_them_for_lost(tmp_path, clock):
    process = started(tmp_path, ALIVE)
    goes_by(30, clock, process, [0, 1, 2])
    for number in pids(process):
        os.kill(number, signal.SIGSTOP)
    process.poll()  # the last signs from before
    clock.ahead += 60  # and does not look, as after Ctrl-Z
    assert process.poll() is None
    for number in pids(process):
        os.kill(number, signal.SIGCONT)
    goes_by(30, clock, process, [0, 1, 2])
    assert process.poll() is None
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    process.close()


def test_a_long_line_of_the_first_one_is_whole_while_others_write_too(tmp_path):
    code = """
import os, sys
first = os.environ["RANK"] == "0"
for _ in range(20 if first else 300):
    data = b"[" + b"1," * 60000 + b"0]\\n" if first else b'{"event": "error"}\\n'
    while data:
        data = data[os.write(int(sys.argv[1]), data):]
"""
    process = started(tmp_path, code)
    found = told(process)
    assert process.wait(30) == 0
    assert sorted(len(line) for line in found if isinstance(line, list)) == [60001] * 20


def test_the_first_error_is_told_and_an_exit_code_of_its_own_needs_no_second_one(tmp_path):
    code = """
import os, sys
os.write(int(sys.argv[1]), b'{"event": "error", "message": "of rank ' + os.environ["RANK"].encode() + b'"}\\n')
sys.exit(1)
"""
    process = started(tmp_path, code)
    assert process.wait(30) == 1
    assert len(told(process)) == 1


def test_a_signal_reaches_the_first_one_alone(tmp_path):
    process = started(tmp_path, WAITS, 2)
    process.signal(signal.SIGTERM)
    process.children[0].wait(30)
    assert process.children[1].poll() is None
    assert process.wait(30) == -signal.SIGTERM
    assert told(process) == []
