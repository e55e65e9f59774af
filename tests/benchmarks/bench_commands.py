"""How quickly the commands that do not train answer, on the digits example.

    python tests/benchmarks/bench_commands.py [ROUNDS]

Prints the best wall time of each command as a whole process, and its ratio to that of `import pydantic, yaml` in the same
environment, measured in turn, beside the ratio that it is meant to keep on a quiet machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMITS = {"--help": 0.8, "status": 4.0, "gate check": 4.0}
PROGRAM = [sys.executable, "-m", "mltrainer"]
IMPORT = [sys.executable, "-c", "import pydantic, yaml"]
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as an installed one is


def seconds(command: list[str], folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, capture_output=True, check=True, env=COMPILED)
    return time.perf_counter() - started


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "digits"
        for arguments in (["init", str(project), "--example", "digits"], ["run", "--project", str(project)]):
            subprocess.run([*PROGRAM, *arguments], capture_output=True, check=True)
        commands = {"import": IMPORT, **{command: [*PROGRAM, *command.split()] for command in LIMITS}}
        measured = [{name: seconds(command, project) for name, command in commands.items()} for _ in range(rounds + 1)][1:]
        best = {name: min(row[name] for row in measured) for name in commands}
        for name, limit in LIMITS.items():
            ratio = round(best[name] / best["import"], 2)
            print(json.dumps({"command": name, "best_s": round(best[name], 3), "ratio": ratio, "limit": limit}))


if __name__ == "__main__":
    main()
