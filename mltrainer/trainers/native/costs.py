"""The costs of models for the same task: their sizes, and the times of a forward pass, measured in turn on the same samples."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.records.common import Cost
from mltrainer.tasks.opening import OpenTask
from mltrainer.trainers.native.data.addresses import evaluation_batches
from mltrainer.trainers.native.evaluation import evaluating

REPEATS = 20  # timed forward passes; their median is steady enough to compare two models


@torch.no_grad()
def costs(task: OpenTask, config: TrainingConfig, models: Sequence[nn.Module]) -> list[Cost]:
    """Return the cost of each model, on its device, measured with the first validation samples."""
    size = min(config.batch_size, len(task.split("validation")))
    with contextlib.ExitStack() as stack:
        for model in models:
            stack.enter_context(evaluating(model))
        ones, batches = (_passes_ms(task, config, models, count) for count in (1, size))
    parameters = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    each = zip(parameters, ones, batches, strict=True)
    return [Cost(parameters=count, one_ms=one, batch_ms=batch, batch=size) for count, one, batch in each]


def _passes_ms(task: OpenTask, config: TrainingConfig, models: Sequence[nn.Module], samples: int) -> list[float]:
    """Return the median milliseconds of each model's forward pass over a number of samples, after one warm-up pass."""
    batch = next(iter(evaluation_batches(task.split("validation"), np.arange(samples), config, "validation")))
    # In turn, so that a slow machine slows all models.
    taken = [[_pass_ms(task, model, batch) for model in models] for _ in range(REPEATS + 1)]
    return [statistics.median(times) for times in zip(*taken[1:], strict=True)]


def _pass_ms(task: OpenTask, model: nn.Module, batch: Any) -> float:
    own = copy.deepcopy(batch)  # a forward pass may change its batch in place, and the batch is used again
    _wait()
    begun = time.perf_counter()
    task.task.forward(model, own)
    _wait()
    return 1000 * (time.perf_counter() - begun)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
