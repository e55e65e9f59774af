"""Networks for tables: an ensemble of MLPs that share most of their weights, and a transformer over the columns.

Each takes the matrix that `schema.encode` makes and can be exported with a batch of any size. Where a model has members, it
returns each member's outputs in training, [rows, members, outputs], so that each has a separate loss; in evaluation it returns
their joint outputs, [rows, outputs].
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.project import FtTransformer, TableModel, TabularMlp
from mltrainer.tasks.tables.embeddings import Tokens, uniform
from mltrainer.tasks.tables.encoder import Statistics


def build_for_table(
    config: TableModel,
    statistics: Statistics,
    edges: list[np.ndarray],
    codes: Sequence[np.ndarray],
    classes: int | Sequence[int | None] | None,
    exit_module: nn.Module | None,
) -> nn.Sequential:
    """Return a network for tables, its preprocessing in front.

    Args:
        config: The `model` part of a config.
        statistics: The training matrix's statistics.
        edges: The edges of its number columns' bins.
        codes: The whole numbers of each number column that have a vector; none for a model without codes.
        classes: Number of classes; None for one value to predict. For several targets, a sequence of these.
        exit_module: The module after the network; None: none.
    """
    tokens = Tokens(config, statistics, edges, codes)
    heads = classes if isinstance(classes, Sequence) else [classes]
    layers: OrderedDict[str, nn.Module] = OrderedDict(tokens=tokens)
    if isinstance(config, TabularMlp):
        layers.update(_members(config, tokens.columns_out * tokens.size, heads))
    elif isinstance(config, FtTransformer):
        layers.update(_transformer(config, heads))
    if exit_module is not None:
        layers.update(units=exit_module)
    return nn.Sequential(layers)


def each_member(outputs: Tensor, targets: Tensor, axes: int) -> tuple[Tensor, Tensor]:
    """Return outputs and targets with a row for each member of a model; unchanged where it has none.

    Args:
        outputs: The outputs, with a second axis for members where they have one more than `axes`.
        targets: The targets, [rows] or, of several, [rows, targets].
        axes: Number of axes of the outputs of a model without members.
    """
    if outputs.dim() == axes:
        return outputs, targets
    return outputs.flatten(0, 1), targets.repeat_interleave(outputs.shape[1], dim=0)


# --- members of an ensemble -----------------------------------------------------------------------


class SharedLinear(nn.Module):
    """A linear layer whose matrix all members share; each scales its inputs and outputs (Wen et al., 2020, arXiv 2002.06715).

    In: [members or 1, rows, inputs]. Out: [members, rows, units]. The scales of the first layer's inputs are random signs, which
    make the members differ; all other scales begin at 1 (Gorishniy, Kotelnikov and Babenko, 2024, arXiv 2410.24210).
    """

    def __init__(self, members: int, inputs: int, units: int, is_first: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(uniform((inputs, units), inputs))
        self.bias = nn.Parameter(uniform((members, units), inputs))
        shape = (members, inputs)
        self.scale_in = nn.Parameter(torch.randint(0, 2, shape) * 2.0 - 1 if is_first else torch.ones(shape))
        self.scale_out = nn.Parameter(torch.ones(members, units))

    def forward(self, x: Tensor) -> Tensor:
        """Return each member's units."""
        # The matrix is scaled, not the rows: a batch has more rows than the matrix has.
        weight = self.scale_in.unsqueeze(2) * self.weight * self.scale_out.unsqueeze(1)
        return torch.baddbmm(self.bias.unsqueeze(1), x.expand(len(weight), -1, -1), weight)


class SharedDropout(nn.Dropout):
    """Drops the same units of a row in all members; a draw for each member costs more than the layer's arithmetic.

    In and out: [members, rows, units].
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the units, the kept ones scaled up, in training; unchanged in evaluation."""
        return x * super().forward(torch.ones_like(x[:1])) if self.training else x


class OwnLinear(nn.Module):
    """A last layer for each member: [members, rows, inputs] to [rows, members, outputs]."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(uniform((members, inputs, outputs), inputs))
        self.bias = nn.Parameter(uniform((members, outputs), inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return each member's outputs."""
        return torch.matmul(x, self.weight).transpose(0, 1) + self.bias


