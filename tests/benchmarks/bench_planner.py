"""The planner: predicted against measured, the resident peak and the time of a step, over trainings of the built-in tasks.

Each family has one config that was measured; from it, and from a trace of each other config, the others' peak and step are
predicted as `mltrainer plan` predicts them, and then measured in a process of their own. A peak is what the kernel counts of a
probe of six steps with a checkpoint; a time is the shortest step's, in CPU seconds of the one thread that computes, which on an
idle machine are seconds. Also told is how many peaks lie in the range that a plan gives without any real step.

    PYTHONPATH=. python tests/benchmarks/bench_planner.py [--families cnn,vit] [--changes 1] [--out FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from mltrainer.companions.planner import memory, timing
from mltrainer.companions.planner.memory import Setup
from mltrainer.companions.planner.sizing import RECOMPUTED
from mltrainer.companions.planner.trace import traced
from mltrainer.configs.loading import assign, validate_values
from mltrainer.configs.pages import tool_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.job import ExplorationJob, TrainingJob
from mltrainer.records.planner import Traced, TracedBatch, Variant
from mltrainer.tools.program import Events
from mltrainer.trainers.native.job import run_job

MIB = 2**20
WORDS = [f"word{number}" for number in range(20)]
CLOSE, TOO_LOW = 0.15, -0.10  # the aims: so near in nine of ten cases, and never lower than that
Changes = dict[str, Any]


class Family(NamedTuple):
    """Trainings of one model on one data set: the changes of the one that is measured first, and of those that are predicted."""

    data: str
    changes: Changes
    predicted: list[Changes]


CNN, RESNET, VIT = {"model.name": "cnn"}, {"model.name": "resnet"}, {"model.name": "vit"}
AGAIN = {"gradient_checkpointing": [r"^blocks\.\d+$"]}
FAMILIES = {
    "mlp": Family(
        "digits",
        {"model.hidden": [1024, 1024], "batch_size": 64},
        [
            {"batch_size": 512},
            {"optimizer.name": "sgd", "optimizer.lr": 0.01},
            {"batch_size": 16, "accumulate": 4},
            {"model.hidden": [2048, 2048]},
            {"batch_size": 256, "optimizer.name": "rmsprop"},
        ],
    ),
    "wide mlp": Family(
        "images",
        {"model.hidden": [2048, 2048], "batch_size": 64},
        [
            {"batch_size": 256},
            {"optimizer.name": "sgd", "optimizer.lr": 0.01},
            {"optimizer.name": "lion"},
            {"signals": False},
            {"model.hidden": [2048, 2048, 2048]},
        ],
    ),
    "cnn": Family(
        "images",
        {**CNN, "batch_size": 32},
        [
            {"batch_size": 64},
            {"batch_size": 128},
            {"batch_size": 256},
            {"batch_size": 64, "precision": "bf16"},
            {"batch_size": 64, "optimizer.name": "sgd", "optimizer.lr": 0.01},
            {"batch_size": 96},
        ],
    ),
    "resnet": Family(
        "images",
        {**RESNET, "batch_size": 16},
        [
            {"batch_size": 32},
            {"batch_size": 64},
            {"batch_size": 64, **AGAIN},
            {"batch_size": 32, "precision": "bf16"},
            {"batch_size": 48},
        ],
    ),
    "vit": Family(
        "images",
        {**VIT, "batch_size": 32},
        [
            {"batch_size": 64},
            {"batch_size": 128},
            {"batch_size": 128, **AGAIN},
            {"batch_size": 64, "precision": "bf16"},
            {"model.width": 128},
            {"batch_size": 192},
        ],
    ),
    "table mlp": Family("table", {"batch_size": 128}, [{"batch_size": 512}, {"batch_size": 1024}, {"batch_size": 256}]),
    "ft transformer": Family(
        "table",
        {"model.name": "ft_transformer", "batch_size": 64},
        [{"batch_size": 256}, {"batch_size": 512}, {"batch_size": 512, "precision": "bf16"}],
    ),
    "text cnn": Family("texts", {"batch_size": 32}, [{"batch_size": 128}, {"batch_size": 512}, {"batch_size": 256}]),
    "text transformer": Family(
        "texts", {"model.name": "transformer", "batch_size": 16}, [{"batch_size": 64}, {"batch_size": 256}, {"model.layers": 4}]
    ),
    "gru": Family("texts", {"model.name": "gru", "batch_size": 32}, [{"batch_size": 128}, {"batch_size": 64}]),
}


def write_projects(root: Path) -> None:
    """Write a project for each data set: digits, made-up images of 32 pixels, a table and texts."""
    draw = np.random.default_rng(0)
    base = {"seed": 42, "split": {"validation": 0.2, "test": 0.1}, "metric": {"name": "loss", "mode": "min"}}
    images = {"task": {"kind": "image_classification"}, "model": {"name": "mlp", "hidden": [256]}}
    projects = {
        "digits": {**images, "data": {"source": "sklearn:digits"}},
        "images": {**images, "data": {"source": "data.npz"}},
        "table": {
            "task": {"kind": "tabular_classification"},
            "data": {"source": "data.csv", "target": "y"},
            "model": {"name": "tabular_mlp"},
        },
        "texts": {
            "task": {"kind": "text_classification"},
            "data": {"source": "data.csv", "target": "y", "text": "text", "tokens": {"kind": "word", "length": 128}},
            "model": {"name": "text_cnn"},
        },
    }
    for name, values in projects.items():
        (root / name).mkdir(parents=True)
        (root / name / "mltrainer.yaml").write_text(yaml.safe_dump({"name": name, **base, **values}))
    x, y = draw.normal(size=(2500, 3, 32, 32)).astype("float32"), np.arange(2500) % 10
    np.savez(root / "images/data.npz", x=x, y=y)
    rows = [[f"{value:.4f}" for value in draw.normal(size=24)] + [f"c{nr % 3}"] for nr in range(3000)]
    _write_csv(root / "table/data.csv", [*(f"x{nr}" for nr in range(24)), "y"], rows)
    texts = [[" ".join(draw.choice(WORDS, size=int(draw.integers(60, 140)))), f"c{nr % 4}"] for nr in range(1500)]
    _write_csv(root / "texts/data.csv", ["text", "y"], texts)


def _write_csv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def config_of(project: Path, changes: Changes) -> TrainingConfig:
    """Return a project's config with some changes."""
    values = {"epochs": 3, **yaml.safe_load((project / "mltrainer.yaml").read_text())}
    whole = TrainingConfig.model_validate(values).model_dump()
    return validate_values(TrainingConfig, assign(whole, changes.items()), "bench")


