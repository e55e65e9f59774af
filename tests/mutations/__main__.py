"""`python -m tests.mutations [WORD] [--jobs N]`: plants each fault in a copy and tells whether its tests notice.

A fault is caught when one of its tests fails with it and passes without it.
"""

from __future__ import annotations

import argparse
import atexit
import compileall
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import cache_from_source
from pathlib import Path
from typing import NoReturn

import pytest

from tests.mutations.fault import TOP, Fault, faults, planted_text

COPIED = ("mltrainer", "tests", "phases", "reproducibility", "diagnostics", "configs", "checkpointing", "tools", "docs")
FILES = (
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "constraints.txt",
    "action.yml",
    "mkdocs.yml",
)
AIM = 0.95  # of the faults are caught, and each survivor is explained
PRELOADED = ("torch", "sklearn.datasets")  # once, by the process that all tests are forked from
OPTIONS = ("-q", "--no-header", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Met:
    """How the tests met a fault.

    Attributes:
        test: The first test that failed; empty when none did.
        seconds: The time that the tests took.
        fails_anyway: Whether the test fails without the fault, too.
    """

    test: str
    seconds: float
    fails_anyway: bool = False

    @property
    def caught(self) -> bool:
        """Whether a test noticed."""
        return self.test != "" and not self.fails_anyway


def asked_for(word: str) -> list[Fault]:
    """Return the faults of the room that a word names, or else those that hold it in their file, function or description."""
    held = [fault for fault in faults() if word in f"{fault.file} {fault.function} {fault.what}"]
    return [fault for fault in faults() if fault.room == word] or held


def main() -> int:
    """Print a line for each fault and a table of the rooms; exit 1 when an unexplained one survives, or too many do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="a room, or words of what goes wrong; without them all faults")
    parser.add_argument("--jobs", type=int, default=2, help="faults that are tried at the same time")
    asked = parser.parse_args()
    chosen = asked_for(asked.word)
    if not chosen:
        parser.error(f"no fault of tests/mutations/planted.tsv holds {asked.word!r}")
    for name in PRELOADED:
        importlib.import_module(name)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    met = []
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("fork")) as pool:
        for number, one in enumerate(pool.map(partial(tried, Path(name)), chosen)):
            met.append(one)
            print(f"{number + 1:3d}/{len(chosen)} {told(chosen[number], one)}", flush=True)
        blamed = sorted({one.test for one in met if one.test})
        anyway = pool.submit(failing_anyway, Path(name), blamed, asked.jobs).result()
    met = [replace(one, fails_anyway=one.test in anyway) for one in met]
    found = list(zip(chosen, met, strict=True))
    for test in anyway:
        print(f"counted as not caught: without a fault, too, {test} fails")
    print(table(found))
    return 0 if holds(found) else 1


# --- what is told ---------------------------------------------------------------------------------


def told(fault: Fault, met: Met) -> str:
    """Return how the tests met a fault, in words."""
    end = f"caught by {met.test}" if met.test else f"NOT CAUGHT {fault.survives}".rstrip()
    return f"{fault.room:16s} {fault.what}: {end} ({met.seconds:.0f} s)"


def table(found: Sequence[tuple[Fault, Met]]) -> str:
    """Return the counts and the tests' seconds, by room and together."""
    lines = ["room             planted  caught  explained  unexplained  seconds"]
    for room in (*dict.fromkeys(fault.room for fault, _ in found), "all"):
        these = [(fault, met) for fault, met in found if room in (fault.room, "all")]
        caught = sum(met.caught for _, met in these)
        explained = sum(met.test == "" and fault.survives != "" for fault, met in these)
        seconds = sum(met.seconds for _, met in these)
        lines.append(
            f"{room:16s} {len(these):7d}  {caught:6d}  {explained:9d}  {len(these) - caught - explained:11d}  {seconds:7.0f}"
        )
    return "\n".join(lines)


def holds(found: Sequence[tuple[Fault, Met]]) -> bool:
    """Return whether enough faults are caught and each of the others is explained."""
    missed = [(fault, met) for fault, met in found if not met.caught]
    explained = all(fault.survives and met.test == "" for fault, met in missed)
    return explained and len(found) - len(missed) >= AIM * len(found)


# --- how a fault is tried -------------------------------------------------------------------------


def tried(folder: Path, fault: Fault) -> Met:
    """Plant a fault in this process's copy of the checkout and run its tests up to the first that fails."""
    started = time.monotonic()
    copy = own_copy(folder)
    with in_place(copy, fault):
        failed = failures(copy, fault.tests.split(), "-x", "-n", "0")
    return Met(next(iter(failed), ""), time.monotonic() - started)


def failing_anyway(folder: Path, tests: Sequence[str], jobs: int) -> list[str]:
    """Return which tests fail without any fault: they show nothing."""
    return failures(own_copy(folder), tests, "-n", str(jobs if jobs > 1 else 0)) if tests else []


@cache
def own_copy(folder: Path) -> Path:
    """Return a copy of the checkout, all that the tests need, that this process alone changes."""
    copy = folder / str(os.getpid())
    for name in COPIED:
        shutil.copytree(TOP / name, copy / name)
    for name in FILES:
        shutil.copy(TOP / name, copy)
    compileall.compile_dir(copy / "mltrainer", quiet=2)
    return copy


@contextmanager
def in_place(copy: Path, fault: Fault) -> Iterator[None]:
    """Make one place of a module wrong, for a while; what was compiled of the other text is removed with it."""
    wrong, path = planted_text(copy, fault), copy / fault.file
    text = path.read_text("utf-8")
    try:
        _write(path, wrong)
        yield
    finally:
        _write(path, text)


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def failures(top: Path, tests: Sequence[str], *options: str) -> list[str]:
    """Return which tests fail in a checkout, in the order in which they did; pytest runs in a process of its own.

    Raises:
        SystemExit: The tests could not run.
    """
    with tempfile.TemporaryDirectory() as name:
        said, failed = Path(name) / "said", Path(name) / "failed"
        if (pid := os.fork()) == 0:
            _run(top, [*OPTIONS, f"--basetemp={name}/tmp", *options, *tests], said, failed)
        _, status = os.waitpid(pid, 0)
        found = failed.read_text("utf-8").splitlines() if failed.exists() else []
        if status and not found:
            raise SystemExit(f"{' '.join(tests)} could not run:\n{said.read_text('utf-8')[-4000:]}")
    return found


def _run(top: Path, arguments: list[str], said: Path, failed: Path) -> NoReturn:
    """Become pytest in a checkout."""
    code = 1
    atexit._clear()  # what is swept at this process's end are the folders of those that it was forked from
    try:
        with said.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(top)
        os.environ["PYTHONPATH"] = str(top)
        sys.path.insert(0, str(top))
        for name in [name for name in sys.modules if name.partition(".")[0] in ("mltrainer", "tests")]:
            del sys.modules[name]
        code = int(pytest.main(arguments, plugins=[_Failures(failed)]))
        atexit._run_exitfuncs()
    except BaseException:  # also SystemExit: a forked process never returns into what forked it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


class _Failures:
    """Plug-in of pytest that writes down which tests failed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")


if __name__ == "__main__":
    sys.exit(main())
