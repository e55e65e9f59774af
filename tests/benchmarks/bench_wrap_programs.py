"""`mltrainer wrap` on programs in the manner of public examples, each with three subtle faults: is the guilty line named first?

python tests/benchmarks/bench_wrap_programs.py [--group G] [--only NAME ...] [--number N ...] [--warm] [--out FILE]

`--warm` forks all but what depends on addresses from a Python that has torch loaded, which is faster.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mltrainer.errors import MltrainerError, raise_terminated
from mltrainer.programs.checking import Cause, Check
from mltrainer.programs.starting import WrappedProgram
from tests.benchmarks.wrap.programs import GROUPS, VARIANTS, Variant, variants

STEPS = 12
TIMEOUT_S = 900.0  # of a start, on a loaded machine
WARM = Path(__file__).parent / "wrap" / "warm.py"


def main() -> None:
    """Print a row for each variant, and the sums."""
    signal.signal(signal.SIGTERM, raise_terminated)  # what is being wrapped is ended with it
    chosen = _arguments()
    rows = []
    for variant in variants():
        is_named = (not chosen.only or variant.program in chosen.only) and variant.group in chosen.group
        if is_named and variant.number in chosen.number:
            rows.append(_measured(variant, chosen.warm))
            print(json.dumps(rows[-1]), flush=True)
            if chosen.out:
                with open(chosen.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(summary(rows))


def _measured(variant: Variant, is_warm: bool) -> dict[str, Any]:
    """Return a variant's verdict, and at which place its guilty line is named; 0 for nowhere."""
    row: dict[str, Any] = {"program": variant.program, "number": variant.number, "kinds": variant.kinds}
    with tempfile.TemporaryDirectory() as scratch:
        program, runs = written(variant, Path(scratch), is_warm), Path(scratch) / "runs"
        check = Check(program, runs, lambda event: None)
        started = time.monotonic()
        try:
            verdict = check.repeats(STEPS)
        except MltrainerError as error:
            return {**row, "same": None, "said": str(error)[:300], "right": False, "place": 0}
        made = sum(path.name.startswith("run-") for path in runs.iterdir())
    seconds, cause = round(time.monotonic() - started, 1), verdict.cause
    row |= {"same": verdict.same, "right": verdict.same == (variant.number == 0), "seconds": seconds, "place": 0}
    row |= {"runs": made, "verdict_runs": len(verdict.seconds)}
    if cause is None:
        return row
    named = [f"{line.where} {line.kind}: {line.text}" for line in cause.lines]
    beside = [line.where for line in cause.innocent]
    row |= {"kind": cause.kind, "place": place_of(cause, variant)}
    return {**row, "shown": cause.shown, "at": cause.where, "lines": named, "beside": beside}


def written(variant: Variant, scratch: Path, is_warm: bool) -> WrappedProgram:
    """Write a variant into a folder, beside an empty one for its runs, and return the program as it is started."""
    folder = scratch / "project"
    folder.mkdir()
    (scratch / "runs").mkdir()
    (folder / "train.py").write_text(variant.source, "utf-8")
    is_forked = is_warm and "identity" not in variant.kinds
    command = (sys.executable, *(("-I", "-S", str(WARM)) if is_forked else ()), "train.py")
    return WrappedProgram(command, folder, timeout=TIMEOUT_S)


def place_of(cause: Cause, variant: Variant) -> int:
    """Return at which place a guilty line is named; 0 for nowhere."""
    lines = [int(line.where.rpartition(":")[2]) for line in cause.lines if line.where.startswith("train.py:")]
    return next((place for place, line in enumerate(lines, 1) if line in variant.guilty), 0)


def summary(rows: list[dict[str, Any]]) -> str:
    """Return how many guilty lines are named first and among the first three, and how many programs raise a false alarm."""
    faulty, clean = [row for row in rows if row["number"]], [row for row in rows if not row["number"]]
    first, three = (sum(0 < row["place"] <= most for row in faulty) for most in (1, 3))
    kinds = sum(row.get("kind") in row["kinds"] for row in faulty)
    runs = sum(row.get("runs", 0) for row in faulty)
    in_two = sum(row.get("verdict_runs") == 2 for row in faulty)
    return (
        f"told as differing: {sum(row['right'] for row in faulty)} of {len(faulty)}; the guilty line first: {first},"
        f" among the first three: {three}; kind right: {kinds};"
        f" runs: {runs}; the verdict within two runs: {in_two};"
        f" without fault: {sum(row['right'] for row in clean)} of {len(clean)} repeat"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--group", nargs="*", default=GROUPS, help="of programs")
    parser.add_argument("--only", nargs="*", default=[], help="programs")
    parser.add_argument("--number", nargs="*", type=int, default=[*VARIANTS], help="numbers of faults; 0 for none")
    parser.add_argument("--warm", action="store_true", help="fork programs from a Python that has torch loaded")
    parser.add_argument("--out", help="rows are added to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
