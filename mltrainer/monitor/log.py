"""A run's evaluations and what its trainer told at the start, followed as its log grows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mltrainer.diagnostics.signals import number
from mltrainer.follow.log import EVENTS_FILE, is_event, rows_after
from mltrainer.monitor.tail import Tail
from mltrainer.workspace import from_json

KINDS = ("row", "resume", "observed", "stopped")  # the others, which are longer, are not read

Row = dict[str, Any]


class Log:
    """What a run has written of itself.

    Args:
        folder: The run's folder.

    Attributes:
        rows: Its evaluations, as `slim` returns them; those after a checkpoint that it went back to are left out.
        observed: `layers` and `train_samples`, once they are known.
        stopped: Where its processes ended before it did.
        times_back: How often rows were taken back.
    """

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder / EVENTS_FILE)
        self._by_step: dict[int, Row] = {}
        self.rows: list[Row] = []
        self.observed: Row = {}
        self.stopped: list[Row] = []
        self.times_back = 0

    def poll(self) -> bool:
        """Take what is new; return whether anything is."""
        anew, data = self._tail.read()
        if not (anew or data):
            return False
        if anew:
            self._by_step, self.stopped = {}, []
        for event in filter(is_event, read_lines(data, KINDS)):
            self._take(event)
        before, self.rows = self.rows, list(self._by_step.values())
        self.times_back += self.rows[: len(before)] != before
        return True

    def _take(self, event: Row) -> None:
        if event["event"] == "observed":
            self.observed = {key: event.get(key) for key in ("layers", "train_samples")}
        elif event["event"] == "stopped":
            self.stopped.append(event)
        else:
            self._by_step = rows_after(self._by_step, {"event": "row", **slim(event)} if event["event"] == "row" else event)


def read_lines(data: bytes, kinds: tuple[str, ...] = ()) -> Iterator[Row]:
    """Yield the JSON objects of whole lines; of some kinds of events alone, where these are given."""
    heads = tuple(f'{{"event": "{kind}"'.encode() for kind in kinds)
    for line in data.splitlines():
        if not kinds or line.startswith(heads):
            with contextlib.suppress(ValueError):
                found = from_json(line)
                if isinstance(found, dict):
                    yield found


def slim(row: Mapping[str, Any]) -> Row:
    """Return the fields of an evaluation for the screen; numbers that are not finite are None."""
    numbers = {key: _finite(row.get(key)) for key in ("lr", "train_loss", "samples_per_s", "data_wait", "clipped", "seconds")}
    memory = row.get("memory_mb") or (row.get("signals") or {}).get("memory_mb")  # the latter alone before version 0.3
    return {
        "epoch": row.get("epoch"),
        "step": row["step"],
        **numbers,
        "train": {key: _finite(value) for key, value in (row.get("train") or {}).items()},
        "validation": {key: _finite(value) for key, value in (row.get("validation") or {}).items()},
        "layer_norms": [_finite(value) for value in row.get("layer_norms") or []],
        "update_ratios": [_finite(value) for value in row.get("update_ratios") or []],
        "memory_mb": _finite(memory),
    }


def _finite(value: Any) -> float | None:
    found = number(value)
    return float(f"{found:.6g}") if math.isfinite(found) else None
