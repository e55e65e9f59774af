"""A folder of many small pictures: time, processor time and memory of `init`, of opening it at first and later, and of planning;
and decoding with several numbers of threads.

    PYTHONPATH=. python tests/benchmarks/bench_pictures.py --pictures 100000 --threads 1 2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

SIDE = 28
LARGE = 512
OPEN = """
import json, resource, sys, time
from pathlib import Path
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import baseline_template
from mltrainer.configs import yaml
from mltrainer.tasks.opening import open_task
project = yaml.parse(Path("mltrainer.yaml").read_bytes(), "mltrainer.yaml").value
config = TrainingConfig.model_validate({**baseline_template(None), **project})
begun = time.perf_counter()
open_task(config, Path())
print(json.dumps(time.perf_counter() - begun))
"""
DECODE = """
import json, sys, time
from pathlib import Path
import numpy as np
from mltrainer.configs.project import Image
from mltrainer.tasks.images import pictures
listed = pictures.list_pictures(Path(sys.argv[1]), "pictures", None, None)
side = int(sys.argv[2])
out = np.zeros((len(listed.paths), 3, side, side), dtype=np.uint8)
begun = time.perf_counter()
pictures.decode(listed, Image(size=[side, side]), out, int(sys.argv[3]))
print(json.dumps(len(listed.paths) / (time.perf_counter() - begun)))
"""


def paint(folder: Path, count: int, side: int, suffix: str) -> None:
    """Write pictures of ten classes, each with a bright stripe at its class's place."""
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 120, (64, side, side, 3), dtype=np.uint8)
    for number in range(count):
        pixels = noise[number % 64].copy()
        at = (number % 10) * side // 10
        pixels[at : at + max(1, side // 10), :, number % 3] = 150 + number % 100
        pixels[number // 100 % side, number // 10 % side] = number % 251
        path = folder / str(number % 10) / f"{number:06}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(pixels).save(path)


def measured(command: list[str], folder: Path) -> dict[str, Any]:
    """Run a command and return its seconds, its processor seconds with those of its children, its peak in MiB, its output."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{text}")
    spent = usage.ru_utime + usage.ru_stime
    return {"wall_s": time.perf_counter() - begun, "cpu_s": spent, "peak_mb": usage.ru_maxrss / 1024, "text": text}


def row(what: str, found: dict[str, Any]) -> None:
    """Print a row of the table."""
    print(f"| {what} | {found['wall_s']:.1f} s | {found['cpu_s']:.1f} s | {found['peak_mb']:.0f} MiB |", flush=True)


def main() -> None:
    """Make the pictures in a scratch folder, measure, print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=400)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paint(folder / "small", asked.pictures, SIDE, "png")
        paint(folder / "large", asked.large, LARGE, "jpg")
        program, project = [sys.executable, "-m", "mltrainer"], folder / "project"
        print(f"| {asked.pictures} pictures of {SIDE}x{SIDE} | time | processor time | peak |\n| --- | ---: | ---: | ---: |")
        row("`init --data`", measured([*program, "init", "project", "--data", "small"], folder))
        row("opened for the first time", measured([sys.executable, "-c", OPEN], project))
        row("opened later", measured([sys.executable, "-c", OPEN], project))
        row("`phase run planning`", measured([*program, "phase", "run", "planning", "--set", "epochs=1"], project))
        print(f"record.json: {(project / 'phases/01_planning/record.json').stat().st_size / 2**20:.1f} MiB")
        row("`gate check planning`", measured([*program, "gate", "check", "planning"], project))
        print("\n| decoded in a second | " + " | ".join(f"{n} threads" for n in asked.threads) + " |")
        print("| --- |" + " ---: |" * len(asked.threads))
        for what, side, told in (("small", SIDE, f"PNG {SIDE}x{SIDE}"), ("large", 64, f"JPEG {LARGE}x{LARGE}, brought to 64x64")):
            command = [sys.executable, "-c", DECODE, str(folder / what), str(side)]
            rates = [json.loads(measured([*command, str(threads)], folder)["text"]) for threads in asked.threads]
            print(f"| {told} | " + " | ".join(f"{rate:.0f}" for rate in rates) + " |", flush=True)


if __name__ == "__main__":
    main()
