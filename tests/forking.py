"""Tools forked from a process that has imported torch, in place of a new interpreter for each: the suite's many starts.

A forked tool is a process of its own all the same: it is killed, signalled, interrupted and reads its own variables. Only
what an interpreter reads before it starts (hash seed, thread counts of native libraries) is the server's; what rests on
those is tested with real starts, by the fixture `real_tools`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mltrainer.executors import local
from mltrainer.executors.executor import Command, Process

PRELOADED = (
    "torch",
    "sklearn.datasets",
    "torch._dynamo",  # with these two exports, which planning tries, begin at once
    "torch.export._trace",
    *(f"mltrainer.{job}" for job in ("trainers.native.job", "search.job", "exporters.job", "references.job")),
    "mltrainer.companions.questions.measurements.explorer",
)
BEFORE_START = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
NEEDS_A_START = ("ATEN_CPU_CAPABILITY",)  # read when torch is loaded


# --- the server, a program ------------------------------------------------------------------------


def serve(path: str) -> None:
    """Fork a tool for each connection, until whoever started this is gone."""
    for name in PRELOADED:
        __import__(name)
    _read_operators()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nannies are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _nanny(connection)
            connection.close()


def _read_operators() -> None:
    """Read ONNX's operators once: each export to it reads all of them, for two seconds."""
    with contextlib.suppress(ImportError, AttributeError):
        registry = __import__("torch.onnx._internal.exporter._registration", fromlist=["x"]).ONNXRegistry
        operators = registry.from_torchlib()
        registry.from_torchlib = classmethod(lambda cls, *_args, **_kwargs: operators)


def _nanny(connection: socket.socket) -> None:
    """Fork the tool, tell its number, wait for its end and tell how it was."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    raw, (log, pipe), *_ = socket.recv_fds(connection, 1 << 20, 2)
    asked = json.loads(raw)
    if (pid := os.fork()) == 0:
        connection.close()
        _become(asked, log, pipe)
    os.close(log)
    os.close(pipe)
    connection.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(asked: dict[str, Any], log: int, pipe: int) -> None:
    """Be the tool: its files, folder and variables, then its program."""
    log, pipe = (fcntl.fcntl(number, fcntl.F_DUPFD, 200) for number in (log, pipe))
    for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log), (asked["pipe"], pipe)):
        os.dup2(source, target)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    sys.argv = [asked["entry"], *asked["arguments"]]
    code: Any = 1
    try:
        runpy.run_module(asked["entry"], run_name="__main__", alter_sys=False)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


# --- the executor ----------------------------------------------------------------------------------


class Server:
    """One server, started when the first tool is, and ended with this process."""

    def __init__(self) -> None:
        self._path = ""

    @property
    def path(self) -> str:
        """Its socket."""
        if not self._path:
            self._path = str(Path(tempfile.mkdtemp(prefix="tools-")) / "socket")
            command = [sys.executable, "-P", "-c", f"from tests.forking import serve; serve({self._path!r})"]
            top = str(Path(__file__).resolve().parents[1])
            found = os.pathsep.join(filter(None, (top, os.environ.get("PYTHONPATH", ""))))
            env = {**os.environ, **BEFORE_START, "PYTHONPATH": found}
            process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            atexit.register(process.kill)
            assert process.stdout.readline() == "ready\n"
        return self._path


class Forked(local.PipedProcess):
    """A forked tool."""

    def __init__(self, connection: socket.socket, read_end: int) -> None:
        self._connection = connection
        self._code: int | None = None
        super().__init__(self._answer(), None, read_end)

    def _answer(self) -> int:
        """Return the server's next number, and read nothing beyond it: what is not read yet tells that it has ended."""
        digits = b""
        while not digits.endswith(b"\n"):
            if not (read := self._connection.recv(1)):
                raise ConnectionError("the process that forks tools has ended")
            digits += read
        return int(digits)

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code, None where it still runs after `timeout` seconds."""
        if self._code is None and select.select([self._connection], [], [], timeout)[0]:
            self._code = self._answer()
            self._connection.close()
        return self._code


SERVER = Server()


def start(command: Command) -> Process:
    """Fork a tool; start a real process where the command or its variables need one."""
    _, *switches, entry, job, _ = command.arguments
    needs_a_start = any(name in command.environment for name in NEEDS_A_START)
    is_tool = entry.startswith("mltrainer.tools.") or entry.endswith(".tool")
    if switches != ["-P", "-m"] or not is_tool or needs_a_start:
        return local.start(command)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(SERVER.path)
    read_end, write_end = os.pipe()
    asked = {"entry": entry, "arguments": [job, str(write_end)], "pipe": write_end}
    asked |= {"cwd": str(command.folder), "env": dict(command.environment)}
    assert isinstance(command.output, Path)
    with open(command.output, "ab") as log:
        socket.send_fds(connection, [json.dumps(asked).encode()], [log.fileno(), write_end])
    os.close(write_end)
    return Forked(connection, read_end)


FORKING = SimpleNamespace(start=start, prepare=lambda *_: None)
