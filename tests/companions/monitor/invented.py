"""A training that only writes: the files of a run, as its trainer writes them while it goes on."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mltrainer.follow.log import EVENTS_FILE, note_alert
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head, step_entry, weights_entry
from mltrainer.runs.contract import RESULT_FILE
from mltrainer.workspace import Project, locked, pretty_json, seal

STEPS_PER_EPOCH = 20
PROJECT = """name: invented
task: {kind: image_classification}
data: {source: 'sklearn:digits'}
model: {name: mlp}
metric: {name: accuracy, mode: max}
"""


def chain(folder: Path, losses: list[float], first: int = 1, head: Head | None = None) -> Head:
    """Append steps to a run's chain as a trainer does, and the digest of the weights behind them."""
    entries = [step_entry(first + nr, "0123456789abcdef", loss, loss / 2) for nr, loss in enumerate(losses)]
    head, lines = fingerprint.extend(head or Head(), [*entries, weights_entry(first + len(losses) - 1, "ab" * 32)])
    fingerprint.append(folder / fingerprint.CHAIN_FILE, lines)
    return head


class Training:
    """A run of a project that is being trained.

    Args:
        project: The project.
        run: The run's id, 12 hex digits.
        phase: That trains it.
        config: Changes of its config.
    """

    def __init__(self, project: Project, run: str = "0123456789ab", phase: str = "baseline", **config: Any) -> None:
        self.folder, self.run = project.runs_dir / run, run
        plain = {"metric": {"name": "accuracy", "mode": "max"}, "batch_size": 50, "accumulate": 1, "epochs": 10, **config}
        job = {"run": run, "phase": phase, "config": plain, "contract": {}}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "job.json").write_bytes(pretty_json(job))  # as it is, also with what looks like a secret
        self._head, self.step = Head(), 0
        self.log("began", step=0)
        self.log("observed", layers=["first.weight", "second.weight"], train_samples=1000, start=None, tokens_per_sample=64)

    def log(self, event: str, **values: Any) -> None:
        """Append to the run's log."""
        with open(self.folder / EVENTS_FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **values}) + "\n")

    def steps(self, *losses: float) -> None:
        """Train so many steps."""
        self._head = chain(self.folder, list(losses), self.step + 1, self._head)
        self.step += len(losses)

    def evaluate(
        self, accuracy: float, train: float | None = None, beside: Mapping[str, float] | None = None, **more: Any
    ) -> None:
        """Measure the model, on the training set with another accuracy where one is given; `beside` are further metrics."""
        values = {"loss": 1 - accuracy, "accuracy": accuracy, **(beside or {})}
        shown = {"lr": 0.1, "train_loss": 1 - accuracy, "samples_per_s": 1e4, "data_wait": 0.01, "clipped": 0.0, "seconds": 0.1}
        layers = {"layer_norms": [0.5, 0.25], "update_ratios": [0.01, 0.02]}
        row = {"epoch": self.step // STEPS_PER_EPOCH, "step": self.step, **shown, **layers}
        measured = {"train": values if train is None else {**values, "accuracy": train}, "validation": values}
        self.log("row", **{**row, **measured, "memory_mb": 300.0, **more})

    def epoch(self, accuracy: float) -> None:
        """Train and measure an epoch."""
        self.steps(*[1 - accuracy] * STEPS_PER_EPOCH)
        self.evaluate(accuracy)

    def warn(self, diagnostic: str = "loss_spike", **values: Any) -> None:
        """Let a diagnostic speak."""
        place = {"epoch": self.step // STEPS_PER_EPOCH, "step": self.step}
        shown = {"title": "Loss spike", "severity": "warning", "reason": "So.", "page": "diagnostics/loss_spike.md"}
        note_alert(self.folder, {"event": "alert", "run": self.run, "diagnostic": diagnostic, **place, **shown, **values})

    def end(self, **result: Any) -> None:
        """End with a sealed result."""
        (self.folder / RESULT_FILE).write_bytes(pretty_json(seal({"id": self.run, "state": "finished", **result})))

    @contextlib.contextmanager
    def living(self) -> Iterator[None]:
        """Be at work for the length of a block."""
        with locked(self.folder / "lock", "the run"):
            yield


SPACE = {"optimizer.lr": {"log_uniform": [0.001, 0.1]}, "model.name": {"choice": ["cnn", "mlp"]}}
SEARCHED = ((0.01, "mlp", 0.5), (0.1, "cnn", 0.25), (0.03, "mlp", 0.75))


def searched(project: Project) -> list[Training]:
    """Write a search that was interrupted after three trials, and a run on another seed beside them; return the trials."""
    config = {"metric": {"name": "accuracy", "mode": "max"}, "batch_size": 50, "accumulate": 1, "epochs": 10}
    folder = project.state_dir / "studies/0123456789ab"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(pretty_json({"space": SPACE, "config": {**config, "optimizer": {"lr": 0.02}, "seed": 1}}))
    trials = []
    for nr, (rate, model, accuracy) in enumerate(SEARCHED):
        changes = {"optimizer": {"lr": rate}, "model": {"name": model}, "seed": 1}
        trials.append(Training(project, f"{nr + 1:012x}", "optimization", **changes))
        trials[-1].epoch(accuracy)
        os.utime(trials[-1].folder / "job.json", (nr, nr))  # in this order
    Training(project, "f" * 12, "optimization", epochs=20, seed=7).epoch(0.9)
    return trials


def histograms(shift: float = 0.0) -> dict[str, Any]:
    """Return the signals of an evaluation whose layers' values lie from -1 to 1, and so much to the right."""
    one = {"low": -1 + shift, "high": 1 + shift, "counts": [1, 4, 2, 0]}
    return {"validation": {"distributions": {"weights": {"first.weight": one}, "activations": {"first": one}}}}


def empty_project(folder: Path) -> Project:
    """Write a project in which nothing has been trained."""
    (folder / "mltrainer.yaml").write_text(PROJECT, "utf-8")
    return Project(folder)
