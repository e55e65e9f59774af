"""What a check tells while it runs, and of a program that cannot be judged."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.wrap.report import as_json, cause_lines, text
from mltrainer.errors import InputError
from mltrainer.programs import checking
from mltrainer.programs.checking import NOTHING, TRACED, Cause, Check, changed, computed, rate
from mltrainer.programs.starting import WrappedProgram
from mltrainer.reports.values import duration
from mltrainer.reproducibility.hash_seeds import hash_seeds
from mltrainer.reproducibility.short_strings import named
from tests import outputs
from tests.refusals import refused


def left(times: list[float], steps: int) -> list[float]:
    """Return the seconds left that are shown after each step, 0 for none, where the steps end at some times."""
    clock = iter(times)
    told = [rate_of(done) for rate_of in [rate(steps, lambda: next(clock))] for done in range(1, len(times) + 1)]
    return [(steps - done) / found if found else 0.0 for done, found in enumerate(told, 1)]


def test_a_steady_pace_tells_the_time_left():
    assert left([10.0, 12.0, 14.0, 16.0], 5) == [0.0, 6.0, 4.0, 2.0]


def test_a_time_left_that_would_grow_is_not_told():
    shown = left([0.0, 2.0, 12.0, 13.0, 14.0, 15.0], 8)
    assert shown[1] == 12.0
    assert shown[2] == 0.0  # 30 s by now
    told = [seconds for seconds in shown if seconds]
    assert all(after <= before for before, after in itertools.pairwise(told))
    assert shown[-1] == 6.0


def test_a_rate_of_less_than_a_second_is_not_told():
    assert left([0.0, 0.4, 0.9, 1.0], 5) == [0.0, 0.0, 0.0, pytest.approx(1 / 3)]


def check(folder: Path, code: str, **more: Any) -> tuple[Check, list[str]]:
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(code)
    told: list[str] = []
    program = WrappedProgram((sys.executable, "program.py"), folder, **more)
    return Check(program, folder.parent / "scratch", lambda event: told.append(str(event.get("text")))), told


def test_a_program_that_needs_a_terminal_is_given_one(tmp_path):
    checked, told = check(
        tmp_path / "mine", "import os; rows, columns = os.popen('stty size').read().split(); print(int(rows) + int(columns))"
    )
    ended = checked._run("the program as it is", NOTHING, 0)
    assert (ended.code, ended.log.read_text().strip()) == (0, "104")  # 24 lines and 80 columns
    assert told[-1] == "the program as it is, with a terminal, for which it asks"


def test_who_reads_from_that_terminal_is_told_that_nothing_comes(tmp_path):
    checked, _ = check(tmp_path / "mine", "import sys; print(repr(sys.stdin.read()), sys.stdin.isatty())", has_terminal=True)
    assert checked._run("it", NOTHING, 0).log.read_text().strip() == "'' True"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "../data/x.csv is beside this folder, and not beside its copy: mltrainer wrap --in-place -- "),
        ({"where": "task.script"}, "where it needs files outside this folder, name them by absolute paths"),
    ],
)
def test_a_file_beside_the_folder_is_told_with_the_exact_flag(tmp_path, more, told):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").touch()
    checked, _ = check(tmp_path / "mine", "open('../data/x.csv')", **more)
    ended = checked._run("it", NOTHING, 0)
    with refused(hint=told):
        computed(ended)
    in_place = dataclasses.replace(checked._program, in_place=True)
    assert checked._run("it", NOTHING, 0, program=in_place).code == 0


def test_a_traced_run_ends_after_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(checking, "TRACED_S", 0.3)
    checked, _ = check(tmp_path / "mine", "import time; time.sleep(60)")
    ended = checked._run("it", NOTHING, 0, trace=TRACED)
    assert (ended.code, ended.seconds < 30) == (0, True)


def test_only_what_is_changed_is_said_to_be():
    program = WrappedProgram(("python",), Path("/"), hash_seeds=("0", "1"))
    assert {"hash seed", "folders"} <= set(changed(program))
    in_place = set(changed(dataclasses.replace(program, in_place=True, hash_seeds=("7", "7"))))
    assert not {"hash seed", "folders"} & in_place
    assert "folder for temporary files" in in_place


def test_a_cause_that_was_judged_by_half_a_trace_says_so():
    cause = Cause("clock", "what add is given", "", 1, None, ())
    assert not any("traced" in line for line in cause_lines(cause))
    cut = dataclasses.replace(cause, traced_s=150.0)
    assert any("the trace of 2 min 30 s" in line for line in cause_lines(cut))


UNSEEDED = "import random; open('left.txt', 'w').write(str(random.random()))"
IN_A_SETS_ORDER = "names = {'amber', 'birch', 'cedar', 'dahlia', 'elm'}\nopen('left.txt', 'w').write(','.join(names))\n"


def seeds_for(folder: Path) -> tuple[str, ...]:
    """Return the hash seeds that are chosen for the strings of the program in a folder."""
    return hash_seeds(named([folder / "program.py"], [], (sys.executable, "program.py"))).seeds


@pytest.mark.slow
def test_the_verdict_is_reached_within_two_runs_before_the_line_is_searched_for(tmp_path):
    checked, told = check(tmp_path / "mine", UNSEEDED)
    reached: list[tuple[int, bool, Cause | None]] = []
    found = checked.repeats(on_verdict=lambda verdict: reached.append((checked._starts, verdict.same, verdict.cause)))
    assert reached == [(2, False, None)]
    assert told[2] == f"once more, with all changed that must not matter, hash seed {seeds_for(tmp_path / 'mine')[1]}"
    assert told[3] == "the runs differ"
    assert told[4].startswith("the line is searched for: about 4 runs")
    assert found.cause.lines[0].where == "program.py:1"
    assert (found.search.runs, found.stopped) == (3, "")
    assert f"the search for the line took 3 runs in {duration(found.search.seconds)}" in text(found, None)


@pytest.mark.slow
def test_the_kind_of_a_change_is_confirmed_by_one_run_alone(tmp_path):
    checked, told = check(tmp_path / "mine", IN_A_SETS_ORDER)
    found = checked.repeats()
    assert (found.cause and found.cause.kind, found.search and found.search.runs) == ("hash order", 4)
    assert told[-1] == "the cause: hash order changed"


def test_a_search_that_fails_leaves_the_verdict(tmp_path, monkeypatch):
    def too_long(*_arguments: object) -> None:
        raise InputError("the program ran longer than 3 s", where="--timeout")

    checked, _ = check(tmp_path / "mine", UNSEEDED)
    monkeypatch.setattr(checked, "_traced", too_long)
    found = checked.repeats()
    assert (found.same, found.cause, found.stopped) == (False, None, "the program ran longer than 3 s")
    assert "it was cut short (the program ran longer than 3 s): the same command" in text(found, None)
    assert as_json(found, None)["stopped"] == found.stopped


@pytest.mark.slow
def test_a_later_hash_seed_that_fails_leaves_the_verdict_of_two_runs(tmp_path, monkeypatch):
    checked, _ = check(tmp_path / "mine", "open('left.txt', 'w').write('same')")
    run = checked._run

    def twice(*arguments: Any, **more: Any) -> Any:
        if checked._starts == 2:
            raise InputError("the program ran longer than 3 s")
        return run(*arguments, **more)

    monkeypatch.setattr(checked, "_run", twice)
    found = checked.repeats()
    assert (found.same, len(found.seconds), found.hash_seeds) == (True, 2, seeds_for(tmp_path / "mine")[:2])
    assert "no other hash seed was tried, under which a set may come in another order: the program ran longer" in text(
        found, None
    )


@pytest.mark.parametrize(("in_place", "where"), [(True, "in its folder"), (False, "in a copy of its folder")])
def test_a_program_that_fails_is_said_to_where_it_ran(tmp_path, in_place, where):
    checked, _ = check(tmp_path / "mine", "raise SystemExit(4)", in_place=in_place)
    with pytest.raises(InputError) as raised:
        computed(checked._run("it", NOTHING, 0))
    assert f"it ended with exit code 4 {where}; it printed nothing" in str(raised.value)


@pytest.mark.slow
def test_a_program_that_repeats_is_said_to_after_two_runs_and_each_further_one_adds_a_line(tmp_path):
    (tmp_path / "program.py").write_text("open('left.txt', 'w').write('same')")
    command = [sys.executable, "-m", "mltrainer", "wrap", "--", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    _, second, third = seeds_for(tmp_path)
    found = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith(("it repeats", "once", "hash seed"))]
    assert found[0].endswith(f"hash seed {second}")
    assert found[1].startswith("it repeats: no step of a PyTorch optimizer was seen; in 2 runs it left the same")
    assert found[2].endswith(f"hash seed {third}")
    assert found[3].startswith(f"hash seed {third}: the same, in 3 runs; it took")


@pytest.mark.slow
def test_a_signal_during_the_run_of_another_hash_seed_leaves_the_verdict_that_it_repeats(tmp_path):
    (tmp_path / "program.py").write_text("open('left.txt', 'w').write('same'); import time; time.sleep(1)")
    command = [sys.executable, "-m", "mltrainer", "wrap", "--", sys.executable, "program.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any(f"hash seed {seeds_for(tmp_path)[2]}" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.count("it repeats") == 1
    assert said.endswith("no other hash seed was tried, under which a set may come in another order: terminated\n")


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_signal_during_the_search_leaves_the_verdict_and_its_exit_code(tmp_path, by, as_json):
    (tmp_path / "program.py").write_text(f"{UNSEEDED}; import time; time.sleep(1)")
    command = [sys.executable, "-m", "mltrainer", "wrap", *(["--json"] if as_json else []), "--", sys.executable, "program.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any("the line is searched for" in line for line in process.stderr)
    process.send_signal(by)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 5
    why = "interrupted" if by == signal.SIGINT else "terminated"
    if as_json:
        found = outputs.check(["wrap"], said)
        assert (found["same"], found["cause"], found["stopped"]) == (False, None, why)
    else:
        assert said.startswith("IT DOES NOT REPEAT: no step of a PyTorch optimizer was seen")
        assert said.count("IT DOES NOT REPEAT") == 1
        assert f"it was cut short ({why})" in said
