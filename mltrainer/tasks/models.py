"""The built-in models. Preprocessing is their first module, so that it travels with the weights into every export.

Every module can be exported with a batch of any size, and draws nothing at random but dropout.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.project import Cnn, Linear, Mlp, ModelConfig, ResNet, TableModel, TextModel, Vit
from mltrainer.errors import InputError
from mltrainer.tasks.images.models import image_layers


class Standardize(nn.Module):
    """Standardizes images by channel; buffers are fitted on the training split."""

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: np.ndarray, std: np.ndarray) -> None:
        super().__init__()
        shape = (1, len(mean), 1, 1)
        # A channel of one level has no deviation: divided by 1, it is 0 everywhere.
        self.register_buffer("scale", torch.tensor(1 / np.where(std > 0, std, 1.0), dtype=torch.float32).reshape(shape))
        self.register_buffer("shift", torch.tensor(-mean / np.where(std > 0, std, 1.0), dtype=torch.float32).reshape(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Return images [samples, channels, height, width] with mean 0 and deviation 1 over the training split."""
        return torch.addcmul(self.shift, x, self.scale)


class Pixels(Standardize):
    """Standardizes uint8 pixels, so that pictures are held, copied and delivered with a byte for each."""

    def forward(self, x: Tensor) -> Tensor:
        """Return pixels as float32, as `Standardize` does."""
        return super().forward(x.to(torch.float32))


def build(
    config: ModelConfig, entry: nn.Module, shape: Sequence[int], outputs: int, exit_module: nn.Module | None = None
) -> nn.Sequential:
    """Return a model with its preprocessing in front.

    Args:
        config: The `model` part of a config.
        entry: The preprocessing, `TabularEncoder` or `Standardize`.
        shape: The shape of one sample after the preprocessing: [features] or [channels, height, width].
        outputs: Number of units of the last layer.
        exit_module: The module after the last layer; None: none.

    Raises:
        InputError: The model does not fit the data's shape.
    """
    if isinstance(config, (TableModel, TextModel)):
        other = "tables" if isinstance(config, TableModel) else "texts"
        hint = "model: {name: mlp}, or linear; for images also cnn, resnet and vit"
        raise InputError(f"{config.name} is a model for {other}", where="model.name", hint=hint)
    layers: OrderedDict[str, nn.Module] = OrderedDict(encoder=entry)
    if isinstance(config, (ResNet, Vit)):
        inner, width = image_layers(config, shape)
        layers |= inner
    else:
        width = _plain_layers(layers, config, shape)
    layers.update(output=nn.Linear(width, outputs))
    if exit_module is not None:
        layers.update(units=exit_module)
    return nn.Sequential(layers)


def _plain_layers(layers: OrderedDict[str, nn.Module], config: Mlp | Cnn | Linear, shape: Sequence[int]) -> int:
    width = _convolutions(layers, config, shape) if isinstance(config, Cnn) else prod(shape)
    if len(shape) > 1:
        layers.update(flatten=nn.Flatten())
    return _hidden(layers, config, width) if isinstance(config, Mlp) else width


def _hidden(layers: OrderedDict[str, nn.Module], config: Mlp, width: int) -> int:
    for number, units in enumerate(config.hidden, 1):
        layers[f"hidden{number}"] = nn.Linear(width, units)
        layers[f"relu{number}"] = nn.ReLU()
        if config.dropout:
            layers[f"dropout{number}"] = nn.Dropout(config.dropout)
        width = units
    return width


def _convolutions(layers: OrderedDict[str, nn.Module], config: Cnn, shape: Sequence[int]) -> int:
    """Add 3x3 convolutions, each followed by batch norm, ReLU and pooling by 2; return the number of output units.

    The pooling takes means: the gradient of a maximum on a GPU is summed in no fixed order.
    """
    if len(shape) != 3:
        what = f"cnn needs images [channels, height, width]; a sample has shape {list(shape)}"
        raise InputError(what, where="model.name", hint="model: {name: mlp}")
    width, height, breadth = shape
    for number, channels in enumerate(config.channels, 1):
        if min(height, breadth) < 2:
            raise InputError(
                f"model.channels has {len(config.channels)} layers, but images of {shape[1]}x{shape[2]} pixels "
                f"can be halved {number - 1} times only",
                hint=f"leave {number - 1} layers in model.channels" if number > 1 else "model: {name: mlp}",
            )
        layers[f"conv{number}"] = nn.Conv2d(width, channels, 3, padding=1, bias=False)
        layers[f"norm{number}"] = nn.BatchNorm2d(channels)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"pool{number}"] = nn.AvgPool2d(2)
        width, height, breadth = channels, height // 2, breadth // 2
    if config.dropout:
        layers.update(dropout=nn.Dropout(config.dropout))
    return width * height * breadth
