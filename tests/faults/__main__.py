"""`python -m tests.faults`: disturbs each command at every kind of call on files; see docs/FAULTS.md."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.injector import VARIABLE, WAYS, Call, Injector, compiler, variables

TOP = Path(__file__).parents[2]
PROGRESS_S = 20.0
DRAWN = 200  # points of a command that are drawn, beside the first and the last call of each site


def points(found: list[Call], drawn: int, seed: str, whole: bool = False) -> list[tuple[int, str]]:
    """Return the calls to disturb, each with the way: the first and the last call of each site, and some that are drawn.

    Args:
        found: The calls of the undisturbed command.
        drawn: How many calls are drawn.
        seed: Decides the draws.
        whole: Whether each call is disturbed in each way instead.
    """
    if whole:
        return [(call.number, way) for call in found for way in WAYS[call.op]]
    luck = random.Random(seed)
    ends: dict[tuple[str, str], list[Call]] = {}
    for call in found:
        ends.setdefault((call.op, call.site), []).append(call)
    chosen = {call.number: call for calls in ends.values() for call in (calls[0], calls[-1])}
    ordered = [*chosen.values(), *luck.sample(found, min(drawn, len(found)))]
    return [*dict.fromkeys((call.number, luck.choice(WAYS[call.op])) for call in ordered)]


# --- a worker's process ------------------------------------------------------------------------------


def work(arguments: argparse.Namespace) -> None:
    """Disturb this process's share of the points, and print a line of JSON for each."""
    from tests.faults.commands import COMMANDS, build, disturbed
    from tests.faults.worker import Worker

    base = Path(arguments.base)
    worker, injector = Worker(base), Injector()
    for name in needed(COMMANDS, arguments.only):
        reference = build(worker, injector, base, COMMANDS[name])
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        chosen = points(reference.calls, arguments.drawn, f"{arguments.seed} {name}")
        mine = [point for point in chosen[arguments.share :: arguments.jobs] if f"{name} {point}" not in known(arguments)]
        tell(
            {
                "command": name,
                "calls": len(reference.calls),
                "sites": len({(c.op, c.site) for c in reference.calls}),
                "points": len(mine),
            }
        )
        for number, way in mine:
            begun = time.monotonic()
            faults, fired = disturbed(worker, injector, base, COMMANDS[name], reference, number, way)
            took = time.monotonic() - begun
            tell({"command": name, "point": [number, way], "fired": fired, "faults": faults, "took": round(took, 2)})
            print(f"{name} {number} {way} {fired} {took:.1f}", file=sys.stderr, flush=True)


def needed(rows: dict[str, Any], only: list[str]) -> Iterable[str]:
    """Return the commands that are asked for, and those that they start from, in the table's order."""
    wanted = {name for name in rows if not only or any(word in name for word in only)}
    while more := {rows[name].after for name in wanted if rows[name].after} - wanted:
        wanted |= more
    return [name for name in rows if name in wanted]


def known(arguments: argparse.Namespace) -> set[str]:
    """Return the points that an earlier process of the same seed has tried."""
    return {*json.loads(os.environ.get("KNOWN_POINTS", "[]"))}


def tell(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


# --- the program ------------------------------------------------------------------------------------


def started(arguments: argparse.Namespace, base: Path, share: int) -> subprocess.Popen[str]:
    """Start a worker, with the shim loaded before its C library."""
    folder = base / str(share)
    folder.mkdir()
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONHASHSEED": "0", "PYTHONPATH": str(TOP), **variables(folder)}
    given = [*sys.argv[1:], "--share", str(share), "--base", str(folder), "--seed", str(arguments.seed)]
    errors = open(folder / "errors.txt", "wb")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults", *given], env=environment, cwd=TOP, stdout=subprocess.PIPE, stderr=errors, text=True
    )


def main() -> int:
    arguments = parsed()
    if VARIABLE in os.environ:
        work(arguments)
        return 0
    if compiler() is None:
        print("no C compiler here (cc, gcc or clang): faults cannot be planted, and nothing was tested", file=sys.stderr)
        return 2
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        workers = [started(arguments, Path(name), share) for share in range(arguments.jobs)]
        return report(workers, Path(name))


def report(workers: list[subprocess.Popen[str]], base: Path) -> int:
    """Print what the workers find, and return 1 where a promise was broken."""
    cases, bad, planned, begun, told = Counter[str](), Counter[str](), 0, time.monotonic(), 0.0
    for row in lines(workers):
        if "point" not in row:
            planned += row["points"]
            print(
                f"{row['command']}: {row['calls']} calls of {row['sites']} kinds and places; {row['points']} points here",
                flush=True,
            )
            continue
        cases[row["command"]] += 1
        bad[row["command"]] += bool(row["faults"])
        for fault in row["faults"]:
            print(f"FAULT {row['command']} {row['point']} {row['fired']!r}: {fault}", flush=True)
        if (now := time.monotonic()) > told + PROGRESS_S:
            rate, told = cases.total() / (now - begun), now
            print(f"{cases.total()} of {planned} points so far, {rate:.2f} a second, failures {bad.total()}", flush=True)
    codes = [worker.wait() for worker in workers]
    for share, code in enumerate(codes):
        if code:
            print((base / str(share) / "errors.txt").read_text(errors="replace")[-4000:])
    print("| command | points | failures |\n| --- | --- | --- |")
    for command in cases:
        print(f"| {command} | {cases[command]} | {bad[command]} |")
    print(f"faults: {cases.total()} points of {len(cases)} commands, failures {bad.total()}; {time.monotonic() - begun:.0f} s")
    return int(bool(bad.total() or any(codes)))


def lines(workers: list[subprocess.Popen[str]]) -> Iterator[dict[str, Any]]:
    """Yield the workers' rows as they come."""
    import selectors

    with selectors.DefaultSelector() as ready:
        for worker in workers:
            ready.register(worker.stdout, selectors.EVENT_READ)
        while ready.get_map():
            for key, _ in ready.select():
                if line := key.fileobj.readline():
                    yield json.loads(line)
                else:
                    ready.unregister(key.fileobj)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("only", nargs="*", help="words of commands' names; default: all")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--drawn", type=int, default=DRAWN)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--share", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--base", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
