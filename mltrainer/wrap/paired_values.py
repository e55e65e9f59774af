"""The values of two runs of a process, side by side: events, and by variable which of them changed it, alike or otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from mltrainer.observe.values import RETURNED

Place = tuple[str, int]  # file and line
Pair = tuple[str, str]  # digests of a value in both runs
MAIN = "MainThread"


class Variable(NamedTuple):
    """A variable: of a frame, by its number; of a module, by its file; of all objects of a class, or of all, with neither."""

    frame: int
    file: str
    name: str


RESULT = Variable(0, "", RETURNED)  # of a call
NO_VARIABLE = Variable(0, "", "")  # what a generator draws, or has no digest


class Change(NamedTuple):
    """A change of a variable: the event after which it was seen, and whether lines before that were not looked at."""

    event: int
    is_different: bool
    is_skipped: bool


class Moment(NamedTuple):
    """When a line began or ended, and its event; None where the other run has none."""

    time: int
    frame: int
    line: int
    event: int | None


class Event(NamedTuple):
    """A line that begins, a call or a return; `began` is the event at which the frame's line that has now ended began."""

    time: int
    thread: str
    frame: int
    caller: int
    kind: str
    line: int
    began: int | None


class PairedValues:
    """The values of two runs of a process, side by side.

    Args:
        one: The first run's rows.
        other: The second run's.

    Attributes:
        events: Of both runs, in the order of the first.
        changes: By variable, in order.
        in_frame: The numbers of each frame's events.
        callers: By frame, the one that called it; 0 for none.
        called_at: By file and function, the lines that called it.
        parted_at: By event, the variables that were seen to have changed otherwise in each run.
        parting: By frame, the last event before the two runs take different ways.
        attributes: Those of objects, by their own names.
        functions: Each frame's.
    """

    def __init__(self, one: list[list[Any]], other: list[list[Any]]) -> None:
        self._files: dict[int, str] = {row[2]: row[3] for row in one if row[1] == "frame"}
        self.functions: dict[int, str] = {row[2]: row[4] for row in one if row[1] == "frame"}
        self.events: list[Event] = []
        self.changes: dict[Variable, list[Change]] = {}
        self._last_pair: dict[Variable, Pair] = {}
        self.in_frame: dict[int, list[int]] = {}
        self.parted_at: dict[int, list[Variable]] = {}
        self.callers: dict[int, int] = {}
        self.called_at: dict[tuple[str, str], set[Place]] = {}
        self._moments: list[Moment] = []
        self.parting: dict[int, int] = {}
        self._read(one, other)
        self.attributes: dict[str, list[Variable]] = {}
        for variable in self.changes:
            if not variable.frame and not variable.file and "." in variable.name:
                self.attributes.setdefault(plain(variable), []).append(variable)

    def _read(self, one: list[list[Any]], other: list[list[Any]]) -> None:
        keys, theirs = _frame_keys(one), _frame_keys(other)
        by_key: dict[Any, list[list[Any]]] = {}
        for row in _of_values(other):
            by_key.setdefault(theirs[row[3]], []).append(row)
        partners = {key: iter(rows) for key, rows in by_key.items()}
        seen: dict[int, dict[str, Pair]] = {}
        for row in _of_values(one):
            frame = row[3]
            self.callers[frame] = row[4]
            partner = next(partners.get(keys[frame], iter(())), None) if frame not in self.parting else None
            if partner is None or row[5:7] != partner[5:7]:
                self.parting.setdefault(frame, self.in_frame.get(frame, [-1])[-1])
                self._moments.append(Moment(row[0], frame, row[6], None))
                continue
            self._moments.append(Moment(row[0], frame, row[6], len(self.events)))
            self._add(row, partner, seen.setdefault(frame, {}))

    def _add(self, row: list[Any], partner: list[Any], seen: dict[str, Pair]) -> None:
        """Add an event, and the changes that its frame sees: another frame may see one of the same variable later."""
        time, _, thread, frame, caller, kind, line, changes, is_skipped = row
        before = self.in_frame.setdefault(frame, [])
        number = len(self.events)
        if kind == "call" and caller in self.in_frame:
            self.called_at.setdefault(self.function(frame), set()).add(self.place(self.in_frame[caller][-1]))
        self.events.append(Event(time, thread, frame, caller, kind, line, before[-1] if before else None))
        before.append(number)
        for name in dict.fromkeys([*changes, *partner[7]]):
            left, right = seen.get(name, ("", ""))
            pair = seen[name] = changes.get(name, left), partner[7].get(name, right)
            variable = self._variable(frame, name)
            if self._last_pair.get(variable) != pair:
                self._last_pair[variable] = pair
                if pair[0] != pair[1]:
                    self.parted_at.setdefault(number, []).append(variable)
                self.changes.setdefault(variable, []).append(Change(number, pair[0] != pair[1], is_skipped))

    def _variable(self, frame: int, name: str) -> Variable:
        if name == RETURNED:
            return Variable(frame, "", name)
        if name.startswith(":"):
            return Variable(0, self._files.get(frame, ""), name)
        return Variable(0 if name.startswith("<") or "." in name[1:] else frame, "", name)

    def moment(self, place: Place, time: int) -> Moment | None:
        """Return the last time before a moment, of the first run's clock, at which a line began; None for never."""
        before = (moment for moment in reversed(self._moments) if moment.time <= time)
        return next((one for one in before if (self._files.get(one.frame, ""), one.line) == place), None)

    def parted(self, frame: int) -> int | None:
        """Return the last event before the runs took different ways in a frame or in those that called it; None for nowhere."""
        while frame and self.parting.get(frame, -1) < 0:
            frame = self.callers.get(frame, 0)
        return self.parting.get(frame)

    def is_line(self, event: int) -> bool:
        """Return True where an event is a line that begins."""
        return self.events[event].kind == "line"

    def function(self, frame: int) -> tuple[str, str]:
        """Return the file and the name of a frame's function."""
        return self._files.get(frame, ""), self.functions.get(frame, "")

    def frame(self, event: int) -> int:
        """Return the frame of an event."""
        return self.events[event].frame

    def place(self, event: int) -> Place:
        """Return the file and line of an event."""
        return self._files.get(self.events[event].frame, ""), self.events[event].line

    def end(self, event: int) -> int:
        """Return the event at which the line that begins at one has ended."""
        in_frame = self.in_frame[self.events[event].frame]
        place = in_frame.index(event)
        return in_frame[place + 1] if place + 1 < len(in_frame) else len(self.events)

    def is_different(self, variable: Variable, event: int) -> bool:
        """Return True where a variable differs between the runs at an event."""
        last = self.last(variable, event)
        return last is not None and last.is_different

    def last(self, variable: Variable, event: int) -> Change | None:
        """Return the last change of a variable up to an event; None where none was seen."""
        return next((c for c in reversed(self.changes.get(variable, [])) if c.event <= event), None)


def plain(variable: Variable) -> str:
    """Return a variable's name as its source has it; of an attribute its own."""
    return variable.name.lstrip(":").rpartition(".")[2]


def _of_values(rows: list[list[Any]]) -> Iterator[list[Any]]:
    return (row for row in rows if row[1] == "value")


def _frame_keys(rows: list[list[Any]]) -> dict[int, Any]:
    """Return the keys by which the same frame is found in each run: its caller, its function, and its number among those.

    What a thread begins with is named by what it is given, too: which thread of a pool does which work is chance.
    """
    functions = {row[2]: (os.path.basename(row[3] or ""), row[4]) for row in rows if row[1] == "frame"}
    keys: dict[int, Any] = {}
    counts: dict[Any, int] = {}
    for _, _, thread, frame, caller, _, _, changes, _ in _of_values(rows):
        if frame not in keys:
            is_work = not caller and thread != MAIN
            given = sorted((name, value) for name, value in changes.items() if name.isidentifier()) if is_work else ()
            key = (keys.get(caller), functions.get(frame), tuple(given))
            counts[key] = counts.get(key, -1) + 1
            keys[frame] = (*key, counts[key])
    return keys
