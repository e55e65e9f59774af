"""The ledger of tried runs: a line for each run that was begun, and for each opening of the test split; it outlives their files.

A line holds when it was written, what was begun (a phase's run, or the test split's opening), the run, the link of an earlier
line, and its own link, a digest of all of that. Branches that each tried runs are merged by keeping the lines of both: the
ledger then has several ends, and a record names those that it was made at.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from mltrainer.errors import GateError
from mltrainer.workspace import PHASES, Project, read_whole, sha256_bytes

TRIED_FILE = "phases/tried_runs.txt"
TEST = "test"  # in place of a phase: the run's model opened the test split
FIRST = "-"  # in place of an earlier line's link
EXPECTED = f"TIME, one of {', '.join((*PHASES, TEST))}, RUN, LINK_BEFORE and LINK"
_LINE = re.compile(rf"(\S+) ({'|'.join((*PHASES, TEST))}) ([0-9a-f]{{12}}) (-|[0-9a-f]{{32}}) ([0-9a-f]{{32}})")


class Begun(NamedTuple):
    """What was begun: a phase, or `TEST` for an opening of the test split, and the run's id."""

    what: str
    run: str


class Line(NamedTuple):
    """A line of the ledger; `when` is in UTC, `before` the link of an earlier line."""

    when: str
    begun: Begun
    before: str
    link: str

    @property
    def text(self) -> str:
        """The line as the file holds it."""
        return f"{_covered(self.when, self.begun, self.before)} {self.link}"

    @property
    def is_whole(self) -> bool:
        """Whether the link is the digest of what is before it."""
        return self.link == _link(_covered(self.when, self.begun, self.before))


def _covered(when: str, begun: Begun, before: str) -> str:
    return f"{when} {begun.what} {begun.run} {before}"


def appended(lines: Sequence[Line], begun: Iterable[Begun], when: str) -> list[Line]:
    """Return a ledger with a line for each of what was begun that has none."""
    found, known = [*lines], {line.begun for line in lines}
    for one in begun:
        if one not in known:
            known.add(one)
            before = found[-1].link if found else FIRST
            found.append(Line(when, one, before, _link(_covered(when, one, before))))
    return found


def _link(covered: str) -> str:
    return sha256_bytes(covered.encode())[:32]


def parsed(content: bytes) -> list[Line]:
    """Return the lines of a ledger's file, in any line ends.

    Raises:
        GateError: A line was edited, is none of a ledger, or follows a line that was removed; the message names it.
    """
    found: list[Line] = []
    links = {FIRST}
    for number, text in enumerate(content.decode(errors="replace").splitlines(), 1):
        line = _line(text)
        if fault := _fault(line, links, text):
            hint = f"git checkout HEAD -- {TRIED_FILE}; after a merge: keep the lines of both sides, without git's marks"
            raise GateError(fault, where=f"{TRIED_FILE}:{number}", hint=hint)
        assert line is not None
        links.add(line.link)
        found.append(line)
    return found


def sound_lines(content: bytes) -> list[Line]:
    """Return the lines of an earlier version that cover themselves, whatever else is in it."""
    lines = map(_line, content.decode(errors="replace").splitlines())
    return [line for line in lines if line is not None and line.is_whole]


def _line(text: str) -> Line | None:
    match = _LINE.fullmatch(text)
    return Line(match[1], Begun(match[2], match[3]), match[4], match[5]) if match else None


def _fault(line: Line | None, links: Collection[str], text: str) -> str | None:
    if line is None:
        return f"expected {EXPECTED}, found {text[:80]!r}"
    if not line.is_whole:
        return "the line was edited: its last word is not the digest of the others"
    return None if line.before in links else "the line that it follows was removed"


def read(project: Project) -> list[Line]:
    """Return the lines of a project's ledger; empty where no run was begun.

    Raises:
        GateError: It was changed.
    """
    try:
        return parsed(read_whole(project.root / TRIED_FILE))
    except FileNotFoundError:
        return []


def ends(lines: Iterable[Line]) -> list[str]:
    """Return the links of the lines that no later one follows: one, or more after branches were merged."""
    rows = list(lines)
    followed = {line.before for line in rows}
    return [line.link for line in rows if line.link not in followed]


def up_to(lines: Iterable[Line], at: Collection[str]) -> Iterator[Line]:
    """Yield the lines that a ledger had when it ended in these links."""
    by_link, left = {line.link: line for line in lines}, list(at)
    while left:
        if (line := by_link.pop(left.pop(), None)) is not None:
            yield line
            left.append(line.before)


def runs(lines: Iterable[Line]) -> set[str]:
    """Return the ids of the runs that were begun."""
    return {line.begun.run for line in lines if line.begun.what != TEST}


def opened(lines: Iterable[Line]) -> set[str]:
    """Return the ids of the runs whose model opened the test split."""
    return {line.begun.run for line in lines if line.begun.what == TEST}
