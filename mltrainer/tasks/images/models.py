"""A small residual network and a small vision transformer.

No operation has a gradient that a GPU sums in no fixed order: means take the place of maxima and of adaptive pooling, and
attention is written out in matrix products.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mltrainer.configs.project import ResNet, Vit
from mltrainer.errors import InputError


def image_layers(config: ResNet | Vit, shape: Sequence[int]) -> tuple[OrderedDict[str, nn.Module], int]:
    """Return the layers between the preprocessing and the last one, by name, and the number of their output features.

    Args:
        config: The model.
        shape: The shape of one sample, [channels, height, width].

    Raises:
        InputError: The model does not fit the images' shape.
    """
    if len(shape) != 3:
        what = f"{config.name} needs images [channels, height, width]; a sample has shape {list(shape)}"
        raise InputError(what, where="model.name", hint="model: {name: mlp}")
    layers, width = _resnet(config, shape) if isinstance(config, ResNet) else _vit(config, shape)
    if config.dropout and isinstance(config, ResNet):
        layers.update(dropout=nn.Dropout(config.dropout))
    return layers, width


# --- residual network ---------------------------------------------------------------------------


def _resnet(config: ResNet, shape: Sequence[int]) -> tuple[OrderedDict[str, nn.Module], int]:
    smallest = min(shape[1:]) // config.stem
    if smallest < 2 ** (config.stages - 1):
        what = f"images of {shape[1]}x{shape[2]} pixels are too small for a stem of {config.stem} and {config.stages} stages"
        raise InputError(what, where="model.stages", hint="fewer stages, or a smaller stem")
    # A stem of 1 means a plain 3x3 convolution, which keeps every pixel's place.
    stem, padding = (config.stem, 0) if config.stem > 1 else (3, 1)
    # Without a bias, here and below: the norm that follows takes any constant away.
    first = nn.Conv2d(shape[0], config.width, stem, stride=config.stem, padding=padding, bias=False)
    layers: OrderedDict[str, nn.Module] = OrderedDict(stem=first, norm=nn.BatchNorm2d(config.width), relu=nn.ReLU())
    width = config.width
    blocks: list[nn.Module] = []
    for stage in range(config.stages):
        for number in range(config.blocks):
            channels = config.width * 2**stage
            blocks.append(Residual(width, channels, stride=2 if stage and not number else 1))
            width = channels
    layers.update(blocks=nn.Sequential(*blocks))
    layers.update(pool=Mean((2, 3)))
    return layers, width


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut; the last norm begins at zero, so that a new block changes nothing.

    Reference: Goyal et al., 2017, arXiv 1706.02677, section 5.1.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        nn.init.zeros_(self.norm2.weight)
        same = before == after and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else _projection(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return features [samples, after, height / stride, width / stride]."""
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def _projection(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))


class Mean(nn.Module):
    """The mean over some axes."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """Return the features without these axes."""
        return x.mean(self.axes)


# --- vision transformer -------------------------------------------------------------------------


def _vit(config: Vit, shape: Sequence[int]) -> tuple[OrderedDict[str, nn.Module], int]:
    if any(side % config.patch for side in shape[1:]):
        what = f"images of {shape[1]}x{shape[2]} pixels cannot be cut into patches of {config.patch}"
        raise InputError(what, where="model.patch", hint="another patch, or another data.image.size")
    count = (shape[1] // config.patch) * (shape[2] // config.patch)
    blocks = [Block(config.width, config.heads, config.dropout) for _ in range(config.depth)]
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        patches=Patches(shape[0], config.patch, config.width, count),
        blocks=nn.Sequential(*blocks),
        norm=nn.LayerNorm(config.width),
        pool=Mean((1,)),
    )
    return layers, config.width


class Patches(nn.Module):
    """Cuts images into patches: one token for each, with a learned vector for its place."""

    def __init__(self, channels: int, patch: int, width: int, count: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(channels, width, patch, stride=patch)
        self.place = nn.Parameter(torch.randn(1, count, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [samples, patches, width]."""
        tokens: Tensor = self.project(x).flatten(2).transpose(1, 2)
        return tokens + self.place


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [samples, tokens, width]."""
        x = x + self.dropout(self.attention(self.norm1(x)))
        inner: Tensor = self.dropout(self.perceptron(self.norm2(x)))
        return x + inner


class Attention(nn.Module):
    """Attention of all tokens to all, in several heads (Vaswani et al., 2017, arXiv 1706.03762)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [samples, tokens, width]."""
        query, key, value = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        shares = torch.softmax((query * self.scale) @ key.transpose(-2, -1), dim=-1)
        found: Tensor = self.output((shares @ value).transpose(1, 2).flatten(2))
        return found
