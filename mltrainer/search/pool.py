"""Worker processes that live across trials: one for each core, group of cores or GPU; one that dies loses its attempt only."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, ended_with
from mltrainer.executors.executor import EVENTS, PIPE, Command
from mltrainer.executors.fork_server import ForkedProcess, ForkServers
from mltrainer.records.event import Running
from mltrainer.records.job import JobBase
from mltrainer.search.ended import Ended
from mltrainer.search.repeating import POLL_S
from mltrainer.search.reported import Reported
from mltrainer.tools.mark import VARIABLE, new_mark
from mltrainer.trainers import MODULES
from mltrainer.workspace import machine_faults, redact_file, write_json

PROGRAM = "mltrainer.tools.worker"
STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT)  # exit codes of a worker that was asked to stop, and has saved
LOG_FILE = "workers.txt"  # in the study's folder: the workers' output


@dataclass
class _Worker:
    process: ForkedProcess
    place: int
    nr: int | None = None
    heard: float = field(default_factory=time.monotonic)
    reported: Reported = field(default_factory=Reported)

    def fileno(self) -> int:
        return self.process.fileno()

    def send(self, nr: int, job: Path) -> None:
        self.nr, self.heard, self.reported = nr, time.monotonic(), Reported(Running(nr=nr))
        self.process.send(json.dumps({"nr": nr, "job": str(job)}).encode() + b"\n")


class Pool:
    """Worker processes, started when they are needed; as a context manager it ends them.

    Args:
        root: The project's folder, which a worker has as its current one.
        job: The study's job, by whose folder and mark a worker is started.
        places: The environment variables of each worker, which choose its device; one mapping for each worker.
        silent_s: The seconds of silence after which a worker is killed.
    """

    def __init__(self, root: Path, job: JobBase, places: Sequence[Mapping[str, str]], silent_s: float) -> None:
        self._root, self._folder, self._places, self._silent_s = root, root / job.folder, places, silent_s
        launch, self._mark = new_mark()
        self._job = job.model_copy(update={"launch": launch})
        self._workers: list[_Worker] = []
        self._servers = ForkServers(late=(VARIABLE, *{name for place in places for name in place}))

    def __enter__(self) -> Self:
        self._servers.__enter__()
        write_json(self._folder / "worker.json", self._job.written())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(signal.SIGTERM)
        self._servers.__exit__(kind, error, trace)

    @property
    def room(self) -> int:
        """The number of runs that can begin now."""
        return len(self._places) - self.busy

    @property
    def busy(self) -> int:
        """The number of runs in training."""
        return sum(worker.nr is not None for worker in self._workers)

    @property
    def running(self) -> list[Running]:
        """The runs in training by number, each as its worker reported it last."""
        found = [worker.reported.running for worker in self._workers if worker.reported.running is not None]
        return sorted(found, key=lambda one: one.nr)

    def begin(self, nr: int, job: Path) -> None:
        """Give a run to a worker that has none."""
        idle = next((worker for worker in self._workers if worker.nr is None), None)
        if idle is None:
            taken = {worker.place for worker in self._workers}
            idle = self._start(next(place for place in range(len(self._places)) if place not in taken))
            self._workers.append(idle)
        idle.send(nr, job)

    def wait(self, timeout: float = POLL_S) -> list[Ended]:
        """Return the runs that have ended, as soon as there is one, or none after a while.

        Raises:
            MltrainerError: A worker's own fault, such as a full disk.
        """
        ready = select.select(self._workers, [], [], timeout)[0]
        ended = [found for worker in ready for found in self._hear(worker)]
        for worker in self._workers:
            if worker.nr is not None and time.monotonic() - worker.heard > self._silent_s:
                worker.process.kill()  # its pipe then closes
        return ended

    def stop(self, number: int) -> None:
        """End all workers, and wait until those that train have saved their state."""
        # All are signalled before any is waited for, so that they save side by side.
        for worker in self._workers:
            if worker.nr is not None:
                worker.process.signal(number)
            worker.process.close_input()  # no further run comes
        for worker in self._workers:
            worker.process.wait()
            worker.process.close()
        self._workers.clear()
        with contextlib.suppress(OSError):  # no worker was started
            redact_file(self._folder / LOG_FILE)

    def _start(self, place: int) -> _Worker:
        log = self._folder / LOG_FILE
        arguments = [sys.executable, "-P", "-m", PROGRAM, str(self._folder / "worker.json"), EVENTS]
        environment = {**os.environ, **self._places[place], **self._mark}
        command = Command(
            arguments=arguments,
            folder=self._root,
            environment=environment,
            input=PIPE,
            output=log,
            imports=imported(self._job.config),
        )
        with machine_faults(str(log)):
            return _Worker(self._servers.start(command), place)

    def _hear(self, worker: _Worker) -> list[Ended]:
        if (lines := worker.process.listen()) is None:
            return self._bury(worker)
        worker.heard = time.monotonic()
        for line in lines:
            worker.reported.take(line)
        if (ended := worker.reported.ended) is None:
            return []
        worker.nr, worker.reported.ended = None, None
        return [ended]

    def _bury(self, worker: _Worker) -> list[Ended]:
        """Remove a worker that has ended, and return the end of the run that it was training.

        Raises:
            MltrainerError: The worker's own report of a fault that is not the run's.
        """
        code = worker.process.wait() or 0
        worker.process.close()
        self._workers.remove(worker)
        # A worker that was stopped reports that as its error, which is not about the run.
        if (error := worker.reported.error) is not None and error.exit_code not in STOPPED:
            raise error.raised()
        if worker.nr is None:
            return []
        if worker.process.is_abandoned:
            return [Ended(worker.nr, lost="the process that starts the workers was killed")]
        return [end_of(worker.nr, code)]


def end_of(nr: int, code: int) -> Ended:
    """Return the end of a run whose worker ended first: lost where the worker was asked to stop, else the worker's death."""
    name = ended_with(code) if code < 0 else f"exit code {code}"
    # No training sends these to itself: an operator does, or a machine that shuts down.
    if code in STOPPED or -code in (signal.SIGTERM, signal.SIGINT):
        return Ended(nr, lost=f"its process was stopped by {ended_with(code)}")
    return Ended(nr, death=f"its process ended with {name}")


def imported(config: TrainingConfig) -> list[str]:
    """Return the modules that are imported once for all workers: the workers' own, and the config's trainer."""
    return ["mltrainer.search.worker", MODULES[config.task.trainer]]


def places(workers: int | None, device: str, threads: int) -> list[dict[str, str]]:
    """Return the environment variables of each worker: on GPUs one that names its GPU, on the CPU none.

    Args:
        workers: The number of workers; None: one for each GPU that may be used, or for each `threads` of the cores.
        device: The device's kind, `cpu` or `cuda`.
        threads: The number of threads of one worker.

    Raises:
        InputError: There is no GPU.
    """
    if device != "cuda":
        # cpu_count() counts the machine's cores, also where a container or taskset leaves fewer.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return [{} for _ in range(workers or max(1, cores // threads))]
    gpus = _gpus()
    if not gpus:
        raise InputError("no GPU may be used here", where="device", hint="device: cpu, or show one with CUDA_VISIBLE_DEVICES")
    return [{"CUDA_VISIBLE_DEVICES": gpus[nr % len(gpus)]} for nr in range(workers or len(gpus))]


def _gpus() -> list[str]:
    """Return the GPUs that may be used, by number or name."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return [name for name in shown.split(",") if name.strip()]
    import torch

    return [str(nr) for nr in range(torch.cuda.device_count())]
