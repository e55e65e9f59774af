"""Weights that were meant to be one parameter and are two, so that training parts them: a head's and its embedding's."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import Any

import torch
from torch import nn

from mltrainer.tasks.data_findings import Finding

FLAGS = ("tie_weights", "tie_word_embeddings", "tie_embeddings", "weight_tying")  # of a model or of its `config`
MEND = "make it one parameter: head.weight = embedding.weight, after both were made for the last time"


def tie_findings(model: nn.Module, owner: Any) -> list[Finding]:
    """Return a warning of an embedding and a linear layer that begin alike, or are tied by the code, and are not one parameter.

    Such layers that begin otherwise, and of which no code says that they are tied, are two on purpose.

    Args:
        model: A new one.
        owner: Whose class made it, such as the task.
    """
    pairs = _pairs(model)
    if not pairs:
        return []
    for embedding, head in pairs:
        one, other = model.get_parameter(f"{embedding}.weight"), model.get_parameter(f"{head}.weight")
        if one.device == other.device and torch.equal(one, other) and bool((one != one.flatten()[0]).any()):
            what = (
                f"the weights of {embedding} and {head} begin with the same values and are two parameters, which training parts"
            )
            return [Finding("warning", f"{what}; {MEND}")]
    said = _said(model, owner)
    if said is None or _shares_any(model):
        return []
    embedding, head = pairs[0]
    what = f"{said} ties weights, but no two modules share any: {embedding} and {head} are of one shape and two parameters"
    return [Finding("warning", f"{what}; {MEND}")]


def _pairs(model: nn.Module) -> list[tuple[str, str]]:
    """Return the names of embeddings and linear layers whose weights are of one shape and not one parameter."""
    named = [
        (name, module) for name, module in model.named_modules() if isinstance(getattr(module, "weight", None), nn.Parameter)
    ]
    kinds = [[(name, module) for name, module in named if isinstance(module, kind)] for kind in (nn.Embedding, nn.Linear)]
    return [
        (embedding, head)
        for (embedding, one), (head, other) in itertools.product(*kinds)
        if one.weight is not other.weight and one.weight.shape == other.weight.shape
    ]


def _shares_any(model: nn.Module) -> bool:
    return len([*model.named_parameters(remove_duplicate=False)]) > len([*model.parameters()])


def _said(model: nn.Module, owner: Any) -> str | None:
    """Return the flag or the class whose code ties weights; None where nothing says so."""
    for flag in FLAGS:
        if any(getattr(one, flag, None) is True for one in (model, getattr(model, "config", None))):
            return f"the flag {flag}"
    kinds = dict.fromkeys(type(one) for one in (owner, *model.modules()) if not type(one).__module__.startswith("torch."))
    return next((kind.__name__ for kind in kinds if _ties(kind)), None)


def _ties(kind: type) -> bool:
    """Return True if a class's code gives one module's weight to another; a class without source says nothing."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(_is_tie(node) for node in ast.walk(tree))


def _is_tie(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(_is_weight(target) for target in node.targets) and _is_weight(node.value)
    is_copy = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "copy_"
    return is_copy and _is_weight(node.func.value) and bool(node.args) and _is_weight(node.args[0])  # type: ignore[attr-defined]  # a call


def _is_weight(node: ast.AST) -> bool:
    """Return True if code names a module's weight, or what is made of it: its data, a copy, a parameter."""
    if isinstance(node, ast.Call):
        made = [*node.args[:1], *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return any(_is_weight(one) for one in made)
    if isinstance(node, ast.Attribute):
        return node.attr == "weight" or (node.attr == "data" and _is_weight(node.value))
    return False
