"""The values of two runs of a process, side by side: events, and by variable which of them changed it, alike or otherwise."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from mltrainer.companions.wrap.passing import Function
from mltrainer.observe.values import RETURNED

Place = tuple[str, int]  # file and line
Pair = tuple[str, str]  # digests of a value in both runs
MAIN = "MainThread"


class Variable(NamedTuple):
    """A variable: of a frame, by its number; of a module, by its file; of all objects of a class, or of all, with neither."""

    frame: int
    file: str
    name: str


RESULT = Variable(0, "", RETURNED)  # the result of a call
NO_FUNCTION = Function("")
NO_VARIABLE = Variable(0, "", "")  # a generator's draw, or a value without digest


class Change(NamedTuple):
    """A change of a variable: the event after which it was seen, and whether lines before that were not looked at."""

    event: int
    pair: Pair
    is_skipped: bool

    @property
    def is_different(self) -> bool:
        """Whether it made the variable differ between the runs."""
        return self.pair[0] != self.pair[1]


class Moment(NamedTuple):
    """When a line began or ended, and its event; None where the other run has none."""

    time: int
    frame: int
    kind: str
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
        one: Rows of the first run.
        other: Rows of the second run.

    Attributes:
        events: Events of both runs, in the order of the first.
        changes: Changes by variable, in order.
        in_frame: Numbers of each frame's events.
        callers: Calling frame by frame; 0 for none.
        called_at: Calling lines by file and function.
        parted_at: Variables whose changes differ between the runs, by event.
        parting: Last event before the runs take different ways, by frame.
        attributes: Variables that are attributes of objects, by attribute name.
        first_seen: Event at which a variable first held a differing value, by the value's digests.
        functions: Functions by frame.
    """

    def __init__(self, one: list[list[Any]], other: list[list[Any]]) -> None:
        self._files: dict[int, str] = {row[2]: row[3] for row in one if row[1] == "frame"}
        self.functions = {row[2]: _function(*row[4:]) for row in one if row[1] == "frame"}
        self._homes: dict[tuple[int, str], int] = {}  # of free variables, by frame and name: the frame that has them
        self._frames_of: dict[tuple[str, str], list[int]] = {}  # by file and function, in their order
        self.events: list[Event] = []
        self.changes: dict[Variable, list[Change]] = {}
        self._last_pair: dict[Variable, Pair] = {}
        self.in_frame: dict[int, list[int]] = {}
        self.parted_at: dict[int, list[Variable]] = {}
        self.callers: dict[int, int] = {}
        self.called_at: dict[tuple[str, str], set[Place]] = {}
        self._moments: list[Moment] = []
        self.first_seen: dict[Pair, tuple[int, Variable]] = {}
        self.parting: dict[int, int] = {}
        self._read(one, other)
        self.attributes: dict[str, list[Variable]] = {}
        for variable in self.changes:
            if not variable.frame and not variable.file and "." in variable.name:
                self.attributes.setdefault(plain(variable), []).append(variable)

    def _read(self, one: list[list[Any]], other: list[list[Any]]) -> None:
        mine, others = _works(one), _works(other)
        shared = {work for each in mine.values() for work in each} & {work for each in others.values() for work in each}
        keys, theirs = _frame_keys(one, mine, shared), _frame_keys(other, others, shared)
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
                self._moments.append(Moment(row[0], frame, row[5], row[6], None))
                continue
            self._moments.append(Moment(row[0], frame, row[5], row[6], len(self.events)))
            self._add(row, partner, seen.setdefault(frame, {}))

    def _add(self, row: list[Any], partner: list[Any], seen: dict[str, Pair]) -> None:
        """Add an event, and the changes that its frame sees: another frame may see one of the same variable later."""
        time, _, thread, frame, caller, kind, line, changes, is_skipped = row
        before = self.in_frame.setdefault(frame, [])
        number = len(self.events)
        if kind == "call" and caller in self.in_frame:
            self.called_at.setdefault(self.function(frame), set()).add(self.place(self.in_frame[caller][-1]))
        # A coroutine goes on with a call: the line that waited began before.
        began = next((n for n in reversed(before) if self.is_line(n)), None) if kind != "call" else None
        self.events.append(Event(time, thread, frame, caller, kind, line, began))
        if not before:
            self._frames_of.setdefault(self.function(frame), []).append(frame)
        before.append(number)
        for name in dict.fromkeys([*changes, *partner[7]]):
            left, right = seen.get(name, ("", ""))
            pair = seen[name] = changes.get(name, left), partner[7].get(name, right)
            variable = self._noted(frame, name, pair)
            if self._last_pair.get(variable) != pair:
                self._last_pair[variable] = pair
                if pair[0] != pair[1]:
                    self.parted_at.setdefault(number, []).append(variable)
                    self.first_seen.setdefault(pair, (number, variable))
                self.changes.setdefault(variable, []).append(Change(number, pair, is_skipped))

    def _noted(self, frame: int, name: str, pair: Pair) -> Variable:
        if name == RETURNED:
            return Variable(frame, "", name)
        if name.startswith(":"):
            return Variable(0, self._file(frame), name)
        if name.startswith("<") or "." in name[1:]:
            return Variable(0, "", name)
        if (frame, name) not in self._homes:
            self._homes[frame, name] = self._home(frame, name, pair)
        return self.variable(frame, name)

    def _home(self, frame: int, name: str, pair: Pair) -> int:
        """Return the frame that has a variable: of a free one the last of the function around it in which it has this value."""
        function = self.functions.get(frame, NO_FUNCTION)
        if name not in function.free:
            return frame
        around = reversed(self._frames_of.get((self.function(frame)[0], function.around), []))
        found = [self.variable(each, name) for each in around]
        known = [variable for variable in found if variable in self._last_pair]
        return next((v for v in known if self._last_pair[v] == pair), known[0] if known else Variable(frame, "", name)).frame

    def owner(self, frame: int, name: str) -> int:
        """Return the frame that has a variable without a digest: of a free one the last of the function around it."""
        function = self.functions.get(frame, NO_FUNCTION)
        around = self._frames_of.get((self._file(frame), function.around), []) if name in function.free else []
        return self.owner(around[-1], name) if around and around[-1] != frame else frame

    def variable(self, frame: int, name: str) -> Variable:
        """Return the variable that a name is in a frame: a free one is that of the function around it."""
        return Variable(self._homes.get((frame, name), frame), "", name)

    def moment(self, place: Place, time: int) -> Moment | None:
        """Return the beginning of the line that runs at a moment, on the first run's clock; None where none does."""
        last: dict[int, str] = {}
        for moment in reversed(self._moments[: bisect_right(self._moments, time, key=lambda moment: moment.time)]):
            # A frame whose last seen event is a return has ended, or waits to be resumed.
            if last.setdefault(moment.frame, moment.kind) != "return" and (self._file(moment.frame), moment.line) == place:
                return moment
        return None

    def number_at(self, time: int) -> int:
        """Return the last event at a moment, on the first run's clock; -1 where there was none by then."""
        return bisect_right(self.events, time, key=lambda event: event.time) - 1

    def parted(self, frame: int) -> int | None:
        """Return the last event before the runs took different ways in a frame or in those that called it; None for nowhere."""
        while frame and self.parting.get(frame, -1) < 0:
            frame = self.callers.get(frame, 0)
        return self.parting.get(frame)

    def above(self, frame: int) -> Iterator[int]:
        """Yield the frames that called one, the nearest first."""
        while frame := self.callers.get(frame, 0):
            yield frame

    def is_line(self, event: int) -> bool:
        """Return True where an event is a line that begins."""
        return self.events[event].kind == "line"

    def _file(self, frame: int) -> str:
        return self._files.get(frame, "")

    def function(self, frame: int) -> tuple[str, str]:
        """Return the file and the name of a frame's function."""
        return self._file(frame), self.functions.get(frame, NO_FUNCTION).name

    def frame(self, event: int) -> int:
        """Return the frame of an event."""
        return self.events[event].frame

    def place(self, event: int) -> Place:
        """Return the file and line of an event."""
        return self._file(self.events[event].frame), self.events[event].line

    def end(self, event: int) -> int:
        """Return the event at which the line that begins at one has ended."""
        in_frame = self.in_frame[self.events[event].frame]
        place = in_frame.index(event)
        return in_frame[place + 1] if place + 1 < len(in_frame) else len(self.events)

    def is_different(self, variable: Variable, event: int) -> bool:
        """Return True where a variable differs between the runs at an event."""
        last = self.last(variable, event)
        return last is not None and last.is_different

    def seen_at(self, variable: Variable, event: int) -> Pair | None:
        """Return the digests of a variable that differs at an event; None where it does not, or none was seen."""
        name = Variable(self.frame(event), "", RETURNED) if variable == RESULT else variable
        last = self.last(name, event) if event < len(self.events) else None
        return last.pair if last is not None and last.is_different else None

    def last(self, variable: Variable, event: int) -> Change | None:
        """Return the last change of a variable up to an event; None where none was seen."""
        known = self.changes.get(variable, [])
        found = next((c for c in reversed(known) if c.event <= event), None)
        if found is None or variable.frame or "." not in variable.name:
            return found
        # Of an attribute of several objects, which one after the other are looked at, the first time that it was this one's.
        of_class = [v for v in self.attributes[plain(variable)] if _unnumbered(v) == _unnumbered(variable)]
        return min((c for v in of_class for c in self.changes[v] if c.pair == found.pair), key=lambda change: change.event)


