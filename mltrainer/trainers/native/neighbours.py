"""The neighbours of samples among a model's features: they measure how well it learned without labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import evaluation_batches

MOST = 2000  # training samples to search for neighbours
NEIGHBOURS = 20  # as in Wu et al., 2018, arXiv 1805.01978, for a small data set; without weights


def neighbour_metrics(
    task: Task, config: TrainingConfig, features: Callable[[Any], Tensor], train: Samples, samples: Samples, split: str
) -> dict[str, float]:
    """Return metrics of some samples' features.

    Args:
        task: The task; it decides whether targets are class numbers.
        config: The config, with seed and device.
        features: The function from a batch to [samples, features]; the model is in evaluation mode.
        train: The training samples.
        samples: The measured samples.
        split: The name of the measured samples' split.

    Returns:
        `feature_spread`, the standard deviation of the features, each sample's scaled to length 1, times the root of their number
        (Chen and He, 2021, arXiv 2011.10566): about 1 if they point everywhere, 0 if all samples have the same; and for
        class numbers `knn_accuracy`, the accuracy of a vote of the nearest training samples by the cosine.
    """
    found, targets = _embedded(task, config, features, samples, split, np.arange(len(samples)))
    scaled = torch.nn.functional.normalize(found.double(), dim=1)
    measured = {"feature_spread": float(scaled.std(0, correction=0).mean()) * math.sqrt(scaled.shape[1])}
    if targets is None:
        return measured
    from sklearn.neighbors import KNeighborsClassifier  # here, because its import takes a second, and few trainings need it

    near, labels = _embedded(task, config, features, train, "train", train.spread(MOST))
    assert labels is not None
    told = KNeighborsClassifier(min(NEIGHBOURS, len(labels)), metric="cosine", algorithm="brute").fit(
        near.numpy(), labels.numpy()
    )
    return {**measured, "knn_accuracy": float((told.predict(found.numpy()) == targets.numpy()).mean())}


@torch.no_grad()
def _embedded(
    task: Task, config: TrainingConfig, features: Callable[[Any], Tensor], samples: Samples, split: str, positions: np.ndarray
) -> tuple[Tensor, Tensor | None]:
    """Return features and class numbers of some samples, on the CPU; None instead of targets that are not class numbers."""
    parts = [(features(batch).cpu(), task.targets_of(batch)) for batch in evaluation_batches(samples, positions, config, split)]
    targets = [part for _, part in parts]
    are_classes = all(isinstance(part, Tensor) and part.dtype == torch.int64 and part.dim() == 1 for part in targets)
    return torch.cat([part for part, _ in parts]), torch.cat([part.cpu() for part in targets]) if are_classes else None
