"""The kinds of causes of differences between a program's runs: in words, and the fix for each."""

from __future__ import annotations

from typing import NamedTuple

from mltrainer.reproducibility.causes import KINDS as WORDS


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
