"""What a served model answers under load: clients that ask again as soon as they have their answer, beside LitServe.

`python tests/benchmarks/bench_serving.py --peer build/litserve/bin/python` with the same model behind LitServe, in an environment
of its own (`make bench-serving`). One JSON object a line. The servers take turns, `--rounds` times, so that what else this
machine does meets all of them. Clients and server share its cores.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.companions.serving.conftest import ROW, TABLE, deliver

PEER = Path(__file__).with_name("serving_peer.py")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def started(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a server's process once it answers."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            time.sleep(0.2)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)  # its workers, too
        process.wait()


def asked(port: int, body: bytes, until: float, taken: list[float], errors: list[str]) -> None:
    """Ask until a moment, and note how long each answer took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while time.perf_counter() < until:
        begun = time.perf_counter()
        try:
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
        except OSError as error:
            errors.append(type(error).__name__)
            connection.close()
            continue
        taken.append(time.perf_counter() - begun)
        if response.status != 200 or b"prediction" not in data:
            errors.append(str(response.status))


def processor_s(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time of a server and its workers so far: other work on the machine changes it least."""
    own = psutil.Process(process.pid)
    return sum(sum(one.cpu_times()[:2]) for one in (own, *own.children(recursive=True)))


def load(process: subprocess.Popen[bytes], port: int, clients: int, seconds: float, rows: int) -> dict[str, Any]:
    """Return what some clients of a server met within some seconds."""
    body = json.dumps({"rows": [ROW] * rows}).encode()
    warm: list[float] = []
    asked(port, body, time.perf_counter() + 1, warm, [])
    taken: list[float] = []
    errors: list[str] = []
    before, until = processor_s(process), time.perf_counter() + seconds
    threads = [threading.Thread(target=asked, args=(port, body, until, taken, errors)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used = processor_s(process) - before
    marks = statistics.quantiles(taken, n=100)
    return {
        "answers": len(taken),
        "errors": len(errors),
        "answers_per_s": round(len(taken) / seconds, 1),
        "p50_ms": round(marks[49] * 1e3, 2),
        "p99_ms": round(marks[98] * 1e3, 2),
        "worst_ms": round(max(taken) * 1e3, 1),
        "processor_ms": round(used / len(taken) * 1e3, 3),
    }


def servers(folder: Path, scratch: Path, peer: str | None) -> dict[str, Callable[[int], list[str]]]:
    """Return the commands that start each server on a port."""
    ours = [sys.executable, "-m", "mltrainer", "serve", str(folder), "--allow-unchecked", "--port"]
    found: dict[str, Callable[[int], list[str]]] = {
        "mltrainer serve": lambda port: [*ours, str(port), "--database", f"sqlite:///{scratch}/{port}.sqlite"],
        "mltrainer serve --database none": lambda port: [*ours, str(port), "--database", "none"],
    }
    if peer:
        found |= {
            "LitServe": lambda port: [peer, str(PEER), str(folder), str(port), "1"],
            "LitServe, batches of 64": lambda port: [peer, str(PEER), str(folder), str(port), "64"],
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[1])
    parser.add_argument("--peer", help="the Python of an environment that has LitServe")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = deliver(Path(scratch) / "model", TABLE)
        for number in range(given.rounds):
            for name, command in servers(folder, Path(scratch), given.peer).items():
                for rows in given.rows:
                    port = free_port()
                    with started(command(port), port) as process:
                        found = load(process, port, given.clients, given.seconds, rows)
                    told = {"server": name, "round": number, "clients": given.clients, "rows": rows, "seconds": given.seconds}
                    print(json.dumps(told | found), flush=True)


if __name__ == "__main__":
    main()
