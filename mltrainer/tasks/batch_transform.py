"""The transform of a training batch before its step, and of no batch that is measured: augmentation, mixed and smoothed targets.

Each draw has the address (seed, purpose, epoch, sample id), so that it does not depend on the batch, the process or a
resumption; a draw for a whole batch has the address of its first sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.augmenting import Augment
from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.images.augmentation import Levels, augment, mix_samples
from mltrainer.tasks.images.task import ImageClassification
from mltrainer.tasks.task import Task


@dataclass(frozen=True)
class BatchTransform:
    """The transform of a batch of inputs and class numbers.

    Attributes:
        seed: The run's seed.
        classes: Number of classes.
        augment: The augmentation of images, or None.
        levels: The images' levels of black and white.
        smoothing: The share of a target that all classes share.
    """

    seed: int
    classes: int
    augment: Augment | None
    levels: Levels
    smoothing: float

    def __call__(self, batch: tuple[Any, ...] | dict[str, Any], ids: np.ndarray, epoch: int) -> tuple[Tensor, ...]:
        """Return a batch transformed; its targets become shares of the classes where they are mixed or smoothed.

        Args:
            batch: Inputs and class numbers.
            ids: The samples' ids.
            epoch: The epoch, from 0.
        """
        assert isinstance(batch, tuple)  # as built-in tasks make them
        *inputs, targets = batch
        if self.augment is not None:
            inputs[0] = augment(inputs[0], self.augment, self.levels, lambda what, n: self._draws(what, n, epoch, ids))
        mixed = self.augment if self.augment and self.augment.mixes else None
        if mixed or self.smoothing:
            every = torch.arange(self.classes, device=targets.device)
            targets = (targets[:, None] == every).to(torch.float32)
        if mixed:
            generator = seeds.generator(self.seed, "mix", epoch, int(ids[0]))
            inputs[0], targets = mix_samples(inputs[0], targets, mixed, generator)
        if self.smoothing:
            targets = targets * (1 - self.smoothing) + self.smoothing / self.classes
        return (*inputs, targets)

    def _draws(self, what: str, count: int, epoch: int, ids: np.ndarray) -> np.ndarray:
        return seeds.uniforms(seeds.key(self.seed, f"augment {what}", epoch), ids, count)


def batch_transform(task: Task, config: TrainingConfig) -> BatchTransform | None:
    """Return the transform of a task's training batches: augmentation and label smoothing; None where the config has neither."""
    if config.augment is None and not config.label_smoothing:
        return None
    classes = getattr(task, "classes", None) or []
    levels = task.levels if isinstance(task, ImageClassification) else Levels(0.0, 1.0)
    return BatchTransform(config.seed, len(classes), config.augment, levels, config.label_smoothing)
