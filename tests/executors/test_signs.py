"""What the last signs of life say about the process that hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mltrainer.executors.signs import NO_STACK, Sign, hanging, read, slowest, write_stacks
from mltrainer.tools import life

TRAINER = "mltrainer/trainers/native/parallel/parallelism.py:161"
WAITS = Sign(0, 7, TRAINER, "barrier", 29, "meet", works=False)
SLEEPS = Sign(1, 7, "task.py:12", "", 28, "meet", works=False)
ALONE = Sign(1, 7, "task.py:12", "all_reduce", 28, "meet", works=False)


def test_signs_are_read_as_they_were_written_and_a_rank_alone_is_one():
    assert [*read(WAITS.line() + b"3\n" + ALONE.line())] == [WAITS, Sign(3), ALONE]


def test_one_that_waits_for_nobody_is_named_before_those_that_wait_for_it():
    assert hanging({0: WAITS, 1: SLEEPS}, 2) == (1, " in step 7 at task.py:12", "")


def test_one_that_waits_for_another_that_goes_on_does_not_hang():
    assert hanging({0: WAITS}, 2) is None
    assert hanging({}, 2) is None


def test_of_processes_that_all_wait_the_one_at_another_place_is_named():
    others = {rank: Sign(rank, 7, TRAINER, "barrier") for rank in (0, 2, 3)}
    assert hanging(others | {1: Sign(1, 6, TRAINER, "barrier")}, 4) == (
        1,
        f" in step 6 at {TRAINER}, in barrier",
        f"; process 0 waits in step 7 at {TRAINER}, in barrier",
    )


def test_of_two_that_wait_for_each_other_the_one_in_the_projects_code_is_named():
    found = hanging({0: WAITS, 1: ALONE}, 2)
    assert found == (1, " in step 7 at task.py:12, in all_reduce", f"; process 0 waits in step 7 at {TRAINER}, in barrier")


def test_the_slowest_is_the_one_that_waits_least():
    waited = {0: 40.0, 1: 2.0, 2: 50.0, 3: 41.0}
    signs = {rank: Sign(rank, 7, training_s=100.0, waited_s=seconds) for rank, seconds in waited.items()}
    assert slowest(signs) == "process 1 was the slowest: it waited 2% of the time for the others, they waited 41% for it"
    assert slowest({rank: Sign(rank, 7, training_s=100.0, waited_s=2.0 + rank) for rank in range(4)}) is None
    assert slowest({rank: Sign(rank, 7, training_s=4.0, waited_s=2.0 * rank) for rank in range(2)}) is None


STACK = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1, open(sys.argv[1], "w"))
print("ready", flush=True)
time.sleep(60)
"""


def test_the_log_gets_the_stack_of_each_process_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("mltrainer.executors.signs.STACKS_S", 0.5)
    command = [sys.executable, "-c", STACK, str(tmp_path / "stacks-0.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        write_stacks(tmp_path / "log.txt", tmp_path, {0: process.pid}, {0: WAITS})
        process.kill()
    log = (tmp_path / "log.txt").read_text()
    assert f"--- process 0 in step 7 at {TRAINER}, in barrier; its last exchange: 29, meet" in log
    assert "most recent call first" in log
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        ended.wait()
        write_stacks(tmp_path / "log.txt", tmp_path, {1: ended.pid}, {})
    assert NO_STACK in (tmp_path / "log.txt").read_text()


def looked_at_twice(meanwhile: float = 0.3) -> bool:
    """Return whether this process went on between two looks of a thread of its own, while this thread slept."""

    def look() -> bool:
        work = life._Work()
        work.goes_on()
        time.sleep(meanwhile)
        return work.goes_on()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(look).result()


def test_a_process_that_sleeps_does_not_go_on():
    # In a process of its own: what other tests left in this one may compute meanwhile.
    code = "from tests.executors.test_signs import looked_at_twice; print(looked_at_twice())"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"


def test_a_process_whose_child_computes_goes_on():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        time.sleep(0.1)
        went_on = looked_at_twice()
        child.kill()
    assert went_on


def test_a_process_goes_on_that_takes_steps(monkeypatch):
    steps = threading.Thread(target=lambda: (time.sleep(0.1), monkeypatch.setattr(life.NOW, "step", 8)))
    steps.start()
    assert looked_at_twice()
    steps.join()


def test_a_sign_names_the_projects_line(monkeypatch):
    monkeypatch.setattr(life.NOW, "step", 3)
    found: list[Sign] = []
    thread = threading.Thread(target=lambda: found.append(life._sign(1, Path(__file__).parent, works=False)))
    thread.start()
    thread.join()
    (sign,) = found
    assert sign.place.startswith("test_signs.py:")
    assert json.loads(sign.line())["step"] == 3
