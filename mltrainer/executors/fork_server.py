"""Processes forked from one that has imported its modules already: importing torch takes seconds, a fork some milliseconds.

The server, `python -P -m mltrainer.executors.fork_server DESCRIPTOR`, does nothing but import and fork: it starts no
thread pool and no device, which a fork would not survive. Forked processes share addresses, so that a set of objects has one
order in all of them: what must find such irreproducibility is started by `executors.local`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

from mltrainer.executors import local
from mltrainer.executors.executor import EVENTS, NOTHING, PIPE, Command

MODULE = ["-P", "-m"]  # the arguments before the module in a command that can be forked
HAS_FORK = hasattr(os, "fork")
STOPS = (signal.SIGINT, signal.SIGTERM)
HEADER = 8  # bytes: the length of what follows
MOST_DESCRIPTORS = 16  # of one command
INHERITED: list[tuple[socket.socket, Mapping[str, str]]] = []  # the server that this process was forked with, and its variables


class Order(NamedTuple):
    """A command as it is sent to the server: a JSON array.

    Attributes:
        imports: The modules to import before the fork.
        arguments: The module that the process runs, and its arguments; empty: the modules are imported and nothing is forked.
        folder: The process's current folder.
        environment: The process's variables.
        forks: Whether the process forks processes itself.
        inherited: The variables that get the numbers of the last descriptors that are sent with it.
    """

    imports: Sequence[str]
    arguments: Sequence[str] = ()
    folder: str = ""
    environment: Mapping[str, str] = {}
    forks: bool = False
    inherited: Sequence[str] = ()


class ForkServers:
    """An executor of commands `python -P -m MODULE ...`: one server for each set of variables, until the context ends.

    Args:
        late: The variables that a forked process may get afterwards. All others are there before its server's interpreter
            starts, since libraries read them while they are imported.
    """

    def __init__(self, late: Sequence[str]) -> None:
        self._late = late
        self._servers: dict[frozenset[tuple[str, str]], _Server] = {}
        if INHERITED:
            control, variables = INHERITED.pop()
            self._server(variables).control = control

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def start(self, command: Command) -> local.PipedProcess:
        """Fork a process that becomes the command; its modules are imported before, also for later commands.

        Where the system has no fork, the command is started as any other.

        Raises:
            OSError: The server cannot be started.
        """
        return self._server(command.environment).start(command) if HAS_FORK else local.start(command)

    def prepare(self, folder: Path, environment: Mapping[str, str], imports: Sequence[str]) -> None:
        """Begin to import modules for later commands, and return at once; their processes report failed imports.

        Raises:
            OSError: The server cannot be started.
        """
        if HAS_FORK:
            self._server(environment).prepare(folder, imports)

    def _server(self, variables: Mapping[str, str]) -> _Server:
        environment = {name: value for name, value in variables.items() if name not in self._late}
        return self._servers.setdefault(frozenset(environment.items()), _Server(environment))


class _Server:
    """A server, started with its first command, and started again if it was killed.

    Attributes:
        control: The socket on which it takes commands; None before the first.

    Args:
        environment: Its variables.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process: local.LocalProcess | None = None  # of a server that was inherited, none
        self.control: socket.socket | None = None

    def close(self) -> None:
        """End the server; processes that still run see their parent's end."""
        if self.control is not None:
            self.control.close()
        if self._process is not None:
            self._process.signal(signal.SIGKILL)  # it has nothing to save, and may be importing still
            self._process.wait()
        self.control = self._process = None

    def prepare(self, folder: Path, imports: Sequence[str]) -> None:
        """Begin to import modules."""
        self._ready(folder, Path(os.devnull))
        self._send(Order(imports), [])

    def start(self, command: Command) -> ForkedProcess:
        """Fork a process that becomes the command."""
        _, *switches, _module = command.arguments[:4]
        assert switches == MODULE, command.arguments
        assert isinstance(command.output, Path)
        self._ready(command.folder, command.output)
        with contextlib.ExitStack() as theirs:  # closed here once they are sent
            read_end = _pipe(theirs) if EVENTS in command.arguments else None
            status = _pipe(theirs)
            given, stdin = _input(command, theirs)
            out = theirs.enter_context(open(command.output, "ab"))
            environment = dict(command.environment)
            names, inherited = [*command.descriptors], [*command.descriptors.values()]
            numbers = [given, out.fileno(), status[1], *([read_end[1]] if read_end else []), *inherited]
            order = Order(command.imports, command.arguments[3:], str(command.folder), environment, command.forks, names)
            self._send(order, numbers)
        return ForkedProcess(status[0], stdin, read_end[0] if read_end else None)

    def _ready(self, folder: Path, log_file: Path) -> None:
        if self.control is None or select.select([self.control], [], [], 0)[0]:  # it writes nothing: that is its end
            self.close()
            self._begin(folder, log_file)

    def _send(self, order: Order, descriptors: list[int]) -> None:
        assert self.control is not None
        data = json.dumps(order).encode()
        with contextlib.suppress(BrokenPipeError):  # it died meanwhile; the end of the status pipe reports it
            socket.send_fds(self.control, [len(data).to_bytes(HEADER)], descriptors)
            self.control.sendall(data)

    def _begin(self, folder: Path, log_file: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs, open(log_file, "ab") as log:
            command = [sys.executable, *MODULE, __name__, str(theirs.fileno())]
            popen = subprocess.Popen(
                command,
                cwd=folder,
                env=self._environment,
                stdin=NOTHING,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
            )
        self.control, self._process = ours, local.LocalProcess(popen, None, has_session=False)


def _pipe(theirs: contextlib.ExitStack) -> tuple[int, int]:
    """Return a pipe whose write end is closed with the stack."""
    read_end, write_end = os.pipe()
    theirs.callback(os.close, write_end)
    return read_end, write_end


def _input(command: Command, theirs: contextlib.ExitStack) -> tuple[int, IO[bytes] | None]:
    """Return the descriptor of a process's standard input, and the file that we write it to, if any."""
    if command.input == PIPE:
        read_end, write_end = os.pipe()
        theirs.callback(os.close, read_end)
        return read_end, open(write_end, "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    theirs.callback(os.close, null)
    return null, None


class ForkedProcess(local.PipedProcess):
    """A forked process.

    The server writes the process's id, then its exit code; a pipe that ends without the code means that the server was killed.
    The pipe is there as long as this is: its end is asked for also after all else was closed.
    """

    def __init__(self, status: int, stdin: IO[bytes] | None, read_end: int | None) -> None:
        weakref.finalize(self, os.close, status)
        self._status = status
        self._code: int | None = None
        # Byte by byte up to the newline: bytes beyond it would be the exit code, which `wait` reads.
        pid = int(b"".join(iter(lambda: os.read(status, 1).strip(), b"")) or 0)
        super().__init__(pid, stdin, read_end)

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code, negative for a signal; None where it still runs after `timeout` seconds."""
        if self._code is None and select.select([self._status], [], [], timeout)[0]:
            code = os.read(self._status, 64)
            if self._code is None:  # else a signal's handler has read it meanwhile
                self._code, self.is_abandoned = int(code or -signal.SIGKILL), not code
        return self._code


# --- the server -----------------------------------------------------------------------------------


def serve(control: socket.socket) -> tuple[Order, list[int]]:
    """Fork a process for each command, and return that in the process that becomes it; end with the other end of the socket."""
    gc.disable()  # imported modules stay: collecting them takes a fifth of the import
    woken, wake = _woken_by_ends()
    status: dict[int, int] = {}
    while True:
        ready = select.select([control, woken], [], [])[0]
        if woken in ready:
            woken.recv(1 << 12)
            for pid, code in _ended():
                _say(status[pid], code)
                os.close(status.pop(pid))
        if control not in ready:
            continue
        if (received := _received(control)) is None:
            os._exit(0)  # unloading torch would take a second
        order, numbers = received
        _import(order)
        if not order.arguments:
            continue
        own = numbers.pop(2)
        if (pid := _fork()) == 0:
            for end in (control, woken, wake):
                end.close()
            # Held here too, a status pipe would not end with the server, and hide its death from who waits at the other end.
            for one in (*status.values(), own):
                os.close(one)
            return order, numbers
        status[pid] = own
        _say(own, pid)
        for descriptor in numbers:
            os.close(descriptor)


def _woken_by_ends() -> tuple[socket.socket, socket.socket]:
    """Return a socket that can be read when a forked process has ended, and its other end, which must stay open."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    # A handler, though it does nothing: of a signal without one, nothing is written to the wake-up descriptor.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    return woken, wake


def _import(order: Order) -> None:
    tolerated = () if order.arguments else (Exception,)  # an import ahead may fail: the command's process repeats it
    for module in order.imports:
        with contextlib.suppress(*tolerated):
            importlib.import_module(module)
    gc.freeze()  # no collection of a forked process goes through the imported modules


def _fork() -> int:
    """Fork a process to which signals come as to any; return 0 in it, and here its number."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # one that comes while the child still ignores it would be lost
    pid = os.fork()
    if pid == 0:
        gc.enable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *STOPS):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    return pid


def _ended() -> Iterator[tuple[int, int]]:
    """Yield the forked processes that have ended, each with its exit code."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


def _say(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits any more
        os.write(status, f"{number}\n".encode())


def _received(control: socket.socket) -> tuple[Order, list[int]] | None:
    """Return the next command and its descriptors; None once the other end is closed."""
    header, numbers, *_ = socket.recv_fds(control, HEADER, MOST_DESCRIPTORS)
    data = bytearray()
    while header and len(data) < int.from_bytes(header):
        # One read of a stream may return a part of a long command.
        if not (more := control.recv(int.from_bytes(header) - len(data))):
            return None
        data += more
    return (Order(*json.loads(data)), numbers) if header else None


def with_server(order: Order, numbers: list[int]) -> tuple[Order, list[int]]:
    """Fork a server for the processes that a command starts itself, which has imported all that this process has.

    Returns:
        In the command's process, the same; in each that its server forks, that one's command and descriptors.
    """
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        # By its name: this file runs as __main__, and the command imports the module once more, with a separate list.
        importlib.import_module("mltrainer.executors.fork_server").INHERITED.append((ours, order.environment))
        return order, numbers
    ours.close()
    _use_files(numbers)
    for number in numbers[2:]:  # the pipe of events ends with the command
        os.close(number)
    return served(theirs)


def _use_files(numbers: list[int]) -> None:
    given, out, *_ = numbers
    for target, source in ((0, given), (1, out), (2, out)):
        os.dup2(source, target)
    for source in (given, out):
        os.close(source)


def become(order: Order, numbers: list[int]) -> None:
    """Be the command: its files, folder and variables, then its module."""
    _use_files(numbers)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    inherited = numbers[len(numbers) - len(order.inherited) :]
    os.environ.update(zip(order.inherited, map(str, inherited), strict=True))
    # The C library has read the zone already, from the server's variables.
    time.tzset()
    module, *arguments = order.arguments
    sys.argv = [module, *(str(numbers[2]) if argument == EVENTS else argument for argument in arguments)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def served(control: socket.socket) -> tuple[Order, list[int]]:
    """Serve; return the command, and its descriptors, in a process that becomes it."""
    # Ctrl-C in the terminal comes to all its processes; this one ends with the pipe of who started it, after those it forked.
    for number in (*STOPS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with control:
        order, numbers = serve(control)
    return with_server(order, numbers) if order.forks else (order, numbers)


def main() -> None:
    """Serve; a forked process returns from there to end as any program does."""
    become(*served(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
