"""A check that the loss of a batch is the mean of its parts' losses, on which accumulation and several processes depend.

Each part counts by `loss_items`. A loss that is a mean over something else, such as a subset of tokens or class
weights, makes a step of several micro-batches differ from a step of one large batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.samples import Samples, generators_kept
from mltrainer.tasks.structures import joined, mapped, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import evaluation_batches
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.optimization.precision import full

SAMPLES = 32  # samples of the checked batch
EXACT, ROUNDED = 1e-6, 1e-5  # relative, chosen by us: above the rounding of doubles, and of sums in single precision
ANEW = 1e-4  # relative, chosen by us: outputs recomputed in batches of another size
MOST_BYTES = 64 * 2**20  # larger outputs are not converted to double precision
COUNTS = {f"(targets != {ignored}).sum()": ignored for ignored in (-100, -1, 0, 255)}  # the usual marks of ignored targets
REFUSED = (RuntimeError, ValueError, IndexError, TypeError, KeyError, ZeroDivisionError)  # from a loss that refuses a part


class Part(NamedTuple):
    """Outputs and targets of a part of a batch."""

    outputs: Any
    targets: Any


class Unequal(NamedTuple):
    """A batch whose loss is not the mean of its parts' losses.

    Attributes:
        whole: The batch's loss.
        parts: The mean of its parts' losses, each weighted by its number of items.
        sizes: The number of samples of each part.
        counts: An expression for `loss_items` that makes both equal; None if none was found.
    """

    whole: float
    parts: float
    sizes: tuple[int, ...]
    counts: str | None = None


Losses = Callable[[Part], float]


def require_mean(task: Task, model: nn.Module, samples: Samples, config: TrainingConfig) -> list[Finding]:
    """Return a warning of a loss that is not a mean over its items, as long as the config does not depend on it.

    Raises:
        InputError: A step has several micro-batches, or may have after a split, which such a loss would train unlike one batch.
    """
    found = unequal(task, model, samples, config)
    if found is None:
        return []
    sizes = " and ".join(map(str, found.sizes))
    what = (
        f"the loss of {sum(found.sizes)} samples is {found.whole:.6g}, "
        f"and the mean of the losses of their parts of {sizes} is {found.parts:.6g}"
    )
    divides = {"accumulate": config.accumulate > 1, "on_out_of_memory": config.on_out_of_memory == "split"}
    if (key := next((key for key, does in divides.items() if does), None)) is not None:
        large = config.batch_size * config.accumulate
        message = f"{what}: {key}: {getattr(config, key)} would not train what a batch of {large} does"
        raise InputError(message, where=key, hint=_way_out(found, config))
    rests = "accumulate above 1, on_out_of_memory: split and several processes are refused, "
    rests += "and the loss that evaluations report depends on their batches"
    return [Finding("warning", f"{what}: {rests}; {_way_out(found, config)}")]


def _way_out(found: Unequal, config: TrainingConfig) -> str:
    if found.counts is not None:
        return f"add to your task: def loss_items(self, targets): return {found.counts}"
    return (
        "if the loss divides by something else than the number of samples, add that to your task: def loss_items(self, targets): "
        "return ..., such as self.weight[targets].sum(); else return a mean over the samples from loss, "
        f"or take batch_size: {config.batch_size * config.accumulate} with accumulate: 1, on_out_of_memory: stop and one process"
    )


def unequal(task: Task, model: nn.Module, samples: Samples, config: TrainingConfig) -> Unequal | None:
    """Return the difference between a batch's loss and that of its parts; None if they are equal or cannot be compared.

    The model is in evaluation mode, and the parts come from one forward pass, so that neither dropout nor batch statistics
    make them differ. If outputs are not ordered by sample, each part is recomputed, and counts only if the model gives it the
    same outputs as in the whole batch.

    Args:
        task: The task, with its forward pass and loss.
        model: The model, on its device.
        samples: The training split's samples.
        config: The config, with device and seed.
    """
    count = min(SAMPLES, len(samples))
    last = count - 1 if samples.is_stream else len(samples) - 1  # spread over the whole split, which may be sorted
    positions = np.linspace(0, last, count).astype(np.int64)
    # With gradients: only Lightning's training step needs them.
    with generators_kept(), evaluating(model), torch.enable_grad():
        batch = next(iter(evaluation_batches(samples, positions, config, "train")))
        seeds.seed_everything(seeds.key(config.seed, "loss of parts"))
        outputs, targets = task.forward(model, batch)
        whole = Part(mapped(Tensor.detach, full(outputs)), targets)
        parts = _sliced(whole, count) if _is_by_sample(whole, count) else _computed(task, model, batch, whole, count)
        return None if parts is None or count < 2 else _compared(task, whole, parts, count, config)


Parts = Callable[[Sequence[int]], Part]


def _sliced(whole: Part, count: int) -> Parts:
    return lambda chosen: Part(*(_of(chosen, value, count) for value in whole))


def _computed(task: Task, model: nn.Module, batch: Any, whole: Part, count: int) -> Parts | None:
    """Return a function that computes parts of a batch; None if the model's outputs for a part differ from those in the batch."""

    def part(chosen: Sequence[int]) -> Part:
        outputs, targets = task.forward(model, _of(chosen, batch, count))
        return Part(mapped(Tensor.detach, full(outputs)), targets)

    try:
        halves = [part(chosen).outputs for chosen in _halves(count)]
        pairs = [*zip(tensors_in(joined(halves)), tensors_in(whole.outputs), strict=True)]
        is_same = all(torch.allclose(one.double(), other.double(), rtol=ANEW, atol=ANEW) for one, other in pairs)
    except REFUSED:
        return None
    return part if is_same else None


