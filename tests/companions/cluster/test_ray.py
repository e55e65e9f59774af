"""Ray: what is told where it is not installed, where there is no cluster, and where a machine lacks what it should run."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.cluster.ray import Ray
from mltrainer.errors import InputError
from mltrainer.executors.executor import RemoteCommand
from tests.executors.engines import RAY, two_nodes
from tests.refusals import refused
from tests.waiting import until


def of_a_service(test: Any) -> Any:
    for mark in RAY:
        test = mark(test)
    return test


def command(tmp_path: Path, *arguments: str) -> RemoteCommand:
    return RemoteCommand(
        name="mltrainer-abc", arguments=arguments, folder=tmp_path, environment={"A": "1"}, log=tmp_path / "log.txt"
    )


def ended(engine: Ray, job: str) -> tuple[str, str]:
    until(lambda: engine.look()[job].state != "running")
    seen = engine.look()[job]
    return seen.state, seen.why


def test_a_machine_without_ray_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused("there is no package ray", hint="mltrainer[ray]"):
        Ray("auto")


@of_a_service
def test_an_address_without_a_cluster_is_refused():
    with pytest.raises(InputError, match=r"no Ray cluster at 127.0.0.1:9:"):
        Ray("127.0.0.1:9")


@of_a_service
def test_a_task_gets_its_variables_and_its_end_is_told(tmp_path):
    engine = Ray(two_nodes().address)
    assert ended(engine, engine.begin(command(tmp_path, "/bin/sh", "-c", "echo a is $A; exit 0"))) == (
        "ended",
        "it ended with exit code 0",
    )
    assert (tmp_path / "log.txt").read_text() == "a is 1\n"
    assert ended(engine, engine.begin(command(tmp_path, "/bin/sh", "-c", "exit 3"))) == ("failed", "it ended with exit code 3")
    job = engine.begin(command(tmp_path, "/bin/sh", "-c", "sleep 60"))
    engine.cancel([job, "of an earlier process"])
    assert ended(engine, job)[0] == "lost"
    engine.close()


@of_a_service
def test_a_machine_that_lacks_what_it_should_run_says_so(tmp_path, monkeypatch):
    engine = Ray(two_nodes().address)
    state, why = ended(engine, engine.begin(command(tmp_path, "/opt/python-of-another-machine")))
    assert state == "failed"
    assert "/opt/python-of-another-machine" in why
    # A module that this process alone can import, as where another version is installed there.
    module = types.ModuleType("mltrainer_of_another_version")
    exec("def supervise(*_): return 0", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    engine._task = engine._ray.remote(max_retries=0)(module.supervise)
    state, why = ended(engine, engine.begin(command(tmp_path, "/bin/true")))
    assert state == "failed"
    assert "No module named 'mltrainer_of_another_version'" in why
    engine.close()
