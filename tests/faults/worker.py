"""A process that has imported the program once, and forks it for each command: a case takes a second, not ten."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import BaseModel

import mltrainer

PR_SET_CHILD_SUBREAPER = 36
LONGEST_S = 120.0  # a command, and until all processes that it started have ended


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, negative for a signal, and what it said; `hung` names processes that did not end."""

    code: int
    said: str
    hung: str = ""


def prepare() -> int:
    """Let tools be forked, too; return the number of the process that forks them."""
    import mltrainer.runs.launcher
    from tests.forking import FORKING, SERVER

    _import_all()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    mltrainer.runs.launcher.EXECUTOR = FORKING
    mltrainer.runs.launcher.ForkServers = lambda late: contextlib.nullcontext(FORKING)  # type: ignore[assignment,misc]
    assert SERVER.path
    (server,) = psutil.Process().children()
    return server.pid


AWAY = {"__main__", "tools", "companions", "integrations", "observer", "inference_script"}  # no command here needs them


def _import_all() -> None:
    """Import what the commands import, and complete pydantic's models: a forked command then begins at once."""
    for module in pkgutil.walk_packages(mltrainer.__path__, "mltrainer."):
        if not AWAY & {*module.name.split(".")}:
            importlib.import_module(module.name)
    kinds = [*BaseModel.__subclasses__()]
    for kind in kinds:  # grows meanwhile
        kinds += kind.__subclasses__()
        if kind.__module__.startswith("mltrainer."):
            kind.model_rebuild()
    gc.collect()
    gc.freeze()  # else each forked process copies all pages when it collects


def program(*arguments: str) -> Callable[[], int]:
    """Return a command line of the program as a function."""

    def work() -> int:
        from mltrainer.cli.main import run
        from mltrainer.errors import raise_terminated

        signal.signal(signal.SIGTERM, raise_terminated)
        return run(list(arguments))

    return work


def forked(work: Callable[[], int], folder: Path, said: Path) -> int:
    """Start a function in a process of its own, in a folder; return the process's number."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code: object = 1
    try:
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = work()
    except BaseException as error:
        print(f"Traceback of a test's own: {error!r}", file=sys.stderr)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)


class Worker:
    """Runs commands, one after the other, each to the end of all that it started."""

    def __init__(self, scratch: Path) -> None:
        self._said = scratch / "said.txt"
        self._server = prepare()

    def run(self, work: Callable[[], int], folder: Path) -> Ended:
        """Run a function in a folder, and wait until every process that it started has ended."""
        return self.run_together([work], folder)[0]

    def run_together(self, works: list[Callable[[], int]], folder: Path) -> list[Ended]:
        """The same for functions that run at once."""
        said = [self._said.with_suffix(f".{number}") for number in range(len(works))]
        for path in said:
            path.unlink(missing_ok=True)
        pids = [forked(work, folder, path) for work, path in zip(works, said, strict=True)]
        codes, hung = self._waited(pids)
        words = [path.read_text("utf-8", errors="replace") if path.exists() else "" for path in said]
        return [Ended(codes.get(pid, -9), text, hung) for pid, text in zip(pids, words, strict=True)]

    def _waited(self, pids: list[int]) -> tuple[dict[int, int], str]:
        """Reap the processes and what they left behind; return the exit codes, and the names of what had to be killed."""
        codes: dict[int, int] = {}
        end, pause = time.monotonic() + LONGEST_S, 0.002
        while True:
            self._reap(codes)
            if codes.keys() >= {*pids} and not (left := self._left()):
                return codes, ""
            if time.monotonic() > end:
                break
            time.sleep(pause)
            pause = min(0.02, pause * 1.3)
        left = self._left()
        names = "; ".join(" ".join(process.cmdline())[:200] or str(process.pid) for process in left)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.2)
        self._reap(codes)
        return codes, names or "unknown"

    def _reap(self, codes: dict[int, int]) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                codes[pid] = os.waitstatus_to_exitcode(status)

    def _left(self) -> list[psutil.Process]:
        living = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.pid != self._server and process.status() != psutil.STATUS_ZOMBIE:
                    living.append(process)
        return living
