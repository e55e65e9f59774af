"""Balancing: the losses of several targets, weighted during training by their uncertainty or their gradients.

A learned log variance of each target (Kendall, Gal and Cipolla, 2018, arXiv 1705.07115), or weights that an aggregator of torchjd
makes of the inner products of the gradients (Quinton and Rey, 2024, arXiv 2406.16232). A mean of the losses so weighed is
differentiated as any loss, micro-batch by micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.tasks.shared_gradients import gramian, losses_of
from mltrainer.tasks.strategy import MicroBatch, State, Strategy, Training
from mltrainer.tasks.task import Task

LOG_VARIANCES = "balancing_log_variances"  # the model's parameter, [losses]
WEIGHTINGS = {  # torchjd's classes of the aggregators that make weights of inner products and keep nothing between steps
    "upgrad": "UPGradWeighting",
    "dualproj": "DualProjWeighting",
    "pcgrad": "PCGradWeighting",
    "mgda": "MGDAWeighting",
    "imtl_g": "IMTLGWeighting",
    "aligned_mtl": "AlignedMTLWeighting",
}
PROJECTING = ("upgrad", "dualproj")
REGULARIZATION = 1e-4  # torchjd's own, added to the diagonal of inner products whose trace is 1


class Balancing(Strategy[configs.Balancing]):
    """Weighted losses of several targets."""

    name = "balancing"
    _training: Training
    _weights_of: Callable[[Tensor], Tensor]

    def __init__(self, settings: configs.Balancing, key: str, root: Path) -> None:
        super().__init__(settings, key, root)
        self.adapts = settings.method == "uncertainty"

    # --- the log variances ---

    def adapt(self, training: Training, new: Sequence[str]) -> None:
        """Add a log variance of each loss to a model's parameters, zero at first.

        Raises:
            InputError: The task does not return several losses.
        """
        names = _names(training.task, self.key)
        if self.adapts:
            training.model.register_parameter(LOG_VARIANCES, nn.Parameter(torch.zeros(len(names))))
            training.model.register_load_state_dict_pre_hook(_keep)

    def plain(self, model: nn.Module) -> State | None:
        """Return the state of the task's own model, without the log variances."""
        return {name: tensor for name, tensor in model.state_dict().items() if name != LOG_VARIANCES} if self.adapts else None

    def release(self, model: nn.Module) -> None:
        """Take the log variances out again."""
        if self.adapts:
            delattr(model, LOG_VARIANCES)

    # --- the loss ---

    def begin(self, training: Training) -> str:
        """Note the losses' names, make the aggregator, and return a line on both.

        Raises:
            InputError: torchjd is not installed.
        """
        self._training, self.losses = training, _names(training.task, self.key)
        if self.settings.method == "gradients":
            aggregation = self.library("torchjd.aggregation", "has the aggregators", "multitask")
            self._weights_of = _aggregator(aggregation, self.settings.aggregator or "upgrad")
        return f"weighs {', '.join(self.losses)} by {self.settings.method}"

    def weighed(self, micro: MicroBatch) -> tuple[Tensor, list[Tensor]]:
        """Return the losses of a micro-batch, and their weighed mean or sum.

        Raises:
            InputError: The task returns other losses than it names, or a loss without gradient.
        """
        found = losses_of(self._training.task, micro.outputs, micro.targets)
        if (
            still := next((name for name, loss in zip(self.losses, found, strict=True) if not loss.requires_grad), None)
        ) is not None:
            what = f"the loss {still} depends on nothing that is trained"
            raise InputError(what, where=self.key, hint="leave it out of your task's terms")
        losses = torch.stack(found)
        if not self.adapts:
            return (self._weights(found).to(losses) * losses).sum(), found
        log_variances = self._training.model.get_parameter(LOG_VARIANCES)
        # Twice the paper's, so that at first, with variances of 1, the result is the mean of the losses.
        return (losses * (-log_variances).exp() + log_variances).mean(), found

    def _weights(self, losses: list[Tensor]) -> Tensor:
        """Return the aggregator's weights, float64 on the CPU; equal ones where a gradient is not finite, which is seen later."""
        trained = [p for p in self._training.model.parameters() if p.requires_grad]
        inner = gramian(losses, trained).cpu()
        even = torch.full((len(losses),), 1 / len(losses), dtype=torch.float64)
        return self._weights_of(inner) if bool(inner.isfinite().all()) else even


def _keep(model: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Let a model take the task's own state, too, which has no log variances: its own stay."""
    if (own := getattr(model, LOG_VARIANCES, None)) is not None:
        state.setdefault(f"{prefix}{LOG_VARIANCES}", own.detach())


def _names(task: Task, key: str) -> list[str]:
    """Return the names of a task's several losses.

    Raises:
        InputError: There are fewer than two.
    """
    names = [*task.terms]
    if len(set(names)) < max(2, len(names)):
        what = f"the task names {', '.join(names) or 'no losses'}; two names at least, each once, were expected"
        hint = 'terms = ("near", "far") in your task, and losses(self, outputs, targets) that returns a dict of them'
        raise InputError(what, where=key, hint=hint)
    return names


# --- aggregators --------------------------------------------------------------------------------------


def _aggregator(aggregation: Any, name: str) -> Callable[[Tensor], Tensor]:
    """Return a function from inner products [losses, losses] to weights, of torchjd's module of them."""
    kind = getattr(aggregation, WEIGHTINGS[name])
    aggregator: Callable[[Tensor], Tensor] = kind(projector=projected) if name in PROJECTING else kind()
    return aggregator


def projected(vectors: Tensor, inner: Tensor) -> Tensor:
    """Return the weights of vectors, given as weights of gradients, projected to where no gradient is opposed.

    That is the nearest v >= u by the inner products, a problem of least squares with bounds. torchjd's own solver for it comes
    with another license.

    Args:
        vectors: [..., losses].
        inner: Inner products of the gradients, [losses, losses].
    """
    trace = inner.trace()
    if trace == 0:
        return vectors
    regular = inner / trace + REGULARIZATION * torch.eye(len(inner), dtype=inner.dtype)
    root = torch.linalg.cholesky(regular).T.numpy()

    def of_one(u: np.ndarray) -> np.ndarray:
        weights: np.ndarray = u + nnls(root, -root @ u)[0]
        return weights

    return torch.from_numpy(np.apply_along_axis(of_one, -1, vectors.numpy()))
