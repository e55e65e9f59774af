"""`make gpu`: tries the paths of CUDA on this machine's GPU, part by part, and writes a table after each.

    python -m tests.gpu [PART ...] [--device cpu]

Parts that the table of this machine has already are not tried again, unless they are named. `--device cpu` rehearses the parts
without a GPU; its table is another one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from tests.gpu.parts import PARTS, Found

LIMIT_S = 360.0  # a part that begins before may end after it: each takes seconds
TESTED = "2.13"  # the PyTorch that constraints.txt pins
NO_GPU = "no GPU: torch.cuda.is_available() is False under this interpreter, so nothing was tried"

Row = dict[str, str | bool | float | None]


def table(rows: dict[str, Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| part | holds | found | s |", "|---|---|---|---:|"]
    words = {True: "yes", False: "**no**", None: "measured"}
    return "\n".join([*lines, *(f"| {n} | {words[r['holds']]} | {r['found']} | {r['seconds']:.0f} |" for n, r in rows.items())])


def tried(part: Callable[[str], Found], device: str) -> Row:
    """Try a part; one that fails has its error as what was found."""
    begun = time.monotonic()
    try:
        found = part(device)
    except Exception as error:
        found = Found(False, f"{type(error).__name__}: {error}"[:300].replace("\n", " "))
    return {"holds": found.holds, "found": found.words, "seconds": time.monotonic() - begun}


def run(names: Sequence[str], device: str, path: Path, parts: dict[str, Callable[[str], Found]], limit_s: float) -> int:
    """Try parts and write the table after each; return 1 where a promise does not hold.

    Args:
        names: The parts to try, also those tried before; empty: all that the table lacks.
        device: The device.
        path: The table's file.
        parts: The known parts.
        limit_s: Seconds after which no further part begins.
    """
    begun = time.monotonic()
    rows: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    for name in names or [name for name in parts if name not in rows]:
        if time.monotonic() - begun > limit_s:
            print(f"not tried in {limit_s:.0f} s: {name}; the same command goes on with it")
            break
        rows[name] = tried(parts[name], device)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, indent=1))
        print(table({name: rows[name]}).splitlines()[-1], flush=True)
    print(table(rows))
    return int(any(row["holds"] is False for row in rows.values()))


def main() -> int:
    """Try the parts that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"no part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if given.device == "cuda" and not torch.cuda.is_available():
        print(NO_GPU)
        return 0
    where = torch.cuda.get_device_name() if given.device == "cuda" else "the CPU"
    tests = "" if torch.__version__.startswith(TESTED) else f"; mltrainer's tests run with {TESTED}"
    print(f"PyTorch {torch.__version__} on {where}{tests}")
    return run(given.parts, given.device, Path("build") / f"gpu-{given.device}-{torch.__version__}.json", PARTS, LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
