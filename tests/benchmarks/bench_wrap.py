"""`mltrainer wrap` on twelve unmodified scripts and each with a way to be irreproducible put in: verdicts and lines named.

python tests/benchmarks/bench_wrap.py [--only NAME] [--fault NAME] [--draw N] [--python PATH] [--out FILE]

Scripts whose framework the interpreter has not are left out, and said so.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mltrainer.errors import MltrainerError, raise_terminated
from mltrainer.programs.checking import Check
from mltrainer.programs.starting import WrappedProgram
from tests.benchmarks.wrap.faults import FAULTS, STATE, STATE_GONE, guilty, planted

SCRIPTS = Path(__file__).parent / "wrap" / "scripts"
NEEDS = {"hf_trainer": "transformers", "accelerate_loop": "accelerate", "lightning_fit": "lightning", "skorch_fit": "skorch"}
FRAMEWORKS = ("hf_trainer", "accelerate_loop")  # that resume to the same bits from what they save
RESUMES = ("plain", "amp", "accumulate", "gan", "rl", "forks", "ddp", "notebook", *FRAMEWORKS)
STEPS = 12
TIMEOUT_S = 900.0  # of a start, on a loaded machine
Case = tuple[str, str, bool]  # script, fault, whether it is killed and gone on with


def main() -> None:
    """Measure each case and print the sums."""
    signal.signal(signal.SIGTERM, raise_terminated)  # what is being wrapped is ended with it
    chosen = _arguments()
    rows = []
    for case in _cases(chosen):
        row = _measured(*case, chosen.python)
        print(json.dumps(row), flush=True)
        rows.append(row)
        if chosen.out:
            with open(chosen.out, "a") as file:
                file.write(json.dumps(row) + "\n")
    print(summary(rows))


def _cases(chosen: argparse.Namespace) -> list[Case]:
    """Return what is measured: scripts as they are first, then those with a fault and those that are gone on with."""
    names = [path.stem for path in sorted(SCRIPTS.glob("*.py")) if chosen.only in path.stem]
    for name in [name for name in names if name in NEEDS and not _has(chosen.python, NEEDS[name])]:
        print(f"{name}: left out, {NEEDS[name]} is not installed")
        names.remove(name)
    clean = [(name, "none", False) for name in names]
    rest = [(name, fault, False) for name in names for fault in FAULTS]
    rest += [(name, fault, True) for name in RESUMES if name in names for fault in ("none", "state")]
    if chosen.draw is not None:
        random.Random(0).shuffle(rest)
    return [case for case in clean + rest[: chosen.draw] if chosen.fault in case[1]]


def _measured(name: str, fault: str, resume: bool, python: str) -> dict[str, Any]:
    """Return a case's verdict, the first line that was named, and whether both are right."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        _write(name, folder, fault)
        lines = {f"{p.relative_to(folder)}:{n}" for p in folder.rglob("*.py") for n in guilty(p.read_text())}
        (Path(scratch) / "runs").mkdir()
        check = Check(
            WrappedProgram(command(name, python), folder, timeout=TIMEOUT_S), Path(scratch) / "runs", lambda event: None
        )
        started, row = time.monotonic(), {"script": name, "fault": fault, "resume": resume}
        try:
            found = _resumed(check, name, python) if resume else _repeats(check)
        except MltrainerError as error:
            found = {"same": None, "said": str(error)[:300]}
        expected = fault == "none"
        is_named = found.get("line") in lines if lines else None
        return {
            **row,
            **found,
            "right": found["same"] is expected,
            "named": is_named,
            "seconds": round(time.monotonic() - started, 1),
        }


def _repeats(check: Check) -> dict[str, Any]:
    verdict = check.repeats(STEPS)
    cause = verdict.cause
    if cause is None:
        return {"same": verdict.same}
    lines = [line.where for line in cause.lines] or [None]
    return {"same": verdict.same, "kind": cause.kind, "line": lines[0], "others": lines[1:], "shown": cause.shown}


def _resumed(check: Check, name: str, python: str) -> dict[str, Any]:
    found = check.resumes((*command(name, python), "--resume"))
    return {"same": found.same, "what": found.what, "shown": found.shown, "step": found.step}


def command(name: str, python: str) -> tuple[str, ...]:
    """Return what its user types to start a script."""
    if name == "ddp":
        return (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "ddp.py")
    if name == "accelerate_loop":
        return (python, "-m", "accelerate.commands.launch", "--num_processes=1", "--cpu", f"{name}.py")
    return (python, f"{name}.py")


def _write(name: str, folder: Path, fault: str) -> None:
    folder.mkdir()
    (folder / "samples").mkdir()
    for number in range(64):
        (folder / "samples" / str(number)).touch()
    shutil.copy(SCRIPTS / f"{name}.py", folder)
    if name == "notebook":
        shutil.copytree(SCRIPTS / "cells", folder / "cells")
    if fault != "none":
        put = FAULTS.get(fault) or (STATE_GONE if name in FRAMEWORKS else STATE)
        for path in folder.rglob("*.py"):
            path.write_text(planted(path.read_text(), put))


def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def summary(rows: list[dict[str, Any]]) -> str:
    """Return how many verdicts are right, how many lines are named, and how many clean scripts are said to differ."""
    faulty, clean = [row for row in rows if row["fault"] != "none"], [row for row in rows if row["fault"] == "none"]
    named = [row for row in faulty if row["named"] is not None]
    alarms = sum(row["same"] is False for row in clean)
    return (
        f"right verdicts: {sum(row['right'] for row in faulty)} of {len(faulty)} faulty; guilty line named first:"
        f" {sum(row['named'] for row in named)} of {len(named)}; clean: {alarms} of {len(clean)} said to differ"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="scripts whose name contains this")
    parser.add_argument("--fault", default="", help="faults whose name contains this")
    parser.add_argument("--draw", type=int, help="so many of the cases that are not a script as it is, drawn with seed 0")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the scripts")
    parser.add_argument("--out", help="rows are added to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