def _is_by_sample(whole: Part, count: int) -> bool:
    return all(len(tensor) == count for tensor in tensors_in(whole) if tensor.dim())


def _of(chosen: Sequence[int], value: Any, count: int) -> Any:
    """Return the part of a batch, its outputs or its targets that belongs to some samples."""
    if isinstance(value, list) and len(value) == count:
        return [value[place] for place in chosen]
    index = torch.tensor([*chosen])
    return mapped(lambda t: t[index.to(t.device)] if t.dim() and len(t) == count else t, value)


def _halves(count: int) -> list[range]:
    return [range(count // 2), range(count // 2, count)]


def _splits(count: int) -> list[list[range]]:
    return [_halves(count), [range(1), range(1, count)]]


# --- the comparison -------------------------------------------------------------------------------


def _compared(task: Task, whole: Part, part: Parts, count: int, config: TrainingConfig) -> Unequal | None:
    is_exact = sum(t.nbytes for t in tensors_in(whole)) <= MOST_BYTES
    for exact in (True, False) if is_exact else (False,):
        loss = _loss(task, config, exact)
        try:
            expected = loss(whole)
        except REFUSED:
            continue  # the loss has weights that are not doubles
        other = _loss(task, config, exact, "other draws")(whole)
        if not math.isfinite(expected) or _differ(expected, other, ROUNDED):
            return None  # the loss draws random numbers or counts its calls: its values cannot be compared
        return _unequal(task, loss, part, expected, _tolerance(whole, count, exact), count)
    return None


def _tolerance(whole: Part, count: int, exact: bool) -> float:
    if not _is_by_sample(whole, count):
        return ANEW
    return EXACT if exact else ROUNDED


def _loss(task: Task, config: TrainingConfig, exact: bool, draws: str = "draws") -> Losses:
    """Return the loss of a part, always with the same random draws."""

    def of(part: Part) -> float:
        seeds.seed_everything(seeds.key(config.seed, f"loss of parts: {draws}"))
        given = mapped(lambda t: t.double() if t.is_floating_point() else t, part) if exact else part
        return float(task.loss(given.outputs, given.targets))

    return of


def _differ(one: float, other: float, tolerance: float, scale: float = 0.0) -> bool:
    return not abs(one - other) <= tolerance * max(abs(one), abs(other), scale, 1e-12)


def _unequal(task: Task, loss: Losses, part: Parts, expected: float, tolerance: float, count: int) -> Unequal | None:
    for split in _splits(count):
        try:
            parts = [part(chosen) for chosen in split]
            losses, items = [loss(each) for each in parts], [float(task.loss_items(each.targets)) for each in parts]
        except REFUSED:
            continue  # the loss refuses a part of this few samples
        mean, scale = _mean(losses, items), max(map(abs, losses))
        if _differ(mean, expected, tolerance, scale if math.isfinite(scale) else 0.0):
            return Unequal(expected, mean, tuple(map(len, split)), _count(loss, part, expected, count))
    return None


def _mean(losses: Sequence[float], items: Sequence[float]) -> float:
    """Return the mean as steps compute it: a part without items does not count."""
    return sum(one * n for one, n in zip(losses, items, strict=True) if n > 0) / (sum(items) or math.nan)


def _count(loss: Losses, part: Parts, expected: float, count: int) -> str | None:
    """Return the expression for the number of items that makes the parts' mean equal the whole batch's loss; None for none."""
    return next((text for text, ignored in COUNTS.items() if _counts(loss, part, expected, count, ignored)), None)


def _counts(loss: Losses, part: Parts, expected: float, count: int, ignored: int) -> bool:
    """Return True if a loss is the mean over the targets other than the ignored one, in each way to split the batch."""
    for split in _splits(count):
        parts = [part(chosen) for chosen in split]
        if not all(isinstance(each.targets, Tensor) and not each.targets.is_floating_point() for each in parts):
            return False
        items = [float((each.targets != ignored).sum()) for each in parts]
        if _differ(_mean([loss(each) for each in parts], items), expected, EXACT):
            return False
    return True
