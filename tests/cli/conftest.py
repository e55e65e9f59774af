"""Situations that the tests of the command line share."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mltrainer.records.tried import TRIED_FILE
from mltrainer.workspace import Project
from tests.conftest import shared, succeed
from tests.projects import write_rings
from tests.waiting import until

SLOW = {"use": "my_task:Rings", "options": {"pause": 0.05}}


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of every file that a person sees, to tell whether anything was lost or left half-written.

    But for the ledger of tried runs, to which also a run that fails adds its line.
    """
    hidden = {".mltrainer", ".git", "__pycache__", Path(TRIED_FILE).name}
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and not hidden & set(p.relative_to(folder).parts))
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def leftovers(folder: Path) -> list[str]:
    """Return the files that a write which did not end left behind."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".tmp-*")]


def _train_rings(folder: Path) -> None:
    project = write_rings(folder / "trained", task=SLOW)
    own = ("--project", project.root)
    succeed("phase", "run", "planning", "--set", "epochs=10", "--set", "early_stopping=null", *own)
    shutil.copytree(project.root, folder / "planned")
    succeed("phase", "run", "baseline", *own)


@pytest.fixture(scope="session")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rings, `planned` and then `trained` without an interruption; not to be changed."""
    return shared(tmp_path_factory, "rings", _train_rings)


def start(project: Project, *arguments: str) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, as a shell does."""
    command = [sys.executable, "-m", "mltrainer", *arguments, "--project", str(project.root)]
    return subprocess.Popen(command, cwd=project.root, text=True, stderr=subprocess.PIPE, start_new_session=True)


def train_until(project: Project, stop: Callable[[subprocess.Popen[str]], None]) -> tuple[int, str]:
    """Run the baseline, stop it as soon as it has trained some steps, and return its exit code and what it said."""
    sizes = [path.stat().st_size for path in project.runs_dir.glob("*/chain.txt")]
    with start(project, "phase", "run", "baseline") as process:
        until(lambda: [path.stat().st_size for path in project.runs_dir.glob("*/chain.txt")] > sizes, seconds=120)
        stop(process)
        said = process.communicate()[1]
    return process.returncode, said
