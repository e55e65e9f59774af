"""Starting a fresh process with one thread, and what it said."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from tests.benchmarks.scorecard.case import AsText
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


def run(command: list[str], folder: Path, case: AsText) -> tuple[int, str]:
    """Run a command in a folder; return its exit code and what it said. One that hangs is killed with all that it started."""
    environment = {**os.environ, **ENVIRONMENT, VARIABLE: case.dumps()}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, env=environment, **streams) as started:
        try:
            said, complained = started.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            _kill(psutil.Process(started.pid))
            return HUNG, f"TimeoutError: no end within {LIMIT_S} s"
    return started.returncode, (said + complained).decode("utf-8", "replace")


def _kill(process: psutil.Process) -> None:
    members = [*process.children(recursive=True), process]
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(members, timeout=10)
