"""How quickly a search of many trials is looked at: `gate check`, `status`, its report and its figures.

    PYTHONPATH=. python tests/benchmarks/bench_trials.py [TRIALS]

A kept project of three trials gets a record of as many generated ones, with rungs and learning curves. Commands are timed as
whole processes: first with nothing remembered, so that the report is rendered and compared, then as most are. Wall-clock and
processor time, of which only the second says something on a busy machine.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.figures.drawn import draw, rows
from mltrainer.project.engine import write
from mltrainer.workspace import Project, read_json, seal
from tests.reports.records import searched

PROGRAM = [sys.executable, "-m", "mltrainer"]
KEPT = Path(__file__).parents[1] / "kept/0.9/houses.tar.gz"
COMMANDS = ("gate check", "gate check", "status", "status")


def project_of(folder: Path, trials: int) -> tuple[Project, dict[str, Any]]:
    """Return a project whose search is a generated one, and its record."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")
    project = Project(folder)
    project.state_dir.mkdir()  # what was rendered is remembered there, as where it was trained
    kept = read_json(project.phase_dir("optimization") / "record.json")
    generated = searched(trials)["evidence"]
    own = {key: kept["evidence"][key] for key in ("replay", "comparison", "acceptance", "config", "promoted")}
    evidence = {**generated, **own}
    made = {**kept, "evidence": evidence, "figures": []}
    return project, made


def timed(what: str, work: Callable[[], object]) -> None:
    """Print how long something takes, its children included."""
    wall, used = time.perf_counter(), _processor()
    work()
    print(json.dumps({"what": what, "wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(_processor() - used, 2)}))


def _processor() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


def _write(project: Project, made: dict[str, Any]) -> None:
    figures = draw("optimization", made["evidence"])
    write(project, "optimization", seal({**made, "figures": rows("optimization", made["evidence"], figures)}), figures)


def _command(command: str, project: Project) -> None:
    subprocess.run([*PROGRAM, *command.split(), "--project", str(project.root)], capture_output=True, check=False)


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        project, made = project_of(Path(folder), trials)
        timed("report and figures", lambda: _write(project, made))
        phase = project.phase_dir("optimization")
        size, table = (phase / "record.json").stat().st_size, sum(path.stat().st_size for path in phase.glob("trials-*"))
        print(json.dumps({"trials": trials, "record_bytes": size, "table_bytes": table}))
        for command in COMMANDS:
            timed(command, lambda command=command: _command(command, project))  # type: ignore[misc]


if __name__ == "__main__":
    main()
