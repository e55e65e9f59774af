"""Progressive training: smaller images or shorter texts first, the full size later; evaluations always use the full size.

Images grow by stages as in Tan and Le, 2021, arXiv 2104.00298, who let the regularization grow with them; texts are cut at their
end, as in Li et al., 2022, arXiv 2108.06084.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.companions.strategies.inputs import input_of
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.tasks import sanity_check
from mltrainer.tasks.strategy import Strategy, Training
from mltrainer.tasks.structures import length, mapped
from mltrainer.tasks.task import Task
from mltrainer.tasks.text.generation import TextGeneration

TRIED = 2  # samples that the model reads at each size before the training begins
IMAGES, TOKENS = 4, 2  # axes of a batch of each


class Progressive(Strategy[configs.Progressive]):
    """Inputs that grow."""

    name = "progressive"
    alters = True
    _task: Task

    def begin(self, training: Training) -> str:
        """Try a few samples at each size, and return a line on the sizes.

        Raises:
            InputError: The inputs have no size, or the model or the loss works only at one size.
        """
        settings, self._task = self.settings, training.task
        if settings.epochs >= training.config.epochs:
            what = f"{settings.epochs} epochs of smaller inputs leave none of {training.config.epochs} to inputs of the full size"
            raise InputError(what, where=f"{self.key}.epochs", hint="take fewer, or raise epochs")
        sizes = self._tried(training, training.model, "model")
        return f"learns from inputs of {', '.join(sizes)}; of the full size from epoch {settings.epochs + 1} on"

    def require_teacher(self, training: Training, teacher: nn.Module) -> None:
        """Try a few samples at each size on the averaged model, too.

        Raises:
            InputError: The model works only at one size.
        """
        self._tried(training, teacher, "teacher")

    def _tried(self, training: Training, model: nn.Module, which: str) -> list[str]:
        """Return the sizes of inputs but the full one, each of which a model takes."""
        batch = mapped(lambda tensor: tensor.to(training.config.device), training.batch(TRIED))
        return [self._taken(training, model, which, batch, share) for share in self.settings.shares]

    def _taken(self, training: Training, model: nn.Module, which: str, batch: Any, share: float) -> str:
        """Return the size of inputs of a share, which a model takes."""
        # Copies: a forward pass may change its batch in place.
        small = self._shrunk(mapped(Tensor.clone, batch), share)
        size = _size_words(input_of(training.task, small)[1])
        try:
            sanity_check.check_batch(training.task, model, small, length(small), training.root)
        except InputError as error:
            what = f"inputs of {size} do not go through the {which} and its loss: {error.message}"
            hint = f"take a {which} that reads inputs of several sizes, such as resnet, or other shares"
            raise InputError(what, where=self.key, hint=hint) from error
        return size

    def alter(self, batch: Any, ids: np.ndarray, epoch: int) -> Any:
        """Return a training batch with inputs of the size that an epoch, from 0, has."""
        share = share_of(self.settings, epoch)
        return batch if share == 1 else self._shrunk(batch, share)

    def _shrunk(self, batch: Any, share: float) -> Any:
        """Return a batch with smaller inputs; whole numbers of the shape of tokens, such as those to predict, are cut with them.

        Raises:
            InputError: The batch's input has no size.
        """
        _, x = input_of(self._task, batch)
        if isinstance(x, Tensor) and x.dim() == IMAGES:
            return mapped(lambda part: resized(part, share) if part is x else part, batch)
        if isinstance(x, Tensor) and x.dim() == TOKENS and not x.is_floating_point():
            count, shape = self._kept_tokens(x, share), x.shape
            return mapped(lambda part: part[:, :count] if part.shape == shape and not part.is_floating_point() else part, batch)
        kind = f"{str(x.dtype).removeprefix('torch.')} {[*x.shape]}" if isinstance(x, Tensor) else type(x).__name__
        what = f"a batch begins with {kind}; images [samples, channels, height, width] or tokens [samples, length] have a size"
        raise InputError(what, where=self.key, hint="leave the strategy out")

    def _kept_tokens(self, x: Tensor, share: float) -> int:
        """Return the number of a sequence's columns that are kept; of a window of text the token after the last one, too."""
        beyond = 1 if isinstance(self._task, TextGeneration) else 0
        return beyond + max(1, round(share * (x.shape[1] - beyond)))


def share_of(settings: configs.Progressive, epoch: int) -> float:
    """Return the share of the full size that the inputs of an epoch, from 0, have."""
    stage = epoch * len(settings.shares) // settings.epochs
    return settings.shares[stage] if stage < len(settings.shares) else 1.0


def resized(x: Tensor, share: float) -> Tensor:
    """Return images [samples, channels, height, width] with shorter sides; each pixel is a mean over those in its place."""
    sides = [max(1, round(share * side)) for side in x.shape[2:]]
    wide = x if x.is_floating_point() else x.float()
    return functional.interpolate(wide, size=sides, mode="bilinear", antialias=True)


def _size_words(x: Tensor) -> str:
    """Return the size of inputs in words."""
    return f"{x.shape[2]}x{x.shape[3]} pixels" if x.dim() == IMAGES else f"{x.shape[1]} tokens"
