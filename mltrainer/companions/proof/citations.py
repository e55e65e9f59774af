"""Numbers in a user's own text that are bound to records: `<!-- mltrainer baseline.run.steps -->400<!-- /mltrainer -->`.

A number keeps the form in which it was written: as many decimals, a percentage, or thousands set apart. It is right if the
record's number, rounded to that form, is the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mltrainer.workspace import PHASES

_REFERENCE = r"(?P<reference>[\w.:+-]{1,200})"
MARKDOWN = re.compile(rf"<!--\s*mltrainer\s+{_REFERENCE}\s*-->(?P<text>[^<\n]{{0,60}})<!--\s*/mltrainer\s*-->")
LATEX = re.compile(rf"\\mltrainer\{{{_REFERENCE}\}}\{{(?P<text>[^{{}}\n]{{0,60}})\}}")
_FORM = re.compile(r"(?P<sign>[+-]?)(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<decimals>\d+))?(?P<percent>\s*\\?%)?")
DIGITS = ".4g"  # of a number that nobody has written yet


@dataclass(frozen=True)
class Citation:
    """A number in a text.

    Attributes:
        line: Its line, from 1.
        reference: The phase and the keys of its record's evidence, with dots between them.
        text: The number as the text has it.
        expected: The same as the record has it, in that form; None if the record has no such number.
        span: The place of the number in the text.
    """

    line: int
    reference: str
    text: str
    expected: str | None
    span: tuple[int, int]

    @property
    def fault(self) -> str | None:
        """What is wrong with it, in words; None if nothing is."""
        if self.expected is None:
            return f"no record has a number named {self.reference}"
        found = self.text or "the text is empty"
        return None if self.text == self.expected else f"{found}, but {self.reference} is {self.expected}"


def citations(text: str, evidence: Mapping[str, Any]) -> list[Citation]:
    """Return the marked numbers of a text, in order.

    Args:
        text: The text, in Markdown, HTML or LaTeX.
        evidence: Each phase's evidence, by the phase's name.
    """
    found = [match for pattern in (MARKDOWN, LATEX) for match in pattern.finditer(text)]
    return [_citation(text, match, evidence) for match in sorted(found, key=lambda match: match.start())]


def _citation(text: str, match: re.Match[str], evidence: Mapping[str, Any]) -> Citation:
    value = number_at(evidence, match["reference"])
    expected = None if value is None else formed(value, match["text"].strip())
    line = text.count("\n", 0, match.start()) + 1
    return Citation(line, match["reference"], match["text"].strip(), expected, match.span("text"))


def filled(text: str, found: list[Citation]) -> str:
    """Return a text with the records' numbers in place of others; one that no record has stays."""
    for one in reversed(found):
        if one.expected is not None and one.fault is not None:
            text = text[: one.span[0]] + one.expected + text[one.span[1] :]
    return text


def number_at(evidence: Mapping[str, Any], reference: str) -> int | float | None:
    """Return the number that a reference names; None if it names none."""
    return next((value for name, value in numbers(evidence) if name == reference), None)


def numbers(evidence: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    """Yield each number of the phases' evidence with its reference."""
    for phase in PHASES:
        yield from _numbers(evidence.get(phase), phase)


def _numbers(value: Any, name: str) -> Iterator[tuple[str, int | float]]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield name, value
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _numbers(part, f"{name}.{key}")


def formed(value: float, like: str) -> str:
    """Return a text with a number in place of its own, in that form: decimals, percent sign, sign, thousands.

    A text without a number gives four significant digits.
    """
    form = _FORM.search(like)
    if form is None:
        return str(value) if isinstance(value, int) else format(value, DIGITS)
    percent = form["percent"] or ""
    shown = value * 100 if percent else value
    grouping = "," if "," in form["whole"] else ""
    sign = "+" if form["sign"] == "+" else ""
    return f"{like[: form.start()]}{shown:{sign}{grouping}.{len(form['decimals'] or '')}f}{percent}{like[form.end() :]}"
