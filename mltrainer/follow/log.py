"""What a run has written down so far, read from outside its process: for runs that have no result yet."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.errors import MachineError
from mltrainer.reproducibility import fingerprint
from mltrainer.workspace import append_json_line, from_json, read_whole

EVENTS_FILE = "events.jsonl"
MOST_LOG_BYTES = 1 << 27  # 40,000 evaluations, for who only looks
NUMBERS = {"row": ("step", "epoch"), "resume": ("step",), "stopped": ("step",), "worked": ("seconds",)}  # by kind: what is there
TABLES = {"row": ("train", "validation")}
OPTIONAL: dict[str, dict[str, type]] = {  # what may be there, as what
    "row": {"signals": dict, "layer_norms": list, "update_ratios": list},
    "observed": {"layers": list, "start": dict},
    "signals": {"early": dict, "spikes": list},
}
ALERTS_FILE = "alerts.jsonl"  # what diagnostics said while the run trained, written by whoever watched it


@dataclass(frozen=True)
class Log:
    """How far a run has come.

    Attributes:
        steps: Steps whose numbers are on the disk; a training writes them some at a time.
        history: The rows of its evaluations, as its result will hold them.
        interruptions: `step` and `cause` of each earlier end.
    """

    steps: int
    history: list[dict[str, Any]]
    interruptions: list[dict[str, Any]]


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a run's log; a line that is torn, or is no event as a run writes it, is left out."""
    try:
        log = read_whole(folder / EVENTS_FILE, MOST_LOG_BYTES)
    except FileNotFoundError:
        return
    for line in io.BytesIO(log):
        try:
            found = from_json(line)
        except ValueError:
            continue
        if is_event(found):
            yield found


def is_event(found: Any) -> bool:
    """Return True if a value is a well-formed event: an object with its kind and the fields that readers rely on."""
    if not isinstance(found, dict) or not isinstance(kind := found.get("event"), str):
        return False
    numbers = all(_is_number(found.get(key)) for key in NUMBERS.get(kind, ()))
    tables = all(isinstance(found.get(key), dict) for key in TABLES.get(kind, ()))
    return numbers and tables and all(isinstance(found.get(key) or of(), of) for key, of in OPTIONAL.get(kind, {}).items())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def note_alert(folder: Path, alert: dict[str, Any]) -> None:
    """Append an alert to a run's alerts, which `mltrainer monitor` shows to who looks later; they are no evidence."""
    with contextlib.suppress(OSError, MachineError):
        append_json_line(folder / ALERTS_FILE, alert)


def read_log(folder: Path) -> Log:
    """Return a run's steps, evaluations and interruptions so far; those undone by going back to a checkpoint left out."""
    rows: dict[int, dict[str, Any]] = {}
    for event in read_events(folder):
        rows = rows_after(rows, event)
    return Log(_steps(folder), list(rows.values()), interruptions(folder))


def rows_after(rows: dict[int, dict[str, Any]], event: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the evaluations by step after one more event of the log; the rows that are given may change."""
    if event.get("event") == "row":
        rows[event["step"]] = {key: value for key, value in event.items() if key != "event"}
    elif event.get("event") == "resume":
        return {step: row for step, row in rows.items() if step <= event["step"]}
    return rows


def read_signals(folder: Path) -> dict[str, Any]:
    """Return the signals and facts of a run up to its last evaluation, under the keys of its result."""
    found: dict[str, Any] = {}
    for event in read_events(folder):
        if event.get("event") in ("observed", "signals"):
            found |= event
    signals = {key: found[key] for key in ("start", "early", "spikes") if found.get(key) is not None}
    facts: dict[str, Any] = {key: found[key] for key in ("layers", "train_samples", "first_loss") if key in found}
    return {**facts, "signals": signals or None}


def interruptions(folder: Path) -> list[dict[str, Any]]:
    """Return `step` and `cause` of each earlier end of a run; a process that was killed wrote nothing, the next one did."""
    steps: dict[int, dict[str, Any]] = {}
    for event in read_events(folder):
        if event["event"] in ("stopped", "resume"):
            steps.setdefault(event["step"], {"step": event["step"], "cause": event.get("cause")})
    return list(steps.values())


def seconds_worked(folder: Path) -> float:
    """Return the seconds that all processes of a run worked; of a killed one, up to its last evaluation."""
    times: list[float] = []
    for event in read_events(folder):
        if event["event"] == "began":
            times.append(0.0)
        elif event["event"] == "worked" and times:
            times[-1] = event["seconds"]
    return sum(times)


def _steps(folder: Path) -> int:
    steps = [line.split(" ", 1)[0] for line in fingerprint.read(folder / fingerprint.CHAIN_FILE) if not line.startswith("w ")]
    return int(steps[-1]) if steps else 0
