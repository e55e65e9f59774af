"""`python -m tests.faults`: disturbs what writes files, and each command, at their calls on files; see docs/FAULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.injector import compiler, variables

TOP = Path(__file__).parents[2]
KEPT = TOP / "build/faults"  # the tried points by seed: the same seed goes on where it was stopped
PROGRESS_S = 20.0
QUICK = ("--writers", "--most", "6", "--images", "1", "init", "^baseline$", "diagnostics", "runs tag")


def started(arguments: argparse.Namespace, base: Path, share: int) -> subprocess.Popen[str]:
    """Start a worker, with the shim loaded before its C library."""
    folder = base / str(share)
    (folder / "tmp").mkdir(parents=True)  # its own: no other program's sweep reaches it
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONHASHSEED": "0", "PYTHONPATH": str(TOP), **variables(folder)}
    environment["TMPDIR"] = str(folder / "tmp")
    given = json.dumps({**vars(arguments), "share": share, "base": str(folder)})
    with open(folder / "errors.txt", "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.share", given],
            env=environment,
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def lines(workers: list[subprocess.Popen[str]]) -> Iterator[dict[str, Any]]:
    """Yield the workers' rows as they come."""
    with selectors.DefaultSelector() as ready:
        for worker in workers:
            assert worker.stdout is not None
            ready.register(worker.stdout, selectors.EVENT_READ, worker.stdout)
        while ready.get_map():
            for key, _ in ready.select():
                if line := key.data.readline():
                    yield json.loads(line)
                else:
                    ready.unregister(key.fileobj)


class Report:
    """What the workers found so far, and the table of it."""

    def __init__(self, earlier: list[dict[str, Any]]) -> None:
        self.cases, self.bad, self.calls, self.places = Counter[str](), Counter[str](), dict[str, int](), dict[str, int]()
        self.planned, self.begun, self.told = 0, time.monotonic(), 0.0
        for row in earlier:
            self.count(row)
        self.before = self.cases.total()

    def take(self, row: dict[str, Any]) -> None:
        """Take a worker's row, and print what a reader waits for."""
        if "calls" in row:
            self.planned += row["points"]
            self.calls[row["name"]], self.places[row["name"]] = row["calls"], row["places"]
            return
        self.count(row)
        for fault in row["faults"]:
            print(f"FAULT {row['name']} {row['point']} {row['fired']!r}: {fault}", flush=True)
        if (now := time.monotonic()) > self.told + PROGRESS_S:
            done, self.told = self.cases.total() - self.before, now
            rate = done / (now - self.begun)
            print(
                f"{done} points, {rate:.2f} a second; {self.planned - done} more of what was begun; failures {self.bad.total()}",
                flush=True,
            )

    def count(self, row: dict[str, Any]) -> None:
        """Count a row."""
        self.cases[row["name"]] += 1
        self.bad[row["name"]] += bool(row["faults"])

    def table(self) -> str:
        """Return the counts by what was disturbed, and in all."""
        rows = [
            f"| {name} | {self.calls.get(name, '')} | {self.places.get(name, '')} | {number} | {self.bad[name]} |"
            for name, number in self.cases.items()
        ]
        took = time.monotonic() - self.begun
        return "\n".join(
            [
                "| | calls | kinds and places | points | failures |",
                "| --- | ---: | ---: | ---: | ---: |",
                *rows,
                f"faults: {self.cases.total()} points of {len(self.cases)} rows, failures {self.bad.total()}, {took:.0f} s",
            ]
        )


def main() -> int:
    arguments = parsed(sys.argv[1:])
    if compiler() is None:
        print("no C compiler here (cc, gcc or clang): no fault can be planted, and nothing was tested", file=sys.stderr)
        return 2
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{arguments.seed}.jsonl"
    earlier = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    print(f"seed {arguments.seed}: --seed {arguments.seed} goes on after {len(earlier)} points", flush=True)
    arguments.done = [row["key"] for row in earlier]
    report = Report(earlier)
    with tempfile.TemporaryDirectory(prefix="faults-") as base, open(kept, "a") as file, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(started(arguments, Path(base), share)) for share in range(arguments.jobs)]
        for row in lines(workers):
            report.take(row)
            if "key" in row:
                file.write(json.dumps(row) + "\n")
                file.flush()
        codes = [worker.wait() for worker in workers]
        for share, code in enumerate(codes):
            if code:
                print((Path(base) / str(share) / "errors.txt").read_text(errors="replace")[-4000:])
    print(report.table())
    return int(bool(report.bad.total() or any(codes)))


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "only", nargs="*", help="words of the commands, as regular expressions; default: all commands and all writers"
    )
    parser.add_argument("--writers", action="store_true", help="the writers, beside the named commands")
    parser.add_argument("--quick", action="store_true", help="the part that `make check` runs")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--drawn", type=int, default=30, help="calls of a command that are drawn, beside one of each place")
    parser.add_argument("--most", type=int, default=60, help="the largest number of calls of a command that are disturbed")
    parser.add_argument("--images", type=int, default=4, help="images of the disk for each moment of a power cut")
    parser.add_argument("--jobs", type=int, default=2)
    found = parser.parse_args(words)
    return parser.parse_args([*QUICK, *(word for word in words if word != "--quick")]) if found.quick else found


if __name__ == "__main__":
    sys.exit(main())
