"""Jobs of a Ray cluster: tasks of Ray's core, each of which starts one supervisor on its machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mltrainer.configs.launching import Launching
from mltrainer.errors import InputError
from mltrainer.executors import local
from mltrainer.executors.executor import Command, EngineAwayError, RemoteCommand, Sighting

OF_ITS_TASK = ("CUDA_VISIBLE_DEVICES", "RAY_NODE_ID")  # variables that Ray sets for a task
ANSWER_S = 10.0  # longest wait for the cluster's answer
NO_RAY = "there is no package ray"
INSTALL = "pip install 'mltrainer[ray]', there and on every machine of the cluster"
NO_CLUSTER = "start one with `ray start --head`, name its address in launch.ray.address, or take --launch local"


class Ray:
    """A Ray cluster.

    Args:
        address: The cluster's address, or `auto` for the one of this machine.

    Raises:
        InputError: Ray is not installed here, or there is no such cluster.
    """

    name = "ray"

    def __init__(self, address: str) -> None:
        self._ray = _connected(address)
        # No retries by Ray: the search begins each attempt, which continues from its checkpoint.
        self._task: Any = self._ray.remote(max_retries=0)(supervise)
        self._jobs: dict[str, Any] = {}  # references by id, of tasks that may still run
        self._ended: dict[str, Sighting] = {}

    def begin(self, command: RemoteCommand) -> str:
        """Submit a task and return its id.

        Raises:
            EngineAwayError: The cluster does not answer.
        """
        task = self._task.options(name=command.name, num_cpus=command.cores, num_gpus=command.gpus)
        given = [*command.arguments], str(command.folder), dict(command.environment), str(command.log)
        with _answering(self._ray):
            job = task.remote(*given)
        self._jobs[job.hex()] = job
        return str(job.hex())

    def look(self) -> Mapping[str, Sighting]:
        """Return the tasks of this process; a waiting task looks like a running one.

        Raises:
            EngineAwayError: The cluster does not answer.
        """
        with _answering(self._ray):
            done, _ = self._ray.wait([*self._jobs.values()], num_returns=len(self._jobs), timeout=0) if self._jobs else ([], [])
        for job in done:
            self._ended[job.hex()] = self._end(self._jobs.pop(job.hex()))
        return {**{name: Sighting("running") for name in self._jobs}, **self._ended}

    def _end(self, job: Any) -> Sighting:
        """Return the end of a task, by its answer or by Ray's exception."""
        errors = self._ray.exceptions
        try:
            code = self._ray.get(job)
        except errors.OutOfMemoryError as error:
            return Sighting("died", f"its machine ran out of memory: {_first_line(error)}")
        except errors.TaskCancelledError:
            return Sighting("lost", "the task was cancelled")
        except errors.RayTaskError as error:  # an error on that machine: no such interpreter, no such package
            return Sighting("failed", _last_line(error.cause))
        except errors.RayError as error:
            return Sighting("lost", f"{type(error).__name__}: {_first_line(error)}")
        return Sighting("failed" if code else "ended", f"it ended with exit code {code}")

    def cancel(self, jobs: Sequence[str]) -> None:
        """End tasks; those of an earlier process ended with it."""
        for name in jobs:
            if name in self._jobs:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(self._jobs[name], force=True)

    def close(self) -> None:
        """End all tasks, and leave the cluster."""
        self.cancel([*self._jobs])
        self._ray.shutdown()


def supervise(arguments: list[str], folder: str, environment: dict[str, str], log: str) -> int:
    """Run a command on the machine of a task, with the devices that Ray gave to it, and return its exit code."""
    own = {name: os.environ[name] for name in OF_ITS_TASK if name in os.environ}
    command = Command(arguments=arguments, folder=Path(folder), environment={**environment, **own}, output=Path(log))
    return local.start(command).wait() or 0


def _connected(address: str) -> Any:
    """Return Ray, connected to a cluster.

    Raises:
        InputError: Ray is not installed, or there is no such cluster.
    """
    try:
        import ray  # a plain installation has no Ray, and its import takes a second
    except ImportError as error:
        raise InputError(NO_RAY, where="launch.engine", hint=INSTALL) from error
    with _own_handlers():
        try:
            _require_answer(address)
            ray.init(address=address, log_to_driver=False, logging_level="error")
        except (OSError, RuntimeError, ValueError) as error:
            what = f"no Ray cluster at {address}: {_first_line(error)}"
            raise InputError(what, where="launch.ray.address", hint=NO_CLUSTER) from error
    return ray


def _require_answer(address: str) -> None:
    """Refuse an address without a listener, which Ray itself would try for minutes.

    Raises:
        OSError: Nothing listens there.
        ValueError: The address has no port.
    """
    host, _, port = address.rpartition(":")
    if address not in ("auto", "local"):
        socket.create_connection((host, int(port)), ANSWER_S).close()


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Keep this process's signal handlers, which Ray would replace by one that exits at once."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _answering(ray: Any) -> Iterator[None]:
    try:
        yield
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise EngineAwayError(f"the Ray cluster does not answer: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_line(error: BaseException) -> str:
    """Return the last line of an error, with its type where it has one line: an import that failed there ends its traceback."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if len(lines) > 1 else f"{type(error).__name__}: {error}"


def engine(launch: Launching) -> Ray:
    """Return the engine with the options of a config's `launch`.

    Raises:
        InputError: Ray is not installed, or its cluster does not answer.
    """
    return Ray(launch.ray.address)
