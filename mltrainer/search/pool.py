"""Worker processes that live across trials: one for each core, group of cores or GPU; one that dies loses its attempt only."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.executors.executor import PIPE, Command
from mltrainer.executors.fork_server import ForkServers
from mltrainer.executors.local import PipedProcess
from mltrainer.records.event import Running
from mltrainer.records.job import JobBase
from mltrainer.reproducibility.environment import cores
from mltrainer.search.workers import Reports, RunEnd, Workers, order_line
from mltrainer.tools.mark import VARIABLE
from mltrainer.trainers import MODULES
from mltrainer.workspace import machine_faults, redact_file

LOG_FILE = "workers.txt"  # in the study's folder: the workers' output


@dataclass
class _Worker:
    process: PipedProcess
    place: int
    heard: float = field(default_factory=time.monotonic)
    reports: Reports = field(default_factory=Reports)

    def fileno(self) -> int:
        return self.process.fileno()

    @property
    def trains(self) -> bool:
        return self.reports.running is not None


class Pool(Workers):
    """Worker processes of this machine, started when they are needed.

    Args:
        root: The project's folder, which a worker has as its current one.
        job: The study's job, by whose folder and mark a worker is started.
        places: The environment variables of each worker, which choose its device; one mapping for each worker.
        silent_s: The seconds of silence after which a worker is killed.
        tell: A function that takes a line on each loss.
    """

    def __init__(
        self, root: Path, job: JobBase, places: Sequence[Mapping[str, str]], silent_s: float, tell: Callable[[str], None]
    ) -> None:
        super().__init__(root, job, len(places), silent_s, tell)
        self._places = places
        self._workers: list[_Worker] = []
        self._servers = ForkServers(late=(VARIABLE, *{name for place in places for name in place}))

    @property
    def _training(self) -> list[Reports]:
        return [worker.reports for worker in self._workers if worker.trains]

    def _begin(self, nr: int, job: Path) -> None:
        idle = next((worker for worker in self._workers if not worker.trains), None)
        if idle is None:
            taken = {worker.place for worker in self._workers}
            idle = self._start(next(place for place in range(len(self._places)) if place not in taken))
            self._workers.append(idle)
        idle.heard, idle.reports = time.monotonic(), Reports(Running(nr=nr))
        idle.process.send(order_line(nr, job).encode() + b"\n")

    def _start(self, place: int) -> _Worker:
        log = self._folder / LOG_FILE
        command = Command(
            arguments=self._worker(),
            folder=self._root,
            environment={**os.environ, **self._places[place], **self._mark},
            input=PIPE,
            output=log,
            imports=imported(self._job.config),
        )
        with machine_faults(str(log)):
            return _Worker(self._servers.start(command), place)

    def _wait(self, timeout: float) -> list[RunEnd]:
        ready = select.select(self._workers, [], [], timeout)[0]
        ended = [found for worker in ready if (found := self._hear(worker)) is not None]
        for worker in self._workers:
            if worker.trains and time.monotonic() - worker.heard > self._silent_s:
                worker.process.kill()  # its pipe then closes
        return ended

    def _hear(self, worker: _Worker) -> RunEnd | None:
        if (lines := worker.process.listen()) is None:
            return self._bury(worker)
        worker.heard = time.monotonic()
        for line in lines:
            worker.reports.take(line)
        ended, worker.reports.ended = worker.reports.ended, None
        return ended

    def _bury(self, worker: _Worker) -> RunEnd | None:
        """Remove a worker that has ended, and return the end of the run that it was training.

        Raises:
            MltrainerError: The worker's own report of a fault that is not the run's.
        """
        code = worker.process.wait() or 0
        worker.process.close()
        self._workers.remove(worker)
        ended = worker.reports.end(code)
        if ended is not None and worker.process.is_abandoned:
            return replace(ended, death=None, lost="the process that starts the workers was killed")
        return ended

    def _stop(self, number: int) -> None:
        # All are signalled before any is waited for, so that they save side by side.
        for worker in self._workers:
            if worker.trains:
                worker.process.signal(number)
            worker.process.close_input()  # no further run comes
        for worker in self._workers:
            worker.process.wait()
            worker.process.close()
        self._workers.clear()
        with contextlib.suppress(OSError):  # no worker was started
            redact_file(self._folder / LOG_FILE)

    def _close(self) -> None:
        self._servers.close()


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
        return [{} for _ in range(workers or max(1, cores() // threads))]
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
