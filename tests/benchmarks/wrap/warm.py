"""A Python that has torch loaded already: what `python -I -S warm.py SCRIPT` runs is forked from it, for a hundredth of the time.

For benchmarks of many starts. There is a server for each hash seed, which is begun by the first client and ends when it is idle.
A fork lies in memory where its server does: what depends on addresses needs a Python of its own.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

FOLDER = f"/tmp/mltrainer-warm-{os.getuid()}"
PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.utils.data",
    "numpy",
    "pandas",
    "sklearn.datasets",
    "sklearn.model_selection",
    "joblib",
)
IDLE_S, WAIT_S = 90.0, 240.0
PERTURB = -6  # mallopt's number of what MALLOC_PERTURB_ sets
OF_A_START = ("MLTRAINER_WRAP", "TMPDIR", "PYTHONPATH", "MALLOC_PERTURB_", "PWD")


# --- the client ---


def main() -> int:
    """Have a script run by the server of this hash seed, with our streams, and return its exit code."""
    request = json.dumps([os.getcwd(), dict(os.environ), sys.argv[1:]]).encode()
    with _connected() as server:
        descriptors = array.array("i", [0, 1, 2])
        server.sendmsg([len(request).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        server.sendall(request)
        code = server.recv(8)
    return int(code) if code else 1


def _connected() -> socket.socket:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    path, until = os.path.join(FOLDER, os.environ.get("PYTHONHASHSEED", "random")), time.monotonic() + WAIT_S
    while time.monotonic() < until:
        found = socket.socket(socket.AF_UNIX)
        try:
            found.connect(path)
        except OSError:
            found.close()
            _begin_server(path)
            time.sleep(0.2)
        else:
            return found
    raise TimeoutError(path)


def _begin_server(path: str) -> None:
    """Begin a server, unless one is beginning: it holds a lock as long as it lives."""
    environment = {name: value for name, value in os.environ.items() if name not in OF_A_START}
    none = subprocess.DEVNULL
    script = ["flock", "-n", f"{path}.lock", sys.executable, __file__, "--serve", path]
    started = subprocess.Popen(script, env=environment, cwd="/", stdin=none, stdout=none, stderr=none, start_new_session=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.wait(2)


# --- the server ---


def serve(path: str) -> None:
    """Load what programs load, then fork for each client until none has come for a while."""
    import gc
    import importlib

    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else each fork would touch, and so copy, all of it
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(16)
        while select.select([listening], [], [], IDLE_S)[0]:
            client, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _keep(client)
            client.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        os.remove(path)


def _keep(client: socket.socket) -> None:
    """Run a client's script in a session of its own; end it when it ends or the client is gone, and tell the exit code."""
    head, ancillary, _, _ = client.recvmsg(8, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    size, request = int.from_bytes(head, "big"), b""
    while len(request) < size:
        request += client.recv(1 << 16)
    descriptors = array.array("i", ancillary[0][2])
    child = os.fork()
    if child == 0:
        client.close()
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 64)
        _run(*json.loads(request))
    code = None
    while code is None and not select.select([client], [], [], 0.01)[0]:
        ended, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if ended else None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(OSError):
        client.sendall(str(1 if code is None else code).encode())
    os._exit(0)


def _run(folder: str, environment: dict[str, str], arguments: list[str]) -> None:
    """Be the process that runs a script: with its environment, the observer's start, and its end."""
    import atexit
    import ctypes
    import importlib
    import threading
    import traceback
    import types

    import numpy as np
    import torch

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    np.random.seed()
    torch.seed()
    if "MALLOC_PERTURB_" in environment:
        ctypes.CDLL(None).mallopt(PERTURB, int(environment["MALLOC_PERTURB_"]))
    sys.argv, sys.orig_argv = arguments, [sys.executable, *arguments]
    sys.path[:] = [folder, *environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path[1:]]
    main = types.ModuleType("__main__")
    main.__file__ = os.path.join(folder, arguments[0])
    with open(main.__file__, encoding="utf-8") as file:
        code = compile(file.read(), main.__file__, "exec")
    sys.modules.pop("sitecustomize", None)
    sys.modules["__main__"] = main
    status = 0
    try:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")
        exec(code, main.__dict__)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # whatever ends a program, its interpreter prints it and ends with 1
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as an interpreter does at its end: it waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        sys.exit(main())
