"""The treatment of a step's gradients between the backward pass and the optimizer; nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mltrainer.configs.project import Clip, Noise, TrainingConfig

SMALLEST_NORM = 1e-6  # added to a norm before dividing by it
SURELY_BELOW = 0.99  # share of a limit; each of the factor's three operations rounds by at most 6e-8
BY_ROWS = 2**16  # numbers of a gradient above which its norm is the norm of its rows' norms; smaller ones are cheap to gather
SMALLEST_UNIT = 1e-3  # weights that begin as zeros may grow (Brock et al., 2021, arXiv 2102.06171)


def norm_summands(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return for each gradient the numbers whose L2 norm is its norm: for a large gradient, the norms of its rows.

    A sum over all numbers has an order, which processes with some of the rows each could not keep.
    """
    return [row_norms(gradient) if is_measured_by_rows(gradient) else gradient for gradient in gradients]


def gradient_norms(summands: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the L2 norm of each gradient, from its `norm_summands`, and of all together."""
    norms = torch.stack(torch._foreach_norm(summands))
    return norms, torch.linalg.vector_norm(norms)


def is_measured_by_rows(tensor: Tensor) -> bool:
    """Return True if a tensor is large and has rows."""
    return tensor.numel() > BY_ROWS and tensor.dim() >= 2


def row_norms(gradient: Tensor) -> Tensor:
    """Return the L2 norm of each row."""
    found: Tensor = torch.linalg.vector_norm(gradient, dim=tuple(range(1, gradient.dim())))
    return found


def dense(gradient: Tensor) -> Tensor:
    """Return a dense gradient, converted if it is sparse."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def shape(gradients: list[Tensor], parameters: Sequence[Tensor], total: Tensor, config: TrainingConfig, step: int) -> None:
    """Normalize, clip and add noise, in this order and in place, as the config says.

    Args:
        gradients: The gradients, one per parameter.
        parameters: The gradients' parameters.
        total: The norm of all gradients together.
        config: The config, with `gradients` and `clip`.
        step: The step, from 1; noise fades with it.
    """
    if config.gradients.normalize:
        torch._foreach_div_(gradients, total + SMALLEST_NORM)
        total = torch.ones_like(total)
    if config.clip is not None:
        clip(gradients, parameters, total, config.clip)
    if config.gradients.noise is not None:
        _add_noise(gradients, config.gradients.noise, step)


def clipped_above(config: TrainingConfig) -> float | None:
    """Return the norm of a step's raw gradients above which clipping makes them smaller; None if clipping never does."""
    limit = config.clip.norm if config.clip is not None else None
    if limit is None or not config.gradients.normalize:
        return limit
    return 0.0 if limit < 1 else None  # gradients are clipped after normalization to norm 1


def counts_clipped(config: TrainingConfig) -> bool:
    """Return True if the recorded norms show the clipped steps; SAM clips other gradients than those recorded."""
    return config.clip is None or (config.clip.norm is not None and config.optimizer.sam is None)


def clip(gradients: list[Tensor], parameters: Sequence[Tensor], total: Tensor, limit: Clip) -> None:
    """Limit gradients in place by their common norm, by value, or by the norm of the weights of each unit.

    Sources: Pascanu et al., 2013, arXiv 1211.5063 (norm); Brock et al., 2021, arXiv 2102.06171 (adaptive).
    """
    if limit.norm is not None:
        # A factor that is surely 1 would change no bit; only on a CPU can the number be read without waiting.
        if total.device.type != "cpu" or not float(total) + SMALLEST_NORM < SURELY_BELOW * limit.norm:
            torch._foreach_mul_(gradients, (limit.norm / (total + SMALLEST_NORM)).clamp_(max=1.0))
    elif limit.value is not None:
        torch._foreach_clamp_max_(gradients, limit.value)
        torch._foreach_clamp_min_(gradients, -limit.value)
    elif limit.adaptive is not None:
        for gradient, parameter in zip(gradients, parameters, strict=True):
            allowed = unit_norms(parameter.detach()).clamp_(min=SMALLEST_UNIT).mul_(limit.adaptive)
            gradient.mul_((allowed / (unit_norms(gradient) + SMALLEST_NORM)).clamp_(max=1.0))


def unit_norms(tensor: Tensor) -> Tensor:
    """Return the norm of the weights of each output unit, shaped to multiply them; of all weights below two dimensions."""
    found: Tensor = (
        torch.linalg.vector_norm(tensor)
        if tensor.dim() < 2
        else torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.dim())), keepdim=True)
    )
    return found


def _add_noise(gradients: list[Tensor], noise: Noise, step: int) -> None:
    deviation = noise.deviation(step)
    for gradient in gradients:
        gradient.add_(torch.randn_like(gradient), alpha=deviation)
