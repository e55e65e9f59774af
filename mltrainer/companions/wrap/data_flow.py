"""The fate of a value in a source: it is only shown, decides something, or gets out of sight."""

from __future__ import annotations

import ast
from collections.abc import Callable
from enum import IntEnum

from mltrainer.programs.leftover_files import is_time

LOGGERS = frozenset(
    (
        *("info", "debug", "warning", "error", "critical", "exception", "log", "echo", "set_postfix", "set_postfix_str"),
        *("set_description", "set_description_str", "add_scalar", "add_scalars", "log_metrics", "log_dict"),
    )
)
COMPUTE = ("math.", "numpy.", "torch.", "cmath.")  # modules of which `log` is a function of numbers
STREAMS = ("sys.stdout", "sys.stderr", "tqdm")  # no program reads this output again
KEEPING = frozenset(("append", "extend", "add", "update", "setdefault", "put", "insert"))  # the value gets out of sight
PLAIN = frozenset(
    ("round", "int", "float", "abs", "min", "max", "sum", "divmod", "total_seconds", "timestamp", "timedelta", "mean")
)
# Expressions whose value hangs on that of their parts.
MADE = (ast.JoinedStr, ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.keyword, ast.Tuple, ast.List, ast.Dict, ast.IfExp)
TEXT = frozenset(("str", "repr", "format", "strftime", "isoformat", "join", "localtime", "ctime"))


class Fate(IntEnum):
    """The fate of a value, the worse the higher: of several uses the worst counts."""

    SHOWN = 0
    UNSEEN = 1
    DECIDES = 2


class DataFlow:
    """Follows values through one source.

    Args:
        tree: The source.
        dotted: Function that returns the full name of a callable, empty without a plain name.
    """

    def __init__(self, tree: ast.Module, dotted: Callable[[ast.expr], str]) -> None:
        self._dotted = dotted
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._uses: dict[str, list[ast.AST]] = {}
        self._by_key: dict[str, list[ast.AST]] = {}  # reads from a mapping by the key of a time
        for node in ast.walk(tree):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                self._uses.setdefault(ast.unparse(node), []).append(node)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and (time := _time(node.slice)):
                self._by_key.setdefault(time, []).append(node)

    def fate(self, node: ast.AST) -> Fate:
        """Return the fate of an expression's value, also by way of names."""
        worst = self._fate(node, set())
        return Fate.UNSEEN if worst is None else worst

    def _fate(self, node: ast.AST, followed: set[str]) -> Fate | None:
        """Return the fate of a value; None if it returns to a name that is being followed."""
        parent = self._parents.get(node)
        if isinstance(parent, ast.Call):
            return self._of_call(node, parent, followed)
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return _worst([self._of_target(target, followed) for target in targets])
        if isinstance(parent, ast.Expr):
            return Fate.SHOWN
        if isinstance(parent, ast.FormattedValue):
            return _at_most_unseen(self._fate(parent, followed))
        if isinstance(parent, (ast.If, ast.While)):
            return Fate.SHOWN if only_shows(parent) else Fate.DECIDES
        if isinstance(parent, ast.Dict) and (time := _time(_key_of(node, parent))):
            return self._of_time(time, followed)
        if isinstance(parent, ast.Tuple) and (target := self._unpacked_to(node, parent)) is not None:
            return self._of_target(target, followed)
        if isinstance(parent, MADE) or (isinstance(parent, ast.Attribute) and parent.value is node):
            return self._fate(parent, followed)
        return Fate.UNSEEN  # it is returned, or taken apart

    def _unpacked_to(self, node: ast.AST, made: ast.Tuple) -> ast.expr | None:
        """Return the target of a part of a tuple that is assigned to as many targets; else None."""
        assign = self._parents.get(made)
        target = assign.targets[0] if isinstance(assign, ast.Assign) and len(assign.targets) == 1 else None
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(made.elts):
            return None
        if any(isinstance(part, ast.Starred) for part in [*made.elts, *target.elts]):
            return None
        return next(to for part, to in zip(made.elts, target.elts, strict=True) if part is node)

    def _of_call(self, node: ast.AST, call: ast.Call, followed: set[str]) -> Fate | None:
        name = called(call)
        if call.func is node and isinstance(self._parents.get(call), ast.Expr):
            return Fate.DECIDES  # such as loss.backward()
        if self._shows(call.func, name):
            return Fate.SHOWN
        if name in TEXT:
            return _at_most_unseen(self._fate(call, followed))
        if call.func is node or name in PLAIN:
            return self._fate(call, followed)
        return Fate.UNSEEN if name in KEEPING else Fate.DECIDES

    def _shows(self, function: ast.expr, name: str) -> bool:
        if isinstance(function, ast.Name):
            return name == "print"
        if not isinstance(function, ast.Attribute) or self._dotted(function).startswith(COMPUTE):
            return False
        return name in LOGGERS or (name == "write" and ast.unparse(function.value) in STREAMS)

    def _of_target(self, target: ast.expr, followed: set[str]) -> Fate | None:
        """Return the fate of a value that is assigned to a target; None if its name was followed before."""
        if isinstance(target, ast.Subscript):
            time = _time(target.slice)
            return self._of_time(time, followed) if time else Fate.DECIDES  # such as group["lr"]
        if not isinstance(target, (ast.Name, ast.Attribute)):
            return Fate.UNSEEN
        name = ast.unparse(target)
        if name in followed:
            return None
        # Names may be given to each other in a circle.
        followed.add(name)
        uses = self._uses.get(name, [])  # where there are none, another source may have them
        return _worst([self._fate(use, followed) for use in uses]) if uses else Fate.UNSEEN

    def _of_time(self, key: str, followed: set[str]) -> Fate | None:
        """Return the fate of a time that is kept by its name: shown, as it is compared nowhere, unless it is read again."""
        if f"[{key}]" in followed:
            return None
        followed.add(f"[{key}]")
        return _worst([Fate.SHOWN, *(self._fate(use, followed) for use in self._by_key.get(key, []))])


def only_shows(node: ast.If | ast.While) -> bool:
    """Return True where only lines hang on a test that print, log, or keep the moment for the next test."""
    tested = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
    return all(prints(part) or _keeps(part, tested) for part in node.body)


def prints(statement: ast.stmt) -> bool:
    """Return True for a statement that prints or logs, and does nothing else."""
    call = statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    name = called(call) if call is not None else ""
    if call is not None and name == "write" and isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value) in STREAMS
    return name == "print" or name in LOGGERS


def called(call: ast.Call) -> str:
    """Return the last name of a callable; empty without one."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _key_of(value: ast.AST, made: ast.Dict) -> ast.expr | None:
    return next((key for key, part in zip(made.keys, made.values, strict=True) if part is value), None)


def _time(key: ast.expr | None) -> str:
    """Return a key by whose name its value is a time; empty for any other."""
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) and is_time(key.value) else ""


def _keeps(statement: ast.stmt, tested: set[str]) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return bool(targets) and all(isinstance(target, ast.Name) and target.id in tested for target in targets)


def _worst(fates: list[Fate | None]) -> Fate | None:
    return max((fate for fate in fates if fate is not None), default=None)


def _at_most_unseen(fate: Fate | None) -> Fate | None:
    """Return the fate of a value put into text, at most unseen: the text is a file's name, most often."""
    return None if fate is None else min(fate, Fate.UNSEEN)
