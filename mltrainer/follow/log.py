"""A run's log of events, read from outside its process: as a whole, or the new lines only."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mltrainer.diagnostics.signals import number
from mltrainer.errors import MachineError
from mltrainer.follow.tail import Tail
from mltrainer.records.event import Event
from mltrainer.records.partial import partial
from mltrainer.records.run import Interruption, RepeatDifference
from mltrainer.reproducibility import fingerprint
from mltrainer.workspace import append_json_line, from_json, is_number, plain, read_whole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

EVENTS_FILE = "events.jsonl"
MOST_LOG_BYTES = 1 << 27  # bytes, some 40,000 evaluations, for commands that only look
NUMBERS = {"row": ("step", "epoch"), "resume": ("step",), "stopped": ("step",), "worked": ("seconds",)}  # required, by kind
TABLES = {"row": ("train", "validation")}
OPTIONAL: dict[str, dict[str, type]] = {  # optional fields with their types, by kind
    "row": {"signals": dict, "layer_norms": list, "update_ratios": list},
    "observed": {"layers": list, "start": dict},
    "resume": {"first": int, "last": int},
    "signals": {"early": dict, "spikes": list},
}
KINDS = ("row", "resume", "observed", "stopped")  # the kinds for following a run; the others, which are longer, are not parsed
ALERTS_FILE = "alerts.jsonl"  # diagnostics' alerts while the run trained, written by the process that watched it

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")


@dataclass(frozen=True)
class ShownEvaluation:
    """An evaluation for the screen, with fields of `HistoryRow`; a number that is not finite is None."""

    epoch: float | None = None
    step: int = 0
    lr: float | None = None
    train_loss: float | None = None
    samples_per_s: float | None = None
    data_wait: float | None = None
    clipped: float | None = None
    seconds: float | None = None
    train: Mapping[str, float | None] = field(default_factory=dict)
    validation: Mapping[str, float | None] = field(default_factory=dict)
    terms: Mapping[str, float | None] = field(default_factory=dict)
    layer_norms: list[float | None] = field(default_factory=list)
    update_ratios: list[float | None] = field(default_factory=list)
    memory_mb: float | None = None
    loss_scale: float | None = None


@dataclass(frozen=True)
class Observed:
    """A run's first facts, once they are known: its layers, the number of its training samples, and the tokens of each."""

    layers: list[str] | None = None
    train_samples: int | None = None
    tokens_per_sample: int | None = None


def known(kind: type[D], content: Mapping[str, Any]) -> D:
    """Return a dataclass filled from a file's entries of its fields' names; missing or null entries keep the defaults."""
    names = [one.name for one in fields(kind)]
    return kind(**{name: plain(value) for name in names if (value := content.get(name)) is not None})


def read_events(folder: Path, kinds: tuple[str, ...] = ()) -> Iterator[Event]:
    """Yield the events of a run's log; see `events_of`."""
    with contextlib.suppress(FileNotFoundError):
        yield from events_of(read_whole(folder / EVENTS_FILE, MOST_LOG_BYTES), kinds)


def events_of(data: bytes, kinds: tuple[str, ...] = ()) -> Iterator[Event]:
    """Yield the events of lines, only of `kinds` where these are given; torn or malformed lines are left out."""
    # By the beginning of a line, as the writer puts the kind first: parsing the whole line takes long.
    return filter(is_event, read_lines(data, tuple(f'{{"event": "{kind}"'.encode() for kind in kinds)))


def read_lines(data: bytes, heads: tuple[bytes, ...] = ()) -> Iterator[Event]:
    """Yield the JSON objects of lines, only of lines that begin with one of `heads`, where these are given."""
    for line in data.split(b"\n"):
        if line and (not heads or line.startswith(heads)):
            with contextlib.suppress(ValueError):
                found = from_json(line)
                if isinstance(found, dict):
                    yield found


def is_event(found: Event) -> bool:
    """Return True if an object is a well-formed event: with its kind and the fields that readers rely on."""
    if not isinstance(kind := found.get("event"), str):
        return False
    numbers = all(_is_number(found.get(key)) for key in NUMBERS.get(kind, ()))
    tables = all(isinstance(found.get(key), dict) for key in TABLES.get(kind, ()))
    return numbers and tables and all(isinstance(found.get(key) or of(), of) for key, of in OPTIONAL.get(kind, {}).items())


