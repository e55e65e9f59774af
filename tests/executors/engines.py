"""The engines under test, each with what a test needs to take a machine away; and one that has its jobs on this machine."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from mltrainer.companions.cluster.ray import Ray
from mltrainer.companions.cluster.slurm import Slurm
from mltrainer.executors.executor import Engine, RemoteCommand, Sight, Sighting
from mltrainer.records.job import JobBase
from mltrainer.search.pool import Pool
from mltrainer.search.remote_pool import RemotePool, Timing
from mltrainer.search.workers import RunEnd, Workers
from tests.waiting import until

QUICK = Timing(files_s=0.05, look_s=0.3, gone_s=0.5, alive_s=0.2, lost_s=1.5, orphan_s=20.0, grace_s=10.0)


class Here:
    """Jobs as processes of this machine: each a session, which `lose` kills as a machine's failure would."""

    name = "here"

    def __init__(self) -> None:
        self.jobs: dict[str, subprocess.Popen[bytes]] = {}
        self.lost: set[str] = set()
        self.refused: list[Exception] = []  # what the next jobs meet

    def begin(self, command: RemoteCommand) -> str:
        if self.refused:
            raise self.refused.pop(0)
        with open(command.log, "ab") as log:
            job = subprocess.Popen(
                command.arguments, cwd=command.folder, env=command.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.jobs[str(job.pid)] = job
        return str(job.pid)

    def look(self) -> Mapping[str, Sighting]:
        codes = {name: job.poll() for name, job in self.jobs.items() if name not in self.lost}
        return {name: Sighting(_state(code), f"it ended with {code}") for name, code in codes.items()}

    def cancel(self, jobs: Sequence[str]) -> None:
        for name in jobs:
            kill_tree(int(name), signal.SIGKILL)

    def close(self) -> None:
        self.cancel([*self.jobs])
        for job in self.jobs.values():
            job.wait()


def _state(code: int | None) -> Sight:
    if code is None:
        return "running"
    return "failed" if code else "ended"


def kill_tree(pid: int, number: int) -> None:
    """Signal a process and all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)


def supervisors(root: Path) -> list[int]:
    """Return the supervisors of jobs of a project, wherever they were started from."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "mltrainer.executors.supervisor" in line and str(root) in line:
            found.append(process.pid)
    return found


class Machines(Protocol):
    """An engine, and its failures."""

    name: str

    def pool(self, root: Path, job: JobBase, silent_s: float, tell: Callable[[str], None]) -> Workers:
        """Return two workers."""

    def lose(self, root: Path) -> None:
        """Take away the machine that has the one run that trains."""


class OnEngine:
    """Machines of an engine; a lost one is one whose processes are all killed, and of which the engine knows."""

    def __init__(self, name: str, engine: Callable[[], Engine], lose: Callable[[Path, Any], None]) -> None:
        self.name, self._engine, self._lose = name, engine, lose
        self.engine: Any = None

    def pool(self, root: Path, job: JobBase, silent_s: float, tell: Callable[[str], None]) -> Workers:
        self.engine = self._engine()
        return RemotePool(root, job, self.engine, 2, silent_s, tell, QUICK)

    def lose(self, root: Path) -> None:
        self._lose(root, self.engine)


class Local:
    """The workers of this machine; what can be lost of it is the process that starts them."""

    name = "local"

    def pool(self, root: Path, job: JobBase, silent_s: float, tell: Callable[[str], None]) -> Workers:
        return Pool(root, job, [{}, {}], silent_s, tell)

    def lose(self, root: Path) -> None:
        servers = [one for one in psutil.Process().children() if "mltrainer.executors.fork_server" in one.cmdline()]
        for server in servers:
            server.kill()


def kill_here(_root: Path, engine: Here) -> None:
    """Take away the machines of all jobs that run."""
    for name, job in engine.jobs.items():
        if job.poll() is None:
            engine.lost.add(name)
            kill_tree(job.pid, signal.SIGKILL)


def _cancel(_root: Path, engine: Slurm) -> None:
    # As an administrator does: without a moment to save.
    subprocess.run(["scancel", "--full", "--signal=KILL", f"--name={engine._name}"], check=True)


def slurm_is_here() -> bool:
    """Return True where a SLURM controller answers and has an idle or busy node."""
    if shutil.which("sinfo") is None:
        return False
    try:
        found = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return False
    return found.returncode == 0 and any(state.startswith(("idle", "mix", "alloc")) for state in found.stdout.split())


class TwoNodes:
    """A Ray cluster of two nodes on this machine, beside its head, which runs no task; a killed one is replaced."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY})
        self.address: str = self._cluster.address
        self._nodes = [self._new(), self._new()]

    def _new(self) -> Any:
        return self._cluster.add_node(num_cpus=1, object_store_memory=MEMORY)

    def lose(self, root: Path) -> None:
        """Kill the node that has a job of a project, and have another one in its place."""
        parents = {one.pid for one in psutil.Process(supervisors(root)[0]).parents()}
        node = next(node for node in self._nodes if parents & _pids(node))
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._new())

    def close(self) -> None:
        import ray

        ray.shutdown()  # a node that this process is connected to is not ended
        self._cluster.shutdown()


def _pids(node: Any) -> set[int]:
    return {found.process.pid for kind in node.all_processes.values() for found in kind}


MEMORY = 80 << 20  # bytes of each node's store, through which nothing goes
_CLUSTERS: list[TwoNodes] = []


def two_nodes() -> TwoNodes:
    """Return the cluster, started once; it ends with this process."""
    if not _CLUSTERS:
        _CLUSTERS.append(TwoNodes())
        atexit.register(_CLUSTERS[0].close)
    return _CLUSTERS[0]


NO_SLURM = "no SLURM controller answers here: make test-services"
NO_RAY = "Ray is not installed beside this Python: make test-services"
SLURM = [pytest.mark.slow, pytest.mark.service, pytest.mark.skipif(not slurm_is_here(), reason=NO_SLURM)]
RAY = [pytest.mark.slow, pytest.mark.service, pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=NO_RAY)]
KINDS = [
    pytest.param(lambda: Local(), id="local"),
    pytest.param(lambda: OnEngine("here", Here, kill_here), id="here"),
    pytest.param(lambda: OnEngine("slurm", lambda: Slurm({}), _cancel), id="slurm", marks=SLURM),
    pytest.param(
        lambda: OnEngine("ray", lambda: Ray(two_nodes().address), lambda root, _: two_nodes().lose(root)), id="ray", marks=RAY
    ),
]


def ends(pool: Workers, count: int = 1, seconds: float = 90.0) -> list[RunEnd]:
    """Return the first ends of runs."""
    found: list[RunEnd] = []
    until(lambda: found.extend(pool.wait()) or len(found) >= count, seconds)
    return sorted(found, key=lambda one: one.nr)
