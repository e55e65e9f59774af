"""Each benchmark runs: its whole program, on the least that it measures."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEAST = {
    "checkpoints": "--mib 1 --saves 1",
    "commands": "1",
    "cures": "--only F13 --seeds 11 --kept kept",
    "data": "--rounds 1 --folder .",
    "data_checks": "--case F10",
    "diagnostics": "--only F10 --seeds 11 --kept kept",
    "distillation": "--epochs 1 --seeds 0 1",
    "exchange": "--processes 2 --rounds 2",
    "gates": "--again --kept kept --only memory_growth",
    "gradient_conflict": "--seeds 0",
    "labels": "--epochs 2 --seeds 0",
    "memory": "--work digits --rounds 1 --steps 500",
    "monitor": "--steps 50000 --openings 1 --redrawn 2 --events 10",
    "packing": "10",
    "pictures": "--pictures 200 --large 4 --threads 1",
    "planner": "--families mlp --changes 1 --out planner.jsonl",
    "projects": "--projects 5 --apart 1",
    "promotion": "5",
    "proof": "--rows 1000 --epochs 4 --rounds 1",
    "ranks": "--processes 2 --rounds 1 --steps 1",
    "reproducibility": "--models mlp --pairs 1",
    "rows": "--rows 200",
    "search": "--trials 4 --epochs 1 --seeds 1",
    "serving": "--seconds 1 --clients 1",
    "sharing": "--ways zero1 'torch FSDP2' --processes 1",
    "signals": "--work digits --rounds 1",
    "space": "--tables moons --seeds 0 --trials 1 --kept kept.jsonl",
    "step": "--work digits --rounds 1",
    "strategies": "lora --seeds 0 1",
    "strategy_cost": "plain --turns 1 --epochs 1",
    "studies": "--trials 5 --strategies random --every 5",
    "text": "--parts large --epochs 1 --mb 2",
    "training_loop": "--work digits --rounds 1",
    "traps": "--tables repeats --epochs 10",
    "trials": "20",
    "twins": "--only F101 --kept kept",
    "unseen": "--only U01",
    "weights": "--rounds 1 --mib 8",
    "wrap": "--only plain --draw 1",
    "wrap_overhead": "--rounds 1 --turns 2",
    "wrap_programs": "--group first --only tabular --number 1",
    "wrap_rules": "--group sixth --only ema_timing --kept kept",
    "wrap_sets": "--names 1 --way sorted",
}

LEFT_OUT = {"public_tables": "its tables are a package of their own, which `make bench-public-tables` installs"}
# Their least takes a minute or more.
LONG = {"commands", "cures", "data", "search", "signals", "space", "traps", "unseen", "wrap"}


def test_every_benchmark_is_run():
    assert {*LEAST, *LEFT_OUT} == {path.stem.removeprefix("bench_") for path in (ROOT / "tests/benchmarks").glob("bench_*.py")}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in LEAST])
def test_a_benchmark_runs(name, tmp_path):
    program = ROOT / f"tests/benchmarks/bench_{name}.py"
    done = subprocess.run(
        [sys.executable, program, *shlex.split(LEAST[name])],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stdout[-2000:] + done.stderr[-2000:]
