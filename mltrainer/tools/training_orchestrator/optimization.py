"""Optimizer, parameter groups and gradients of a step."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.configs.optimizers import Optimizer

# The kernels that pass over memory once, where PyTorch has them for the CPU; else those that take all parameters together.
KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"fused": True}),
    "adam": (torch.optim.Adam, {"fused": True}),
    "adamw": (torch.optim.AdamW, {"fused": True}),
    "adagrad": (torch.optim.Adagrad, {"fused": True}),
    "nadam": (torch.optim.NAdam, {"foreach": True}),
    "radam": (torch.optim.RAdam, {"foreach": True}),
    "adamax": (torch.optim.Adamax, {"foreach": True}),
    "rmsprop": (torch.optim.RMSprop, {"foreach": True}),
}
SHARE = "share"  # a group's entry beside the optimizer's own: its share of the scheduled learning rate


def build_optimizer(config: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer over a model's trainable parameters, in groups; a group's learning rate is its share of the step's."""
    kind, kernels = KINDS[config.name]
    options = config.model_dump(exclude={"name", "groups", "decay_norms_and_biases"})
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    own = dict(model.named_parameters())
    groups = [
        {"params": [own[name] for name in group["parameters"]], "weight_decay": group["weight_decay"], SHARE: group["lr"]}
        for group in parameter_groups(config, model)
    ]
    return kind(groups, **options, **kernels)


def parameter_groups(config: Optimizer, model: nn.Module) -> list[dict[str, Any]]:
    """Return the groups in the order of their first parameter: share of the learning rate, weight decay, parameters' names."""
    groups: dict[tuple[float, float], list[str]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(_settings(config, name, parameter), []).append(name)
    return [{"lr": lr, "weight_decay": decay, "parameters": names} for (lr, decay), names in groups.items()]


def _settings(config: Optimizer, name: str, parameter: Tensor) -> tuple[float, float]:
    """Return a parameter's share of the learning rate and its weight decay."""
    group = next((group for group in config.groups if re.search(group.match, name)), None)
    decays = config.decay_norms_and_biases or parameter.dim() >= 2
    decay = config.weight_decay if decays else 0.0
    if group is None:
        return 1.0, decay
    return group.lr, decay if group.weight_decay is None else group.weight_decay


def gradient_norms(gradients: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the L2 norm of each gradient and of all together, from one fused computation, without waiting."""
    norms = torch.stack(torch._foreach_norm(gradients))
    return norms, torch.linalg.vector_norm(norms)


def clip(gradients: list[Tensor], total: Tensor, limit: float) -> None:
    """Scale gradients in place so that their common norm is at most `limit` (Pascanu et al., 2013, arXiv 1211.5063)."""
    torch._foreach_mul_(gradients, (limit / (total + 1e-6)).clamp_(max=1.0))
