"""What proof costs: a referee beside the author's training, an audit beside the share that it replays, and a signature.

A generated table, an mlp, one thread. The author's project is walked once; then, each so many times: `referee` trains the final
run again, closed off where that can be; `reproduce --segments` replays a share of it; `sign` signs the project.

    PYTHONPATH=. python tests/benchmarks/bench_proof.py [--rows 20000] [--epochs 40] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tests.projects import recorded, write_light_template

SHARES = ("5%", "20%")
CONFIG: dict[str, Any] = {
    "name": "proof",
    "id": "b642da856fcd",
    "task": {"kind": "tabular_classification"},
    "data": {"source": "table.csv", "target": "answer"},
    "split": {"validation": 0.2, "test": 0.1},
    "model": {"name": "mlp", "hidden": [128, 128]},
    "metric": {"name": "accuracy", "mode": "max"},
    "acceptance": {"accuracy": ">= 0.6"},
}


def write_project(root: Path, rows: int) -> None:
    """Write a project, with its own table, and its files for git."""
    drawn = random.Random(3)
    write_light_template(root)
    lines = ["a,b,c,d,answer"]
    for _ in range(rows):
        a, b, c, d = (drawn.gauss(0, 1) for _ in range(4))
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{d:.4f},{'yes' if a * b + c * d + drawn.gauss(0, 0.3) > 0 else 'no'}")
    (root / "table.csv").write_text("\n".join(lines) + "\n")
    (root / "mltrainer.yaml").write_text(yaml.safe_dump(CONFIG))
    (root / ".gitignore").write_text(".mltrainer/\n*.safetensors\n")


def said(root: Path, *words: str) -> tuple[float, str]:
    """Return the seconds that a command took, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "mltrainer", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(words)}: {done.returncode}\n{done.stderr}")
    return time.perf_counter() - began, done.stdout


def committed(root: Path) -> None:
    """Commit all files of a project."""
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "--quiet"), ("add", "--all"), (*author, "commit", "--quiet", "--allow-empty", "-m", "all")):
        subprocess.run(["git", *words], cwd=root, check=True)


def walked(root: Path, rows: int, epochs: int) -> float:
    """Walk a new project's phases, and return the seconds of its final training."""
    write_project(root, rows)
    committed(root)
    settings = (f"epochs={epochs}", "threads=1", "early_stopping=null", "checkpoint.segments=20")
    said(root, "phase", "run", "planning", *(word for one in settings for word in ("--set", one)))
    said(root, "run")
    committed(root)
    return float(recorded(root, "finalization")["evidence"]["run"]["wall_s"])


def referee(root: Path, rounds: int) -> list[tuple[float, float, float]]:
    """Return of each referee the seconds of the command and of its training, and those that the author recorded."""
    found = []
    for _ in range(rounds):
        out = str(root.parent / "verdict.json")
        took, text = said(root.parent, "referee", str(root), "--data", str(root / "table.csv"), "--out", out, "--json")
        verdict = json.loads(text)
        found.append((took, verdict["seconds"], verdict["recorded_seconds"]))
    return found


def audit(root: Path, share: str, rounds: int) -> list[tuple[float, float]]:
    """Return of each audit the replayed share of the steps, and the share of the recorded time that its steps took."""
    found = []
    for number in range(rounds):
        _, text = said(root, "reproduce", "finalization", "--segments", share, "--nonce", str(number), "--json")
        answer = json.loads(text)
        found.append((answer["replayed"] / answer["steps"], answer["seconds"] / answer["recorded_seconds"]))
    return found


def signing(root: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of `sign`, and those of `status`, which starts and reads the project alone."""
    key = str(root.parent / "key.pem")
    make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key]
    subprocess.run(make, check=True, capture_output=True)
    os.chmod(key, 0o600)
    return [said(root, "sign", "--key", key)[0] for _ in range(rounds)], [said(root, "status")[0] for _ in range(rounds)]


def main() -> None:
    """Print what each of them costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        author = walked(root, asked.rows, asked.epochs)
        print(f"the author's final training: {author:.1f} s", flush=True)
        for took, trained, recorded_s in referee(root, asked.rounds):
            print(
                f"referee: {took:.1f} s, {took / recorded_s:.3f} of it; its training alone {trained / recorded_s:.3f}", flush=True
            )
        for share in SHARES:
            ratios = [took / replayed for replayed, took in audit(root, share, asked.rounds)]
            shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(
                f"audit of {share}: time of its steps by their share: {shown}; median {statistics.median(ratios):.2f}", flush=True
            )
        signed, started = signing(root, asked.rounds)
        print(f"sign: median {statistics.median(signed):.2f} s; status: {statistics.median(started):.2f} s")


if __name__ == "__main__":
    main()
