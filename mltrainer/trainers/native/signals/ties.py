"""Weights meant to be one parameter that are two, so that training makes them differ: a head's and its embedding's."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mltrainer.tasks.data_findings import Finding

FLAG = re.compile(  # names of flags: in a model, its `config`, the call that makes it, or a default
    r"(^|_)(tie|tied|tying)(_|$)|^shared?_.*(embed|weight|head|output|softmax|decoder)|(embed|weight).*_shared?$"
)
MEND = "make it one parameter: head.weight = embedding.weight, after both were made for the last time"
ALIKE = 0.99  # chosen by us: the least correlation of a copied matrix with its source; between random ones it is near 0
MOST_ROWS = 2.0  # chosen by us: the greatest ratio of row counts, for a vocabulary that was padded or grew


class _Matrix(NamedTuple):
    """A module's matrix by its name; `weight` is a parameter, or a tensor computed from some."""

    name: str
    weight: Tensor


def tie_findings(model: nn.Module, owner: Any) -> list[Finding]:
    """Return a warning of an embedding and a head that begin alike, or are tied by the code, but are not one parameter.

    Matrices that begin differently, without code that ties them, are two on purpose. So are those that are not
    both trained.

    Args:
        model: A new model.
        owner: The object whose class made the model, such as the task.
    """
    embeddings, linear, bare = _matrices(model)
    is_tied = {id(one.weight) for one in embeddings} & {id(one.weight) for one in (*linear, *bare)}
    own = [one for one in embeddings if id(one.weight) not in is_tied]
    pairs = [(one, other, False) for one, other in itertools.product(own, [*linear, *bare])]
    pairs += [(one, other, True) for one, other in itertools.combinations(linear, 2)]
    for one, other, is_turned in pairs:
        if _is_made_of(one.weight, other.weight, is_turned):
            what = f"the weights of {one.name} and {other.name} begin with the same values and are two parameters"
            return [Finding("warning", f"{what}, which training parts; {MEND}")]
    said = None if is_tied else _said(model, owner)
    fitting = [(one.name, head.name) for one, head in itertools.product(own, linear) if one.weight.shape == head.weight.shape]
    if said is None or not fitting:
        return []
    what = f"{said} ties weights, but no two modules share any: {' and '.join(fitting[0])} are of one shape and two parameters"
    return [Finding("warning", f"{what}; {MEND}")]


# --- matrices that begin alike ---------------------------------------------------------------------


def _matrices(model: nn.Module) -> tuple[list[_Matrix], list[_Matrix], list[_Matrix]]:
    """Return the trained matrices of embeddings, of linear layers, and those that are parameters of other modules."""
    found: tuple[list[_Matrix], list[_Matrix], list[_Matrix]] = ([], [], [])
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag, nn.Linear)):
            # The weight of a parametrization, such as a weight norm, is computed from its parameters each time.
            rows = [(name, module.weight)]
        else:
            rows = [(f"{name}.{own}".lstrip("."), p) for own, p in module.named_parameters(recurse=False)]
        kind = found[0 if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) else 1 if isinstance(module, nn.Linear) else 2]
        # Parts of a parametrization count as the weight computed from them.
        is_part = "parametrizations." in name
        kind += [_Matrix(*row) for row in rows if row[1].dim() == 2 and row[1].requires_grad and not is_part]
    return found


@torch.no_grad()
def _is_made_of(one: Tensor, other: Tensor, is_turned: bool) -> bool:
    """Return True if a matrix has another's values, perhaps times a number, in the rows that both have.

    Args:
        one: The first matrix.
        other: The second matrix, also compared transposed.
        is_turned: Whether only the transposed one is compared.
    """
    if one is other or one.device != other.device:
        return False
    for matrix in (other.T,) if is_turned else (other, other.T):
        rows = min(len(one), len(matrix))
        if matrix.shape[1] == one.shape[1] and max(len(one), len(matrix)) <= MOST_ROWS * rows:
            first, second = one[:rows].flatten().double(), matrix[:rows].flatten().double()
            # Matrices of ones and zeros, such as an identity, show no copy.
            if 2 * len(first.unique()) > len(first) > 2 and float(torch.corrcoef(torch.stack([first, second]))[0, 1]) >= ALIKE:
                return True
    return False


# --- code that ties weights ------------------------------------------------------------------------


def _said(model: nn.Module, owner: Any) -> str | None:
    """Return the flag or the class whose code ties weights; None if no code does, or a flag denies it."""
    flags = [flag for one in (model, getattr(model, "config", None), owner) for flag in _flags(one)]
    kinds = dict.fromkeys(type(one) for one in (owner, *model.modules()) if not type(one).__module__.startswith("torch."))
    nodes = [(kind.__name__, node) for kind in kinds for node in _unconditional(_tree(kind))]
    asked = [(name, is_tied) for name, node in nodes if (is_tied := _choice(node)) is not None]
    for name, is_tied in [*((f"the flag {name}", value) for name, value in flags), *asked]:
        return name if is_tied else None
    return next((name for name, node in nodes if _is_tie(node) or _is_default(node)), None)


def _flags(one: Any) -> Iterator[tuple[str, bool]]:
    values = one if isinstance(one, Mapping) else getattr(one, "__dict__", {})
    yield from ((name, value) for name, value in values.items() if isinstance(value, bool) and FLAG.search(str(name)))


def _tree(kind: type) -> ast.AST:
    """Return a class's syntax tree; an empty one for a class without source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the unconditional parts of code: code under a condition may be for other models."""
    yield node
    for child in [] if isinstance(node, ast.If) else ast.iter_child_nodes(node):
        yield from _unconditional(child)


def _choice(node: ast.AST) -> bool | None:
    """Return the value of a flag in a call; None for anything else."""
    if not isinstance(node, ast.keyword) or not isinstance(node.value, ast.Constant) or not FLAG.search(node.arg or ""):
        return None
    return node.value.value if isinstance(node.value.value, bool) else None


def _is_default(node: ast.AST) -> bool:
    """Return True if a function ties weights by default."""
    if not isinstance(node, ast.arguments):
        return False
    named = [*node.posonlyargs, *node.args]
    given = [*zip(reversed(named), reversed(node.defaults), strict=False), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
    return any(isinstance(value, ast.Constant) and value.value is True and FLAG.search(one.arg) for one, value in given)


def _is_tie(node: ast.AST) -> bool:
    """Return True if code assigns one module's weight to another."""
    if isinstance(node, ast.Assign):
        return any(_is_weight(target) for target in node.targets) and _is_weight(node.value)
    is_copy = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "copy_"
    return is_copy and _is_weight(node.func.value) and bool(node.args) and _is_weight(node.args[0])  # type: ignore[attr-defined]  # a call


def _is_weight(node: ast.AST) -> bool:
    """Return True if code names a module's weight, or a value computed from it: its data, a copy, a parameter, a multiple."""
    if isinstance(node, ast.BinOp):
        return _is_weight(node.left) or _is_weight(node.right)
    if isinstance(node, ast.Call):
        made = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return any(_is_weight(one) for one in made)
    if isinstance(node, ast.Attribute):
        return node.attr == "weight" or (node.attr in ("data", "T") and _is_weight(node.value))
    return False
