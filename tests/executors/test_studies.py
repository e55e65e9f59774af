"""One table of a study, whichever engine trained it, and whatever was taken away meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from mltrainer.search.attempts import Attempt, attempts_at
from mltrainer.workspace import digest, read_json
from tests.executors.engines import RAY, SLURM, kill_tree, supervisors, two_nodes
from tests.projects import write_rings
from tests.search.test_program import SPACE, config, run, start, study, table

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]  # importing torch for each run takes its time
TASK = {"use": "my_task:Rings", "options": {"n": 60, "pause": 0.5}}


def job(engine: str = "local", **changes: Any) -> dict[str, Any]:
    launch = {"ray": {"address": two_nodes().address}} if engine == "ray" else {}
    asked = {**study(SPACE, 4), "strategy": "tpe", "lag": 2, "seeds": 1, "workers": 2, "silent_minutes": 1.0, "engine": engine}
    return {**asked, "config": config(batch_size=32, epochs=4, task=TASK, launch=launch), **changes}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of this machine's workers, one at a time."""
    return told(run(write_rings(tmp_path_factory.mktemp("local")).root, job(workers=1))[2])


def told(found: dict[str, Any]) -> str:
    """Return the digest of a study's table and comparison, in which no run has failed."""
    assert not [trial for trial in found["trials"] if trial["state"] == "failed" or trial["reason"]]
    return digest([table(found), found["comparison"]])


def disturbed(root: Path, asked: dict[str, Any], disturbances: Sequence[Callable[[Attempt], None]]) -> tuple[str, str]:
    """Run a study, of which each disturbance meets another attempt; return its table's digest and what was said."""
    with start(root, asked) as process, ended_by_failure(process):
        met: set[tuple[str, int]] = set()
        for disturb in disturbances:
            while not (found := [one for one in attempts_at(root) if has_begun(one) and (one.run, one.number) not in met]):
                assert process.poll() is None, process.stdout and process.stdout.read().decode()
                time.sleep(0.05)
            met.add((found[0].run, found[0].number))
            disturb(found[0])
        said, _ = process.communicate()
    assert process.returncode == 0, said.decode()
    return told(read_json(root / asked["folder"] / "result.json")), said.decode()


@contextlib.contextmanager
def ended_by_failure(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a search that a failed test leaves."""
    try:
        yield
    finally:
        process.kill()


def has_begun(attempt: Attempt) -> bool:
    """Return True where an attempt trains: it has a checkpoint, and its worker lives."""
    if attempt.ending is not None or not any(attempt.work.glob("checkpoints/step-*")):
        return False
    return any(psutil.Process(one).children() for one in supervisors(attempt.folder))


def worker_of(attempt: Attempt) -> int:
    return int(psutil.Process(supervisors(attempt.folder)[0]).children()[0].pid)


def cancel_its_job(attempt: Attempt) -> None:
    subprocess.run(["scancel", attempt.begun.job], check=True)


def kill_its_machine(attempt: Attempt) -> None:
    kill_tree(supervisors(attempt.folder)[0], signal.SIGKILL)


def kill_its_node(attempt: Attempt) -> None:
    two_nodes().lose(attempt.folder)


def kill_its_worker(attempt: Attempt) -> None:
    os.kill(worker_of(attempt), signal.SIGKILL)


def freeze_its_worker(attempt: Attempt) -> None:
    os.kill(worker_of(attempt), signal.SIGSTOP)


OF_SLURM = (cancel_its_job, kill_its_machine, kill_its_worker, freeze_its_worker)
OF_RAY = (kill_its_node, kill_its_worker, freeze_its_worker)


@pytest.mark.parametrize(
    ("engine", "disturbances", "losses"),
    [
        pytest.param("slurm", (), 0, id="slurm", marks=SLURM),
        pytest.param("slurm", OF_SLURM, 2, id="slurm disturbed", marks=SLURM),
        pytest.param("ray", (), 0, id="ray", marks=RAY),
        pytest.param("ray", OF_RAY, 1, id="ray disturbed", marks=RAY),
    ],
)
def test_an_engine_gives_the_table_of_this_machine(tmp_path, expected, engine, disturbances, losses):
    root = write_rings(tmp_path).root
    found, said = disturbed(root, job(engine), disturbances)
    assert found == expected
    assert said.count("was lost: ") == losses


@pytest.mark.parametrize("engine", [pytest.param("slurm", marks=SLURM)])
def test_a_search_that_is_stopped_on_an_engine_goes_on_here(tmp_path, expected, engine):
    root = write_rings(tmp_path).root
    process = start(root, job(engine))
    while not any(map(has_begun, attempts_at(root))):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said.decode()
    assert supervisors(root) == []
    assert list(root.glob(".mltrainer/runs/*/checkpoints/step-*"))
    assert told(run(root, job())[2]) == expected
