"""Starting a fresh process with one thread, and what it said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.benchmarks.scorecard.case import Case
from tests.benchmarks.scorecard.work import VARIABLE

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300
HUNG = 124
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "default",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "HF_HUB_OFFLINE": "1",
    "NO_COLOR": "1",
    "COLUMNS": "200",
}


def run(command: list[str], folder: Path, case: Case) -> tuple[int, str]:
    """Run a command in a folder; return its exit code and what it said."""
    environment = {**os.environ, **ENVIRONMENT, VARIABLE: case.dumps()}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return HUNG, f"TimeoutError: no end within {LIMIT_S} s"
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")
