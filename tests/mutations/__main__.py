"""`python -m tests.mutations [WORD]`: plants each fault in a copy of the checkout and tells whether its tests notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.planted import FAULTS, Fault

TOP = Path(__file__).resolve().parents[2]
COPIED = ("mltrainer", "tests", "phases", "reproducibility", "diagnostics", "configs", "checkpointing", "tools")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt")


def main() -> int:
    """Print a line for each fault; exit 1 when one was not noticed."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [fault for fault in FAULTS if wanted in f"{fault.room} {fault.what}"]
    missed = 0
    for number, fault in enumerate(chosen, 1):
        started = time.monotonic()
        noticed_by = noticed(fault)
        missed += noticed_by is None
        told = f"caught by {noticed_by}" if noticed_by else "NOT CAUGHT"
        print(f"{number:2d}/{len(chosen)} {fault.room:16s} {fault.what}: {told} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


def noticed(fault: Fault) -> str | None:
    """Return the first test that fails with a fault planted, or None."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        plant(copy, fault)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-n",
            "2",
            "--no-header",
            "-p",
            "no:cacheprovider",
            *fault.tests.split(),
        ]
        done = subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": name}, capture_output=True, text=True, check=False
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
    text = path.read_text("utf-8")
    if text.count(fault.right) != 1:
        raise SystemExit(f"{fault.file}: expected once, found {text.count(fault.right)} times: {fault.right!r}")
    path.write_text(text.replace(fault.right, fault.wrong), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
