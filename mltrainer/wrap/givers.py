"""The lines that gave a line what differs between two runs: what it reads, is returned, draws, or finds changed by others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from mltrainer.observe.values import GENERATORS, RETURNED
from mltrainer.wrap.paired_values import MAIN, NO_VARIABLE, RESULT, PairedValues, Place, Variable, plain
from mltrainer.wrap.statements import Statement, Statements

SEEDS = re.compile(r"seed\w*\(|set_rng_state|setstate|set_state")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Giver(NamedTuple):
    """A line that gave another one what differs, or was given it: the event at which it begins, and by which variable."""

    event: int
    variable: Variable


class Givers:
    """Finds the lines that gave a line what differs.

    Args:
        values: Of both runs.
        statements: Of the program's sources.

    Attributes:
        inherited: The variables that differed when a fork began, and were asked for.
    """

    def __init__(self, values: PairedValues, statements: Statements) -> None:
        self._values, self._statements = values, statements
        self.inherited: set[Variable] = set()
        self._leading: dict[int, bool] = {}

    def of(self, event: int, user: Giver | None, asks: Collection[Place]) -> tuple[list[Giver], str]:
        """Return the lines that gave a line what differs; and the shared generator that did, if one.

        Args:
            event: The event at which the line begins.
            user: The line that it gave something, and by which variable; None where the way begins with it.
            asks: Lines that ask for something which differs from run to run.
        """
        begin, end = self._begin(event), self._values.end(event)
        found = [(self.changed_by(v, event), v) for v in self.read_by(event) if self._values.is_different(v, event)]
        found += [(giver, RESULT) for giver in self._returned(begin, end)]
        found += [(giver, NO_VARIABLE) for giver in self._unseen_givers(event, asks)]
        if not found or (user is not None and self._is_changed_within(user.variable, event)):
            found += [(giver, NO_VARIABLE) for giver in self._left(begin, end)]
        drawn = [name for name in GENERATORS if self.draws(name, begin, end)] if not self.seeds(event) else []
        found += [(self._made_different(name, event), NO_VARIABLE) for name in drawn]
        return [Giver(giver, by) for giver, by in found if giver is not None and giver != event], next(iter(drawn), "")

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

    def _is_changed_within(self, variable: Variable, event: int) -> bool:
        """Return True where a line changes a variable without giving it a value itself: what it calls does."""
        statement = self._statement(event)
        if variable.frame:
            return variable.frame == self._values.frame(event) and variable.name not in statement.gives
        return bool(variable.name) and plain(variable) not in statement.names

    def seeds(self, event: int) -> bool:
        """Return True where a line seeds a generator, or gives it a state."""
        return SEEDS.search(self._statement(event).text) is not None

    def draws(self, generator: str, event: int, end: int) -> bool:
        """Return True where a line has moved a shared generator that stands otherwise in the other run; its import moves none."""
        known = self._values.changes.get(Variable(0, "", generator), [])
        moved = [change for change in known[1:] if event < change.event <= end]
        return bool(moved) and moved[-1].is_different

    def _made_different(self, generator: str, event: int) -> int | None:
        """Return the line that seeded a shared generator, or drew from it, so that it stands otherwise; None for no line."""
        found = None
        for change in reversed(self._values.changes[Variable(0, "", generator)]):
            began = self._values.events[change.event].began
            if change.event > event or began is None:
                continue
            if not change.is_different:
                return found
            found = began
            if self.seeds(began):
                return found
        return None

    def read_by(self, event: int) -> list[Variable]:
        """Return the variables that a line reads: of a comprehension those of the frame around it, too."""
        frame, (file, line) = self._values.frame(event), self._values.place(event)
        frames = [
            frame,
            *([self._values.events[event].caller] if self._values.functions.get(frame, "").endswith(COMPREHENSIONS) else []),
        ]
        plain = self.read_whole(file, line)
        rows = [Variable(number, "", name) for number in frames for name in plain]
        rows += [Variable(0, file, f":{name}") for name in plain]
        attributes = {attribute for _, attribute in self._statements.at(file, line).reads}
        return rows + [held for attribute in attributes for held in self._values.attributes.get(attribute, [])]

    def read_whole(self, file: str, line: int) -> set[str]:
        """Return the names of which a line reads more than attributes that are known by themselves."""
        reads = self._statements.at(file, line).reads
        return {name for name, attribute in reads if name and attribute not in self._values.attributes}

    def _unseen_givers(self, event: int, asks: Collection[Place]) -> list[int]:
        """Return the lines that gave a line what has no digest, such as an open file, and that lead to what differs."""
        return [giver for giver in self._givers_of_unseen(event) if self._leads(giver, asks)]

    def _givers_of_unseen(self, event: int) -> Iterator[int]:
        frame, (file, line) = self._values.frame(event), self._values.place(event)
        for name in self.read_whole(file, line):
            if not self._values.changes.keys() & {Variable(frame, "", name), Variable(0, file, f":{name}")}:
                lines = self._statements.giving(file, name)
                before = (n for n in reversed(self._values.in_frame[frame]) if n < event and self._values.events[n].line in lines)
                giver = next(before, None)
                if giver is not None:
                    yield giver

    def _leads(self, event: int, asks: Collection[Place]) -> bool:
        """Return True where a line asks, is given what differs, or draws what does; or where one does that gave it something."""
        if event not in self._leading:
            self._leading[event] = False  # a loop may lead back to it
            drawn = any(self.draws(name, event, self._values.end(event)) for name in GENERATORS)
            self._leading[event] = (
                drawn
                or self._values.place(event) in asks
                or self.is_given_different(event)
                or any(self._leads(giver, asks) for giver in self._givers_of_unseen(event))
            )
        return self._leading[event]

    def is_given_different(self, event: int) -> bool:
        """Return True where a variable that a line reads differs between the runs."""
        return any(self._values.is_different(variable, event) for variable in self.read_by(event))

    def changed_by(self, variable: Variable, event: int) -> int | None:
        """Return the event that begins the line which changed a variable last; of what a frame is given its caller's line."""
        last = self._values.last(variable, event)
        if last is None or not last.is_different:
            return None
        changed = self._values.events[last.event]
        if changed.caller == 0 and changed.kind == "call" and not variable.frame:
            self.inherited.add(variable)
        line = changed.began if changed.began is not None and self._values.is_line(changed.began) else None
        if last.is_skipped:  # the line before it need not be the one that changed it
            earlier = (
                n
                for n in range(last.event - 1, -1, -1)
                if self._values.is_line(n) and variable.frame in (0, self._values.frame(n))
            )
            line = next((n for n in earlier if self._is_named(plain(variable), n)), line)
        if line is None:
            line = next((n for n in reversed(self._values.in_frame.get(changed.caller, [])) if n < last.event), None)
        is_given = changed.kind == "call" and variable.frame
        return line if line is None or is_given else self._by_another_thread(variable, line, last.event)

    def _by_another_thread(self, variable: Variable, event: int, seen: int) -> int:
        """Return the line that changed a variable: where the line that saw it does not name it, another thread's last one."""
        name = plain(variable)
        if variable.name in GENERATORS or self._is_named(name, event):
            return event
        thread = self._values.events[event].thread
        # Before it was seen, else after that: the other run's thread may have come earlier.
        others = (
            n
            for n in [*range(seen, -1, -1), *range(seen + 1, len(self._values.events))]
            if self._values.events[n].thread != thread
        )
        named = [n for n in others if self._values.is_line(n) and self._is_named(name, n)]
        different = (n for n in named if not self._leaves_equal(variable, n))
        # Each may see the same at each of its own lines, and when they meet still differs.
        return next(different, next((n for n in named if self._values.events[n].thread != MAIN), event))

    def _leaves_equal(self, variable: Variable, event: int) -> bool:
        """Return True where a line left a variable the same in both runs; one that functions share is one of each frame."""
        end = self._values.end(event)
        here = variable._replace(frame=self._values.frame(event)) if variable.frame else variable
        return any(change.event == end and not change.is_different for change in self._values.changes.get(here, []))

    def _is_named(self, name: str, event: int) -> bool:
        return name in self._statement(event).names

    def _returned(self, event: int, end: int) -> Iterator[int]:
        """Yield the lines that returned something different to a line."""
        frame = self._values.frame(event)
        for number in range(event + 1, min(end, len(self._values.events))):
            ended = self._values.events[number]
            if ended.kind == "return" and ended.caller == frame and ended.began is not None:
                returned = self._values.changes.get(Variable(ended.frame, "", RETURNED), [])
                if any(change.event == number and change.is_different for change in returned):
                    yield self._returning(ended.frame, ended.began)

    def _left(self, event: int, end: int) -> Iterator[int]:
        """Yield the lines, called by a line, that left something different in attributes of an object, or in what they got."""
        frame = self._values.frame(event)
        for number in range(event + 1, min(end + 1, len(self._values.events))):
            left = self._values.events[number]
            if left.caller == frame and left.kind != "call" and left.began is not None:
                yield from (left.began for variable in self._values.parted_at.get(number, []) if self._outlasts(variable))

    def _outlasts(self, variable: Variable) -> bool:
        """Return True for an attribute, and for what a function was given: others have it when that has returned."""
        is_given = variable.frame and self._values.events[self._values.changes[variable][0].event].kind == "call"
        return bool(is_given) or (not variable.frame and "." in variable.name)

    def _returning(self, frame: int, began: int) -> int:
        """Return the event of a frame's last line that returns something: after it may come `finally`, or the head of `with`."""
        lines = (n for n in reversed(self._values.in_frame[frame]) if n <= began)
        return next((n for n in lines if self._statement(n).returns), began)
