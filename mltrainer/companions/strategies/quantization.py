"""Quantization-aware training: layers compute with rounded numbers, as in 8 bits (Jacob et al., 2018, arXiv 1712.05877).

The rounding is that of the exports in 8 bits: weights signed, by channel, of 7 bits; inputs unsigned, by tensor, of 8. A gradient
passes through it unchanged, except beyond its range.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mltrainer.companions.strategies.wrapping import BASE, leave_fast_paths, plain_state, return_fast_paths, take_plain
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.tasks.strategy import Forward, State, Strategy, Training

KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
WEIGHTS = (-64, 64)  # 7 bits, as ONNX Runtime's `reduce_range` has them: see checkpointing/quantizing.py
INPUTS = (0, 255)
LEAST = 1e-12  # smallest scale, for numbers that are all 0


class Rounding(nn.Module):
    """A layer that computes with rounded numbers: in training, and while `is_rounding` is set.

    Args:
        base_layer: The layer.
    """

    def __init__(self, base_layer: nn.Module) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.is_rounding = False
        self.train(base_layer.training)

    # As the layer itself has them, for models that read these.
    @property
    def weight(self) -> Any:
        """The layer's weight, not rounded."""
        return self.base_layer.weight

    @property
    def bias(self) -> Any:
        """The layer's bias."""
        return self.base_layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs."""
        if not (self.training or self.is_rounding):
            plain: Tensor = self.base_layer(x)
            return plain
        weight = {"weight": rounded_weight(self.weight)}
        outputs: Tensor = functional_call(self.base_layer, weight, (rounded_inputs(x),))
        return outputs


def rounded_weight(weight: Tensor) -> Tensor:
    """Return a weight [outputs, ...] rounded to 129 steps around 0, by its largest number for each output."""
    scale = weight.detach().abs().flatten(1).amax(1).float().clamp(min=LEAST) / WEIGHTS[1]
    zeros = torch.zeros_like(scale, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weight.float(), scale, zeros, 0, *WEIGHTS).to(weight.dtype)


def rounded_inputs(x: Tensor) -> Tensor:
    """Return inputs rounded to 256 steps from the smallest to the largest of them; 0 is one of the steps."""
    low, high = (found.float() for found in torch.aminmax(x.detach()))
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    scale = (high - low).clamp(min=LEAST) / INPUTS[1]
    zero = (-low / scale).round().clamp(*INPUTS).to(torch.int32)
    return torch.fake_quantize_per_tensor_affine(x.float(), scale, zero, *INPUTS).to(x.dtype)


class Quantization(Strategy[configs.Quantization]):
    """Layers that compute as they will in 8 bits."""

    name = "quantization"
    adapts = True

    def adapt(self, training: Training, new: Sequence[str]) -> None:
        """Put the rounding around a model's layers.

        Raises:
            InputError: A pattern matches no layer, or the model has no such layer.
        """
        self._put(training.model)
        take_plain(training.model, _layers, lambda _layer, _is_plain: None)

    def _put(self, model: nn.Module) -> None:
        for name in self._chosen(model):
            model.set_submodule(name, Rounding(model.get_submodule(name)))
        leave_fast_paths(model)

    def _chosen(self, model: nn.Module) -> list[str]:
        chosen = [name for name, module in model.named_modules() if name and _can_round(model, name, module)]
        listed = ", ".join(chosen) or "none"
        for pattern in self.settings.layers or ():
            if not any(re.search(pattern, name) for name in chosen):
                what = f"no linear or convolution layer's name matches {pattern!r}; the names are: {listed}"
                raise InputError(what, where=f"{self.key}.layers", hint="change the pattern in mltrainer.yaml")
        if not chosen:
            what = "the model has no linear or convolution layer, of which an export in 8 bits rounds the numbers"
            raise InputError(what, where=self.key, hint="leave the strategy out")
        patterns = self.settings.layers or [""]
        return [name for name in chosen if any(re.search(pattern, name) for pattern in patterns)]

    def begin(self, training: Training) -> str:
        """Return a line on the layers."""
        return f"rounds the weights and inputs of {len(_layers(training.model))} layers as an export in 8 bits does"

    def views(self, training: Training) -> dict[str, Forward]:
        """Return the model's forward pass with rounded numbers, under `quantized`."""

        def forward(batch: Any) -> tuple[Any, Any]:
            with self._rounded(training.model):
                outputs: tuple[Any, Any] = training.task.forward(training.model, batch)
            return outputs

        return {"quantized": forward}

    @contextlib.contextmanager
    def _rounded(self, model: nn.Module) -> Iterator[None]:
        """Make a model compute with rounded numbers; also a delivered one, whose layers are not wrapped."""
        is_delivered = not _layers(model)
        if is_delivered:
            self._put(model)
        try:
            with rounding(model):
                yield
        finally:
            if is_delivered:
                self.release(model)

    def plain(self, model: nn.Module) -> State:
        """Return the state of the task's own model."""
        return plain_state(model, _layers(model))

    def release(self, model: nn.Module) -> None:
        """Put the layers back in their places."""
        for name, layer in _layers(model).items():
            model.set_submodule(name, layer.base_layer)
        return_fast_paths(model)


@contextlib.contextmanager
def rounding(model: nn.Module) -> Iterator[None]:
    """Have a model's layers compute with rounded numbers in evaluation, too, for the length of a block."""
    layers = _layers(model).values()
    for layer in layers:
        layer.is_rounding = True
    try:
        yield
    finally:
        for layer in layers:
            layer.is_rounding = False


def _layers(model: nn.Module) -> dict[str, Rounding]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Rounding)}


def _can_round(model: nn.Module, name: str, module: nn.Module) -> bool:
    """Return True for a layer of a kind that is exported in 8 bits, and whose forward pass is called."""
    parent, _, own = name.rpartition(".")
    kind = next((kind for kind in KINDS if isinstance(module, kind)), None)
    if kind is None or type(module).forward is not kind.forward or own == BASE:
        return False
    # torch's own attention reads the weights of its last layer and passes the layer by.
    return not isinstance(model.get_submodule(parent), nn.MultiheadAttention)
