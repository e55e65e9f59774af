"""`gate check --projects` of many projects beside a process for each: processor time a project, the largest memory.

    python tests/benchmarks/bench_projects.py [--projects 100] [--apart 20]

The projects are copies of those in tests/kept, in turn, so that no two neighbours share a record. Each way is measured twice:
in fresh clones, and again when the digests of larger files and of rendered reports are remembered. Prints lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

KEPT = sorted((Path(__file__).parents[1] / "kept").glob("*/*.tar.gz"))
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def cpu_s(commands: Sequence[list[str]]) -> float:
    """Return the processor time of some commands, one after the other, each of which must say that all holds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, capture_output=True, check=True, env=COMPILED)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=100)
    parser.add_argument("--apart", type=int, default=20, help="projects that have a process each")
    asked = parser.parse_args()
    check = [sys.executable, "-m", "mltrainer", "gate", "check"]
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / f"{nr:04}" for nr in range(asked.projects)]
        for folder, kept in zip(folders, cycle(KEPT), strict=False):
            with tarfile.open(kept) as archive:
                archive.extractall(folder, filter="data")
        for state in ("first", "again"):
            together = cpu_s([[*check, "--projects", *map(str, folders)]])
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            apart = cpu_s([[*check, "--project", str(folder)] for folder in folders[: asked.apart]])
            told = {"together_ms_each": 1000 * together / len(folders), "apart_ms_each": 1000 * apart / asked.apart}
            ratio = told["apart_ms_each"] / told["together_ms_each"]
            rounded = {key: round(value) for key, value in told.items()}
            print(
                json.dumps({"check": state, "projects": len(folders), **rounded, "ratio": round(ratio, 1), "peak_mb": peak >> 10})
            )


if __name__ == "__main__":
    main()
