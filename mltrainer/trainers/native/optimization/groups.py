"""A model's parameter groups: each group's share of the learning rate, and its weight decay."""

from __future__ import annotations

import itertools
import re

from torch import Tensor, nn

from mltrainer.configs.optimizers import Optimizer, OwnOptimizer
from mltrainer.errors import InputError
from mltrainer.records.run import Group

SHOWN_NAMES = 40


def parameter_groups(config: Optimizer, model: nn.Module) -> list[Group]:
    """Return the groups in the order of their first parameter: share of the learning rate, weight decay, parameters' names.

    Raises:
        InputError: A group's pattern matches no parameter; with the names that exist.
    """
    for number, group in enumerate(config.groups):
        names = [name for name, _ in model.named_parameters()]
        refuse_unmatched(group.match, names, "parameter", f"optimizer.groups[{number}].match")
    shares = layer_shares(dict(model.named_parameters()), config.layer_decay)
    groups: dict[tuple[float, float], list[str]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            share, decay = _settings(config, name, parameter)
            groups.setdefault((share * shares[name], decay), []).append(name)
    return [Group(lr=lr, weight_decay=decay, parameters=names) for (lr, decay), names in groups.items()]


def refuse_unmatched(pattern: str, names: list[str], what: str, key: str) -> None:
    """Refuse a pattern of the config that matches no name of a model's modules or parameters.

    Raises:
        InputError: The pattern matches nothing; with the names that exist.
    """
    if any(re.search(pattern, name) for name in names):
        return
    shown = ", ".join(names[:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")
    raise InputError(
        f"no {what}'s name matches {pattern!r}; the names are: {shown or 'none'}",
        where=key,
        hint=f"mltrainer phase run planning --set {key.partition('[')[0]}=[...]",
    )


def layer_shares(parameters: dict[str, Tensor], decay: float) -> dict[str, float]:
    """Return each parameter's share of the learning rate: 1 in the last block, times `decay` for each block below it.

    The blocks have the model's order. A parameter's block is the module that holds it, or, inside a
    numbered container (`blocks.3.attn.qkv`), the container's entry (`blocks.3`). A block without a matrix, such as a norm
    between two layers, counts to the block before it (Clark et al., 2020, arXiv 2003.10555; Bao et al., 2022, arXiv 2106.08254).

    Args:
        parameters: All parameters by name, in the model's order; frozen ones too, so that freezing changes no other's share.
        decay: The factor of a block, in (0, 1].
    """
    blocks: dict[str, bool] = {}
    for name, parameter in parameters.items():
        blocks[block(name)] = blocks.get(block(name), False) or parameter.dim() >= 2
    depths = dict(zip(blocks, itertools.accumulate(blocks.values()), strict=True))
    top = max(depths.values(), default=0)
    return {name: decay ** (top - depths[block(name)]) for name in parameters}


def block(name: str) -> str:
    """Return the block of a parameter: its module's path, up to the first number in it."""
    path = name.split(".")[:-1]
    number = next((place for place, part in enumerate(path, 1) if part.isdigit()), len(path))
    return ".".join(path[:number])


def _settings(config: Optimizer, name: str, parameter: Tensor) -> tuple[float, float]:
    """Return a parameter's share of the learning rate, before that of its block, and its weight decay."""
    group = next((group for group in config.groups if re.search(group.match, name)), None)
    assert not isinstance(config, OwnOptimizer)  # its groups are the task's
    decays = config.decay_norms_and_biases or parameter.dim() >= 2
    decay = config.weight_decay if decays else 0.0
    if group is None:
        return 1.0, decay
    return group.lr, decay if group.weight_decay is None else group.weight_decay
