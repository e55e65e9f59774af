"""`python -P -m mltrainer.executors.supervisor FOLDER`: runs one worker on its machine, and writes its lines and its end there.

The folder is shared with the machine that began the job, which reads there. Two signs of life are kept apart: this process counts
in `alive.json` as long as its machine lives, and the worker's own lines show that the run goes on. `ended.json` is written
only when the worker's process has ended: a job without it was lost.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.executors import gang, local
from mltrainer.executors.executor import PIPE, Command, Process
from mltrainer.workspace import append_json_lines, read_json, redact_file, write_json

ORDER_FILE, LINES_FILE, ALIVE_FILE, ENDED_FILE, STOP_FILE = "order.json", "lines.jsonl", "alive.json", "ended.json", "stop"
LOG_FILE = "log.txt"  # output of the worker, and of this process before it can report
POLL_S = 0.2
STOP_S = 1.0  # between two looks at the shared folder for the file that asks to stop
LONGEST_LOOK_S = 5.0  # chosen by us: a longer time between two looks at the worker counts as this process's own standstill


@dataclass(frozen=True)
class Order:
    """A supervisor's work: one worker, and its time limits.

    Attributes:
        arguments: The worker's program and arguments, with `executor.EVENTS` for its pipe.
        root: The worker's current folder.
        line: The line that the worker reads on standard input.
        beat: The file in which the process that began the job counts; when the count stops, nobody waits for the job any more.
        alive_s: Seconds between two signs of life.
        silent_s: Seconds without a line after which the worker is killed.
        orphan_s: Seconds without a beat after which the worker is stopped.
        grace_s: Seconds between the request to stop and the worker's kill.
        processes: The number of processes that train the run together.
        life_sign_s: Seconds without a sign of life after which one of several is taken for hung.
    """

    arguments: list[str]
    root: str
    line: str
    beat: str
    alive_s: float
    silent_s: float
    orphan_s: float
    grace_s: float
    processes: int = 1
    life_sign_s: float = 60.0


@dataclass(frozen=True)
class Alive:
    """A supervisor's sign of life: a count, as the clocks of machines differ, and its machine."""

    count: int
    machine: str


@dataclass(frozen=True)
class Ending:
    """The end of a worker.

    Attributes:
        code: The exit code, negative for a signal.
        stopped: The reason that the worker was asked to stop; None where it ended by itself.
        machine: The machine's name.
    """

    code: int
    stopped: str | None
    machine: str


class Supervisor:
    """One worker, from its start to its end.

    Args:
        folder: The folder of its order and its reports.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._order = folder, Order(**read_json(folder / ORDER_FILE))
        self._machine, self._parent = socket.gethostname(), os.getppid()
        self._signal: str | None = None
        self._stopped: str | None = None
        self._stopped_at = self._heard = self._alive_at = self._looked_at = 0.0
        self._is_to_stop = False
        self._count = 0
        self._awake, self._ticked = 0.0, time.monotonic()
        self._beat: tuple[Any, float] = (None, self._awake)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._catch)

    def _catch(self, number: int, _frame: Any) -> None:
        self._signal = signal.Signals(number).name

    def run(self) -> Ending:
        """Run the worker and return its end, which is written last."""
        command = Command(
            arguments=self._order.arguments,
            folder=Path(self._order.root),
            environment=os.environ,
            input=PIPE,
            output=self._folder / LOG_FILE,
            has_session=True,  # so that the processes that it started end with it
            processes=self._order.processes,
            life_sign_s=self._order.life_sign_s,
        )
        self._show_life()
        process = gang.start(command) if command.processes > 1 else local.start(command)
        try:
            process.send(self._order.line.encode() + b"\n")
            process.close_input()
            self._heard = self._seconds_awake()
            ended = False
            # The worker's children may hold the pipe open after its end.
            while (lines := process.listen(0 if ended else POLL_S)) or (lines is not None and not ended):
                self._look_after(process, lines)
                ended = process.poll() is not None
            ending = Ending(process.wait() or 0, self._stopped, self._machine)
        finally:  # also where the shared folder takes no more: nobody would look after it
            process.kill()
            process.wait()
            process.close()
        redact_file(self._folder / LOG_FILE)
        write_json(self._folder / ENDED_FILE, asdict(ending))
        return ending

    def _look_after(self, process: Process, lines: list[bytes]) -> None:
        now = self._seconds_awake()
        if lines:
            self._heard = now
            reports = [*map(json.loads, lines)]
            append_json_lines(self._folder / LINES_FILE, reports)
            if self._order.processes > 1 and any(map(_is_failure, reports)):
                process.kill()  # the others may wait for the one that reports
        if now - self._alive_at >= self._order.alive_s:
            self._show_life()
            self._hear_beat(now)
        if now - self._looked_at >= STOP_S:
            self._looked_at, self._is_to_stop = now, (self._folder / STOP_FILE).exists()
        if self._stopped is None and (why := self._stop_reason(now)) is not None:
            self._stopped, self._stopped_at = why, now
            process.signal(signal.SIGTERM)
        is_late = self._stopped is not None and now - self._stopped_at > self._order.grace_s
        if is_late or now - self._heard > self._order.silent_s:
            process.kill()

    def _seconds_awake(self) -> float:
        """Return the seconds since the start without those in which this process was suspended.

        A suspended job suspends its worker too: that is no silence, and no death of the run.
        """
        now = time.monotonic()
        self._awake += min(now - self._ticked, LONGEST_LOOK_S)
        self._ticked = now
        return self._awake

    def _show_life(self) -> None:
        self._count, self._alive_at = self._count + 1, self._awake
        write_json(self._folder / ALIVE_FILE, asdict(Alive(self._count, self._machine)))

    def _hear_beat(self, now: float) -> None:
        try:
            beat = read_json(Path(self._order.beat))
        except InputError:
            return
        if beat != self._beat[0]:
            self._beat = beat, now

    def _stop_reason(self, now: float) -> str | None:
        """Return the reason to stop the worker, or None."""
        if self._signal is not None:
            return f"{self._signal} of its machine"
        if self._is_to_stop:
            return "the search"
        if os.getppid() != self._parent:
            return "the end of what had started it"
        return "the end of the search" if now - self._beat[1] > self._order.orphan_s else None


def _is_failure(report: dict[str, Any]) -> bool:
    return report.get("event") == "end" and report.get("reason") is not None


def main() -> None:
    """Run the worker of the folder that the command line names; exit with 0 once its end is written, whatever it was."""
    Supervisor(Path(sys.argv[1])).run()


if __name__ == "__main__":
    main()
