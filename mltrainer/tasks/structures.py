"""Tensors in nested tuples, lists, mappings and dataclasses: the forms of batches, outputs and targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MAIN = "logits"  # the main output's name in Hugging Face's models


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor of a structure, in its order."""
    if isinstance(value, Tensor):
        yield value
    for part in _parts(value):
        yield from tensors_in(part)


def mapped(change: Callable[[Tensor], Any], value: Any) -> Any:
    """Return a structure with every tensor changed; values other than tensors and structures stay as they are."""
    if isinstance(value, Tensor):
        return change(value)
    if dataclasses.is_dataclass(value):
        return _replaced(value, {name: mapped(change, part) for name, part in _fields(value).items()})
    if isinstance(value, Mapping):
        return {name: mapped(change, part) for name, part in value.items()}
    # A named tuple takes its parts one by one, not as one sequence.
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(change, part) for part in value))
    return type(value)(mapped(change, part) for part in value) if type(value) in (tuple, list) else value


def one_of(value: Any, place: int, count: int) -> Any:
    """Return one sample's part of the outputs or targets of a batch of `count` samples, as a batch of one."""
    # Tensors of another length are not by sample, such as weights of the classes: they stay whole.
    return mapped(lambda part: part[place : place + 1] if part.dim() and len(part) == count else part, value)


def main_output(outputs: Any) -> Any:
    """Return a model's main output: the output itself, its `logits` where there are such, else its first part.

    Args:
        outputs: A tensor, or a tuple, a list, a mapping or a dataclass that holds some.
    """
    if isinstance(outputs, Tensor):
        return outputs
    named = _by_name(outputs)
    if isinstance(named.get(MAIN), Tensor):
        return named[MAIN]
    return next((part for part in _parts(outputs) if part is not None), outputs)


def length(value: Any) -> int:
    """Return a structure's number of samples: the first dimension of its first tensor, or a list's items."""
    if isinstance(value, (Tensor, list)):
        return len(value)
    first = next(tensors_in(value), None)
    return len(value) if first is None else len(first)


def joined(parts: Sequence[Any]) -> Any:
    """Return the batches' structures as one: tensors concatenated, scalar tensors stacked, other values as None.

    Raises:
        RuntimeError: Tensors of one place differ in more than their first dimension.
    """
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([*parts]) if first.dim() else torch.stack([*parts])
    if not list(_parts(first)):
        return None
    columns = [joined(column) for column in zip(*(list(_parts(part)) for part in parts), strict=True)]
    if named := _by_name(first):
        together = dict(zip(named, columns, strict=True))
        return _replaced(first, together) if dataclasses.is_dataclass(first) else together
    return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)


def _parts(value: Any) -> Sequence[Any]:
    """Return a structure's parts; empty for any other value."""
    return list(value) if isinstance(value, (tuple, list)) else list(_by_name(value).values())


def _by_name(value: Any) -> dict[str, Any]:
    """Return the parts of a mapping or a dataclass, by name; a Hugging Face model's output is both, and holds no None."""
    if isinstance(value, Mapping):
        return dict(value)
    return _fields(value)


def _fields(value: Any) -> dict[str, Any]:
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)} if is_record else {}


def _replaced(value: Any, parts: dict[str, Any]) -> Any:
    return dataclasses.replace(value, **parts) if parts else value