def _is_number(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def note_alert(folder: Path, alert: Event) -> None:
    """Append an alert to a run's file of alerts, which `mltrainer monitor` shows later; alerts are no evidence."""
    with contextlib.suppress(OSError, MachineError):
        append_json_line(folder / ALERTS_FILE, alert)


def _whole_row(event: Event) -> Event:
    return {key: value for key, value in event.items() if key != "event"}


class Log(Generic[T]):
    """A run's evaluations, interruptions and first facts, followed as its log grows.

    Args:
        folder: The run's folder.
        kept: A function from an evaluation's event to the row that is kept.

    Attributes:
        rows: The evaluations, as the result will hold them; those after a checkpoint that the run went back to are left out.
        observed: The run's first facts.
        stopped: The events of its processes that ended before it did.
        times_back: The number of times that rows were taken back.
        left_out: The first and the last step that the run left out, each time that it went back at a spike.
    """

    def __init__(self, folder: Path, kept: Callable[[Event], T]) -> None:
        self._tail, self._kept = Tail(folder / EVENTS_FILE), kept
        self._by_step: dict[int, T] = {}
        self.rows: list[T] = []
        self.observed = Observed()
        self.stopped: list[Event] = []
        self.times_back = 0
        self.left_out: list[tuple[int, int]] = []

    def poll(self) -> bool:
        """Read the new events, and return whether there were any."""
        has_restarted, data = self._tail.read()
        if not (has_restarted or data):
            return False
        if has_restarted:
            self._by_step, self.stopped, self.left_out = {}, [], []
        self.take(events_of(data, KINDS))
        return True

    def take(self, events: Iterable[Event]) -> None:
        """Take in events of the kinds `KINDS`."""
        for event in events:
            self._take(event)
        before, self.rows = self.rows, list(self._by_step.values())
        self.times_back += self.rows[: len(before)] != before

    def _take(self, event: Event) -> None:
        match event:
            case {"event": "row", "step": step}:
                self._by_step[step] = self._kept(event)
            case {"event": "resume", "step": begun}:
                self._by_step = {step: row for step, row in self._by_step.items() if step <= begun}
                if event.get("first"):
                    self.left_out.append((event["first"], event["last"]))
            case {"event": "stopped"}:
                self.stopped.append(event)
            case {"event": "observed"}:
                self.observed = known(Observed, event)


def read_rows(folder: Path) -> list[Event]:
    """Return a run's evaluations so far, without those undone by going back to a checkpoint."""
    log = Log(folder, _whole_row)
    log.take(read_events(folder, KINDS))
    return log.rows


def read_signals(folder: Path) -> Event:
    """Return the signals and facts of a run up to its last evaluation, under the keys of its result."""
    found: Event = {}
    for event in read_events(folder, ("observed", "signals")):
        found |= event
    signals = {key: found[key] for key in ("start", "early", "spikes") if found.get(key) is not None}
    facts: Event = {key: found[key] for key in ("layers", "train_samples", "first_loss") if key in found}
    return {**facts, "signals": signals or None}


def interruptions(folder: Path) -> list[Interruption]:
    """Return the interruptions of a run; that of a killed process was written by the next one."""
    stops: dict[int, Interruption] = {}
    for event in read_events(folder, ("stopped", "resume")):
        stop = partial(Interruption, {"cause": None, **event})
        # The process's own event comes before the next one's, which counts only where the process was killed.
        stops.setdefault(stop.step, stop)
    return list(stops.values())


def seconds_worked(folder: Path) -> float:
    """Return the seconds that all processes of a run worked; a killed one counts up to its last evaluation."""
    return sum(number(event["seconds"]) for event in _work_events(folder))


def steps_compared(folder: Path) -> int:
    """Return the number of steps that all processes of a run computed twice; a killed one counts up to its last evaluation."""
    return sum(event.get("compared", 0) for event in _work_events(folder))


def differences_found(folder: Path) -> list[RepeatDifference]:
    """Return the steps of a run that gave other bits when they were computed again."""
    return [partial(RepeatDifference, event) for event in read_events(folder, ("differed",))]


def _work_events(folder: Path) -> list[Event]:
    """Return the last event of each process of a run that says how much it did."""
    found: list[Event] = []
    for event in read_events(folder, ("began", "worked")):
        if event["event"] == "began":
            found.append({"seconds": 0.0})
        elif found:
            found[-1] = event
    return found


def steps_written(folder: Path) -> int:
    """Return the number of steps whose numbers are on the disk; a training writes several steps at a time."""
    steps = [line.split(" ", 1)[0] for line in fingerprint.read(folder / fingerprint.CHAIN_FILE) if not line.startswith("w ")]
    return int(steps[-1]) if steps else 0


def slim(content: Mapping[str, Any]) -> ShownEvaluation:
    """Return an evaluation for the screen."""
    row = known(ShownEvaluation, content)
    shown = {name: _finite(value) for name, value in vars(row).items() if name not in ("step", "epoch")}
    return replace(row, **shown)


def _finite(value: Any) -> Any:
    """Return a number with six digits, None where it is not finite; in a list or a table, each number so."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    found = number(value)
    return float(f"{found:.6g}") if math.isfinite(found) else None
