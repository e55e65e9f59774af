"""Layers around a model's own ones, such as adapters: the names of tensors in the model and in the task's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

BASE = "base_layer"  # peft's name of the layer within
QUANTIZED = f"{BASE}.quantized."  # prefix of the names of its quantized weight's parts
Wrapped = Callable[[nn.Module], Mapping[str, nn.Module]]  # the layers around others in a model, by name


def leave_fast_paths(model: nn.Module) -> None:
    """Have torch's encoder layers call their parts in evaluation, too, where their fast path reads the weights of these."""
    for block in _encoder_layers(model):
        block.kept_fast_path, block.activation_relu_or_gelu = block.activation_relu_or_gelu, 0


def return_fast_paths(model: nn.Module) -> None:
    """Undo `leave_fast_paths`."""
    for block in _encoder_layers(model):
        block.activation_relu_or_gelu = block.kept_fast_path


def _encoder_layers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, nn.TransformerEncoderLayer)]


def plain_names(model: nn.Module, wrapped: Mapping[str, nn.Module]) -> dict[str, str | None]:
    """Return the task's own name of each tensor of a model's state; None for a tensor of a wrapping layer.

    Parts of a quantized weight are left out: the task's own model has none.
    """
    names: dict[str, str | None] = {name: name for name in model.state_dict()}
    for place, layer in wrapped.items():
        for name in layer.state_dict():
            is_own = name.startswith(f"{BASE}.")
            names[f"{place}.{name}"] = f"{place}.{name.removeprefix(f'{BASE}.')}" if is_own else None
    return {name: plain for name, plain in names.items() if f".{QUANTIZED}" not in f".{name}"}


def plain_state(model: nn.Module, wrapped: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return a model's state by the task's own names, without its wrapping layers."""
    state = model.state_dict()
    return {plain: state[name] for name, plain in plain_names(model, wrapped).items() if plain is not None}


def take_plain(model: nn.Module, wrapped: Wrapped, prepare: Callable[[nn.Module, bool], None]) -> None:
    """Let a model take a state by the task's own names, too; its wrapping layers stay as they are.

    Args:
        model: The model.
        wrapped: Function that returns its wrapping layers by name.
        prepare: Function called with each of them, and whether the loaded state is the task's own; it may change the inner layer.
    """

    def hook(model: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
        """Rename what `load_state_dict` was given, of which it has handed over a copy."""
        layers = wrapped(model)
        around = [name for name, plain in plain_names(model, layers).items() if plain is None]
        is_plain = not any(f"{prefix}{name}" in state for name in around)
        for layer in layers.values():
            prepare(layer, is_plain)
        own, names = model.state_dict(), plain_names(model, layers)
        for name, plain in names.items() if is_plain else ():
            if plain is None:
                state[f"{prefix}{name}"] = own[name]
            elif plain != name and f"{prefix}{plain}" in state:
                state[f"{prefix}{name}"] = state.pop(f"{prefix}{plain}")

    model.register_load_state_dict_pre_hook(hook)
