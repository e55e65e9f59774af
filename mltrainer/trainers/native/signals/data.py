"""Signals of the training samples: their scale, neighbours' classes, features that reveal the class, and what the model gets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.batch_transform import batch_transform
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.leak_rules import telling_features
from mltrainer.tasks.opening import OpenTask, Samples
from mltrainer.tasks.reading import Budget, read_split
from mltrainer.tasks.targets import class_numbers
from mltrainer.tasks.user_code import user_code
from mltrainer.trainers.native.signals.modules import WEIGHTED
from mltrainer.trainers.native.signals.observing import Watch, batch_of, passed

ROWS = 500  # rows among which neighbours are searched
TELLING_NUMBERS = 1 << 21  # chosen by us: numbers, of at most 4096 rows, in the test of features
NEIGHBOURS = 5
TELLING = 0.1  # chosen by us: accuracy above the largest class's share that tokens must reach, else their order decides
MOST_FEATURES = 1024  # features that are tested one by one
FAR = 20  # chosen by us: an outlier's least distance from the median, in deviations estimated from the median distance
OF_NORMAL = 1.4826  # the standard deviation of normal numbers divided by their median distance
GIVEN_SAMPLES = 128  # of each split, as the model gets them


def of_data(task: OpenTask) -> dict[str, Any] | None:
    """Return the signals of the training samples (of a data set: of some); None for a stream, or samples without numbers."""
    samples = task.split("train")
    if samples.tensors is None:
        return None if samples.is_stream else _of_data_set(task, samples)
    if not samples.tensors[0].is_floating_point():
        return None if isinstance(task.task, BuiltinTask) else _of_data_set(task, samples)
    if not samples.tensors[0].numel():
        return None
    inputs, target = samples.tensors[0], samples.tensors[-1]
    labels = class_numbers(target, task.target_kind)
    counts = {} if labels is None else {"counts": labels.bincount().tolist()}
    found = {"not_finite": int((~torch.isfinite(inputs)).sum()), "features": inputs[0].numel(), **counts}
    found |= outliers(target)
    if isinstance(task.task, BuiltinTask):
        return found  # its inputs are encoded: planning checks the data itself, and the model scales it
    places = torch.from_numpy(samples.spread(ROWS))
    rows = inputs[places].flatten(1).double()
    found |= {**_scale(rows), **task.repeated_shares()}
    if labels is not None:
        is_whole = bool(torch.isfinite(rows).all())
        tried = torch.from_numpy(samples.spread(max(ROWS, min(4096, TELLING_NUMBERS // rows.shape[1]))))
        score = telling(inputs[tried].flatten(1).double(), labels[tried])
        found |= {"telling": score, "neighbours": neighbours(rows, labels[places]) if is_whole else None}
    elif task.target_kind == "values":
        found |= _of_numbers(rows, target[places])
    return found


def _of_data_set(task: OpenTask, samples: Samples) -> dict[str, Any] | None:
    """Return the signals of some samples of a data set; planning has already checked whether they are in another split too."""
    with user_code(task.root, "samples of your task"):
        read = read_split(samples, task.task.target_key, task.config.data_seed, Budget(ROWS, 0))
    read = replace(read, kind=task.target_kind)
    first = next(iter(read.inputs.values()), None)
    if first is None or not first.values.size:
        return None
    rows, labels = torch.from_numpy(first.values), read.labels
    bad = int((~torch.isfinite(rows)).sum())
    # Whole numbers are tokens or pixels, whose scale the model handles.
    found = {"not_finite": bad, "features": first.size, **({} if first.is_whole else _scale(rows))}
    if first.is_whole and first.values.shape[1] > 1:
        found |= {"constant": float((first.values == first.values[:1]).all(axis=0).mean())}
    if read.drawn is None:
        found |= {"repeated": 1 - len(np.unique(row_hashes([read.rows]))) / len(rows)}
    if labels is not None:
        found |= {"counts": np.bincount(labels).tolist()}
    elif read.target is not None:
        found |= outliers(torch.from_numpy(read.target.values))
    # Equal tokens at equal places do not make samples similar; names of an image's features have several indices.
    is_comparable = not first.is_whole or "][" in first.names[-1]
    if bad or len(rows) <= NEIGHBOURS or read.target is None:
        return found
    if not is_comparable:
        return found | ({} if labels is None else _of_tokens(rows, torch.from_numpy(labels)))
    if labels is not None:
        return found | {"neighbours": neighbours(rows, torch.from_numpy(labels))}
    return found | (_of_numbers(rows, torch.from_numpy(read.target.values)) if read.kind == "values" else {})


def _of_tokens(tokens: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the accuracy of a vote of the samples with the most tokens in common; {} if they hardly predict the class."""
    _, places = tokens.unique(return_inverse=True)
    counts = torch.zeros(len(tokens), int(places.max()) + 1, dtype=torch.float64)
    # Roots of counts, whose distance is Hellinger's: otherwise frequent tokens would decide all.
    accuracy = _voted(counts.scatter_add_(1, places, torch.ones_like(tokens)).sqrt(), labels)
    return {"neighbours": accuracy} if accuracy >= float(labels.bincount().max() / len(labels)) + TELLING else {}


