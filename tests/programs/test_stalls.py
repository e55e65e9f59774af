"""A program that makes no step is told of, at growing intervals, and never ended for it."""

from __future__ import annotations

import sys

import pytest

from mltrainer.programs import starting
from tests.sample_programs import PROGRAM, write_program

SLEEPS = PROGRAM.replace("optimizer = ", "time.sleep(1.5)\noptimizer = ")


def told(steps_by_second: dict[int, int], seconds: int) -> list[str]:
    """Return what is told of a program that has made so many steps from a second on."""
    now, made, notes = 0.0, 0, []
    see = starting.stall_reporter(lambda text: notes.append(f"{now:.0f}: {text}"), lambda: now)
    for second in range(seconds):
        now, made = float(second), steps_by_second.get(second, made)
        see(made)
    return notes


def test_it_is_told_after_a_minute_and_then_each_time_after_twice_as_long():
    assert told({}, 400) == [f"{60 * m}: no step for {m} min since the program began; Ctrl-C ends it" for m in (1, 2, 4)]


def test_a_step_begins_the_minute_anew():
    assert told({second: second for second in range(0, 300, 59)}, 300) == []
    assert told({30: 1200}, 100) == ["90: no step for 1 min after step 1,200, the last that was seen; Ctrl-C ends it"]


@pytest.mark.slow
@pytest.mark.long
def test_wrap_tells_of_a_program_that_makes_no_step(tmp_path, cli, monkeypatch):
    monkeypatch.setattr(starting, "FIRST_S", 0.5)
    monkeypatch.chdir(write_program(tmp_path, SLEEPS).root)
    cli("wrap", "--steps", "2", "--", sys.executable, "train.py", code=0, err="no step for 0 min since the program began")


@pytest.mark.slow
@pytest.mark.long
def test_planning_tells_of_a_program_that_makes_no_step(tmp_path, cli, monkeypatch, tools_here):
    monkeypatch.setattr(starting, "FIRST_S", 0.5)
    said = cli("phase", "run", "planning", "--project", write_program(tmp_path, SLEEPS).root)
    assert (said.code, "no step for 0 min since the program began" in said.err) == (0, True), said.err
