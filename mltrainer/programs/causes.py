"""The causes of differences between a program's runs: their kinds, with the fix for each, and judgements of its lines."""

from __future__ import annotations

from typing import NamedTuple

from mltrainer.observe.logs import Key
from mltrainer.reproducibility.causes import KINDS as WORDS

Place = tuple[str, int]  # file and line
UNCHANGED = ("random draw", "clock", "identity", "threads")  # kinds that differ from run to run by themselves, likeliest first


class Kind(NamedTuple):
    """A kind of cause.

    Attributes:
        words: The cause in words.
        hint: The fix.
    """

    words: str
    hint: str


_WORDS = WORDS | {"chance": "something that no single change decides"}
_FIXES = {
    "random draw": "seed this generator at the program's beginning, or draw from one that is made with a seed",
    "clock": "do not let the date or the time decide what is computed: take a seed, a step's number, or a date from the config",
    "identity": "take a number that the program itself counts",
    "hash order": "sort what comes out of the set before its order is used; take a digest of hashlib in place of hash()",
    "listing order": "sort the listing: sorted(...)",
    "unwritten memory": "take zeros in place of empty, or write all of it before it is read",
    "threads": "collect what threads give in the order in which it was asked for (executor.map), and join them before it is used",
    "operation": "torch.use_deterministic_algorithms(True) takes its deterministic form, or names it where there is none",
    "folder": "let no path's text decide what is computed",
    "outside": "give it the same in each run, or let nothing that is computed hang on it",
    "state": "save and load it with the checkpoint",
    "chance": "run it again with more --steps: what differs may then show earlier",
}
OF_LEFTOVER_FILES = {  # where no step was seen, and what the program left differs
    "random draw": "give this generator or estimator a seed (random_state=...)",
    "clock": "write no time into what is left, and let none decide what is computed",
    "chance": "give each generator and each estimator a seed (random_state=...), and write no time into what is left",
}
KINDS = {kind: Kind(_WORDS[kind], fix) for kind, fix in _FIXES.items()}


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
