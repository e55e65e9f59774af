"""Where a difference between two runs comes from: its way back through the values that differ, from line to line.

Both runs' rows of values stand side by side. What an operation is given differs because a variable of its line does; that one
differs because of the line that changed it last, and so on, through calls and what they return, until a line is reached
which was given the same in both runs, or which asks a clock or its like itself. What differs beside this way is not followed.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from mltrainer.observe.values import GENERATORS, RETURNED
from mltrainer.wrap.statements import Statements

Place = tuple[str, int]  # file and line
Pair = tuple[str, str]  # digests of a value in both runs
SEEDS = re.compile(r"seed\w*\(|set_rng_state|setstate|set_state")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
MAIN = "MainThread"
MOST = 5000  # steps back


class Variable(NamedTuple):
    """A variable: of a frame, by its number; of a module, by its file; of all objects of a class, or of all, with neither."""

    frame: int
    file: str
    name: str


RESULT = Variable(0, "", RETURNED)  # of a call
NO_VARIABLE = Variable(0, "", "")  # what a generator draws, or has no digest


class Origin(NamedTuple):
    """A line at which a difference begins.

    Attributes:
        place: File and line.
        is_given_same: Whether the line was given the same in both runs.
        generator: The shared generator that stood otherwise, where the line drew from one.
        thread: The thread that ran it.
        used: The line by which what it gave goes on from a variable that is also printed; None where none is.
        late_seed: The line that seeded the generator later; None where none did.
    """

    place: Place
    is_given_same: bool
    generator: str
    thread: str
    used: Place | None = None
    late_seed: Place | None = None


class _Change(NamedTuple):
    """A change of a variable: the event after which it was seen, and whether lines before that were not looked at."""

    event: int
    is_different: bool
    is_skipped: bool


class _Giver(NamedTuple):
    """A line that gave another one what differs, or was given it: the event at which it begins, and by which variable."""

    event: int
    variable: Variable


class _Moment(NamedTuple):
    """When a line began or ended, and its event; None where the other run has none."""

    time: int
    frame: int
    line: int
    event: int | None


class _Event(NamedTuple):
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
        source: Returns the text of a file.
    """

    def __init__(self, one: list[list[Any]], other: list[list[Any]], source: Callable[[str], str]) -> None:
        self._files: dict[int, str] = {row[2]: row[3] for row in one if row[1] == "frame"}
        self._functions: dict[int, str] = {row[2]: row[4] for row in one if row[1] == "frame"}
        self._statements = Statements(source)
        self._events: list[_Event] = []
        self._changes: dict[Variable, list[_Change]] = {}
        self._last_pair: dict[Variable, Pair] = {}
        self._in_frame: dict[int, list[int]] = {}
        self.inherited: set[Variable] = set()  # that differed when a fork began, and lay on a way back
        self._parted_at: dict[int, list[Variable]] = {}  # by event: what was seen to have changed otherwise in each run
        self._callers: dict[int, int] = {}
        self._called_at: dict[tuple[str, str], set[Place]] = {}  # by file and function
        self._moments: list[_Moment] = []
        self.parting: dict[int, int] = {}  # by frame: the last event before the two runs take different ways
        self._read(one, other)
        self._leading: dict[int, bool] = {}
        self._attributes: dict[str, list[Variable]] = {}
        for variable in self._changes:
            if not variable.frame and not variable.file and "." in variable.name:
                self._attributes.setdefault(_plain(variable), []).append(variable)

    def _read(self, one: list[list[Any]], other: list[list[Any]]) -> None:
        keys, theirs = _frame_keys(one), _frame_keys(other)
        by_key: dict[Any, list[list[Any]]] = {}
        for row in _of_values(other):
            by_key.setdefault(theirs[row[3]], []).append(row)
        partners = {key: iter(rows) for key, rows in by_key.items()}
        seen: dict[int, dict[str, Pair]] = {}
        for row in _of_values(one):
            frame = row[3]
            self._callers[frame] = row[4]
            partner = next(partners.get(keys[frame], iter(())), None) if frame not in self.parting else None
            if partner is None or row[5:7] != partner[5:7]:
                self.parting.setdefault(frame, self._in_frame.get(frame, [-1])[-1])
                self._moments.append(_Moment(row[0], frame, row[6], None))
                continue
            self._moments.append(_Moment(row[0], frame, row[6], len(self._events)))
            self._add(row, partner, seen.setdefault(frame, {}))

    def _add(self, row: list[Any], partner: list[Any], seen: dict[str, Pair]) -> None:
        """Add an event, and the changes that its frame sees: another frame may see one of the same variable later."""
        time, _, thread, frame, caller, kind, line, changes, is_skipped = row
        before = self._in_frame.setdefault(frame, [])
        number = len(self._events)
        if kind == "call" and caller in self._in_frame:
            self._called_at.setdefault(self._function(frame), set()).add(self._place(self._in_frame[caller][-1]))
        self._events.append(_Event(time, thread, frame, caller, kind, line, before[-1] if before else None))
        before.append(number)
        for name in dict.fromkeys([*changes, *partner[7]]):
            left, right = seen.get(name, ("", ""))
            pair = seen[name] = changes.get(name, left), partner[7].get(name, right)
            variable = self._variable(frame, name)
            if self._last_pair.get(variable) != pair:
                self._last_pair[variable] = pair
                if pair[0] != pair[1]:
                    self._parted_at.setdefault(number, []).append(variable)
                self._changes.setdefault(variable, []).append(_Change(number, pair[0] != pair[1], is_skipped))

    def _variable(self, frame: int, name: str) -> Variable:
        if name == RETURNED:
            return Variable(frame, "", name)
        if name.startswith(":"):
            return Variable(0, self._files.get(frame, ""), name)
        return Variable(0 if name.startswith("<") or "." in name[1:] else frame, "", name)

    # --- the way back ---

    def origins(self, place: Place, time: int, asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference of what a line computes at a moment begins, the nearest first.

        Args:
            place: The line.
            time: The moment, on the first run's clock.
            asks: Lines that ask for something which differs from run to run.
        """
        moment = self._moment(place, time)
        if moment is None:
            return []
        if moment.event is not None and (found := self._back([moment.event], asks)):
            return found
        # Equal values, and still other operations: the runs have taken different ways.
        parted = self._parted(moment.frame)
        return self._back([parted], asks, is_way=True) if parted is not None else []

    def _moment(self, place: Place, time: int) -> _Moment | None:
        before = (moment for moment in reversed(self._moments) if moment.time <= time)
        return next((one for one in before if (self._files.get(one.frame, ""), one.line) == place), None)

    def of_written(self, opened: list[tuple[Place, int]], asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference begins of what is written to files, the nearest first.

        Args:
            opened: The lines that opened them, and when on the first run's clock.
            asks: Lines that ask for something which differs from run to run.
        """
        moments = [self._moment(place, time) for place, time in opened]
        events = [moment.event for moment in moments if moment is not None and moment.event is not None]
        return self._back([*dict.fromkeys(n for event in events for n in self._writing(event))], asks)

    def _writing(self, event: int) -> Iterator[int]:
        """Yield a line that opens a file, and those of its frame that read what it gives."""
        yield event
        names = self._statements.at(*self._place(event)).gives
        for number in self._in_frame[self._events[event].frame]:
            if number > event and names & self._whole(*self._place(number)):
                yield number

    def _parted(self, frame: int) -> int | None:
        """Return the last event before the runs took different ways in a frame or in those that called it; None for nowhere."""
        while frame and self.parting.get(frame, -1) < 0:
            frame = self._callers.get(frame, 0)
        return self.parting.get(frame)

    def of_inherited(self, variables: Collection[Variable], time: int, asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference begins of what a fork found in variables, the nearest first."""
        at = next((n for n in range(len(self._events) - 1, -1, -1) if self._events[n].time <= time), None)
        lines = [self._changed_by(variable, at) for variable in variables] if at is not None else []
        starts = [line for line in lines if line is not None]
        return self._back(starts, asks, is_way=True) if starts else []

    def of_decisions(self, asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference begins that decisions of the program hang on, the nearest first."""
        events = [n for n in range(len(self._events)) if self._statements.at(*self._place(n)).decides and self._is_line(n)]
        return self._back([event for event in events if self._is_given_different(event)], asks)

    def unseen(self, origin: Origin) -> list[Place]:
        """Return the lines that give the names which an origin reads and whose values have no digest, by the source."""
        seen, file = {_plain(variable) for variable in self._changes}, origin.place[0]
        return [(file, line) for name in self._whole(*origin.place) - seen for line in self._statements.giving(file, name)]

    def _is_line(self, event: int) -> bool:
        return self._events[event].kind == "line"

    def _back(self, starts: list[int], asks: Collection[Place], is_way: bool = False) -> list[Origin]:
        """Return the origins of what differs in the lines that begin at some events; `is_way`: these may be origins, too."""
        waiting, found = deque(starts), dict[Place, Origin]()
        users: dict[int, _Giver | None] = dict.fromkeys(starts)  # by event: the line that it gave something, and by what
        while waiting and len(users) < MOST:
            event = waiting.popleft()
            givers, generator = self._givers(event, users[event], asks)
            is_first = event in starts and not is_way and not generator
            place = self._place(event)
            if (not givers and not is_first) or place in asks:
                found.setdefault(place, self._origin(event, users, generator, is_given_same=not givers))
            for giver in givers:
                if giver.event not in users:
                    users[giver.event] = _Giver(event, giver.variable)
                    waiting.append(giver.event)
        threads = {self._events[event].thread for event in users}
        if not found and len(threads) > 1:  # that gave it to each other: the first of them
            first = min(users.keys() - starts)
            return [self._origin(first, users, "", is_given_same=False)]
        return list(found.values())

    def _origin(self, event: int, users: Mapping[int, _Giver | None], generator: str, *, is_given_same: bool) -> Origin:
        late_seed = self._late_seed(generator, event) if generator and is_given_same else None
        thread, used = self._events[event].thread, self._used(event, users)
        return Origin(self._place(event), is_given_same, generator, thread, used, late_seed)

    def _used(self, event: int, users: Mapping[int, _Giver | None]) -> Place | None:
        """Return the last line, on the way from one to where the difference shows, that is given what is also used elsewhere.

        That is a variable which is printed, or what a function returns that is called at another line, too.
        """
        found = None
        while (user := users[event]) is not None:
            place = self._place(user.event)
            is_printed = _plain(user.variable) in self._statements.shown(place[0])
            if is_printed or (user.variable == RESULT and self._is_called_elsewhere(event, place)):
                found = place
            event = user.event
        return found

    def _is_called_elsewhere(self, event: int, place: Place) -> bool:
        """Return True where the function that an event runs in is also called at another line, which names it."""
        function = self._function(self._events[event].frame)
        name = function[1].rpartition(".")[2]
        return any(name in self._statements.at(*other).names for other in self._called_at.get(function, set()) - {place})

    def _function(self, frame: int) -> tuple[str, str]:
        return self._files.get(frame, ""), self._functions.get(frame, "")

    def _place(self, event: int) -> Place:
        return self._files.get(self._events[event].frame, ""), self._events[event].line

    def _end(self, event: int) -> int:
        """Return the event at which the line that begins at one has ended."""
        in_frame = self._in_frame[self._events[event].frame]
        place = in_frame.index(event)
        return in_frame[place + 1] if place + 1 < len(in_frame) else len(self._events)

    def _givers(self, event: int, user: _Giver | None, asks: Collection[Place]) -> tuple[list[_Giver], str]:
        """Return the lines that gave a line what differs; and the shared generator that did, if one.

        Args:
            event: The event at which the line begins.
            user: The line that it gave something, and by which variable; None where the way begins with it.
            asks: Lines that ask for something which differs from run to run.
        """
        begin, end = self._begin(event), self._end(event)
        found = [(self._changed_by(v, event), v) for v in self._read_by(event) if self._is_different(v, event)]
        found += [(giver, RESULT) for giver in self._returned(begin, end)]
        found += [(giver, NO_VARIABLE) for giver in self._unseen_givers(event, asks)]
        if not found or (user is not None and self._is_changed_within(user.variable, event)):
            found += [(giver, NO_VARIABLE) for giver in self._left(begin, end)]
        drawn = [name for name in GENERATORS if self._draws(name, begin, end)] if not self._seeds(event) else []
        found += [(self._made_different(name, event), NO_VARIABLE) for name in drawn]
        return [_Giver(giver, by) for giver, by in found if giver is not None and giver != event], next(iter(drawn), "")

    def _begin(self, event: int) -> int:
        """Return the event at which the statement of a line begins, which may be several lines."""
        in_frame = self._in_frame[self._events[event].frame]
        statement, place = self._statements.at(*self._place(event)), in_frame.index(event)
        while place and statement.text and self._is_line(in_frame[place - 1]):
            before = in_frame[place - 1]
            if self._events[before].line == self._events[event].line or self._statements.at(*self._place(before)) != statement:
                break
            event, place = before, place - 1
        return event

    def _is_changed_within(self, variable: Variable, event: int) -> bool:
        """Return True where a line changes a variable without giving it a value itself: what it calls does."""
        statement = self._statements.at(*self._place(event))
        if variable.frame:
            return variable.frame == self._events[event].frame and variable.name not in statement.gives
        return bool(variable.name) and _plain(variable) not in statement.names

    def _late_seed(self, generator: str, event: int) -> Place | None:
        """Return the line that seeds a generator after a draw, in a function that led to the draw; None where none does."""
        frames, frame = set[int](), self._events[event].frame
        while frame:
            frames, frame = frames | {frame}, self._callers.get(frame, 0)
        known = self._changes.get(Variable(0, "", generator), [])
        began = [self._events[change.event].began for change in known if not change.is_different and change.event > event]
        lines = [line for line in began if line is not None and self._events[line].frame in frames]
        return next((self._place(line) for line in lines if self._seeds(line)), None)

    def _seeds(self, event: int) -> bool:
        return SEEDS.search(self._statements.at(*self._place(event)).text) is not None

    def _draws(self, generator: str, event: int, end: int) -> bool:
        """Return True where a line has moved a shared generator that stands otherwise in the other run; its import moves none."""
        known = self._changes.get(Variable(0, "", generator), [])
        moved = [change for change in known[1:] if event < change.event <= end]
        return bool(moved) and moved[-1].is_different

    def _made_different(self, generator: str, event: int) -> int | None:
        """Return the line that seeded a shared generator, or drew from it, so that it stands otherwise; None for no line."""
        found = None
        for change in reversed(self._changes[Variable(0, "", generator)]):
            began = self._events[change.event].began
            if change.event > event or began is None:
                continue
            if not change.is_different:
                return found
            found = began
            if self._seeds(began):
                return found
        return None

    def _read_by(self, event: int) -> list[Variable]:
        """Return the variables that a line reads: of a comprehension those of the frame around it, too."""
        frame, (file, line) = self._events[event].frame, self._place(event)
        frames = [frame, *([self._events[event].caller] if self._functions.get(frame, "").endswith(COMPREHENSIONS) else [])]
        plain = self._whole(file, line)
        rows = [Variable(number, "", name) for number in frames for name in plain]
        rows += [Variable(0, file, f":{name}") for name in plain]
        attributes = {attribute for _, attribute in self._statements.at(file, line).reads}
        return rows + [held for attribute in attributes for held in self._attributes.get(attribute, [])]

    def _whole(self, file: str, line: int) -> set[str]:
        """Return the names of which a line reads more than attributes that are known by themselves."""
        reads = self._statements.at(file, line).reads
        return {name for name, attribute in reads if name and attribute not in self._attributes}

    def _unseen_givers(self, event: int, asks: Collection[Place]) -> list[int]:
        """Return the lines that gave a line what has no digest, such as an open file, and that lead to what differs."""
        return [giver for giver in self._givers_of_unseen(event) if self._leads(giver, asks)]

    def _givers_of_unseen(self, event: int) -> Iterator[int]:
        frame, (file, line) = self._events[event].frame, self._place(event)
        for name in self._whole(file, line):
            if not self._changes.keys() & {Variable(frame, "", name), Variable(0, file, f":{name}")}:
                lines = self._statements.giving(file, name)
                before = (n for n in reversed(self._in_frame[frame]) if n < event and self._events[n].line in lines)
                giver = next(before, None)
                if giver is not None:
                    yield giver

    def _leads(self, event: int, asks: Collection[Place]) -> bool:
        """Return True where a line asks, is given what differs, or draws what does; or where one does that gave it something."""
        if event not in self._leading:
            self._leading[event] = False  # a loop may lead back to it
            drawn = any(self._draws(name, event, self._end(event)) for name in GENERATORS)
            self._leading[event] = (
                drawn
                or self._place(event) in asks
                or self._is_given_different(event)
                or any(self._leads(giver, asks) for giver in self._givers_of_unseen(event))
            )
        return self._leading[event]

    def _is_given_different(self, event: int) -> bool:
        return any(self._is_different(variable, event) for variable in self._read_by(event))

    def _is_different(self, variable: Variable, event: int) -> bool:
        last = self._last(variable, event)
        return last is not None and last.is_different

    def _last(self, variable: Variable, event: int) -> _Change | None:
        return next((c for c in reversed(self._changes.get(variable, [])) if c.event <= event), None)

    def _changed_by(self, variable: Variable, event: int) -> int | None:
        """Return the event that begins the line which changed a variable last; of what a frame is given its caller's line."""
        last = self._last(variable, event)
        if last is None or not last.is_different:
            return None
        changed = self._events[last.event]
        if changed.caller == 0 and changed.kind == "call" and not variable.frame:
            self.inherited.add(variable)
        line = changed.began if changed.began is not None and self._is_line(changed.began) else None
        if last.is_skipped:  # the line before it need not be the one that changed it
            earlier = (
                n for n in range(last.event - 1, -1, -1) if self._is_line(n) and variable.frame in (0, self._events[n].frame)
            )
            line = next((n for n in earlier if self._is_named(_plain(variable), n)), line)
        if line is None:
            line = next((n for n in reversed(self._in_frame.get(changed.caller, [])) if n < last.event), None)
        is_given = changed.kind == "call" and variable.frame
        return line if line is None or is_given else self._by_another_thread(variable, line, last.event)

    def _by_another_thread(self, variable: Variable, event: int, seen: int) -> int:
        """Return the line that changed a variable: where the line that saw it does not name it, another thread's last one."""
        name = _plain(variable)
        if variable.name in GENERATORS or self._is_named(name, event):
            return event
        thread = self._events[event].thread
        # Before it was seen, else after that: the other run's thread may have come earlier.
        others = (n for n in [*range(seen, -1, -1), *range(seen + 1, len(self._events))] if self._events[n].thread != thread)
        named = [n for n in others if self._is_line(n) and self._is_named(name, n)]
        different = (n for n in named if not self._leaves_equal(variable, n))
        # Each may see the same at each of its own lines, and when they meet still differs.
        return next(different, next((n for n in named if self._events[n].thread != MAIN), event))

    def _leaves_equal(self, variable: Variable, event: int) -> bool:
        """Return True where a line left a variable the same in both runs; one that functions share is one of each frame."""
        end = self._end(event)
        here = variable._replace(frame=self._events[event].frame) if variable.frame else variable
        return any(change.event == end and not change.is_different for change in self._changes.get(here, []))

    def _is_named(self, name: str, event: int) -> bool:
        return name in self._statements.at(*self._place(event)).names

    def _returned(self, event: int, end: int) -> Iterator[int]:
        """Yield the lines that returned something different to a line."""
        frame = self._events[event].frame
        for number in range(event + 1, min(end, len(self._events))):
            ended = self._events[number]
            if ended.kind == "return" and ended.caller == frame and ended.began is not None:
                returned = self._changes.get(Variable(ended.frame, "", RETURNED), [])
                if any(change.event == number and change.is_different for change in returned):
                    yield self._returning(ended.frame, ended.began)

    def _left(self, event: int, end: int) -> Iterator[int]:
        """Yield the lines, called by a line, that left something different in attributes of an object, or in what they got."""
        frame = self._events[event].frame
        for number in range(event + 1, min(end + 1, len(self._events))):
            left = self._events[number]
            if left.caller == frame and left.kind != "call" and left.began is not None:
                yield from (left.began for variable in self._parted_at.get(number, []) if self._outlasts(variable))

    def _outlasts(self, variable: Variable) -> bool:
        """Return True for an attribute, and for what a function was given: others have it when that has returned."""
        is_given = variable.frame and self._events[self._changes[variable][0].event].kind == "call"
        return bool(is_given) or (not variable.frame and "." in variable.name)

    def _returning(self, frame: int, began: int) -> int:
        """Return the event of a frame's last line that returns something: after it may come `finally`, or the head of `with`."""
        lines = (n for n in reversed(self._in_frame[frame]) if n <= began)
        return next((n for n in lines if self._statements.at(*self._place(n)).returns), began)


def _plain(variable: Variable) -> str:
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
