"""The source lines of a differing line: where its differing reads, results, draws and shared variables come from."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from mltrainer.companions.wrap.paired_values import (
    MAIN,
    NO_FUNCTION,
    NO_VARIABLE,
    RESULT,
    Event,
    Pair,
    PairedValues,
    Place,
    Variable,
    plain,
)
from mltrainer.companions.wrap.passing import COMPREHENSIONS, GOES_THROUGH, called_in, computed, given, may_change, run_by
from mltrainer.companions.wrap.statements import Statement, Statements
from mltrainer.observe.values import GENERATORS, RETURNED

SEEDS = re.compile(r"seed\w*\(|set_rng_state|setstate|set_state")


class Giver(NamedTuple):
    """A line from which another line got a differing value.

    Attributes:
        event: Event at which the line begins.
        variable: Variable that carried the value.
        until: Event by which it had given the value: later effects do not count.
    """

    event: int
    variable: Variable
    until: int


class Givers:
    """Finds the source lines of differing values.

    Args:
        values: Values of both runs.
        statements: Statements of the program's sources.

    Attributes:
        inherited: Requested variables that differed at the start of a fork.
    """

    def __init__(self, values: PairedValues, statements: Statements) -> None:
        self._values, self._statements = values, statements
        self.inherited: set[Variable] = set()
        self._leading: dict[Giver, bool] = {}
        self._changes: dict[tuple[Place, str], bool] = {}  # by line and name
        self._elsewhere: dict[tuple[str, str], list[int]] = {}  # by name and thread

    def whole(self, event: int) -> Giver:
        """Return a line with all its effects."""
        return Giver(event, NO_VARIABLE, self._values.end(event))

    def computing(self, event: int, time: int) -> Giver:
        """Return a line with its effects up to a moment on the first run's clock."""
        return Giver(event, NO_VARIABLE, max(event, self._values.number_at(time)))

    def of(self, line: Giver, asks: Collection[Place]) -> tuple[list[Giver], str]:
        """Return the lines from which a line got differing values, the latest first; and the shared generator, if one gave them.

        Args:
            line: The line and its given variable.
            asks: Lines that request something which differs from run to run.
        """
        event, variable, until = line
        begin, is_within = self._begin(event), self._is_changed_within(variable, event)
        left = self._left(begin, until)
        found = [giver for giver in left if is_within and giver.variable == variable]
        if not found:
            found = self._computed_from(line, begin, self._parts(line)) or self._computed_from(line, begin, self._run_by(event))
            found += self._unseen_givers(line, asks)
            own = [giver for giver in left if variable.frame and giver.variable.frame == self._values.frame(giver.event)]
            found += own if is_within else []
            found = found or left
        found = found or self._loop(event)
        # A line's draws before it gave a value are seen at the next event.
        seen = min(until + 1, self._values.end(event))
        drawn = [name for name in GENERATORS if self.draws(name, event, seen)] if not self.seeds(event) else []
        found += [giver for name in drawn if (giver := self._made_different(name, until)) is not None]
        givers = sorted({giver for giver in found if giver.event != event}, key=lambda giver: giver[::2], reverse=True)
        return givers, next(iter(drawn), "")

    def _computed_from(self, line: Giver, begin: int, parts: Sequence[ast.AST]) -> list[Giver]:
        """Return the lines that gave the variables, results and draws that parts of a line's statement compute with."""
        event, _, until = line
        frame = self._values.frame(event)
        called = called_in(parts)
        entered = {name for number in self._entered(frame, begin, until) if (name := self._called(number)) in called}
        reads, calls = computed(parts, entered)
        found = [self.changed_by(v, event) for v in self._variables(event, reads) if self._values.is_different(v, event)]
        hidden = entered - calls
        returned = [number for number in self._ended(event, begin, until) if self._called(number) not in hidden]
        return [*filter(None, found), *(giver for number in returned for giver in self._returned(number, begin, until))]

    def _parts(self, line: Giver) -> Sequence[ast.AST]:
        """Return the parts of a line's statement that computed its given value: for a call the passed argument."""
        parts, frame = self._run_by(line.event), line.variable.frame
        is_handed = frame and self._values.callers.get(frame) == self._values.frame(line.event)
        function = self._values.functions.get(frame)
        if not is_handed or function is None or line.variable.name == RETURNED:
            return parts
        return given(parts, function, line.variable.name) or []

    def _run_by(self, event: int) -> list[ast.AST]:
        return run_by(self._statement(event).heads, self._values.function(self._values.frame(event))[1])

    def _entered(self, frame: int, begin: int, until: int) -> list[int]:
        """Return the frames of functions that a frame has called."""
        events = range(begin + 1, min(until + 1, len(self._values.events)))
        return [e.frame for n in events if (e := self._values.events[n]).kind == "call" and e.caller == frame]

    def _called(self, frame: int) -> str:
        """Return the name by which a frame's function is called."""
        return self._values.functions[frame].called if frame in self._values.functions else ""

    def _statement(self, event: int) -> Statement:
        return self._statements.at(*self._values.place(event))

    def _begin(self, event: int) -> int:
        """Return the event at which the statement of a line begins, which may be several lines."""
        in_frame = self._values.in_frame[self._values.frame(event)]
        statement, place = self._statement(event), in_frame.index(event)
        while place and statement.text and self._values.is_line(in_frame[place - 1]):
            before = in_frame[place - 1]
            if self._values.events[before].line == self._values.events[event].line or self._statement(before) != statement:
                break
            event, place = before, place - 1
        return event

    def _loop(self, event: int) -> list[Giver]:
        """Return the line at the start of a loop, which made the values of this iteration."""
        in_frame = self._values.in_frame[self._values.frame(event)]
        (first, last), line = self._statement(event).loop, self._values.events[event].line
        began = event
        for number in reversed([n for n in in_frame if n < event]):
            if self._values.events[number].line == line:
                began = number
            elif self._values.is_line(number) and not first <= self._values.events[number].line <= last:
                break
        return [self.whole(began)] if last and began != event else []

    def _is_changed_within(self, variable: Variable, event: int) -> bool:
        """Return True if a line changes a variable without assigning it: a function that it calls does."""
        statement = self._statement(event)
        if variable.frame:
            return variable.frame == self._values.frame(event) and variable.name not in statement.gives
        return bool(variable.name) and plain(variable) not in statement.names

    def seeds(self, event: int) -> bool:
        """Return True where a line seeds a generator, or gives it a state."""
        return SEEDS.search(self._statement(event).text) is not None

    def draws(self, generator: str, event: int, until: int) -> bool:
        """Return True if a line itself has advanced a shared generator whose states differ between the runs.

        Its import moves none, nor does what another function draws that the line calls.
        """
        known = self._values.changes.get(Variable(0, "", generator), [])
        moved = [change for change in known[1:] if event < change.event <= until and self._sees(event, change.event)]
        return bool(moved) and moved[-1].is_different

    def _sees(self, event: int, later: int) -> bool:
        """Return True if a later event sees a line's effects: its frame's next one, or the start of a function that it calls.

        Where the runs take different ways after it, nothing more is known of its frame, and others' see it.
        """
        frame, seeing = self._values.frame(event), self._values.events[later]
        is_last = self._values.parting.get(frame) == event
        return is_last or seeing.frame == frame or (seeing.kind == "call" and seeing.caller == frame)

    def _made_different(self, generator: str, until: int) -> Giver | None:
        """Return the line whose seed or draw made a shared generator's states differ; None for no line."""
        found = None
        for change in reversed(self._values.changes[Variable(0, "", generator)]):
            began = self._values.events[change.event].began
            if change.event >= until or began is None:
                continue
            if not change.is_different:
                return found
            found = Giver(began, NO_VARIABLE, change.event)
            if self.seeds(began):
                return found
        return None

    def _variables(self, event: int, reads: Collection[tuple[str, str]]) -> list[Variable]:
        """Return the variables of names that a line reads, in a fixed order."""
        frame, (file, _) = self._values.frame(event), self._values.place(event)
        is_comprehension = self._values.function(frame)[1].rpartition(".")[2] in COMPREHENSIONS
        names = sorted([*self._names(reads), *([GOES_THROUGH] if is_comprehension else [])])
        rows = [self._values.variable(frame, name) for name in names] + [Variable(0, file, f":{name}") for name in names]
        attributes = sorted({attribute for _, attribute in reads})
        return rows + [held for attribute in attributes for held in self._values.attributes.get(attribute, [])]

    def _names(self, reads: Collection[tuple[str, str]]) -> set[str]:
        """Return the names of which more is read than attributes that are known by themselves."""
        return {name for name, attribute in reads if name and attribute not in self._values.attributes}

    def read_whole(self, file: str, line: int) -> set[str]:
        """Return the names of which a line reads more than attributes that are known by themselves."""
        return self._names(self._statements.at(file, line).reads)

    def _unseen_givers(self, line: Giver, asks: Collection[Place]) -> list[Giver]:
        """Return the lines that gave a line values without digest, such as an open file, and that lead to the difference."""
        return [giver for giver in self._givers_of_unseen(line) if self._leads(giver, asks)]

    def _givers_of_unseen(self, line: Giver) -> Iterator[Giver]:
        event = line.event
        frame, file = self._values.frame(event), self._values.place(event)[0]
        function = self._values.functions.get(frame, NO_FUNCTION)
        names = self._names(computed(self._parts(line)).reads) | ({GOES_THROUGH} & {*function.parameters})
        for name in sorted(names):
            if self._values.changes.keys() & {self._values.variable(frame, name), Variable(0, file, f":{name}")}:
                continue
            owner = self._values.owner(frame, name)
            lines, in_owner = self._statements.giving(file, name), self._values.in_frame.get(owner, [])
            giver = next((n for n in reversed(in_owner) if n < event and self._values.events[n].line in lines), None)
            is_given = name != "self" and name in self._values.functions.get(owner, NO_FUNCTION).parameters
            if giver is not None:
                yield self.whole(giver)
            elif is_given and (caller := self._calling(owner)) is not None:
                yield Giver(caller, Variable(owner, "", name), in_owner[0])

    def _calling(self, frame: int) -> int | None:
        """Return the line that called a frame's function; None where none is known."""
        above, began = self._values.in_frame.get(self._values.callers[frame], []), self._values.in_frame[frame][0]
        return next((n for n in reversed(above) if n < began and self._values.is_line(n)), None)

    def _leads(self, line: Giver, asks: Collection[Place]) -> bool:
        """Return True if a line requests, receives or draws a difference; or if a line does that gave it a value."""
        if line not in self._leading:
            self._leading[line] = False  # a loop may lead back to it
            drawn = any(self.draws(name, line.event, line.until) for name in GENERATORS)
            self._leading[line] = (
                drawn
                or self._values.place(line.event) in asks
                or self._is_given_different(line.event, self._parts(line))
                or any(self._leads(giver, asks) for giver in self._givers_of_unseen(line))
            )
        return self._leading[line]

    def is_known(self, event: int) -> bool:
        """Return True where all that a line reads has a digest, as far as the source shows: functions and modules have none."""
        file, frame = self._values.place(event)[0], self._values.frame(event)
        for name, attribute in computed(self._run_by(event)).reads:
            is_seen = {self._values.variable(frame, name), Variable(0, file, f":{name}")} & self._values.changes.keys()
            if not is_seen and (
                self._statements.giving(file, name) or name in self._values.functions.get(frame, NO_FUNCTION).parameters
            ):
                return False
            if attribute and attribute not in self._values.attributes and self._statements.sets(file, attribute):
                return False
        return True

    def is_given_different(self, event: int) -> bool:
        """Return True where a variable that a line reads differs between the runs."""
        return self._is_given_different(event, self._run_by(event))

    def _is_given_different(self, event: int, parts: Sequence[ast.AST]) -> bool:
        variables = self._variables(event, computed(parts).reads)
        return any(self._values.is_different(variable, event) for variable in variables)

    def changed_by(self, variable: Variable, event: int) -> Giver | None:
        """Return the line that changed a variable last; for a frame's parameter its caller's line."""
        last = self._values.last(variable, event)
        if last is None or not last.is_different:
            return None
        changed = self._values.events[last.event]
        if changed.caller == 0 and changed.kind == "call" and not variable.frame:
            self.inherited.add(variable)
        line = changed.began
        if last.is_skipped:  # the line before it need not be the one that changed it
            earlier = (
                n
                for n in range(last.event - 1, -1, -1)
                if self._values.is_line(n) and variable.frame in (0, self._values.frame(n))
            )
            line = next((n for n in earlier if self._may_change(plain(variable), n)), line)
        if line is None and not variable.frame and (parted := self._parted_since(variable, last.event)) is not None:
            return self.whole(parted)
        if line is None:
            line = next((n for n in reversed(self._values.in_frame.get(changed.caller, [])) if n < last.event), None)
        if line is None:
            return None
        is_given = changed.kind == "call" and variable.frame
        changing = line if is_given else self._by_another_thread(variable, line, last.event)
        until = last.event if changing == line and not last.is_skipped else self._values.end(changing)
        return Giver(changing, variable, until)

    def _parted_since(self, variable: Variable, event: int) -> int | None:
        """Return the line after which a function took another way in each run, of which nothing more was seen, since a change."""
        before = max((c.event for c in self._values.changes[variable] if c.event < event), default=0)
        return max((n for n in self._values.parting.values() if before <= n < event and self._values.is_line(n)), default=None)

    def _by_another_thread(self, variable: Variable, event: int, seen: int) -> int:
        """Return the line that changed a variable: where the line that saw it does not name it, another thread's last one."""
        name = plain(variable)
        if variable.name in GENERATORS or self._may_change(name, event):
            return event
        thread = self._values.events[event].thread
        changing = self._changing_elsewhere(name, thread)
        later = bisect.bisect_right(changing, seen)
        # Before it was seen, else after that: the other run's thread may have come earlier.
        named = [*reversed(changing[:later]), *changing[later:]]
        different = (n for n in named if not self._leaves_equal(variable, n))
        # Each thread may see equal values at each of its lines, and still the times of their meetings differ.
        return next(different, next((n for n in named if self._values.events[n].thread != MAIN), event))

    def _changing_elsewhere(self, name: str, thread: str) -> list[int]:
        """Return the lines, as they ran, of all threads but one that may change a variable or attribute of a name."""
        if (name, thread) not in self._elsewhere:
            events = enumerate(self._values.events)
            others = (n for n, event in events if event.thread != thread and self._values.is_line(n))
            self._elsewhere[name, thread] = [n for n in others if self._may_change(name, n)]
        return self._elsewhere[name, thread]

    def _leaves_equal(self, variable: Variable, event: int) -> bool:
        """Return True where a line left a variable the same in both runs; one that functions share is one of each frame."""
        here = variable._replace(frame=self._values.frame(event)) if variable.frame else variable
        return not self._values.is_different(here, self._values.end(event))

    def holding(self, pairs: Collection[Pair], before: int) -> list[Giver]:
        """Return the line that first gave a variable one of some values, known by their digests, before an event."""
        seen = (self._values.first_seen[pair] for pair in pairs if pair in self._values.first_seen)
        event, variable = next((found for found in seen if found[0] < before), (0, NO_VARIABLE))
        if variable == NO_VARIABLE:
            return []
        began = self._values.events[event].began
        if variable.name == RETURNED:
            return [Giver(self._returning(variable.frame, began), RESULT, event)] if began is not None else []
        giver = self.changed_by(variable, event)
        return [giver] if giver is not None else []

    def worked(self, before: int, beside: str = "") -> list[Giver]:
        """Return the lines by which functions returned something different before an event, in other threads than one."""
        ended = {e.frame for e in self._values.events[:before] if e.thread != beside and self._has_ended(e)}
        ended = {frame for frame in ended if not self._called(frame).startswith("__")}  # such as what `with` begins with
        returned = [giver for frame in sorted(ended) for giver in self._returned(frame, -1, before)]
        return [giver for giver in returned if giver.variable == RESULT]

    def _may_change(self, name: str, event: int) -> bool:
        place = self._values.place(event)
        if (place, name) not in self._changes:
            statement = self._statement(event)
            self._changes[place, name] = name in statement.gives or may_change(statement.heads, name)
        return self._changes[place, name]

    def _ended(self, event: int, begin: int, until: int) -> list[int]:
        """Return the frames of functions that a line called and that have returned, or taken another way in each run."""
        frame, found = self._values.frame(event), dict[int, None]()
        callers = {frame, *(self._values.above(frame) if self._statement(event).awaits else ())}
        for number in range(begin + 1, min(until + 1, len(self._values.events))):
            ended = self._values.events[number]
            if ended.caller in callers and ended.frame != frame and self._has_ended(ended):
                found[ended.frame] = None
        return [*found]

    def _has_ended(self, seen: Event) -> bool:
        return seen.kind == "return" or seen.frame in self._values.parting

    def _returned(self, frame: int, begin: int, until: int) -> Iterator[Giver]:
        """Yield the lines by which a frame returned something different, or took another way in each run."""
        for number in self._values.in_frame[frame]:
            ended = self._values.events[number]
            if begin < number <= until and ended.kind == "return" and ended.began is not None:
                returned = self._values.changes.get(Variable(frame, "", RETURNED), [])
                if any(change.event == number and change.is_different for change in returned):
                    yield Giver(self._returning(frame, ended.began), RESULT, number)
        parted = self._values.parting.get(frame, -1)
        if begin < parted <= until and self._values.is_line(parted):
            yield self.whole(parted)

    def _left(self, event: int, end: int) -> list[Giver]:
        """Return the lines, called by a line, that left differences in attributes, arguments, or enclosing variables."""
        frame, left = self._values.frame(event), list[Giver]()
        for number in range(event + 1, min(end + 1, len(self._values.events))):
            seen = self._values.events[number]
            if seen.caller == frame and seen.kind != "call" and seen.began is not None:
                parted = self._values.parted_at.get(number, [])
                left += [Giver(seen.began, changed, number) for changed in parted if self._outlasts(changed, seen.frame)]
        return left

    def _outlasts(self, variable: Variable, frame: int) -> bool:
        """Return True for variables that outlive a frame: attributes, arguments, enclosing variables."""
        if not variable.frame:
            return "." in variable.name
        is_given = self._values.events[self._values.changes[variable][0].event].kind == "call"
        return is_given or variable.frame != frame

    def _returning(self, frame: int, began: int) -> int:
        """Return the event of a frame's last line that returns something: after it may come `finally`, or the head of `with`."""
        lines = (n for n in reversed(self._values.in_frame[frame]) if n <= began and self._values.is_line(n))
        return next((n for n in lines if self._statement(n).returns), began)
