"""How quickly the commands that do not train answer, on the digits example.

    python tests/benchmarks/bench_commands.py [ROUNDS]

Prints the median wall time of each command as a whole process, beside the limit it is meant to keep on a quiet
machine with 2 cores.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMITS_S = {"--help": 0.25, "status": 0.4, "gate check": 0.4}
PROGRAM = [sys.executable, "-m", "mltrainer"]


def seconds(command: str, folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run([*PROGRAM, *command.split()], cwd=folder, capture_output=True, check=True)
    return time.perf_counter() - started


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "digits"
        for arguments in (["init", str(project), "--example", "digits"], ["run", "--project", str(project)]):
            subprocess.run([*PROGRAM, *arguments], capture_output=True, check=True)
        for command, limit in LIMITS_S.items():
            times = [seconds(command, project) for _ in range(rounds)]
            print(json.dumps({"command": command, "median_s": round(statistics.median(times), 3), "limit_s": limit}))


if __name__ == "__main__":
    main()
