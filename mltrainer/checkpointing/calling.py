"""A task's call of its model, in the form that exporters take: tensors by position in, tensors out, the main output first."""

from __future__ import annotations

import copy
import types
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mltrainer.tasks.structures import main_output, tensors_in

CONSTANTS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Call:
    """One call of a model.

    Attributes:
        tensors: Its arguments, samples first: those by position, then those by name.
        names: The names of the tensors given by name, in their order.
        constants: Arguments by name that are no tensors, such as `return_dict`.
        is_plain: Whether the model gave a tensor or a tuple of tensors.
    """

    tensors: tuple[Tensor, ...]
    names: tuple[str, ...] = ()
    constants: tuple[tuple[str, Any], ...] = ()
    is_plain: bool = True

    @property
    def inputs(self) -> list[str]:
        """Return the input names of an exported model: samples first, then the tensors given by name."""
        unnamed = len(self.tensors) - len(self.names)
        return [
            *(["input"] if len(self.tensors) == 1 else [f"input_{nr}" for nr in range(len(self.tensors))])[:unnamed],
            *self.names,
        ]


def call_of(arguments: tuple[Any, ...], named: dict[str, Any], outputs: Any) -> Call | None:
    """Return a call that can be exported (tensors with samples first, and constants by name); None for any other call."""
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    constants = {name: value for name, value in named.items() if name not in tensors}
    given = (*arguments, *tensors.values())
    if not given or not all(isinstance(x, Tensor) and x.dim() for x in given):
        return None
    if not all(isinstance(value, CONSTANTS) for value in constants.values()):
        return None
    parts = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return Call(given, (*tensors,), (*constants.items(),), all(isinstance(part, Tensor) for part in parts))


def as_called(model: nn.Module, call: Call) -> nn.Module:
    """Return the model as exporters take it; it shares everything with the given one but its `forward`.

    Args:
        model: The model.
        call: The task's call of the model.
    """
    if not call.names and not call.constants and call.is_plain:
        return model
    made = copy.copy(model)
    forward = types.MethodType(type(model).forward, made)

    def positional(*inputs: Tensor) -> Any:
        unnamed = len(inputs) - len(call.names)
        named = dict(zip(call.names, inputs[unnamed:], strict=True))
        return _flat(forward(*inputs[:unnamed], **named, **dict(call.constants)))

    made.forward = positional
    return made


def _flat(outputs: Any) -> Any:
    """Return the main output, or a tuple of all outputs with the main one first."""
    main = main_output(outputs)
    others = [tensor for tensor in tensors_in(outputs) if tensor is not main]
    return (main, *others) if others else main