def _of_numbers(rows: Tensor, targets: Tensor) -> dict[str, float]:
    """Return the R2 of predicting a sample's target from its neighbours; {} for targets of more than one number per sample."""
    if targets.numel() != len(rows) or len(rows) <= NEIGHBOURS or not bool(torch.isfinite(rows).all()):
        return {}
    r2 = neighbour_r2(rows, targets.flatten().double())
    return {"neighbour_r2": r2} if math.isfinite(r2) else {}


def outliers(targets: Tensor) -> dict[str, float]:
    """Return the count of outliers among targets of one number each, and their share of the variance; {} if undefined."""
    if not targets.is_floating_point() or targets.numel() != len(targets) or not bool(torch.isfinite(targets).all()):
        return {}
    distances = (targets.flatten().double() - targets.double().median()).abs()
    is_far = distances > FAR * OF_NORMAL * distances.median()
    if not distances.median() > 0:
        return {}
    squares = distances.square()
    return {"outliers": int(is_far.sum()), "outlying": float(squares[is_far].sum() / squares.sum())}


def _scale(rows: Tensor) -> dict[str, float | None]:
    """Return the largest absolute value and the standard deviation of the finite numbers."""
    kept = rows[torch.isfinite(rows)]
    return {
        "largest": float(kept.abs().max()) if len(kept) else None,
        "spread": float(kept.std()) if len(kept) > 1 else None,
    }


def telling(rows: Tensor, labels: Tensor) -> float:
    """Return the score, from 0 to 1, of predicting the class from the best single feature; 0 if none is far above chance."""
    columns = rows[:, :MOST_FEATURES].numpy()
    # Only planning tests a feature with gaps.
    found = telling_features(columns[:, np.isfinite(columns).all(0)], labels.numpy(), int(labels.max()) + 1, DataLimits())
    return max(found.values(), default=0.0)


def neighbours(rows: Tensor, labels: Tensor) -> float:
    """Return the accuracy, from 0 to 1, of a vote of the nearest samples by their standardized features."""
    return _voted(_standardized(rows), labels)


def _voted(rows: Tensor, labels: Tensor) -> float:
    return float((labels[_nearest(rows)].mode(1).values == labels).double().mean())


def neighbour_r2(rows: Tensor, targets: Tensor) -> float:
    """Return the R2 of the mean of the nearest samples' targets, by their standardized features; NaN for equal targets."""
    errors = (targets[_nearest(_standardized(rows))].mean(1) - targets).square().mean()
    return float(1 - errors / targets.var(correction=0))


def _standardized(rows: Tensor) -> Tensor:
    return (rows - rows.mean(0)) / rows.std(0).clamp_min(1e-12)


def _nearest(rows: Tensor) -> Tensor:
    """Return the indices of each sample's nearest others."""
    distances = torch.cdist(rows, rows).fill_diagonal_(math.inf)
    return distances.topk(min(NEIGHBOURS, len(rows) - 1), largest=False).indices


def as_given(task: OpenTask, model: nn.Module, config: TrainingConfig) -> list[float] | None:
    """Return the share of the nearest samples' votes for a sample's own class, by the first layer's inputs, for each split.

    Training samples are augmented and in training mode, validation samples in evaluation mode. None if samples have no class,
    or all of a split have the same, or their inputs are not finite numbers.
    """
    if config.compile or task.split("train").is_stream:
        return None
    found = [_split_vote(task, model, config, split) for split in ("train", "validation")]
    return None if found[0] is None or found[1] is None else [found[0], found[1]]


def _split_vote(task: OpenTask, model: nn.Module, config: TrainingConfig, split: str) -> float | None:
    batch, is_training = batch_of(task, config, split, Watch(1, GIVEN_SAMPLES)), split == "train"
    transform = batch_transform(task.task, config) if is_training else None
    if transform is not None:
        batch = (*transform(batch, task.split(split).spread(GIVEN_SAMPLES), 0)[:-1], batch[-1])
    given, target = _layer_inputs(task, model, config, batch, is_training)
    labels = class_numbers(target, task.target_kind) if isinstance(target, Tensor) else None
    if labels is None or len(labels.unique()) < 2:  # any sample names the one class
        return None
    rows = next((one.flatten(1) for one in given if one.dim() > 1 and len(one) == len(labels)), None)
    if rows is None or not bool(torch.isfinite(rows).all()):
        return None
    rows = rows[:, torch.linspace(0, rows.shape[1] - 1, min(MOST_FEATURES, rows.shape[1])).long()]
    return neighbours(rows.double().cpu(), labels.cpu())


def _layer_inputs(
    task: OpenTask, model: nn.Module, config: TrainingConfig, batch: Any, training: bool
) -> tuple[list[Tensor], Any]:
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
