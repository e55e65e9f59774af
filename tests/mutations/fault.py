"""A fault that is planted in a copy of the checkout: one place of the code made wrong in a way that runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        what: What goes wrong, in a few words.
        file: The module, from the checkout's top.
        right: The text that is replaced; it stands there once.
        wrong: What takes its place.
        tests: The narrowest tests that should notice, as pytest takes them.
        survives: Why no test can notice, for a fault that is known to change nothing that a user sees.
    """

    what: str
    file: str
    right: str
    wrong: str
    tests: str
    survives: str = ""
