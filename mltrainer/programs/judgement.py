"""Judgements of a program's lines, from the traces of two of its runs."""

from __future__ import annotations

from typing import NamedTuple

from mltrainer.observe.logs import Key

Place = tuple[str, int]  # file and line
UNCHANGED = ("random draw", "clock", "identity", "threads")  # kinds that differ from run to run by themselves, likeliest first


class FirstDifference(NamedTuple):
    """The place at which a difference first shows.

    Attributes:
        step: The optimizer step, from 1.
        what: The operation, module or tensor, in words.
        module: The module it is computed in; empty outside of any.
        place: File and line of the user's own code; None where none is on the stack.
        function: The function that the line is of.
        kind: The kind of cause, if the traces show it; else empty.
        time: The time on the first trace's clock.
        process: The process that computes it.
        beside: Lines at which operations of that process differ too, with the moments, from which nothing reaches the training.
        earliest: The first difference of that process in time, where it is another one.
    """

    step: int
    what: str
    module: str
    place: Place | None
    function: str
    kind: str
    time: int
    process: Key = ("", 0)
    beside: tuple[tuple[Place, int], ...] = ()
    earliest: FirstDifference | None = None


class LikelyCause(NamedTuple):
    """A line that is likely the cause.

    Attributes:
        place: File and line.
        kind: A key of `causes.KINDS`.
        call: The call in that line.
    """

    place: Place
    kind: str
    call: str


class Judged(NamedTuple):
    """The lines of a program by their effect on its training.

    Attributes:
        causes: Those that are likely the cause, the likeliest first.
        innocent: Those that give something else in each run which does not reach the training.
        shown: The place where the difference first shows, which judged them.
        is_explained: Whether the way back from there came to a line of which it is known why it differs.
    """

    causes: list[LikelyCause]
    innocent: list[LikelyCause]
    shown: FirstDifference | None
    is_explained: bool