def _function(name: str, parameters: Iterable[str] = (), free: Iterable[str] = ()) -> Function:
    return Function(name, tuple(parameters), frozenset(free))


def plain(variable: Variable) -> str:
    """Return a variable's name as its source has it; of an attribute its own."""
    return _unnumbered(variable).lstrip(":").rpartition(".")[2]


def _unnumbered(variable: Variable) -> str:
    return variable.name.partition("#")[0]


def _of_values(rows: list[list[Any]]) -> Iterator[list[Any]]:
    return (row for row in rows if row[1] == "value")


def _works(rows: list[list[Any]]) -> dict[int, list[Any]]:
    """Return the frames of threads, and the first frames of a fork, by their work, more and less exactly.

    Work is the function, its arguments, the attributes of its object or not, and its number.
    """
    named = {row[2]: row[2:] for row in rows if row[1] == "frame"}
    is_fork = all(row[2] != "<module>" for row in named.values())
    found: dict[int, list[Any]] = {}
    counts: Counter[Any] = Counter()
    for _, _, thread, frame, caller, kind, _, changes, _ in _of_values(rows):
        if frame in found or frame not in named or kind != "call" or not (thread != MAIN or (is_fork and not caller)):
            continue
        _, file, *function = named[frame]
        parameters = _function(*function).parameters or changes
        held = [name for name in changes if name.startswith(f"{function[0].rpartition('.')[0]}.")]
        place, given = (os.path.basename(file or ""), function[0]), [(name, changes.get(name, "")) for name in parameters]
        works = [(*place, (*given, *((name, changes[name]) for name in held))), (*place, tuple(given))]
        found[frame] = [(*work, number, counts[number, work]) for number, work in enumerate(works)]
        counts.update(enumerate(works))
    return found


def _frame_keys(rows: list[list[Any]], works: dict[int, list[Any]], shared: Collection[Any]) -> dict[int, Any]:
    """Return the keys by which the same frame is found in each run: its caller, its function, and its number among those.

    Args:
        rows: Rows of a run.
        works: Work of threads' frames, since the assignment of work in a pool is chance.
        shared: Work that both runs have.
    """
    functions = {row[2]: (os.path.basename(row[3] or ""), row[4]) for row in rows if row[1] == "frame"}
    done_alike = {work[:2] for work in shared}
    keys: dict[int, Any] = {}
    counts: Counter[Any] = Counter()
    for _, _, _, frame, caller, *_ in _of_values(rows):
        if frame in works and works[frame][0][:2] in done_alike:
            keys[frame] = next((work for work in works[frame] if work in shared), works[frame][0])
        elif frame not in keys:
            key = keys.get(caller), functions.get(frame)
            keys[frame] = (*key, counts[key])
            counts[key] += 1
    return keys
