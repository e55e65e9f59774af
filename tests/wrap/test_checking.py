"""What a check tells while it runs, and of a program that cannot be judged."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import InputError
from mltrainer.reports.wrap import cause_lines
from mltrainer.wrap import checking
from mltrainer.wrap.checking import NOTHING, TRACED, Cause, Check, changed, computed, rate
from mltrainer.wrap.starting import WrappedProgram


def left(times: list[float], steps: int) -> list[float]:
    """Return the seconds left that are shown after each step, 0 for none, where the steps end at some times."""
    clock = iter(times)
    told = [rate_of(done) for rate_of in [rate(steps, lambda: next(clock))] for done in range(1, len(times) + 1)]
    return [(steps - done) / found if found else 0.0 for done, found in enumerate(told, 1)]


def test_a_steady_pace_tells_the_time_left() -> None:
    assert left([10.0, 12.0, 14.0, 16.0], 5) == [0.0, 6.0, 4.0, 2.0]


def test_a_time_left_that_would_grow_is_not_told() -> None:
    shown = left([0.0, 2.0, 12.0, 13.0, 14.0, 15.0], 8)
    assert shown[1] == 12.0
    assert shown[2] == 0.0  # 30 s by now
    told = [seconds for seconds in shown if seconds]
    assert all(after <= before for before, after in itertools.pairwise(told))
    assert shown[-1] == 6.0


def test_a_rate_of_less_than_a_second_is_not_told() -> None:
    assert left([0.0, 0.4, 0.9, 1.0], 5) == [0.0, 0.0, 0.0, pytest.approx(1 / 3)]


def check(folder: Path, code: str, **more: Any) -> tuple[Check, list[str]]:
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(code)
    told: list[str] = []
    program = WrappedProgram((sys.executable, "program.py"), folder, **more)
    return Check(program, folder.parent / "scratch", lambda event: told.append(str(event.get("text")))), told


def test_a_program_that_needs_a_terminal_is_given_one(tmp_path: Path) -> None:
    checked, told = check(
        tmp_path / "mine", "import os; rows, columns = os.popen('stty size').read().split(); print(int(rows) + int(columns))"
    )
    ended = checked._run("the program as it is", NOTHING, 0)
    assert (ended.code, ended.log.read_text().strip()) == (0, "104")  # 24 lines and 80 columns
    assert told[-1] == "the program as it is, with a terminal, for which it asks"


def test_who_reads_from_that_terminal_is_told_that_nothing_comes(tmp_path: Path) -> None:
    checked, _ = check(tmp_path / "mine", "import sys; print(repr(sys.stdin.read()), sys.stdin.isatty())", has_terminal=True)
    assert checked._run("it", NOTHING, 0).log.read_text().strip() == "'' True"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "../data/x.csv lies beside this folder, and is not beside its copy: mltrainer wrap --in-place -- "),
        ({"where": "task.script"}, "where it needs files outside this folder, name them by absolute paths"),
    ],
)
def test_a_file_beside_the_folder_is_told_with_the_exact_flag(tmp_path: Path, more: dict[str, str], told: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").touch()
    checked, _ = check(tmp_path / "mine", "open('../data/x.csv')", **more)
    ended = checked._run("it", NOTHING, 0)
    with pytest.raises(InputError) as raised:
        computed(ended, checked._program)
    assert told in (raised.value.mend or "")
    in_place = dataclasses.replace(checked._program, in_place=True)
    assert checked._run("it", NOTHING, 0, program=in_place).code == 0


def test_a_traced_run_ends_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "TRACED_S", 0.3)
    checked, _ = check(tmp_path / "mine", "import time; time.sleep(60)")
    ended = checked._run("it", NOTHING, 0, trace=TRACED)
    assert (ended.code, ended.seconds < 30) == (0, True)


def test_only_what_is_changed_is_said_to_be() -> None:
    program = WrappedProgram(("python",), Path("/"), hash_seeds=("0", "1"))
    assert {"hash seed", "folders"} <= set(changed(program))
    in_place = set(changed(dataclasses.replace(program, in_place=True, hash_seeds=("7", "7"))))
    assert not {"hash seed", "folders"} & in_place
    assert "folder for temporary files" in in_place


def test_a_cause_that_was_judged_by_half_a_trace_says_so() -> None:
    cause = Cause("clock", "what add is given", "", 1, None, ())
    assert not any("traced" in line for line in cause_lines(cause))
    cut = dataclasses.replace(cause, traced_s=150.0)
    assert any("what was traced in 2 min 30 s" in line for line in cause_lines(cut))
