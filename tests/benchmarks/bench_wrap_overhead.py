"""What `mltrainer wrap` costs a program while it is observed: in one process the same steps with and without, in turns.

PYTHONPATH=. python tests/benchmarks/bench_wrap_overhead.py [--rounds N] [--turns N]
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from pathlib import Path

from mltrainer.errors import raise_terminated
from mltrainer.observe.disturbances import Perturbations
from mltrainer.observe.process import Settings
from mltrainer.programs.starting import WrappedProgram, start

WORK = """
import json, statistics, sys, time
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
turns, kind = int(sys.argv[1]), sys.argv[2]
if kind == "wide":
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x = torch.randn(160, 784)
else:
    layers = [nn.Sequential(nn.Linear(96, 96), nn.LayerNorm(96), nn.ReLU()) for _ in range(16)]
    model, x = nn.Sequential(*layers, nn.Linear(96, 10)), torch.randn(184, 96)
y = torch.randint(0, 10, (len(x),))
optimizer = torch.optim.AdamW(model.parameters())
hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
observing, took = dict(hooks), {True: [], False: []}
assert observing
for turn in range(2 * turns):
    hooks.clear()
    hooks.update(observing if turn % 2 else {})
    for step in range(20):
        began = time.thread_time_ns()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step >= 5 and turn > 1:  # what the turn before left in the caches is gone
            took[turn % 2 == 1].append(time.thread_time_ns() - began)
print(json.dumps([statistics.median(took[observed]) / 1e6 for observed in (False, True)]))
"""


def main() -> None:
    """Measure and print."""
    signal.signal(signal.SIGTERM, raise_terminated)  # what is being wrapped is ended with it
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=20)
    chosen = parser.parse_args()
    for kind, words in (("wide", "3 layers of 512, 0.67 million numbers"), ("deep", "17 layers of 96 with norms, 66 tensors")):
        pairs = [_pair(kind, chosen.turns) for _ in range(chosen.rounds)]
        ratios = sorted(observed / alone for alone, observed in pairs)
        alone, more = (statistics.median(column) for column in zip(*((a, o - a) for a, o in pairs), strict=True))
        shown = f"{statistics.median(ratios):.3f} of the processor time without ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        print(f"{words}: steps of {alone:.1f} ms, observed {shown}, {1e3 * more:.0f} µs more", flush=True)


def _pair(kind: str, turns: int) -> tuple[float, float]:
    """Return the milliseconds of a step, alone and observed."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        (work / "program.py").write_text(WORK)
        command = (sys.executable, "program.py", str(turns), kind)
        ended = start(WrappedProgram(command, work), Path(folder) / "scratch", Perturbations(), Settings())
        alone, observed = json.loads(ended.log.read_text())
        return alone, observed


if __name__ == "__main__":
    main()
