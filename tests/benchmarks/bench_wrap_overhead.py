"""What `mltrainer wrap` costs a program while it is observed: the same steps with and without, one right after the other.

PYTHONPATH=. python tests/benchmarks/bench_wrap_overhead.py [--rounds N] [--steps N]
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from mltrainer.errors import raise_terminated
from mltrainer.wrap.starting import Program, Surroundings, start

WORK = """
import sys, time
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
steps, kind = int(sys.argv[1]), sys.argv[2]
if kind == "wide":
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x = torch.randn(160, 784)
else:
    layers = [nn.Sequential(nn.Linear(96, 96), nn.LayerNorm(96), nn.ReLU()) for _ in range(16)]
    model, x = nn.Sequential(*layers, nn.Linear(96, 10)), torch.randn(160, 96)
y = torch.randint(0, 10, (160,))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20 + steps):
    if step == 20:
        began = time.process_time()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print((time.process_time() - began) / steps)
"""


def main() -> None:
    """Measure and print."""
    signal.signal(signal.SIGTERM, raise_terminated)  # what is being wrapped is ended with it
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    chosen = parser.parse_args()
    for kind, words in (("wide", "3 layers of 512, 0.67 million numbers"), ("deep", "17 layers of 96 with norms, 67 tensors")):
        pairs = [_pair(kind, chosen.steps) for _ in range(chosen.rounds)]
        ratios = sorted(observed / alone for alone, observed in pairs)
        step = statistics.median(alone for alone, _ in pairs) * 1e3
        shown = f"{statistics.median(ratios):.3f} of the processor time without ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        print(f"{words}: steps of {step:.1f} ms, observed {shown}")


def _pair(kind: str, steps: int) -> tuple[float, float]:
    """Return the seconds of a step, alone and observed."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        (work / "program.py").write_text(WORK)
        command = (sys.executable, "program.py", str(steps), kind)
        alone = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True, env={**os.environ}).stdout
        ended = start(Program(command, work), Path(folder) / "scratch", Surroundings(), {"steps": 0})
        return float(alone), float(ended.log.read_text())


if __name__ == "__main__":
    main()
