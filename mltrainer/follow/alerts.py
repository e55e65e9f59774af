"""Diagnostics while a run trains: at each evaluation, outside the training's process, on the files of the run so far.

A rule about learning waits until half of the run: before, no model has learned enough.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mltrainer.diagnostics.rules import diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.follow.alert_sinks import send
from mltrainer.follow.log import note_alert, read_rows, read_signals
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.records.event import Alert, Event, Tell

AT_ONCE = frozenset(  # rules that hold at any time; the others need a model that had time to learn
    (
        *(
            "bad_initialization",
            "dead_layers",
            "divergence",
            "exploding_gradients",
            "frozen_layers",
            "gradient_underflow",
            "input_scale",
        ),
        *("input_starvation", "leakage", "loss_broadcast", "loss_spike", "memory_growth", "negative_loss", "nan_loss"),
        *("nonfinite_data", "output_activation", "overfitting", "saturation", "train_eval_mismatch", "unshuffled_data"),
    )
)
AT_THE_END = frozenset(("underfitting", "undertrained", "resource_inefficiency"))
HALF = 0.5


class Alerts:
    """Passes a training's events on, and adds an alert for each diagnostic that fires, once.

    Args:
        folder: The run's folder.
        project: The project's folder, whose own pages hold the thresholds; None for the shipped ones.
        config: The run's config, as plain values.
        tell: A function that takes the events.
        pause: The pause after a look at the run, in multiples of the time that the look took.
    """

    def __init__(self, folder: Path, project: Path | None, config: Mapping[str, Any], tell: Tell, pause: float = 20.0) -> None:
        self._folder, self._project, self._config, self._tell, self._pause = folder, project, config, tell, pause
        self._reported: set[str] = set()
        self._due = 0.0

    def __call__(self, event: Event) -> None:
        """Pass on one event; after an evaluation, alerts follow."""
        self._tell(event)
        match event:
            case {"event": "row", "epoch": epoch, "step": step, "steps": steps} if step < steps:  # the end is the report's
                for row in self._fired(step / steps):
                    self._warn(row, epoch, step)

    def _warn(self, fired: Diagnosis, epoch: float, step: int) -> None:
        """Report a diagnostic that fired, once."""
        self._reported.add(fired.id)
        said = Alert(
            run=self._folder.name,
            diagnostic=fired.id,
            epoch=epoch,
            step=step,
            title=fired.title,
            severity=fired.severity,
            reason=fired.reason,
            page=fired.page,
        )
        alert = said.model_dump()
        note_alert(self._folder, alert)
        self._tell(alert)
        send(alert, lambda text: self._tell({"event": "note", "text": text}))

    def _fired(self, share: float) -> list[Diagnosis]:
        begun = time.monotonic()
        if begun < self._due:
            return []
        rows = diagnose(so_far(self._folder, self._config), self._project)
        now = time.monotonic()
        self._due = now + self._pause * (now - begun)
        return [row for row in rows if row.state == "fired" and row.id not in self._reported and may_speak(row.id, share)]


def may_speak(diagnostic: str, share: float) -> bool:
    """Return True if a diagnostic may report on an unfinished run, of which a share from 0 to 1 is done."""
    return diagnostic in AT_ONCE or (share >= HALF and diagnostic not in AT_THE_END)


def so_far(folder: Path, config: Mapping[str, Any]) -> Run:
    """Return a running run in the form that diagnostics read, from the files it has written so far.

    Args:
        folder: The run's folder.
        config: The run's config.
    """
    asked = {"state": "running", "metric": config["metric"], "batch_size": config["batch_size"]}
    return Run.of({**asked, "history": read_rows(folder), **read_signals(folder)}, config=config)
