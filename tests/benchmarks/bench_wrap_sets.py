"""`mltrainer wrap` on programs that go through a set of two or three names, in several ways, and on such that only look so.

python tests/benchmarks/bench_wrap_sets.py [--names N] [--repetitions R] [--way WORD] [--data]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path

from mltrainer.programs.checking import Check
from mltrainer.programs.starting import WrappedProgram
from tests.benchmarks.wrap.sets import CLEAN, FAULTY, GIVEN, TRAIN, rows, source

STEPS = 3


def main() -> None:
    """Print a row for each verdict, and how many are right."""
    chosen = _arguments()
    right = made = 0
    ways = [way for way in (*FAULTY, *CLEAN) if chosen.way in way]
    for _ in range(chosen.repetitions):  # outermost: what was stopped has seen every case
        for names, way in itertools.product(GIVEN[: chosen.names], ways):
            row = _measured(names, way, from_data=chosen.data)
            right, made = right + row["right"], made + 1
            print(json.dumps(row), flush=True)
    print(f"right: {right} of {made}")


def _measured(names: tuple[str, ...], way: str, *, from_data: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        folder.mkdir()
        text = source(names, way, from_data=from_data)
        (folder / "train.py").write_text(text + TRAIN)
        (folder / "rows.csv").write_text(rows(names))
        verdict = Check(WrappedProgram((sys.executable, "train.py"), folder), Path(scratch) / "runs", lambda event: None).repeats(
            STEPS
        )
        line = verdict.cause.lines[0].text if verdict.cause and verdict.cause.lines else None
        right = verdict.same if way in CLEAN else not verdict.same and "# guilty" in str(line)
        return {"names": names, "way": way, "same": verdict.same, "line": line, "seeds": verdict.hash_seeds, "right": right}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", type=int, default=len(GIVEN), help="so many pairs and triples")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--way", default="", help="ways whose name contains this")
    parser.add_argument("--data", action="store_true", help="the names stand in a table in place of the program")
    return parser.parse_args()


if __name__ == "__main__":
    main()
