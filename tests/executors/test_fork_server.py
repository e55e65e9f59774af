"""Processes that are forked from one that has imported its modules: each a process of its own, which ends alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.executors.executor import EVENTS, PIPE, Command
from mltrainer.executors.fork_server import ForkedProcess, ForkServers
from tests.waiting import has_ended, until

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, signal, sys, time
import slow_import
def say(*values):
    os.write(int(sys.argv[2]), json.dumps(values).encode() + b"\\n")
say(os.getpid(), os.getppid(), os.getcwd(), dict(os.environ), slow_import.PID)
exec(sys.argv[1])
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServers]:
    (tmp_path / "program_of_tests.py").write_text(PROGRAM)
    (tmp_path / "slow_import.py").write_text("import os; PID = os.getpid()")
    with ForkServers(late=["MINE"]) as made:
        yield made


def start(server: ForkServers, folder: Path, code: str, forks: bool = False, **variables: str) -> tuple[ForkedProcess, list[Any]]:
    """Fork a process that runs some code; return it with its first words."""
    process = server.start(
        Command(
            arguments=[sys.executable, "-P", "-m", "program_of_tests", code, EVENTS],
            folder=folder,
            environment={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder), str(folder.parent)]), **variables},
            input=PIPE,
            output=folder / "log.txt",
            imports=["slow_import"],
            forks=forks,
        )
    )
    (said,) = process.listen(30) or []
    return process, json.loads(said)


def end(process: ForkedProcess) -> int | None:
    code = process.wait(30)
    process.close()
    return code


def test_each_has_its_own_variables_and_folder_and_what_was_imported_once(server, tmp_path):
    (tmp_path / "inner").mkdir()
    found = [start(server, tmp_path / "inner", "print(sys.stdin.read())", MINE=name) for name in ("a", "b")]
    for (process, (pid, parent, folder, variables, imported)), name in zip(found, "ab", strict=True):
        assert (pid, folder, variables["MINE"]) == (process.pid, str(tmp_path / "inner"), name)
        assert parent == imported not in (pid, os.getpid())
        process.send(f"told to {name}\n".encode())
        process.close_input()
        assert end(process) == 0
    assert (tmp_path / "inner" / "log.txt").read_text().split("\n") == ["told to a", "", "told to b", "", ""]


@pytest.mark.parametrize(
    ("code", "expected"),
    [("", 0), ("sys.exit(5)", 5), ("sys.exit('why')", 1), ("1 / 0", 1), ("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)],
)
def test_it_ends_with_the_code_of_a_program(server, tmp_path, code, expected):
    process, _ = start(server, tmp_path, code)
    assert end(process) == expected
    assert ("ZeroDivisionError" in (tmp_path / "log.txt").read_text()) == ("1 / 0" in code)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_alone_and_passes_its_server_by(server, tmp_path, number):
    first, (_, parent, *_) = start(server, tmp_path, "signal.signal(2, signal.SIG_DFL); time.sleep(60)")
    other, _ = start(server, tmp_path, "time.sleep(60)")
    os.kill(parent, number)
    first.signal(number)
    assert end(first) == -number
    assert other.wait(0.1) is None
    other.kill()
    assert end(other) == -signal.SIGKILL


def test_its_end_can_be_asked_for_after_all_else_was_closed(server, tmp_path):
    """As whoever follows it does where an exception ends the following: Ctrl-C, a reader that has gone."""
    process, _ = start(server, tmp_path, "time.sleep(60)")
    process.close()
    assert process.poll() is None
    process.signal(signal.SIGTERM)
    assert (process.wait(30), process.poll()) == (-signal.SIGTERM, -signal.SIGTERM)


def test_what_it_started_is_killed_with_it(server, tmp_path):
    code = "import subprocess; say(subprocess.Popen(['sleep', '60'], start_new_session=True).pid); time.sleep(60)"
    process, _ = start(server, tmp_path, code)
    (pid,) = json.loads((process.listen(30) or [b""])[0])
    process.kill()
    assert end(process) == -signal.SIGKILL
    until(lambda: has_ended(pid))


def test_when_its_server_is_killed_it_counts_as_killed_and_the_next_one_has_a_new_server(server, tmp_path):
    process, (pid, parent, *_) = start(server, tmp_path, "time.sleep(60)")
    os.kill(parent, signal.SIGKILL)
    assert end(process) == -signal.SIGKILL
    other, (_, anew, *_) = start(server, tmp_path, "")
    assert (end(other), anew != parent) == (0, True)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_server_ends_with_the_process_that_started_it_however_that_one_ends(server, tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from tests.executors.test_fork_server import ForkServers, start\n"
        "folder = Path(sys.argv[1]); server = ForkServers([])\n"
        "print(*start(server, folder, 'time.sleep(60)')[1][:2], flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as starter:
        pid, parent = map(int, starter.stdout.readline().split())
        starter.kill()
    until(lambda: has_ended(parent))
    assert not has_ended(pid)  # it saves its state when it sees that its parent has gone
    os.kill(pid, signal.SIGKILL)


POOL = """
from pathlib import Path
from tests.executors.test_fork_server import ForkServers, start
servers = ForkServers(["MINE"])
say(*(start(servers, Path.cwd(), "time.sleep(60)", MINE=name)[1] for name in "ab"))
time.sleep(60)
"""


def test_what_a_forked_process_forks_finds_imported_what_it_does_and_is_killed_with_it(server, tmp_path):
    process, (pid, parent, *_) = start(server, tmp_path, POOL, forks=True)
    workers = json.loads((process.listen(30) or [b""])[0])
    assert [(variables["MINE"], imported) for *_, variables, imported in workers] == [("a", parent), ("b", parent)]
    (own,) = {worker[1] for worker in workers}
    assert own not in (pid, parent)
    process.kill()
    assert end(process) == -signal.SIGKILL
    until(lambda: all(map(has_ended, (own, *(worker[0] for worker in workers)))))


def test_what_can_be_imported_ahead_is_there_for_the_next(server, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path / "inner"), str(tmp_path)])}
    (tmp_path / "inner").mkdir()
    (tmp_path / "imported_ahead.py").write_text("import pathlib; (pathlib.Path(__file__).parent / 'done').touch()")
    server.prepare(tmp_path, environment, ["no_such_module", "imported_ahead"])
    until((tmp_path / "done").exists)
    process, _ = start(server, tmp_path / "inner", "assert 'imported_ahead' in sys.modules")
    assert end(process) == 0


def test_one_that_still_imports_is_not_waited_for(tmp_path):
    (tmp_path / "endless.py").write_text("import time; time.sleep(60)")
    began = time.monotonic()
    with ForkServers([]) as server:
        server.prepare(tmp_path, {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}, ["endless"])
    assert time.monotonic() - began < 30


def test_a_forked_process_collects_garbage(server, tmp_path):
    process, _ = start(server, tmp_path, "import gc; assert gc.isenabled()")
    assert end(process) == 0


def test_a_server_that_cannot_import_is_reported_as_a_process_that_ended(tmp_path):
    with ForkServers([]) as server:
        arguments = [sys.executable, "-P", "-m", "program_of_tests"]
        process = server.start(
            Command(
                arguments=arguments,
                folder=tmp_path,
                environment=os.environ,
                output=tmp_path / "log.txt",
                imports=["no_such_module"],
            )
        )
        assert end(process) == -signal.SIGKILL
    assert "no_such_module" in (tmp_path / "log.txt").read_text()
