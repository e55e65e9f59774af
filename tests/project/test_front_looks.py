"""Calls of the Python API that only look, in a stranger's project: they open its own plain files alone, and end."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mltrainer
from mltrainer.errors import MltrainerError
from mltrainer.looking import is_looking
from tests.conftest import git

RECORD = "phases/02_baseline/record.json"
CALLS: dict[str, Callable[[mltrainer.Project], Any]] = {
    "status": lambda project: project.status(),
    "gates": lambda project: project.gates(),
    "check": lambda project: project.check("baseline"),
    "runs": lambda project: project.runs(),
    "load_run": lambda project: project.load_run("baseline"),
    "compare": lambda project: project.compare("baseline", "finalization"),
    "records": lambda project: project.records(),
    "report": lambda project: project.report("HEAD"),
    "waive": lambda project: project.waive("baseline", "good_enough", "looked"),
    "steps": lambda project: project.load_run("diagnostics").steps,
    "diagnose": lambda project: project.load_run("diagnostics").diagnose(),
}


@pytest.fixture
def clone(digits_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits_once, tmp_path / "clone", symlinks=True))


def ended(act: Callable[[], Any]) -> list[Any]:
    """Return what a call returned or raised; nothing where it does not end."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(act())
        except (MltrainerError, OSError) as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_pipe_in_place_of_a_record_hangs_no_call_that_looks(clone, name):
    for path in (RECORD, ".mltrainer/cache/digests.json"):
        (clone / path).unlink(missing_ok=True)
        os.mkfifo(clone / path)
    project = mltrainer.Project(clone)
    assert len(ended(lambda: CALLS[name](project))) == 1
    assert not is_looking()


def test_a_committed_link_is_not_followed_and_what_trains_meanwhile_is_not_limited(clone, tmp_path):
    (tmp_path / "secret.json").write_text('{"a": "canary"}')
    (clone / RECORD).unlink()
    (clone / RECORD).symlink_to(tmp_path / "secret.json")
    git(clone, "add", "--force", RECORD)
    (said,) = ended(mltrainer.Project(clone).records)
    assert "is a link out of the project" in str(said)
    assert (clone / RECORD).read_text() == '{"a": "canary"}'