class Together(nn.Module):
    """The members' joint outputs, in evaluation: the logarithm of their mean probabilities, or their mean value.

    Args:
        heads: The classes of each target; None for a value.
    """

    def __init__(self, heads: Sequence[int | None]) -> None:
        super().__init__()
        self.widths, self.are_logits = [classes or 1 for classes in heads], [classes is not None for classes in heads]

    def forward(self, x: Tensor) -> Tensor:
        """Return [rows, members, outputs] unchanged in training, [rows, outputs] in evaluation."""
        if self.training:
            return x
        if len(self.widths) == 1:
            return _together(x, self.are_logits[0])
        parts = zip(x.split(self.widths, dim=2), self.are_logits, strict=True)
        return torch.cat([_together(part, are_logits) for part, are_logits in parts], dim=1)


def _together(x: Tensor, are_logits: bool) -> Tensor:
    if are_logits:
        # float32, whatever the layers before computed in: bfloat16 has two or three digits.
        return torch.logsumexp(functional.log_softmax(x.float(), dim=2), dim=1) - math.log(x.shape[1])
    return x.float().mean(dim=1)


class _MemberAxis(nn.Module):
    """Flattens a row's vectors, and puts an axis for members in front."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).unsqueeze(0)


def _members(config: TabularMlp, width: int, heads: Sequence[int | None]) -> OrderedDict[str, nn.Module]:
    layers: OrderedDict[str, nn.Module] = OrderedDict(members=_MemberAxis())
    for number, units in enumerate(config.hidden, 1):
        layers[f"hidden{number}"] = SharedLinear(config.members, width, units, is_first=number == 1)
        layers[f"relu{number}"] = nn.ReLU()
        if config.dropout:
            layers[f"dropout{number}"] = SharedDropout(config.dropout)
        width = units
    layers.update(output=OwnLinear(config.members, width, _width(heads)))
    layers.update(together=Together(heads))
    return layers


def _width(heads: Sequence[int | None]) -> int:
    return sum(classes or 1 for classes in heads)


# --- transformer ----------------------------------------------------------------------------------


class _Summary(nn.Module):
    """Puts a learned vector before those of the columns, in which the transformer collects the input of the output layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(uniform((size,), size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.vector.expand(x.shape[0], 1, -1), x], dim=1)


class Block(nn.Module):
    """A block of a transformer over columns, normalized before each part (Gorishniy et al., 2021, arXiv 2106.11959)."""

    def __init__(self, config: FtTransformer) -> None:
        super().__init__()
        size = config.embedding
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.queries_keys_values, self.joined = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide, self.narrow = nn.Linear(size, 4 * size), nn.Linear(2 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        """Return [rows, columns, size] of the same."""
        x = x + self._attention(self.norm1(x))
        gate, values = self.wide(self.norm2(x)).chunk(2, dim=2)
        wide = functional.dropout(gate.relu() * values, self.dropout, self.training)
        return torch.add(x, self.narrow(wide))

    def _attention(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], x.shape[1], 3, self.heads, x.shape[2] // self.heads)
        queries, keys, values = self.queries_keys_values(x).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)
        dropped = self.dropout if self.training else 0.0
        found = functional.scaled_dot_product_attention(queries, keys, values, dropout_p=dropped)
        joined: Tensor = self.joined(found.transpose(1, 2).flatten(2))
        return joined


class _First(nn.Module):
    """Takes the vector in which the transformer collected the input of the output layer."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def _transformer(config: FtTransformer, heads: Sequence[int | None]) -> OrderedDict[str, nn.Module]:
    layers: OrderedDict[str, nn.Module] = OrderedDict(summary=_Summary(config.embedding))
    for number in range(1, config.blocks + 1):
        layers[f"block{number}"] = Block(config)
    layers.update(first=_First(), norm=nn.LayerNorm(config.embedding), relu=nn.ReLU())
    layers.update(output=nn.Linear(config.embedding, _width(heads)))
    return layers
