"""Optimizer and gradients of a step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mltrainer.configs.project import AdamW, Optimizer, Sgd


def build_optimizer(config: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer over a model's trainable parameters; fused kernels, one pass over memory."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if isinstance(config, Sgd):
        return torch.optim.SGD(
            parameters, config.lr, config.momentum, weight_decay=config.weight_decay, nesterov=config.nesterov, fused=True
        )
    assert isinstance(config, AdamW)
    betas = (config.betas[0], config.betas[1])
    return torch.optim.AdamW(parameters, config.lr, betas, config.eps, config.weight_decay, fused=True)


def gradient_norms(gradients: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the L2 norm of each gradient and of all together, from one fused computation, without waiting."""
    norms = torch.stack(torch._foreach_norm(gradients))
    return norms, torch.linalg.vector_norm(norms)


def clip(gradients: list[Tensor], total: Tensor, limit: float) -> None:
    """Scale gradients in place so that their common norm is at most `limit` (Pascanu et al., 2013, arXiv 1211.5063)."""
    torch._foreach_mul_(gradients, (limit / (total + 1e-6)).clamp_(max=1.0))
