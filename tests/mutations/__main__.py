"""`python -m tests.mutations [WORD] [--jobs N]`: plants each fault in a copy and tells whether its tests notice."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutations import planted
from tests.mutations.fault import Fault

TOP = Path(__file__).resolve().parents[2]
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


def faults() -> list[tuple[str, Fault]]:
    """Return all planted faults with the room that each stands in."""
    rooms = sorted(module.name for module in pkgutil.iter_modules(planted.__path__))
    return [(room, fault) for room in rooms for fault in importlib.import_module(f"tests.mutations.planted.{room}").FAULTS]


def main() -> int:
    """Print a line for each fault; exit 1 when an unexplained one survives, or too many do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="plant only the faults whose room and words hold it")
    parser.add_argument("--jobs", type=int, default=2, help="faults that are tried at the same time")
    asked = parser.parse_args()
    chosen = [(room, fault) for room, fault in faults() if asked.word in f"{room} {fault.what}"]
    caught, unexplained = 0, 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        found = pool.map(lambda one: timed(one[1]), chosen)
        for number, ((room, fault), (noticed_by, seconds)) in enumerate(zip(chosen, found, strict=True), 1):
            caught += noticed_by is not None
            unexplained += noticed_by is None and not fault.survives
            told = f"caught by {noticed_by}" if noticed_by else f"NOT CAUGHT {fault.survives}".rstrip()
            print(f"{number:3d}/{len(chosen)} {room:16s} {fault.what}: {told} ({seconds:.0f} s)", flush=True)
    print(f"{caught} of {len(chosen)} caught, {unexplained} of the survivors unexplained")
    return 1 if unexplained or caught < AIM * len(chosen) else 0


def timed(fault: Fault) -> tuple[str | None, float]:
    """Return the first test that notices a fault, or None, and the seconds that it took."""
    started = time.monotonic()
    return noticed(fault), time.monotonic() - started


def noticed(fault: Fault) -> str | None:
    """Return the first test that fails with a fault planted, or None."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        plant(copy, fault)
        options = ["-q", "-x", "-n", "0", "--no-header", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *fault.tests.split()],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": name},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == 0:
        return None
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not failed:
        raise SystemExit(f"the tests could not run with the fault {fault.what!r}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[0]


def plant(copy: Path, fault: Fault) -> None:
    """Copy the checkout and make one place wrong.

    Raises:
        SystemExit: The place is not there, or not only once: the list is older than the code.
    """
    for folder in COPIED:
        shutil.copytree(TOP / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(TOP / file, copy)
    path = copy / fault.file
    path.write_text(planted_text(path.read_text("utf-8"), fault), "utf-8")


def planted_text(text: str, fault: Fault) -> str:
    """Return a module's text with the fault in it.

    Raises:
        SystemExit: The place is not there, or not only once: the list is older than the code.
    """
    if text.count(fault.right) != 1:
        raise SystemExit(f"{fault.file}: expected once, found {text.count(fault.right)} times: {fault.right!r}")
    return text.replace(fault.right, fault.wrong)


if __name__ == "__main__":
    sys.exit(main())
