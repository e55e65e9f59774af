"""The origin of a difference between two runs: it is traced back through differing values, from line to line.

Both runs' rows of values are compared. An operation's input differs because a variable of its line does; that one
differs because of the line that changed it last, and so on, through calls and their results, until a line is reached
which was given the same in both runs, or which asks a clock or its like itself. What differs beside this way is not followed.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from mltrainer.companions.wrap.givers import Giver, Givers
from mltrainer.companions.wrap.paired_values import MAIN, RESULT, Pair, PairedValues, Place, Variable, plain
from mltrainer.companions.wrap.statements import Statements

MOST = 5000  # steps of a trace back


class Origin(NamedTuple):
    """A line at which a difference begins.

    Attributes:
        place: File and number of the line.
        event: The event at which it begins.
        is_given_same: Whether the line was given the same in both runs.
        generator: Shared generator with different states from which the line drew, if any.
        thread: The thread that ran it.
        used: Line that uses the value of a variable that is also printed; None without one.
        late_seed: Line that seeded the generator later; None without one.
    """

    place: Place
    event: int
    is_given_same: bool
    generator: str
    thread: str
    used: Place | None = None
    late_seed: Place | None = None


class Origins:
    """Follows what differs between two runs of a process back to the lines at which it begins.

    Args:
        one: Rows of the first run.
        other: Rows of the second run.
        source: Function that returns the text of a file.
    """

    def __init__(self, one: list[list[Any]], other: list[list[Any]], source: Callable[[str], str]) -> None:
        self._values, self._statements = PairedValues(one, other), Statements(source)
        self._givers = Givers(self._values, self._statements)

    @property
    def inherited(self) -> set[Variable]:
        """Variables that differed at the start of a fork, and were on a way back."""
        return self._givers.inherited

    def of_computed(self, place: Place, time: int, asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference in a line's computation at a moment begins, the nearest first.

        Args:
            place: The line.
            time: The moment, on the first run's clock.
            asks: Lines that request something which differs from run to run.
        """
        moment = self._values.moment(place, time)
        if moment is None:
            return []
        if moment.event is not None and (found := self._back([self._givers.computing(moment.event, time)], asks)):
            return found
        # Equal values, and still other operations: the runs have taken different ways.
        parted = self._values.parted(moment.frame)
        if parted is not None:
            return self._back([self._givers.whole(parted)], asks, is_way=True)
        if moment.event is None or not self._givers.is_known(moment.event):
            return []
        return [Origin(place, moment.event, True, "", self._values.events[moment.event].thread)]

    def of_written(self, opened: list[tuple[Place, int]], asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference in written files begins, the nearest first.

        Args:
            opened: Lines that opened the files, with the time on the first run's clock.
            asks: Lines that request something which differs from run to run.
        """
        moments = [self._values.moment(place, time) for place, time in opened]
        events = [moment.event for moment in moments if moment is not None and moment.event is not None]
        writing = dict.fromkeys(n for event in events for n in self._writing(event))
        return self._back([self._givers.whole(event) for event in writing], asks)

    def _writing(self, event: int) -> Iterator[int]:
        """Yield a line that opens a file, and the lines of its frame that read the opened file."""
        yield event
        names = self._statements.at(*self._values.place(event)).gives
        for number in self._values.in_frame[self._values.frame(event)]:
            if number > event and names & self._givers.read_whole(*self._values.place(number)):
                yield number

    def of_inherited(self, variables: Collection[Variable], time: int, asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference in a fork's inherited variables begins, the nearest first."""
        lines = [self._givers.changed_by(variable, self._values.number_at(time)) for variable in variables]
        starts = [line for line in lines if line is not None]
        return self._back(starts, asks, is_way=True) if starts else []

    def of_decisions(self, asks: Collection[Place]) -> list[Origin]:
        """Return the lines at which the difference begins that decisions of the program hang on, the nearest first."""
        lines = [n for n in range(len(self._values.events)) if self._values.is_line(n)]
        events = [n for n in lines if self._statements.at(*self._values.place(n)).decides]
        return self._back([self._givers.whole(event) for event in events if self._givers.is_given_different(event)], asks)

    @functools.cached_property
    def differing(self) -> set[Place]:
        """The lines that were seen to leave something different in a variable."""
        began = (self._values.events[number].began for number in self._values.parted_at)
        return {self._values.place(line) for line in began if line is not None}

    def unseen(self, origin: Origin) -> list[Place]:
        """Return the lines that give the names which an origin reads and whose values have no digest, by the source."""
        seen, file = {plain(variable) for variable in self._values.changes}, origin.place[0]
        return [
            (file, line) for name in self._givers.read_whole(*origin.place) - seen for line in self._statements.giving(file, name)
        ]

    def _back(self, starts: list[Giver], asks: Collection[Place], is_way: bool = False) -> list[Origin]:
        """Return the origins of the differences in some lines, by their given values; `is_way`: these may be origins, too."""
        waiting, found = deque(starts), dict[Place, Origin]()
        users: dict[Giver, Giver | None] = dict.fromkeys(starts)  # by line: the one that it gave something
        while waiting and len(users) < MOST:
            line = waiting.popleft()
            givers, generator = self._givers.of(line, asks)
            givers = givers or ([] if generator or users[line] is None else self._handed_over(line, users))
            is_first = users[line] is None and not is_way and not generator
            place = self._values.place(line.event)
            if (not givers and not is_first) or place in asks:
                found.setdefault(place, self._origin(line, users, generator, is_given_same=not givers))
            for giver in givers:
                if giver not in users:
                    users[giver] = line
                    waiting.append(giver)
        if found:  # of those that ask the latest first: that a program notes when it began does no harm by itself
            return sorted(found.values(), key=lambda origin: -origin.event if origin.place in asks else 0)
        beside = [line for line in users if self._values.events[line.event].thread != MAIN]  # that gave it to each other
        return [self._origin(min(beside), users, "", is_given_same=False)] if beside else []

    def _handed_over(self, line: Giver, users: Mapping[Giver, Giver | None]) -> list[Giver]:
        """Return the lines from which a line got its given value through another thread, such as by a queue."""
        thread = self._values.events[line.event].thread
        found = self._givers.holding(self._pairs(line, users), line.until)
        return found or self._givers.worked(line.until, thread)

    def _pairs(self, line: Giver, users: Mapping[Giver, Giver | None]) -> tuple[Pair, ...]:
        found, way = list[Pair](), line
        while (user := users[way]) is not None:
            seen = self._values.seen_at(way.variable, way.until)
            found, way = [*found, *([seen] if seen is not None else [])], user
        return tuple(found)

    def _origin(self, line: Giver, users: Mapping[Giver, Giver | None], generator: str, *, is_given_same: bool) -> Origin:
        late_seed = self._late_seed(generator, line.event) if generator and is_given_same else None
        thread, used = self._values.events[line.event].thread, self._used(line, users)
        return Origin(self._values.place(line.event), line.event, is_given_same, generator, thread, used, late_seed)

    def _used(self, line: Giver, users: Mapping[Giver, Giver | None]) -> Place | None:
        """Return the last line, on the way from one to the visible difference, that gets a value which is also used elsewhere.

        Such a value is a printed variable, or the result of a function that another line calls, too.
        """
        found = None
        while (user := users[line]) is not None:
            place = self._values.place(user.event)
            is_printed = plain(line.variable) in self._statements.shown(place[0])
            if is_printed or (line.variable == RESULT and self._is_called_elsewhere(line.event, place)):
                found = place
            line = user
        return found

    def _is_called_elsewhere(self, event: int, place: Place) -> bool:
        """Return True where the function that an event runs in is also called at another line, which names it."""
        function = self._values.function(self._values.frame(event))
        name = function[1].rpartition(".")[2]
        return any(name in self._statements.at(*other).names for other in self._values.called_at.get(function, set()) - {place})

    def _late_seed(self, generator: str, event: int) -> Place | None:
        """Return the line that seeds a generator after a draw, in a function that led to the draw; None without one."""
        frames, frame = set[int](), self._values.frame(event)
        while frame:
            frames, frame = frames | {frame}, self._values.callers.get(frame, 0)
        known = self._values.changes.get(Variable(0, "", generator), [])
        began = [self._values.events[change.event].began for change in known if not change.is_different and change.event > event]
        lines = [line for line in began if line is not None and self._values.frame(line) in frames]
        return next((self._values.place(line) for line in lines if self._givers.seeds(line)), None)
