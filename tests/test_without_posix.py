"""mltrainer on a system that is not Linux, as far as Linux can show it: without the modules, files and calls of Linux."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mltrainer import locks
from mltrainer.errors import MachineError, killed
from mltrainer.executors import local
from mltrainer.executors.executor import EVENTS, Command
from mltrainer.workspace import is_locked, locked
from tests.test_architecture import TORCH_FREE, modules

BLOCKED = Path(__file__).parent / "without_posix"
IMPORT_ALL = f"""
import importlib, os, pkgutil
assert not hasattr(os, "fork")
for room in {TORCH_FREE!r}:
    module = importlib.import_module(f"mltrainer.{{room}}")
    for found in pkgutil.iter_modules(getattr(module, "__path__", [])):
        importlib.import_module(f"mltrainer.{{room}}.{{found.name}}")
"""


def run(folder: Path, *arguments: str, lacks: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(BLOCKED), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "WITHOUT_POSIX": lacks}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def mltrainer(folder: Path, *arguments: str, lacks: str = "") -> subprocess.CompletedProcess[str]:
    return run(folder, "-P", "-m", "mltrainer", *arguments, lacks=lacks)


@pytest.mark.slow
@pytest.mark.parametrize("lacks", ["", "windows"])
def test_each_module_that_needs_no_torch_is_imported_without_what_linux_has(tmp_path, lacks):
    done = run(tmp_path, "-P", "-c", IMPORT_ALL, lacks=lacks)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_no_module_imports_what_only_linux_has_before_it_needs_it():
    blocked = {"fcntl", "msvcrt", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"}
    found = {
        (name, alias.name)
        for name, path in modules().items()
        for node in ast.parse(path.read_text("utf-8")).body
        for alias in getattr(node, "names", [])
        if isinstance(node, ast.Import) and alias.name in blocked
    }
    assert found == set()


@pytest.mark.slow
def test_an_import_of_what_linux_has_is_caught_by_these_tests(tmp_path):
    package = tmp_path / "mltrainer"
    package.mkdir()
    for name, text in (("module", "import resource"), ("file", "open('/proc/self/statm')"), ("call", "import os; os.fork()")):
        (package / f"{name}.py").write_text(text)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BLOCKED), str(tmp_path)])}
        done = subprocess.run([sys.executable, "-P", "-c", f"import mltrainer.{name}"], env=environment, capture_output=True)
        assert done.returncode == 1, name


@pytest.mark.slow
def test_a_project_is_begun_and_looked_at(tmp_path):
    assert mltrainer(tmp_path, "--help").returncode == 0
    assert mltrainer(tmp_path, "guide", "phases/WORKFLOW").returncode == 0
    begun = mltrainer(tmp_path, "init", "digits", "--example", "digits")
    assert begun.returncode == 0, begun.stderr
    for command in (["status"], ["gate", "check"]):
        looked = mltrainer(tmp_path / "digits", *command)
        assert looked.returncode in (0, 4), looked.stderr
        assert "Traceback" not in looked.stderr


@pytest.mark.slow
def test_a_phase_is_run_to_a_gate_that_holds(tmp_path):
    mltrainer(tmp_path, "init", "digits", "--example", "digits")
    planned = mltrainer(tmp_path / "digits", "phase", "run", "planning", "--set", "epochs=3")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert mltrainer(tmp_path / "digits", "gate", "check", "planning").returncode == 0


@pytest.mark.slow
def test_doctor_says_what_is_not_there(tmp_path):
    said = mltrainer(tmp_path, "doctor").stdout
    for name in ("fork", "resource", "termios", "/proc"):
        assert any(name in line and "not here" in line for line in said.splitlines()), said
    assert not any("locks" in line and "not here" in line for line in said.splitlines())


@pytest.mark.slow
def test_without_any_locks_no_phase_is_run_and_doctor_says_why(tmp_path):
    assert mltrainer(tmp_path, "init", "digits", "--example", "digits", lacks="locks").returncode == 0
    refused = mltrainer(tmp_path / "digits", "phase", "run", "planning", lacks="locks")
    assert refused.returncode == 7, refused.stderr
    assert "neither fcntl nor msvcrt" in refused.stderr
    doctor = mltrainer(tmp_path, "doctor", lacks="locks")
    assert "no phase runs: two commands could work on one project at once" in doctor.stdout


# --- locks ----------------------------------------------------------------------------------------


def windows(holds: set[int]) -> object:
    class Msvcrt:
        LK_NBLCK = 2

        @staticmethod
        def locking(descriptor: int, mode: int, size: int) -> None:
            assert (mode, size) == (Msvcrt.LK_NBLCK, 1)
            place = os.lseek(descriptor, 0, os.SEEK_CUR)
            if place in holds:
                raise PermissionError(errno.EACCES, "Permission denied")
            holds.add(place)

    return Msvcrt


def test_on_windows_a_byte_behind_the_text_is_locked(tmp_path, monkeypatch):
    holds: set[int] = set()
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", windows(holds))
    path = tmp_path / "lock"
    with locked(path, "it"):
        assert path.read_text().startswith("process ")
        assert is_locked(path)
    assert min(holds) > 1 << 20


def test_without_locks_nothing_counts_as_held(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", None)
    path = tmp_path / "lock"
    path.touch()
    assert not is_locked(path)
    with pytest.raises(OSError, match="neither fcntl nor msvcrt"), locked(path, "it"):
        pass


def test_on_windows_no_program_is_started(monkeypatch, tmp_path):
    command = Command(arguments=[sys.executable, EVENTS], folder=tmp_path, environment={})
    monkeypatch.setattr(local.os, "name", "nt")
    with pytest.raises(MachineError, match="no programs on Windows"):
        local.start(command)


def test_the_reason_of_a_killed_process_needs_no_signal_of_linux():
    assert "memory" in killed(-9)
