"""A check that a model's inputs in training still reveal the classes: similarity of altered training and validation samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.batch_transform import batch_transform
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.targets import class_numbers
from mltrainer.trainers.native.signals.data import MOST_FEATURES, neighbours
from mltrainer.trainers.native.signals.modules import WEIGHTED
from mltrainer.trainers.native.signals.observing import Watch, batch_of, passed

SAMPLES = 128  # of each split


def as_given(task: OpenTask, model: nn.Module, config: TrainingConfig) -> list[float] | None:
    """Return the share of the nearest samples' votes for a sample's own class, by the first layer's inputs, for each split.

    Training samples are augmented and in training mode, validation samples in evaluation mode. None if samples have no class,
    or their inputs are not finite numbers.
    """
    if config.compile or task.split("train").is_stream:
        return None
    found = [_voted(task, model, config, split) for split in ("train", "validation")]
    return None if found[0] is None or found[1] is None else [found[0], found[1]]


def _voted(task: OpenTask, model: nn.Module, config: TrainingConfig, split: str) -> float | None:
    batch, is_training = batch_of(task, config, split, Watch(1, SAMPLES)), split == "train"
    transform = batch_transform(task.task, config) if is_training else None
    if transform is not None:
        batch = (*transform(batch, task.split(split).spread(SAMPLES), 0)[:-1], batch[-1])
    given, target = _given(task, model, config, batch, is_training)
    labels = class_numbers(target, task.target_kind) if isinstance(target, Tensor) else None
    if labels is None:
        return None
    rows = next((one.flatten(1) for one in given if one.dim() > 1 and len(one) == len(labels)), None)
    if rows is None or not bool(torch.isfinite(rows).all()):
        return None
    rows = rows[:, torch.linspace(0, rows.shape[1] - 1, min(MOST_FEATURES, rows.shape[1])).long()]
    return neighbours(rows.double().cpu(), labels.cpu())


def _given(task: OpenTask, model: nn.Module, config: TrainingConfig, batch: Any, training: bool) -> tuple[list[Tensor], Any]:
    """Return the inputs of the layers with weights (of the model itself if there are none), and the targets."""
    got: list[Tensor] = []

    def note(_module: nn.Module, given: tuple[Any, ...]) -> None:
        if given and isinstance(given[0], Tensor) and given[0].is_floating_point():
            got.append(given[0].detach())

    layers: list[nn.Module] = [one for one in model.modules() if isinstance(one, WEIGHTED)]
    hooks = [one.register_forward_pre_hook(note) for one in layers or [model]]
    try:
        _, target, _ = passed(task.task, model, config, batch, training)
    finally:
        for hook in hooks:
            hook.remove()
    return got, target
