"""What is done to a step's gradients between the backward pass and the optimizer; nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mltrainer.configs.project import Clip, Noise, TrainingConfig

SMALLEST_NORM = 1e-6  # added to a norm that is divided by
SURELY_BELOW = 0.99  # of a limit; the factor is rounded by 6e-8 at most at each of its three operations
BY_ROWS = 2**16  # numbers of a gradient above which its norm is one of norms; a smaller one is cheap to gather whole
SMALLEST_UNIT = 1e-3  # weights that begin as zeros may grow (Brock et al., 2021, arXiv 2102.06171)


def norm_summands(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the numbers whose L2 norm is each gradient's: of a large one the norms of its rows.

    A sum over all its numbers has an order, and processes that hold some rows each could not keep it.
    """
    return [row_norms(gradient) if is_measured_by_rows(gradient) else gradient for gradient in gradients]


def gradient_norms(summands: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the L2 norm of each gradient, by its `norm_summands`, and of all together."""
    norms = torch.stack(torch._foreach_norm(summands))
    return norms, torch.linalg.vector_norm(norms)


def is_measured_by_rows(tensor: Tensor) -> bool:
    """Return True for a tensor that is large and has rows."""
    return tensor.numel() > BY_ROWS and tensor.dim() >= 2


def row_norms(gradient: Tensor) -> Tensor:
    """Return the L2 norm of each row."""
    found: Tensor = torch.linalg.vector_norm(gradient, dim=tuple(range(1, gradient.dim())))
    return found


def dense(gradient: Tensor) -> Tensor:
    """Return a gradient with all of its numbers, where it is sparse."""
    return gradient.to_dense() if gradient.is_sparse else gradient


def shape(gradients: list[Tensor], parameters: Sequence[Tensor], total: Tensor, config: TrainingConfig, step: int) -> None:
    """Normalize, clip and make noisy, in this order and in place, as the config says.

    Args:
        gradients: One per parameter.
        parameters: What they are the gradients of.
        total: The norm of all gradients together.
        config: `gradients` and `clip`.
        step: The step, from 1, by which noise fades.
    """
    if config.gradients.normalize:
        torch._foreach_div_(gradients, total + SMALLEST_NORM)
        total = torch.ones_like(total)
    if config.clip is not None:
        clip(gradients, parameters, total, config.clip)
    if config.gradients.noise is not None:
        _add_noise(gradients, config.gradients.noise, step)


def clipped_above(config: TrainingConfig) -> float | None:
    """Return the norm of a step's gradients, before anything is done to them, above which clipping makes them smaller."""
    limit = config.clip.norm if config.clip is not None else None
    if limit is None or not config.gradients.normalize:
        return limit
    return 0.0 if limit < 1 else None  # they are clipped as normalized, to norm 1


def counts_clipped(config: TrainingConfig) -> bool:
    """Return True if the recorded norms tell the clipped steps; SAM clips other gradients than those recorded."""
    return config.clip is None or (config.clip.norm is not None and config.optimizer.sam is None)


def clip(gradients: list[Tensor], parameters: Sequence[Tensor], total: Tensor, limit: Clip) -> None:
    """Limit gradients in place by their common norm, by value, or by the norm of the weights of each unit.

    Sources: Pascanu et al., 2013, arXiv 1211.5063 (norm); Brock et al., 2021, arXiv 2102.06171 (adaptive).
    """
    if limit.norm is not None:
        # Where the factor is surely 1 it would change no bit; a CPU's number is there to look at.
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
    """Return the norm of the weights of each output unit, shaped to multiply them; of all where there is one dimension."""
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
