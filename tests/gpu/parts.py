"""What is tried on a GPU, part by part: each trains something small and says what it found."""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from mltrainer.trainers.native.fitting import CUBLAS
from tests.trainers.native.digits_runs import make, train

TASK = {"use": "digits_task:Digits", "options": {"model": "cnn"}}
STEPS = 30
os.environ.setdefault(*CUBLAS)  # before the first use of a GPU


class Found(NamedTuple):
    """What a part found: whether its promise holds (None: it only measures), and its figures in words."""

    holds: bool | None
    words: str


def _trained(stops: tuple[int, ...] = (), **changes: Any) -> dict[str, Any]:
    quiet = contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO()))  # where its events go
    with tempfile.TemporaryDirectory() as folder, quiet:
        sys.modules.pop("digits_task", None)
        return train(make(Path(folder)), stops, task=TASK, **changes)


def _same(one: dict[str, Any], other: dict[str, Any]) -> Found:
    holds = (one["chain"], one["weights_sha256"]) == (other["chain"], other["weights_sha256"])
    return Found(holds, f"{one['steps']} steps, weights {one['weights_sha256'][:12]} and {other['weights_sha256'][:12]}")


def bits(device: str) -> Found:
    """Two trainings have the same bits."""
    return _same(_trained(device=device), _trained(device=device))


def resume(device: str) -> Found:
    """A training that was stopped twice has the bits of one that was not."""
    return _same(_trained(device=device), _trained((5, 11), device=device))


def compiled(device: str) -> Found:
    """Two compiled trainings have the same bits."""
    return _same(*(_trained(device=device, compile=True) for _ in range(2)))


def bf16(device: str) -> Found:
    """Two trainings in bf16 have the same bits."""
    return _same(*(_trained(device=device, precision="bf16") for _ in range(2)))


def fp16(device: str) -> Found:
    """Two trainings in fp16, whose loss is scaled, have the same bits."""
    return _same(*(_trained(device=device, precision="fp16") for _ in range(2)))


def checkpoints(device: str) -> Found:
    """A training that saves after every second step, beside its steps, has the bits of one that saves at epochs."""
    often = {"every_n_steps": 2, "save_best": True, "save_last": True, "keep": 2}
    return _same(_trained(device=device), _trained(device=device, checkpoint=often))


def strict(device: str) -> Found:
    """The time of a step with deterministic operations, as a ratio to one with torch's defaults, side by side."""
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    model, images = model.to(device), torch.randn(16, 3, 16, 16, device=device)
    times: dict[bool, list[float]] = {False: [], True: []}
    for step in range(STEPS):
        for is_strict in times:
            torch.use_deterministic_algorithms(is_strict)
            torch.backends.cudnn.deterministic = is_strict
            begun = time.perf_counter()
            model(images).sum().backward()
            if device == "cuda":
                torch.cuda.synchronize()
            if step >= STEPS // 3:  # those before warm up
                times[is_strict].append(time.perf_counter() - begun)
    torch.use_deterministic_algorithms(False)
    default, deterministic = (statistics.median(values) for values in times.values())
    return Found(None, f"{deterministic / default:.2f} of the default's time")


def _asked(*command: str) -> dict[str, Any]:
    """Return what a command answers as JSON in a new project of the digits example.

    Raises:
        RuntimeError: It failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        for words in (("init", folder, "--example", "digits"), (*command, "--project", folder, "--json")):
            arguments = [sys.executable, "-m", "mltrainer", *words]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"mltrainer {' '.join(words)}: {done.stderr.strip()[-300:]}")
    return dict(json.loads(done.stdout))


def utilization(device: str) -> Found:
    """The share of the device's peak rate that a step uses (MFU), by `mltrainer profile`."""
    answer = _asked("profile", "--steps", "20", "--set", f"device={device}")
    return Found(None, f"{answer['flops_per_s'] / 1e9:.2f} GFLOP/s, utilization {answer['utilization']}")


def memory(device: str) -> Found:
    """The memory that a step takes beside the planner's forecast, by `mltrainer plan`."""
    answer = _asked("plan", "--set", f"device={device}")
    measured, forecast = answer["measured"], answer["memory"]
    return Found(None, f"{measured['peak_mb']:.1f} MiB measured, {forecast['low']:.1f} to {forecast['high']:.1f} forecast")


def loops(device: str) -> Found:
    """The time of a training beside the loops of other trainers that are installed, as ratios to a plain PyTorch loop."""
    program, work = "tests/benchmarks/bench_training_loop.py", "digits"
    command = [sys.executable, program, "--work", work, "--rounds", "3", "--json"]
    variables = {**os.environ, "PYTHONPATH": str(Path.cwd()), "BENCH_DEVICE": device}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stderr.strip()[-300:]}")
    rows = json.loads(done.stdout)[work].items()
    return Found(None, ", ".join(f"{name} {row['to_plain']['median']:.2f}" for name, row in rows))


PARTS: dict[str, Callable[[str], Found]] = {
    "bits": bits,
    "resume": resume,
    "fp16": fp16,
    "bf16": bf16,
    "checkpoints": checkpoints,
    "strict": strict,
    "memory": memory,
    "utilization": utilization,
    "compile": compiled,
    "loops": loops,
}
