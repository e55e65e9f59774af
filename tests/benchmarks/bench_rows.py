"""A table of many rows: processor time and memory of `init`, of opening it at first and later, and of planning as a whole.

PYTHONPATH=. python tests/benchmarks/bench_rows.py --rows 10000 1000000
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars

NUMBERS = 14
OPEN = """
from pathlib import Path
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.tasks.opening import open_task
project = load_project(Path("mltrainer.yaml")).model_dump()
open_task(TrainingConfig.model_validate({**baseline_template(None), **project}), Path())FACTS
"""
STEPS = {
    "opened first": OPEN.replace("FACTS", ""),
    "opened later": OPEN.replace("FACTS", ""),
    "opened and judged": OPEN.replace("FACTS", ".facts(DataLimits())"),
}


def write_table(path: Path, rows: int) -> None:
    """Write 22 columns: an id, numbers, whole numbers, categories, a date, and two classes that follow two of the numbers."""
    draw = np.random.default_rng(0)
    columns: dict[str, Any] = {"id": np.arange(rows)}
    columns |= {f"x{nr}": np.round(draw.normal(size=rows) * 10, 4) for nr in range(NUMBERS)}
    columns |= {"many": draw.integers(0, 1000, rows), "few": draw.integers(0, 50, rows)}
    columns["city"] = np.array([f"city_{nr}" for nr in range(40)])[draw.integers(0, 40, rows)]
    columns["colour"] = np.array(["red", "green", "blue"])[draw.integers(0, 3, rows)]
    columns["member"] = np.array(["yes", "no"])[draw.integers(0, 2, rows)]
    columns["day"] = (np.datetime64("2020-01-01") + draw.integers(0, 1000, rows)).astype(str)
    good = columns["x0"] + columns["x1"] / 2 + draw.normal(size=rows) * 5 > 0
    polars.DataFrame({**columns, "target": np.where(good, "good", "bad")}).write_csv(path)


def measured(command: list[str], folder: Path) -> dict[str, float]:
    """Return a command's processor time, wall time and peak memory."""
    run = f"subprocess.run({command!r}, cwd={str(folder)!r}, check=True, stdout=subprocess.DEVNULL)"
    tell = "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)"
    program = f"import resource, subprocess; {run}; used = resource.getrusage(resource.RUSAGE_CHILDREN); {tell}"
    begun = time.perf_counter()
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    return {"cpu_s": float(found[0]), "wall_s": time.perf_counter() - begun, "peak_mb": float(found[1])}


def main() -> None:
    """Print a line of a Markdown table for each step and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    print("| rows | file | step | processor time | wall | peak |\n|---:|---:|---|---:|---:|---:|")
    for rows in parser.parse_args().rows:
        with tempfile.TemporaryDirectory() as name:
            table = Path(name) / "table.csv"
            write_table(table, rows)
            begin = [sys.executable, "-m", "mltrainer", "init", "project", "--data", "table.csv", "--target", "target"]
            found = {"`init`": measured(begin, Path(name))}
            found |= {step: measured([sys.executable, "-c", code], Path(name) / "project") for step, code in STEPS.items()}
            planning = [sys.executable, "-m", "mltrainer", "phase", "run", "planning"]
            found["planning, with its probes"] = measured(planning, Path(name) / "project")
            size = f"{table.stat().st_size / 1e6:.1f} MB"
        for step, row in found.items():
            print(
                f"| {rows} | {size} | {step} | {row['cpu_s']:.1f} s | {row['wall_s']:.1f} s | {row['peak_mb']:.0f} MiB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
