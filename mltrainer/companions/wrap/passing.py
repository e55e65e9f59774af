"""The parts of a statement by use: its own reads, and the arguments that it only passes to functions that ran in it.

A value that is handed to a function of the program's own counts where that reads it, and not at the line that calls it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from mltrainer.companions.wrap.data_flow import called

Read = tuple[str, str]  # name and attribute, either may be empty
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
COMPREHENSIONS: dict[str, type[Comprehension]] = {  # by the names of their frames
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
    "<genexpr>": ast.GeneratorExp,
}
LAMBDA = "<lambda>"
GOES_THROUGH = ".0"  # the parameter of a comprehension


class Function(NamedTuple):
    """A function that ran.

    Attributes:
        name: The function's full name, such as `Class.method` or `outer.<locals>.inner`.
        parameters: Names of its parameters, in order.
        free: Names of variables that belong to the functions around it.
    """

    name: str
    parameters: tuple[str, ...] = ()
    free: frozenset[str] = frozenset()

    @property
    def called(self) -> str:
        """The name by which it is called; of a constructor the class's."""
        *above, last = self.name.split(".")
        return above[-1] if last == "__init__" and above else last

    @property
    def around(self) -> str:
        """The full name of the function around it; empty where there is none."""
        return self.name.rpartition(".<locals>.")[0]


class Computed(NamedTuple):
    """The dependencies of a part of a statement.

    Attributes:
        reads: Read names, each with its read attribute, if any; an attribute alone has no name.
        calls: Names of functions whose results it uses.
    """

    reads: frozenset[Read]
    calls: frozenset[str]


def may_change(heads: Sequence[ast.AST], name: str) -> bool:
    """Return True where parts of a statement may change a variable or attribute of a name: they do more than read it."""
    parents = {child: node for head in heads for node in ast.walk(head) for child in ast.iter_child_nodes(node)}
    named = [node for head in heads for node in ast.walk(head) if name in (getattr(node, "id", ""), getattr(node, "attr", ""))]
    return any(_may_change(node, parents) for node in named)


def _may_change(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    above = parents.get(node)
    if isinstance(above, ast.Subscript) and above.value is node:
        return not isinstance(above.ctx, ast.Load)
    is_handed = isinstance(above, (ast.Call, ast.keyword, ast.Starred, ast.Attribute))
    return is_handed or not isinstance(getattr(node, "ctx", None), ast.Load)


def run_by(heads: Sequence[ast.AST], function: str) -> list[ast.AST]:
    """Return the parts of a statement that a frame runs: for a comprehension all but its first iterable."""
    last = function.rpartition(".")[2]
    nodes = [node for head in heads for node in ast.walk(head)]
    if last == LAMBDA:
        return [node.body for node in nodes if isinstance(node, ast.Lambda)]
    if last not in COMPREHENSIONS:
        return [*heads]
    made = [node for node in nodes if isinstance(node, Comprehension) and _name(node) == last]
    return [part for node in made for part in _run_inside(node)]


def _run_inside(node: Comprehension) -> list[ast.AST]:
    first, *others = node.generators
    return [*(part for part in ast.iter_child_nodes(node) if part is not first), first.target, *first.ifs, *others]


def called_in(parts: Sequence[ast.AST]) -> set[str]:
    """Return the names of what parts of a statement call, and of comprehensions in them."""
    return {name for part in parts for node in _walk(part, ()) if (name := _name(node))}


def computed(parts: Sequence[ast.AST], entered: Collection[str] = ()) -> Computed:
    """Return the names and results that parts of a statement use, except values that they only pass to functions.

    Args:
        parts: Parts of the statement.
        entered: Call names of the functions that ran in it.
    """
    nodes = [node for part in parts for node in _walk(part, entered)]
    return Computed(frozenset(_reads(nodes)), frozenset(name for node in nodes if (name := _name(node)) and name in entered))


def given(parts: Sequence[ast.AST], function: Function, parameter: str) -> list[ast.AST] | None:
    """Return the parts of a statement that it passes to a function as a parameter: all of them if that is unclear.

    None where they hand it none, and it has its default.
    """
    calls = [node for part in parts for node in ast.walk(part) if _name(node) == function.called]
    arguments = [_argument(call, function, parameter) for call in calls]
    return [part for part in arguments if part is not None] or (None if calls and function.parameters else [*parts])


def _argument(call: ast.AST, function: Function, parameter: str) -> ast.AST | None:
    """Return a call's argument for a parameter; the call itself if that is unclear, None without an argument."""
    if isinstance(call, Comprehension):
        return call.generators[0].iter
    if not isinstance(call, ast.Call) or parameter not in function.parameters:
        return call
    is_bound = function.parameters[0] in ("self", "cls")
    place = function.parameters.index(parameter) - is_bound
    if place < 0:
        return call.func
    named = next((keyword.value for keyword in call.keywords if keyword.arg == parameter), None)
    is_plain = not any(isinstance(argument, ast.Starred) for argument in call.args)
    is_plain = is_plain and all(keyword.arg for keyword in call.keywords)
    if named is not None or not is_plain:
        return named or call
    return call.args[place] if place < len(call.args) else None


def _walk(node: ast.AST, entered: Collection[str]) -> Iterator[ast.AST]:
    """Yield a node and its descendants, without those that run in another frame or are passed to entered functions."""
    yield node
    is_entered = _name(node) in entered
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, Comprehension) and is_entered:
        # The iterable may have no digest, and is read here, too.
        yield from _walk(node.generators[0].iter, entered)
    elif not is_entered:
        for child in ast.iter_child_nodes(node):
            yield from _walk(child, entered)


def _name(node: ast.AST) -> str:
    """Return the name of a node's callable, or of a comprehension's frame; empty for other nodes."""
    if isinstance(node, ast.Call):
        return called(node)
    return next((name for name, kind in COMPREHENSIONS.items() if isinstance(node, kind)), "")


def _reads(nodes: Sequence[ast.AST]) -> Iterator[Read]:
    bases = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    changed = {node.target for node in nodes if isinstance(node, ast.AugAssign)}  # in place
    for node in nodes:
        is_read = node in changed or isinstance(getattr(node, "ctx", None), ast.Load)
        if isinstance(node, ast.Attribute) and is_read:
            yield node.value.id if isinstance(node.value, ast.Name) else "", node.attr
        elif isinstance(node, ast.Name) and is_read and node not in bases:
            yield node.id, ""
