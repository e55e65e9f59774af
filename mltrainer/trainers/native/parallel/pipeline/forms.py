"""The forms of entries' outputs, without their numbers: a skipped entry returns a value of the same form."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, register_dataclass, tree_flatten

from mltrainer.errors import InputError
from mltrainer.trainers.native.parallel.pipeline.cuts import MEND, WHERE

PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.Size, torch.dtype, torch.device)


@dataclass(frozen=True)
class Given:
    """An output of an entry that is one of its inputs, such as a cache.

    Attributes:
        place: The index of that input.
    """

    place: int


@dataclass(frozen=True)
class Form:
    """The outputs of an entry without their numbers.

    Attributes:
        spec: The structure of the outputs.
        leaves: The leaves; an empty tensor of the same type for each tensor.
    """

    spec: TreeSpec
    leaves: list[Any]


def form_of(name: str, outputs: Any, inputs: Any) -> Form:
    """Return the form of an entry's outputs.

    Raises:
        InputError: An output is not a tensor, and may differ at the next call.
    """
    places = {id(leaf): place for place, leaf in enumerate(flattened(inputs)[0])}
    leaves, spec = flattened(outputs)
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            found.append(torch.empty(0, dtype=leaf.dtype))
        elif not isinstance(leaf, PLAIN) and id(leaf) not in places:
            what = f"{name} hands on a {type(leaf).__name__}, of which it is not known what the next stage needs"
            raise InputError(what, where=WHERE, hint=f"tuples, lists, dicts or dataclasses of tensors; or {MEND}")
        else:
            found.append(leaf if isinstance(leaf, PLAIN) else Given(places[id(leaf)]))
    return Form(spec, found)


def flattened(values: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of nested values and their structure; a dataclass with tensors is no leaf."""
    leaves, spec = tree_flatten(values)
    kinds = {
        type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and _has_tensors(leaf)
    }
    for kind in kinds:
        register_dataclass(kind)
    return flattened(values) if kinds else (leaves, spec)


def _has_tensors(value: Any) -> bool:
    fields = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return any(isinstance(leaf, Tensor) for leaf in flattened(fields)[0])


def stand_in(leaf: Any, inputs: list[Any], tensors: list[Tensor]) -> Any:
    """Return a value for an output of a skipped entry; for a tensor one of the same type, with a graph for the loss."""
    if isinstance(leaf, Given):
        return inputs[leaf.place]
    if not isinstance(leaf, Tensor):
        return leaf
    return next((tensor for tensor in tensors if tensor.dtype == leaf.dtype), tensors[0].to(leaf.dtype))
