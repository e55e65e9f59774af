"""The rows of `planted.tsv`: each makes one place of the code wrong in a way that runs."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
TABLE = "tests/mutations/planted.tsv"
LAYOUT = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT)
CLOSING = (")", "]", "}")


@dataclass(frozen=True)
class Fault:
    """One row.

    Attributes:
        row: Its line of the table.
        file: The module, from the checkout's top.
        function: The function or class that holds the place and no inner one does, such as `Class.method`; empty outside of all.
        old: The code that is replaced. It stands there once; layout, comments and last commas do not count.
        new: What takes its place.
        tests: The narrowest tests that should notice, as pytest takes them.
        what: What goes wrong, in a few words.
        survives: Why no test can notice, for a fault that is known to change nothing that a user sees.
    """

    row: int
    file: str
    function: str
    old: str
    new: str
    tests: str
    what: str
    survives: str = ""

    @property
    def room(self) -> str:
        """The package or module of `mltrainer` that the fault is planted in."""
        return Path(self.file).with_suffix("").parts[1]

    @property
    def place(self) -> str:
        """Row, file and function, as messages name them."""
        return f"{TABLE}:{self.row}: {self.file}, {self.function or 'outside of functions'}"


def read(table: str) -> list[Fault]:
    """Return the faults of a table with a head.

    Raises:
        SystemExit: A row lacks cells, or has too many.
    """
    rows = [(number, line.split("\t")) for number, line in enumerate(table.splitlines(), 1)][1:]
    for number, cells in rows:
        if len(cells) not in (6, 7):
            raise SystemExit(f"{TABLE}:{number}: expected 6 or 7 cells with tabs between, found {len(cells)}")
    return [Fault(number, *cells) for number, cells in rows]


@cache
def faults() -> list[Fault]:
    """Return all planted faults."""
    return read((TOP / TABLE).read_text("utf-8"))


def planted_text(top: Path, fault: Fault) -> str:
    """Return a module's text, below the checkout's top, with the fault in it.

    Raises:
        SystemExit: The row is older than the code, or what it plants is no Python.
    """
    try:
        text = replaced((top / fault.file).read_text("utf-8"), fault)
        ast.parse(text)
    except (OSError, LookupError, SyntaxError, tokenize.TokenError) as error:
        raise SystemExit(f"{fault.place}: {error}") from None
    return text


def replaced(text: str, fault: Fault) -> str:
    """Return a text in which the new code stands in place of the old.

    Raises:
        LookupError: The function or the place is not there, or the place not only once.
    """
    found, old = tokens(own_lines(text, fault.function)), [token.string for token in tokens(fault.old)]
    runs = [found[nr : nr + len(old)] for nr in range(len(found))]
    places = [run for run in runs if [token.string for token in run] == old]
    if len(places) != 1:
        raise LookupError(f"expected once, found {len(places)} times: {fault.old}")
    first, last = places[0][0], places[0][-1]
    return text[: position(text, *first.start)] + fault.new + text[position(text, *last.end) :]


def own_lines(text: str, function: str) -> str:
    """Return a text in which the lines of other functions and classes are empty, inner ones among them.

    Raises:
        LookupError: The function is not there.
    """
    functions = functions_by_line(text)
    if function not in ("", *functions.values()):
        raise LookupError("no such function or class")
    return "\n".join(line if functions.get(nr, "") == function else "" for nr, line in enumerate(text.split("\n"), 1))


def position(text: str, line: int, column: int) -> int:
    """Return where a token's line, from 1, and column stand in a text."""
    return sum(len(before) + 1 for before in text.split("\n")[: line - 1]) + column


def tokens(code: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a piece of code without its layout: without semicolons and commas before a closing bracket, too."""
    every = tokenize.generate_tokens(io.StringIO(code).readline)
    kept = [token for token in every if token.type not in LAYOUT and token.string != ";"]
    return [token for token, after in pairwise(kept) if token.string != "," or after.string not in CLOSING]


@lru_cache(1)  # a module's faults stand one after another
def functions_by_line(code: str) -> dict[int, str]:
    """Return the innermost function or class of each line that stands in one; a decorator stands in what it decorates."""
    return {line: name for name, lines in definitions(ast.parse(code)) for line in lines}


def definitions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, range]]:
    """Yield the qualified name and the lines of each function and class, the inner ones after the outer one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}.{child.name}".lstrip(".")
            yield name, range(min(part.lineno for part in (child, *child.decorator_list)), child.end_lineno + 1)
            yield from definitions(child, name)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from definitions(child, outer)
