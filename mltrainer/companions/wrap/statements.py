"""The statements of a program's sources, by line: the names that they read and assign, and whether other lines depend on them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mltrainer.companions.wrap.data_flow import only_shows, prints
from mltrainer.companions.wrap.passing import Read, computed


class Statement(NamedTuple):
    """The code that a statement's line runs.

    Attributes:
        heads: Parts of its syntax tree that its own line runs.
        gives: Names that it assigns.
        names: Names of all variables and attributes in it.
        text: Source text.
        decides: Whether it controls statements that do more than print.
        shows: Whether it prints or logs.
        returns: Whether it returns a value, or yields one.
        loop: First and last line of a loop's body; else zeros.
        awaits: Whether other coroutines may run meanwhile.
    """

    heads: tuple[ast.AST, ...]
    gives: frozenset[str]
    names: frozenset[str]
    text: str
    decides: bool
    shows: bool
    returns: bool
    loop: tuple[int, int] = (0, 0)
    awaits: bool = False

    @property
    def reads(self) -> frozenset[Read]:
        """The names that it reads, each with the attribute that it reads of it, if it does; of an attribute's own no name."""
        return computed(self.heads).reads

    def with_another(self, other: Statement) -> Statement:
        """Return this one and another of the same line."""
        return Statement(
            self.heads + other.heads,
            self.gives | other.gives,
            self.names | other.names,
            f"{self.text} {other.text}".strip(),
            self.decides or other.decides,
            self.shows or other.shows,
            self.returns or other.returns,
            max(self.loop, other.loop),
            self.awaits or other.awaits,
        )


NO_STATEMENT = Statement((), frozenset(), frozenset(), "", False, False, False)


class Statements:
    """The statements of sources, by line: of one that holds others its head."""

    def __init__(self, source: Callable[[str], str]) -> None:
        self._source = source
        self._found: dict[str, dict[int, Statement]] = {}

    def at(self, file: str, line: int) -> Statement:
        """Return the statement of a line; an empty one without one."""
        return self._of(file).get(line, NO_STATEMENT)

    def giving(self, file: str, name: str) -> list[int]:
        """Return the lines that give a name its value."""
        return [line for line, found in self._of(file).items() if name in found.gives]

    def sets(self, file: str, attribute: str) -> bool:
        """Return True where a line of a file gives an attribute of this name a value."""
        targets = (part for found in self._of(file).values() for head in found.heads for part in ast.walk(head))
        return any(
            isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and part.attr == attribute for part in targets
        )

    def shown(self, file: str) -> set[str]:
        """Return the names of variables and attributes that lines of a file print or log."""
        return {name for found in self._of(file).values() if found.shows for read in found.reads for name in read if name}

    def _of(self, file: str) -> dict[int, Statement]:
        if file not in self._found:
            self._found[file] = _by_line(self._source(file))
        return self._found[file]


def _by_line(text: str) -> dict[int, Statement]:
    """Return the statement of each line of a source; none if it is not valid Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    statements: dict[int, Statement] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            heads = _heads(node)
            last = max((head.end_lineno for head in heads if getattr(head, "end_lineno", None)), default=node.lineno)
            for line in range(node.lineno, last + 1):  # which other statements may stand in, too
                statements[line] = statements.get(line, NO_STATEMENT).with_another(_statement(node, heads))
    return statements


def _statement(node: ast.stmt, heads: list[Any]) -> Statement:
    parts = [part for head in heads for part in ast.walk(head)]
    gives = frozenset(_gives(node))
    return Statement(
        tuple(heads),
        gives,
        frozenset(_names(parts)) | gives,
        " ".join(map(ast.unparse, heads)),
        _decides(node),
        prints(node),
        any(isinstance(part, (ast.Return, ast.Yield)) for part in parts),
        (node.body[0].lineno, node.end_lineno or 0) if isinstance(node, (ast.For, ast.AsyncFor)) else (0, 0),
        isinstance(node, (ast.AsyncFor, ast.AsyncWith)) or any(isinstance(part, ast.Await) for part in parts),
    )


def _names(parts: list[Any]) -> Iterator[str]:
    """Yield the names of variables and attributes that are read, written or removed."""
    for node in parts:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _decides(node: ast.stmt) -> bool:
    return isinstance(node, (ast.If, ast.While)) and not only_shows(node)


def _gives(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement's own line gives a value; an attribute's change gives its `self` none."""
    if isinstance(node, (ast.For, ast.AsyncFor, ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    else:
        targets = node.targets if isinstance(node, ast.Assign) else []
    for target in targets:
        yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name) and part.id != "self")


def _heads(node: ast.stmt) -> list[Any]:
    """Return the parts of a statement that its own line runs."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.iter]
    if isinstance(node, (ast.If, ast.While)):
        return [node.test]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in node.items]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.decorator_list]
    if isinstance(node, ast.ClassDef):
        return [*node.bases, *node.decorator_list]
    return [] if isinstance(node, (ast.Try, ast.Match)) else [node]
