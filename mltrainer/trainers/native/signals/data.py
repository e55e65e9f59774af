"""What the training samples show to the diagnostics: their scale, neighbours of one class, features that tell it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.opening import OpenTask, Samples
from mltrainer.tasks.reading import Budget, read_split
from mltrainer.tasks.sample_findings import classes_of
from mltrainer.tasks.telling import telling_features
from mltrainer.tasks.user_code import user_code
from mltrainer.trainers.native.signals.observing import is_classes

ROWS = 500  # of which neighbours are looked for
READING_S = 1.0  # seconds that reading them may take, where they are not in memory
NEIGHBOURS = 5
MOST_FEATURES = 1024  # that are looked at one by one


def of_data(task: OpenTask) -> dict[str, Any] | None:
    """Return the signals of the training samples, of a data set some of them; None of a stream, or where they hold no numbers."""
    samples = task.split("train")
    if samples.tensors is None:
        return None if samples.is_stream else _of_data_set(task, samples)
    if not samples.tensors[0].is_floating_point() or not samples.tensors[0].numel():
        return None
    inputs, target = samples.tensors[0], samples.tensors[-1]
    counts = {"counts": [int(n) for n in target.bincount()]} if is_classes(target) else {}
    found = {"not_finite": int((~torch.isfinite(inputs)).sum()), "features": inputs[0].numel(), **counts}
    if isinstance(task.task, BuiltinTask):
        return found  # what its inputs hold is encoded: planning judges the data itself, and the model scales it
    places = torch.from_numpy(samples.spread(ROWS))
    rows, labels = inputs[places].flatten(1).double(), target[places]
    found |= {**_scale(rows), **task.repeated_shares()}
    if counts:
        is_whole = bool(torch.isfinite(rows).all())
        found |= {"telling": telling(rows, labels), "neighbours": neighbours(rows, labels) if is_whole else None}
    return found


def _of_data_set(task: OpenTask, samples: Samples) -> dict[str, Any] | None:
    """Return the signals of some samples of a data set; whether they are in another split, too, planning has looked at."""
    with user_code(task.root, "samples of your task"):
        read = read_split(samples, task.task.target_key, task.config.data_seed, Budget(ROWS, 0, READING_S))
    first = next(iter(read.inputs.values()), None)
    if first is None or first.is_whole or not first.values.size:
        return None
    rows, labels = torch.from_numpy(first.values), classes_of(read.target)
    bad = int((~torch.isfinite(rows)).sum())
    found = {"not_finite": bad, "features": first.size, **_scale(rows)}
    if labels is not None and not bad and len(rows) > NEIGHBOURS:
        found |= {"neighbours": neighbours(rows, torch.from_numpy(labels))}
    return found


def _scale(rows: Tensor) -> dict[str, float | None]:
    """Return the largest size and the standard deviation of the finite numbers."""
    kept = rows[torch.isfinite(rows)]
    return {
        "largest": float(kept.abs().max()) if len(kept) else None,
        "spread": float(kept.std()) if len(kept) > 1 else None,
    }


def telling(rows: Tensor, labels: Tensor) -> float:
    """Return the score, from 0 to 1, of naming the class by the best single feature; 0 where none does it far beyond chance."""
    columns = rows[:, :MOST_FEATURES].numpy()
    # A feature with gaps is looked at in planning alone.
    found = telling_features(columns[:, np.isfinite(columns).all(0)], labels.numpy(), int(labels.max()) + 1, DataLimits())
    return max(found.values(), default=0.0)


def neighbours(rows: Tensor, labels: Tensor) -> float:
    """Return the accuracy, from 0 to 1, of a vote of the nearest samples by their standardized features."""
    scaled = (rows - rows.mean(0)) / rows.std(0).clamp_min(1e-12)
    distances = torch.cdist(scaled, scaled).fill_diagonal_(math.inf)
    near = labels[distances.topk(min(NEIGHBOURS, len(rows) - 1), largest=False).indices]
    return float((near.mode(1).values == labels).double().mean())