class Silent(Events):
    """Tells nobody."""

    def send(self, event: str, **values: Any) -> None:
        """Take an event and drop it."""


def one(what: str, project: Path, changes: Changes) -> None:
    """Trace a config, or train a few real steps of it, in this process, and print what came of it.

    The clock is the process's own CPU seconds, of the one thread that computes: what else the machine does counts not.
    """
    time.perf_counter = time.process_time
    config = config_of(project, changes)
    common: dict[str, Any] = {"run": "plan", "purpose": what, "config": config, "contract": {}, "threads": 1}
    if what == "explore":
        variant = Variant(precision=config.precision, recomputed=config.gradient_checkpointing).model_dump()
        asked: dict[str, Any] = {"question": "plan", "settings": {}, "asked": {"variants": [variant], "again": False}}
        print(json.dumps(traced(ExplorationJob(**common, **asked, folder="scratch"), project, Silent(None)).written()))
        return
    steps = int(tool_page("planner", None).settings["probe_steps"])
    job = TrainingJob(**common, folder=f"probe{os.getpid()}", resumable=True, max_steps=steps)
    result = run_job(job, project, Silent(None), lambda: None, is_launched=True)
    print(json.dumps({"peak_mb": result.memory.peak_rss_mb, "step_us": result.shortest_step_us}))


def child(what: str, project: Path, changes: Changes) -> dict[str, Any]:
    """Return the answer of `one` in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_planner", "--one", what, str(project), json.dumps(changes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if said.returncode:
        raise SystemExit(f"{' '.join(command)}\n{said.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


class Found(NamedTuple):
    """What a config's trace and its real steps gave."""

    config: TrainingConfig
    traced: Traced
    peak_mb: float
    step_us: float

    @property
    def parts(self) -> memory.Parts:
        """Its memory, without the allocator's share."""
        settings = tool_page("planner", None).settings
        step = self.config.batch_size * self.config.accumulate
        held = memory.checkpoints(self.traced.samples, step, int(settings["probe_steps"]))
        setup = Setup(self.config.batch_size, self.config.accumulate, observes=self.config.signals, checkpoints=held)
        found = memory.parts(self.traced, self.traced.variants[0], setup)
        return replace(found, framework=found.framework + float(settings["first_use_mb"]) * MIB)

    @property
    def has_full_steps(self) -> bool:
        """Whether the shortest step that was measured is of a full batch: the last one of an epoch has fewer samples."""
        steps = tool_page("planner", None).settings["probe_steps"]
        return self.traced.samples >= steps * self.config.batch_size * self.config.accumulate

    @property
    def row(self) -> TracedBatch:
        """Its micro-batch."""
        return timing.row_at(self.traced.variants[0].rows, self.config.batch_size)


def found_of(project: Path, changes: Changes) -> Found:
    """Trace and train a config."""
    traced_row, measured = child("explore", project, changes), child("probe", project, changes)
    return Found(config_of(project, changes), Traced.model_validate(traced_row), measured["peak_mb"], measured["step_us"])


