"""Worker processes that live across trials: one for each core, group of cores or GPU; one that dies loses its attempt only.

Where several processes train a run together, they end with it: whichever of them fails, none is left for the next run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.executors import gang
from mltrainer.executors.executor import LIFE, LOCAL_RANK, LOCAL_SIZE, PIPE, RANK, RENDEZVOUS, WORLD_SIZE, Command
from mltrainer.executors.fork_server import ForkServers
from mltrainer.executors.local import PipedProcess
from mltrainer.records.event import Running
from mltrainer.records.job import PooledJob
from mltrainer.reproducibility.environment import cores
from mltrainer.search.workers import Reports, RunEnd, Workers, order_line
from mltrainer.tools.mark import VARIABLE
from mltrainer.trainers import MODULES
from mltrainer.workspace import machine_faults, redact_file

LOG_FILE = "workers.txt"  # in the study's folder: the workers' output
OF_PLACE = (LIFE, RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_SIZE, RENDEZVOUS)  # of one of several processes


@dataclass
class _Worker:
    process: PipedProcess | gang.Gang
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
        note: A function that takes a line on each loss.
    """

    def __init__(
        self, root: Path, job: PooledJob, places: Sequence[Mapping[str, str]], silent_s: float, note: Callable[[str], None]
    ) -> None:
        super().__init__(root, job, len(places), silent_s, note)
        self._places, self._is_shared = places, job.processes > 1
        self._workers: list[_Worker] = []
        self._servers = ForkServers(late=(VARIABLE, *OF_PLACE, *{name for place in places for name in place}))

    @property
    def _training(self) -> list[Reports]:
        return [worker.reports for worker in self._workers if worker.trains]

    def _begin(self, nr: int, job: Path, processes: int) -> None:
        idle = next((worker for worker in self._workers if not worker.trains), None)
        if idle is None:
            taken = {worker.place for worker in self._workers}
            idle = self._start(next(place for place in range(len(self._places)) if place not in taken), processes)
            self._workers.append(idle)
        idle.heard, idle.reports = time.monotonic(), Reports(Running(nr=nr))
        idle.process.send(order_line(nr, job).encode() + b"\n")

    def _start(self, place: int, processes: int) -> _Worker:
        log = self._folder / LOG_FILE
        command = Command(
            arguments=self._worker(),
            folder=self._root,
            environment={**os.environ, **self._places[place], **self._mark},
            input=PIPE,
            output=log,
            imports=imported(self._job.config),
            processes=processes,
            life_sign_s=self._job.config.launch.life_sign_s,
        )
        begin = functools.partial(gang.start, begin=self._servers.start) if processes > 1 else self._servers.start
        with machine_faults(str(log)):
            return _Worker(begin(command), place)

    def _wait(self, timeout: float) -> list[RunEnd]:
        select.select(self._workers, [], [], timeout)
        # All are heard: of several processes, any may have failed, while only the first one's lines are waited for.
        ended = [found for worker in [*self._workers] if (found := self._hear(worker)) is not None]
        for worker in self._workers:
            if worker.trains and time.monotonic() - worker.heard > self._silent_s:
                worker.process.kill()  # its pipe then closes
        return ended

    def _hear(self, worker: _Worker) -> RunEnd | None:
        worker.process.poll()
        if (lines := worker.process.listen()) is None:
            return self._bury(worker)
        for line in lines:
            worker.heard = time.monotonic()
            worker.reports.take(line)
        ended, worker.reports.ended = worker.reports.ended, None
        if ended is not None and self._is_shared:
            worker.process.kill()
            self._remove(worker)
        return ended

    def _bury(self, worker: _Worker) -> RunEnd | None:
        """Remove a worker that has ended, and return the end of the run that it was training.

        Raises:
            MltrainerError: The worker's own report of a fault that is not the run's.
        """
        code = self._remove(worker)
        ended = worker.reports.end(code)
        if ended is not None and worker.process.is_abandoned:
            return replace(ended, death=None, lost="the process that starts the workers was killed")
        return ended

    def _remove(self, worker: _Worker) -> int:
        """Remove a worker that ends, and return its exit code."""
        code = worker.process.wait() or 0
        worker.process.close()
        self._workers.remove(worker)
        return code

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


def places(workers: int | None, device: str, threads: int, processes: int = 1) -> list[dict[str, str]]:
    """Return the environment variables of each worker: on GPUs one that names its own, on the CPU none.

    Args:
        workers: The number of workers; None: as many as the GPUs that may be used, or the cores, are enough for, one at least.
        device: The device's kind, `cpu` or `cuda`.
        threads: The number of threads of one process.
        processes: The number of processes of one worker, each of which has its own GPU and threads.

    Raises:
        InputError: There are fewer GPUs than a worker needs.
    """
    if device != "cuda":
        return [{} for _ in range(workers or max(1, cores() // (threads * processes)))]
    gpus = _gpus()
    if not gpus:
        raise InputError("no GPU may be used here", where="device", hint="device: cpu, or show one with CUDA_VISIBLE_DEVICES")
    if processes > len(gpus):
        what = f"{processes} processes need a GPU each, and {len(gpus)} may be used here"
        raise InputError(what, where="trial.processes", hint=f"take {1 << (len(gpus).bit_length() - 1)}")
    groups = [",".join(gpus[at : at + processes]) for at in range(0, len(gpus) - processes + 1, processes)]
    return [{"CUDA_VISIBLE_DEVICES": groups[nr % len(groups)]} for nr in range(workers or len(groups))]


def _gpus() -> list[str]:
    """Return the GPUs that may be used, by number or name."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return [name for name in shown.split(",") if name.strip()]
    import torch

    return [str(nr) for nr in range(torch.cuda.device_count())]
