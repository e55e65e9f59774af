"""Tables with traps, walked as a new user walks: `init --data`, a criterion, and `run` through all five phases.

Each table either goes through untouched, or stops once with a question that one key of `mltrainer.yaml` answers; the benchmark
gives the answer, and goes on. A table that stops again, or whose gates do not hold at the end, is marked.

    PYTHONPATH=. python tests/benchmarks/bench_traps.py [--tables repeats dates ...] [--epochs 30] [--folder FOLDER]

`--epochs` shortens the trainings, in the project's own templates; what `init` writes takes about four times as many.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltrainer.configs import yaml
from mltrainer.configs.templates import BASELINE, PRODUCTION, overlay
from mltrainer.tasks.metric_names import SMALLER_IS_BETTER
from mltrainer.workspace import read_json
from tests.benchmarks.tables.traps import TRAPS, Trap, write

MOST_STOPS = 3  # after so many the walk is given up


@dataclass
class Walk:
    """What happened to a table.

    Attributes:
        trap: The table.
        told: What `init` said.
        stops: What each stop of `run` said.
        done: Whether all gates hold.
        predicts: Whether the delivered model then answers for the very rows of the table.
        said: What these two commands said.
        seconds: Wall time of all commands.
        value: The metric on the test rows, where it came so far.
    """

    trap: Trap
    told: str = ""
    stops: list[str] = field(default_factory=list)
    done: bool = False
    predicts: bool = False
    said: str = ""
    seconds: float = 0.0
    value: float | None = None

    @property
    def is_fine(self) -> bool:
        """Whether it went through, with one question where one is expected and none elsewhere."""
        return self.done and self.predicts and len(self.stops) == bool(self.trap.answer)


def mltrainer(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Return what a command said and its exit code."""
    command = [sys.executable, "-m", "mltrainer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)


def walk(name: str, folder: Path, epochs: int | None = None) -> Walk:
    """Walk a table in a folder of its own, with trainings of so many epochs, and return what happened."""
    found, root = Walk(TRAPS[name]), folder / name / "project"
    root.parent.mkdir(parents=True)
    started = time.perf_counter()
    data = write(name, root.parent)
    begun = mltrainer("init", root, "--data", data, "--target", found.trap.target)
    found.told = begun.stdout + begun.stderr
    if begun.returncode == 0:
        name, bound = found.trap.metric
        answer(root, {"acceptance": {name: f"{'<=' if name in SMALLER_IS_BETTER else '>='} {bound}"}})
        for template in (BASELINE, PRODUCTION) if epochs else ():
            path = root / template
            path.write_text(re.sub(r"(?m)^epochs: \d+", f"epochs: {epochs}", path.read_text("utf-8")), "utf-8")
        _run(root, data, found)
    else:
        found.stops.append(found.told)
    found.seconds = time.perf_counter() - started
    record = root / "phases/05_finalization/record.json"
    if record.exists():
        found.value = read_json(record)["evidence"]["test"]["metrics"].get(found.trap.metric[0])
    return found


def _run(root: Path, data: Path, found: Walk) -> None:
    """Run until the gates hold; after a stop once with the answer."""
    while len(found.stops) < MOST_STOPS:
        said = mltrainer("run", "--project", root)
        if said.returncode == 0:
            gates, answers = mltrainer("gate", "check", "--project", root), mltrainer("predict", data, "--project", root)
            found.done, found.predicts = gates.returncode == 0, answers.returncode == 0
            found.said = gates.stdout + answers.stderr
            return
        found.stops.append(said.stdout + said.stderr)
        if len(found.stops) > 1 or not found.trap.answer:
            return
        answer(root, found.trap.answer)


def answer(root: Path, values: dict[str, Any]) -> None:
    """Write keys into the project's file; what a list holds is added to."""
    path = root / "mltrainer.yaml"
    old = yaml.parse(path.read_text("utf-8"), path.name).value
    for key, value in values.get("data", {}).items():
        if isinstance(value, list):
            values = overlay(values, {"data": {key: [*old["data"].get(key, []), *value]}})
    path.write_text(yaml.dump(overlay(old, values)), "utf-8")


def line(found: Walk) -> str:
    """Return a row of the table in the docs."""
    asked = ", ".join(f"`{key}: {value}`" for key, value in found.trap.answer.get("data", {}).items()) or "nothing"
    value = "" if found.value is None else f"{found.trap.metric[0]} {found.value:.3f}"
    mark = "" if found.is_fine else " ✗"
    gates = "hold" if found.done else "no"
    return f"| {found.trap.title}{mark} | {asked} | {len(found.stops)} | {gates} | {value} | {found.seconds:.0f} |"


HEAD = "| table | answers to its questions | stops | gates | test rows | s |\n|---|---|---:|---|---|---:|"


def main() -> None:
    """Walk what the command line names and print a table; exit 1 where one did not go as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=list(TRAPS), default=list(TRAPS))
    parser.add_argument("--epochs", type=int, help="of the trainings; default: what `init` writes")
    parser.add_argument("--folder", type=Path, help="an empty folder for the projects; default: one that goes afterwards")
    given = parser.parse_args()
    print(HEAD, flush=True)
    fine = True
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.tables:
            found = walk(name, given.folder or Path(scratch), given.epochs)
            fine = fine and found.is_fine
            print(line(found), flush=True)
            print("\n".join([name, found.told, *found.stops, found.said]), file=sys.stderr, flush=True)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