def compared(first: Found, other: Found) -> dict[str, Any]:
    """Return a config's predicted and measured peak and step, predicted from the first config's measurement."""
    settings = tool_page("planner", None).settings
    low, usual, high = (float(settings[f"fragmentation_{end}"]) for end in ("low", "usual", "high"))
    shares = memory.Shares(low, usual, high, float(settings["noise_mb"]) * MIB)
    share, framework = memory.calibrated(first.parts, first.peak_mb * MIB, shares)
    parts = other.parts
    predicted = (framework + parts.tensors * (1 + share)) / MIB * (1 + float(settings["headroom"]))
    bounds = [(parts.framework + parts.tensors * (1 + end)) / MIB for end in (low, high)]
    row: dict[str, Any] = {
        "tensors_mb": parts.tensors / MIB,
        "predicted_mb": predicted,
        "measured_mb": other.peak_mb,
        "memory_error": predicted / other.peak_mb - 1,
        "low_mb": bounds[0],
        "high_mb": bounds[1],
        "share": (other.peak_mb * MIB - parts.framework) / parts.tensors - 1,
        "time_error": None,
    }
    if other.config.precision != first.config.precision or not other.has_full_steps:
        return row
    work = [timing.work_s(one.row, one.config.accumulate, first.traced.rates) for one in (first, other)]
    time_us = first.step_us * work[1] / work[0]
    return {**row, "predicted_us": time_us, "measured_us": other.step_us, "time_error": time_us / other.step_us - 1}


def measure(names: list[str], most: int | None, out: Path) -> list[dict[str, Any]]:
    """Measure families, of each at most so many changes, and write each row as it comes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, out.open("a") as file:
        write_projects(Path(folder))
        for name in names:
            family = FAMILIES[name]
            project = Path(folder) / family.data
            first = found_of(project, family.changes)
            for changes in family.predicted[:most]:
                row = {"family": name, "changes": changes, **compared(first, found_of(project, {**family.changes, **changes}))}
                rows.append(row)
                file.write(f"{json.dumps(row)}\n")
                file.flush()
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows and the distribution of their errors as Markdown; the same rows give the same bytes."""
    lines = [
        "| training | changed to | tensors MiB | predicted MiB | measured MiB | error | time error |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        changed = ", ".join(f"`{key}`: {value}" for key, value in row["changes"].items())
        time = "not compared" if row["time_error"] is None else f"{row['time_error']:+.0%}"
        sizes = " | ".join(f"{row[key]:.0f}" for key in ("tensors_mb", "predicted_mb", "measured_mb"))
        lines.append(f"| {row['family']} | {changed} | {sizes} | {row['memory_error']:+.1%} | {time} |")
    return "\n".join([*lines, "", *summary(rows)])


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return the distribution of the errors in sentences."""
    told = [row for row in rows if RECOMPUTED not in row["changes"]]  # of which a plan for a CPU tells no peak
    errors = sorted(row["memory_error"] for row in told)
    times = sorted(row["time_error"] for row in rows if row["time_error"] is not None)
    near = sum(abs(error) <= CLOSE for error in errors)
    shares = sorted(row["share"] for row in rows if row["tensors_mb"] > 50)
    line = f"{len(told)} trainings: peak within {CLOSE:.0%} in {near} ({near / len(told):.0%}), from {errors[0]:+.1%} to "
    line += f"{errors[-1]:+.1%}, median {statistics.median(errors):+.1%}; more than 10 % too low in "
    line += f"{sum(error < TOO_LOW for error in errors)}."
    if again := [row["memory_error"] for row in rows if row not in told]:
        line += f" Of {len(again)} with blocks computed again, which are not told: {min(again):+.1%} to {max(again):+.1%}."
    ranged = sum(row["low_mb"] * 0.95 <= row["measured_mb"] <= row["high_mb"] for row in rows)
    lines = [line, f"Without real steps, {ranged} of {len(rows)} lie in the told range, or at most 5 % below it."]
    if times:
        inside = sum(abs(error) <= 0.2 for error in times)
        lines.append(
            f"{len(times)} step times: within 20 % in {inside} ({inside / len(times):.0%}), from {times[0]:+.0%} to "
            f"{times[-1]:+.0%}, median {statistics.median(times):+.0%}."
        )
    if shares:
        lines.append(
            f"The allocator's share of tensors over 50 MiB: {shares[0]:.2f} to {shares[-1]:.2f}, median "
            f"{statistics.median(shares):.2f}."
        )
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES), help="some of them, with commas")
    parser.add_argument("--changes", type=int, help="at most so many of each family; default: all")
    parser.add_argument("--out", type=Path, default=Path("build/planner.jsonl"), help="rows, as they come")
    parser.add_argument("--show", action="store_true", help="print what that file holds, and measure nothing")
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "PROJECT", "CHANGES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one[0], Path(arguments.one[1]), json.loads(arguments.one[2]))
        return
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.show:
        print(table([json.loads(line) for line in arguments.out.read_text().splitlines()]))
        return
    print(table(measure(arguments.families.split(","), arguments.changes, arguments.out)))


if __name__ == "__main__":
    main()
