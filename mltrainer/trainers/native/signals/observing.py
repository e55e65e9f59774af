"""The model's signals on one batch: its modules, its outputs beside the targets, its loss; no effect on training."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MltrainerError, is_out_of_memory
from mltrainer.records.run import TargetKind
from mltrainer.reproducibility import seeds
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.opening import OpenTask, make_model
from mltrainer.tasks.samples import generators_kept
from mltrainer.tasks.shared_gradients import cosines, gramian, losses_of
from mltrainer.tasks.structures import length, main_output, mapped, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.tasks.user_code import user_frame
from mltrainer.trainers.native.data.addresses import Plan, evaluation_batches
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.optimization.precision import autocast, choose, full
from mltrainer.trainers.native.signals.memory import memory_mb
from mltrainer.trainers.native.signals.modules import (
    Modules,
    TrainingCalls,
    held,
    histograms,
    spread,
    symmetric,
    trained_share,
    weights_of,
)
from mltrainer.trainers.native.signals.overlooked import overlooked
from mltrainer.trainers.native.signals.plain import Probe, block_losses, plain_answers, probe_of, uses_targets
from mltrainer.trainers.native.signals.structure import structure_of
from mltrainer.workspace import is_of_machine

SHARE = 0.02  # greatest share of a run's training spent on observing its model
FEWEST, MOST = 4, 12  # evaluations with observation, evenly spaced, with the first and the last
MOST_NAMED = 32  # the most classes, or labels of a sample, with counted answers: more are a vocabulary
LEAST_SAMPLES, SAMPLES = 16, 256  # bounds of the observed samples
FITTED = 128  # the least training samples for fitting plain answers
LEAST_SPREAD = 1e-3  # spread of outputs relative to the largest one: smaller differences are rounding


@dataclass(frozen=True)
class Watch:
    """The budget of observing a model: how often, and on how many samples.

    Attributes:
        evaluations: The approximate number of the run's evaluations with observation.
        samples: The number of samples of each split.
    """

    evaluations: int
    samples: int

    @property
    def held_out(self) -> Watch:
        """The same budget with twice the samples, for validation: these compare the model with plain answers."""
        return replace(self, samples=min(2 * self.samples, SAMPLES))


def watch_for(plan: Plan) -> Watch:
    """Return the budget of observing a run: its samples pass forward four times, about as costly as training on them once."""
    affordable = SHARE * plan.steps * plan.step_samples
    evaluations = max(FEWEST, min(MOST, int(affordable / SAMPLES)))
    return Watch(evaluations, max(LEAST_SAMPLES, min(SAMPLES, int(affordable / evaluations))))


def at_start(task: OpenTask, model: nn.Module, config: TrainingConfig, watch: Watch, compares: bool = True) -> dict[str, Any]:
    """Return the untrained model's signals: on training samples in evaluation mode, and of its weights.

    Args:
        task: The opened task.
        model: The untrained model.
        config: The training's config.
        watch: The budget, with the number of samples.
        compares: Whether plain answers are fitted, for comparison with the run.
    """
    with _as_added(task.root):
        batch = batch_of(task, config, "train", watch)
        found, outputs, target = _observed(task, model, config, batch)
        _, _, training_loss = passed(task.task, model, config, batch, training=True)
        # Calls inside of compiled code are not visible.
        calls, in_training = (None if config.compile else _calls(task, model, config, mode) for mode in (False, True))
        has_targets = uses_targets(task.task, outputs, target)
        is_compared = compares and has_targets is not False and next(tensors_in(target), None) is not None
        plain = _plain(task, model, config, watch) if is_compared else None
        reached = _reached(task.task, model, config, batch)
        overlooks = None if isinstance(task.task, BuiltinTask) else _overlooks(task, model, config)
        # Dropout and batch statistics change an answer by themselves, and have their own diagnostic.
        part = None if calls is None or calls.found else _difference_of_part(task.task, model, config, batch)
        structure = _structure(task, model, config) if compares and not config.compile else None
    modes = {
        "training_loss": training_loss,
        "training_calls": calls and calls.found,
        "dropped": in_training and in_training.dropped,
        "part": part,
        "structure": structure,
    }
    weights = {
        "symmetric": symmetric(model),
        "weights": spread(model),
        "trained_share": trained_share(model),
        "held": held(model),
    }
    return {
        **found,
        **_tried(task, outputs, target),
        "target_kind": task.target_kind,
        **modes,
        **weights,
        "uses_targets": has_targets,
        "plain": plain,
        "reached": reached,
        "overlooks": overlooks,
    }


def looks_at_targets(task: OpenTask, config: TrainingConfig) -> bool | None:
    """Return True if a new model's loss of some training samples changes with their targets; None if the test fails."""
    try:
        with generators_kept():
            model = make_model(task).to(config.device)
            outputs, target, _ = passed(task.task, model, config, batch_of(task, config, "train", Watch(1, LEAST_SAMPLES)))
            return uses_targets(task.task, outputs, target)
    except Exception:  # training meets the same error and reports it
        return None


def _reached(task: Task, model: nn.Module, config: TrainingConfig, batch: Any) -> list[str] | None:
    """Return the parameters with a gradient other than zero in fp32; None for a run that is not in fp16.

    If one of them has no gradient in fp16, its numbers are too small there, and no code cuts the gradient off.
    """
    if choose(config.precision, config.device).chosen != "fp16" or config.compile:
        return None
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with forwarded(task, model, config.model_copy(update={"precision": "fp32"}), batch, training=True) as (outputs, target):
        loss = task.loss(full(outputs), target)
        gradients: tuple[Tensor | None, ...] = ()
        if loss.requires_grad:
            gradients = torch.autograd.grad(loss, [*trained.values()], allow_unused=True)
    return [name for name, gradient in zip(trained, gradients, strict=False) if gradient is not None and bool(gradient.any())]


def _plain(task: OpenTask, model: nn.Module, config: TrainingConfig, watch: Watch) -> dict[str, Any] | None:
    """Return the losses that plain answers reach with a custom task's loss; None for built-in tasks, with reference models."""
    if isinstance(task.task, BuiltinTask):
        return None
    try:
        # Once, and with a single pass: on fewer training samples nothing is fitted.
        batches = (
            batch_of(task, config, "train", Watch(1, max(watch.samples, FITTED))),
            batch_of(task, config, "validation", watch.held_out),
        )
        probes = [_probe(task.task, model, config, one) for one in batches]
    except MltrainerError:
        raise
    except Exception:  # training meets the same error and reports it
        return None
    return None if probes[0] is None or probes[1] is None else plain_answers(task.task, probes[0], probes[1], config.metric.name)


def _probe(task: Task, model: nn.Module, config: TrainingConfig, batch: Any) -> Probe | None:
    given: list[Any] = []
    # A hook would compile a compiled model again.
    handle = None if config.compile else model.register_forward_pre_hook(lambda _, *got: given.append(got), with_kwargs=True)
    try:
        outputs, target, _ = passed(task, model, config, batch)
    finally:
        if handle is not None:
            handle.remove()
    return probe_of(given[0] if given else (), outputs, target)


def _overlooks(task: OpenTask, model: nn.Module, config: TrainingConfig) -> dict[str, Any] | None:
    """Return the answers that a loss overlooks, on enough samples to include a rare class."""
    try:
        outputs, target, _ = passed(task.task, model, config, batch_of(task, config, "train", Watch(1, FITTED)))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:  # training reports the same error
        if is_out_of_memory(error):
            raise
        return None
    return overlooked(task.task, outputs, target)


def _calls(task: OpenTask, model: nn.Module, config: TrainingConfig, training: bool) -> TrainingCalls:
    """Return the calls made in one of the modes that are for training only."""
    # On few samples, separately: observed calls make some modules take a slower path, with other last bits.
    calls = TrainingCalls()
    with calls:
        passed(task.task, model, config, batch_of(task, config, "train", Watch(1, LEAST_SAMPLES)), training)
    return calls


def _difference_of_part(task: Task, model: nn.Module, config: TrainingConfig, batch: Any) -> float | None:
    """Return the largest change of answers, relative to their spread, when half of the batch is left out.

    None if the model refuses a part of the batch, has no answer for each sample, or draws its answers at random.
    """
    config, count = config.model_copy(update={"precision": "fp32"}), length(batch)
    # The second half: causal effects from sample to sample reach none before.
    half = mapped(lambda one: one[count // 2 :] if one.dim() and len(one) == count else one, batch)
    try:
        asked = ((config, batch), (config, half), (config.model_copy(update={"seed": config.seed + 1}), half))
        whole, part, drawn = (main_output(passed(task, model, how, one)[0]) for how, one in asked)
        whole = whole[count // 2 :]
        if part.shape != whole.shape or not torch.equal(part, drawn):
            return None
        scale = torch.maximum(whole.std(), LEAST_SPREAD * whole.abs().max())
        found = float((whole - part).abs().max() / scale)
    except Exception as error:  # from the user's model, which may refuse another number of samples
        if is_out_of_memory(error):
            raise
        return None
    return found if math.isfinite(found) else None


def _structure(task: OpenTask, model: nn.Module, config: TrainingConfig) -> dict[str, Any] | None:
    exact = config.model_copy(update={"precision": "fp32"})
    batch = batch_of(task, config, "train", Watch(1, LEAST_SAMPLES))
    return structure_of(model, lambda: passed(task.task, model, exact, batch))


def at_evaluation(task: OpenTask, model: nn.Module, config: TrainingConfig, watch: Watch) -> dict[str, Any]:
    """Return a model's signals between two steps: on validation samples, and on training samples in both modes."""
    with _as_added(task.root):
        batch = batch_of(task, config, "train", watch)
        found = {name: _in_mode(task, model, config, batch, mode) for name, mode in (("evaluating", False), ("training", True))}
        held_out = batch_of(task, config, "validation", watch.held_out)
        validation, outputs, target = _observed(task, model, config, held_out)
        if not isinstance(task.task, BuiltinTask):
            validation["losses"] = block_losses(task.task, outputs, target)
        cosines_of = compared(task, model, config, batch)
    return {"validation": validation, **found, "memory_mb": memory_mb(), **cosines_of}


def _in_mode(task: OpenTask, model: nn.Module, config: TrainingConfig, batch: Any, training: bool) -> dict[str, Any]:
    outputs, target, loss = passed(task.task, model, config, batch, training)
    return {"loss": loss, "accuracy": accuracy(main_output(outputs), target, task.target_kind)}


def compared(task: OpenTask, model: nn.Module, config: TrainingConfig, batch: Any) -> dict[str, dict[str, float]]:
    """Return the cosines between the gradients of a task's separate losses; {} if they are not compared."""
    names = [*task.task.terms]
    # Compiled code, and recomputation in the backward pass, allow one gradient per forward pass.
    if len(names) < 2 or config.compile or config.gradient_checkpointing:
        return {}
    trained = [p for p in model.parameters() if p.requires_grad]
    with forwarded(task.task, model, config, batch, training=True) as (outputs, target):
        losses = losses_of(task.task, full(outputs), target)
        if not all(loss.requires_grad for loss in losses):  # some depend only on parameters frozen until a later epoch
            return {}
        found = cosines(gramian(losses, trained)).tolist()
    pairs = itertools.combinations(range(len(names)), 2)
    return {"cosines": {f"{names[one]}, {names[other]}": found[one][other] for one, other in pairs}}


@contextlib.contextmanager
def _as_added(root: Path) -> Iterator[None]:
    """Report an error as one of observing, which training itself may never meet, with the way to train without.

    Raises:
        InputError: The user's code failed; with its line, if one is on the stack.
    """
    try:
        yield
    except MltrainerError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or is_of_machine(error):
            raise
        raise InputError(
            f"observing the model for the diagnostics failed: {type(error).__name__}: {error}",
            where=user_frame(error, root),
            hint="it calls forward and loss in evaluation and in training mode, without gradients but those of several losses; "
            "to train without it: mltrainer phase run planning --set signals=false",
        ) from error


def is_watched(number: int, planned: int, wanted: int) -> bool:
    """Return True if the model is observed at an evaluation.

    Args:
        number: The evaluation's number, from 1.
        planned: The number of evaluations of the whole run.
        wanted: The approximate number of evaluations with observation.
    """
    if planned <= wanted or number in (1, planned):
        return True
    return math.floor(number * (wanted - 1) / planned) > math.floor((number - 1) * (wanted - 1) / planned)


def _observed(task: OpenTask, model: nn.Module, config: TrainingConfig, batch: Any) -> tuple[dict[str, Any], Any, Any]:
    """Return a model's signals on one batch, in evaluation mode, with its outputs and targets.

    Args:
        task: The task, with its forward pass and loss.
        model: The model, on its device.
        config: The config, with seed and precision.
        batch: The batch from `batch_of`.

    Returns:
        `loss`; `accuracy`, `by_class` and `answered`, None if the targets are not classes; `output`, `target`, `modules`;
        `distributions` of some layers' weights and activations; `first` and `last`, the types of the first and last module that
        gave an output.
    """
    modules = Modules(nn.Module() if config.compile else model)  # a hook would compile a compiled model again
    with modules:
        outputs, target, loss = passed(task.task, model, config, batch)
    output, kind = main_output(outputs), task.target_kind
    classes = by_class(output, target, kind)
    found = {
        "loss": loss,
        "accuracy": accuracy(output, target, kind),
        "by_class": recalled(output, target, classes, kind),
        "answered": None if classes is None else answered(*classes),
        "output": of_output(output, classes),
        "target": of_target(target, kind),
        "modules": modules.found(),
        "distributions": histograms(weights_of(model), modules.activations),
        "first": modules.first,
        "last": modules.last,
    }
    return found, outputs, target


@torch.no_grad()
def passed(task: Task, model: nn.Module, config: TrainingConfig, batch: Any, training: bool = False) -> tuple[Any, Any, float]:
    """Return outputs in the loss's precision, targets and loss of one batch; buffers do not change, in training mode neither."""
    with forwarded(task, model, config, batch, training) as (outputs, target):
        loss = task.loss(full(outputs), target)
    return full(outputs), target, float(loss)


def batch_of(task: OpenTask, config: TrainingConfig, split: str, watch: Watch) -> Any:
    """Return one batch of a split, always the same one: the first samples of a stream, else evenly spaced ones."""
    samples = task.split(split)
    batch, *_ = evaluation_batches(samples, samples.spread(watch.samples), config, split)
    return batch


@contextlib.contextmanager
def forwarded(task: Task, model: nn.Module, config: TrainingConfig, batch: Any, training: bool) -> Iterator[tuple[Any, Any]]:
    """Yield a model's outputs for a batch and its targets, for computing losses; buffers do not change."""
    with evaluating(model):
        model.train(training)
        # After the batch was read: samples read in this process have seeded the generators for their own draws.
        seeds.seed_everything(seeds.key(config.seed, "observe"))
        with autocast(config):
            yield task.forward(model, mapped(Tensor.clone, batch))  # a copy, because forward may change its batch


@torch.no_grad()
def _tried(task: OpenTask, outputs: Any, target: Any) -> dict[str, float | None]:
    """Return the losses with other targets, and the cross-entropies of outputs interpreted as probabilities and as logits."""
    output = main_output(outputs)
    if not isinstance(target, Tensor) or not isinstance(output, Tensor) or not target.dim() or len(target) < 2:
        return dict.fromkeys(("shuffled_loss", "constant_loss", "shifted_loss", "as_binary", "as_probabilities", "as_logits"))
    found = {
        "shuffled_loss": _loss_with(task.task, outputs, target.roll(len(target) // 2, 0)),
        "constant_loss": _loss_with(task.task, outputs, target[:1].expand_as(target).clone()),
        # A softmax of logits does not change if all of them are larger by one.
        "shifted_loss": _loss_with(task.task, mapped(lambda one: one + 1 if one is output else one, outputs), target),
        "as_binary": _as_binary(output, target),
    }
    rows, labels = by_class(output, target, task.target_kind) or (None, None)
    if rows is None or labels is None:
        return {**found, "as_probabilities": None, "as_logits": None}
    chosen = rows.gather(1, labels[:, None]).double().clamp_min(1e-12)
    return {
        **found,
        "as_probabilities": float(-chosen.log().mean()),
        "as_logits": float(nn.functional.cross_entropy(rows.double(), labels)),
    }


def by_class(output: Any, target: Any, kind: TargetKind | None) -> tuple[Tensor, Tensor] | None:
    """Return a classifier's outputs as [answers, classes], with their labels; None if the targets are not these classes.

    Answers are for samples, or for places in them, with the classes in the second or in the last dimension; labels below
    zero, which a loss ignores, are left out.
    """
    if kind == "values" or not isinstance(output, Tensor) or not isinstance(target, Tensor):
        return None
    if target.dtype != torch.int64 or output.dim() < 2:
        return None
    for dimension in (1, -1):
        rows = output.movedim(dimension, -1)
        if rows.shape[:-1].numel() != target.numel() or (target.dim() > 1 and rows.shape[:-1] != target.shape):
            continue
        known, labels = target.flatten() >= 0, target.flatten()
        if bool(known.any()) and int(labels.max()) < rows.shape[-1]:
            return rows.flatten(0, -2)[known], labels[known]
    return None


def recalled(output: Any, target: Any, classes: tuple[Tensor, Tensor] | None, kind: TargetKind | None) -> list[list[int]] | None:
    """Return for each class the count of its samples, of those answered rightly, and of the largest class.

    None if the targets are not known to be classes, or are too many to name. With several labels per sample, each true or
    false, a label's class has the samples for which it is true, and the others count as the largest class.

    Args:
        output: The model's output for a batch.
        target: The batch's targets.
        classes: Both in the form of `by_class`.
        kind: The kind of the targets.
    """
    if kind != "classes":
        return None
    if classes is not None:
        rows, labels = classes
        if rows.shape[1] > MOST_NAMED:
            return None
        counts = labels.bincount(minlength=rows.shape[1])
        right = labels[rows.argmax(1) == labels].bincount(minlength=rows.shape[1])
        return torch.stack([counts, right, counts.amax().expand_as(counts)], 1).tolist()
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or output.numel() != target.numel() or not target.dim():
        return None
    if not output.is_floating_point() or output.numel() > MOST_NAMED * len(target) or not is_marked(target):
        return None
    holds, named = (target > 0).reshape(len(target), -1), (output > _middle(output)).reshape(len(target), -1)
    counts = torch.stack([holds.sum(0), (holds & named).sum(0), (~holds).sum(0)], 1)
    if holds.shape[1] == 1:  # of two classes, the other one may be the rare one
        others = torch.stack([(~holds).sum(0), (~holds & ~named).sum(0), holds.sum(0)], 1)
        counts = torch.cat([others, counts])
    return counts.tolist()


def answered(rows: Tensor, labels: Tensor) -> list[list[int]] | None:
    """Return for each class its samples' most frequent answer, and the answer's count; None for a vocabulary.

    Args:
        rows: The outputs, [answers, classes].
        labels: The class of each answer.
    """
    classes = rows.shape[1]
    if classes > MOST_NAMED:
        return None
    counts = (labels * classes + rows.argmax(1)).bincount(minlength=classes**2).reshape(classes, classes)
    return torch.stack([counts.argmax(1), counts.amax(1)], 1).tolist()


def _loss_with(task: Task, outputs: Any, target: Tensor) -> float | None:
    """Return the loss of outputs with other targets; None if the task's loss refuses these, as it may."""
    try:
        return float(task.loss(outputs, target))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None


def _as_binary(output: Tensor, target: Tensor) -> float | None:
    """Return the binary cross-entropy of outputs interpreted as logits; None if there is not one for each target."""
    if output.numel() != target.numel() or output.is_complex() or target.is_complex():
        return None
    return float(nn.functional.binary_cross_entropy_with_logits(output.double().flatten(), target.double().flatten()))


# --- outputs and targets --------------------------------------------------------------------------


def of_output(output: Any, classes: tuple[Tensor, Tensor] | None = None) -> dict[str, Any] | None:
    """Return shape, range and spread of outputs, and the share of the most frequent answer; None if they are not a tensor.

    Args:
        output: The outputs for a batch.
        classes: The outputs in the form of `by_class`.
    """
    if not isinstance(output, Tensor) or not output.is_floating_point() or not output.numel():
        return None
    rows = output.flatten(1) if output.dim() > 1 else output[:, None]
    answers = answers_of(output)
    return {
        "shape": list(output.shape[1:]),
        "lowest": float(output.min()),
        "largest": float(output.max()),
        "spread": float(rows.std(0).mean()) if len(rows) > 1 else 0.0,
        "sums_to_one": sums_to_one(classes[0] if classes is not None else output),
        "zero": float((output == 0).float().mean()),
        "top": None if answers is None else float(answers.bincount().max() / len(answers)),
    }


def sums_to_one(output: Tensor) -> bool:
    """Return True if outputs are never below 0 and sum to 1, in the second or the last dimension."""
    if output.dim() < 2 or float(output.min()) < 0:
        return False
    sums = [output.sum(dimension) for dimension in (1, -1) if output.shape[dimension] > 1]
    return any(torch.allclose(one, torch.ones_like(one), atol=1e-4) for one in sums)


def of_target(target: Any, kind: TargetKind | None) -> dict[str, Any] | None:
    """Return shape and range of targets, for class numbers also their count and entropy; None if they are not a tensor."""
    if not isinstance(target, Tensor) or not target.numel():
        return None
    is_class = is_numbered(target, kind)
    counts = target.bincount() if is_class else torch.zeros(0)
    numbers = target.float()
    return {
        "shape": list(target.shape[1:]),
        "classes": int((counts > 0).sum()) if is_class else None,
        "entropy": entropy(counts) if is_class else None,
        "top": float(counts.max() / counts.sum()) if is_class else None,
        "lowest": float(numbers.min()),
        "largest": float(numbers.max()),
        "spread": float(numbers.flatten(1).std(0).mean() if target.dim() > 1 else numbers.std()) if len(target) > 1 else 0.0,
    }


def is_marked(target: Tensor) -> bool:
    """Return True if targets are only 0 and 1, or -1 and 1, like labels that are true or false."""
    return not target.is_complex() and (bool(((target == 0) | (target == 1)).all()) or bool((target.abs() == 1).all()))


def is_numbered(target: Tensor, kind: TargetKind | None) -> bool:
    """Return True if targets are class numbers: int64 of one dimension, none negative."""
    return kind == "classes" and target.dim() == 1 and target.dtype == torch.int64 and bool((target >= 0).all())


def entropy(counts: Tensor) -> float:
    """Return the entropy of class counts, in nats."""
    shares = counts.double() / counts.sum()
    return float(-torch.xlogy(shares, shares).sum())


def answers_of(output: Tensor) -> Tensor | None:
    """Return the class that each output predicts: the largest of several numbers, or the side of the middle of one number."""
    if output.dim() == 2 and output.shape[1] > 1:
        return output.argmax(1)
    if output.dim() > 2:
        return None
    return (output.flatten() > _middle(output)).long()


def _middle(output: Tensor) -> float:
    """Return the number between two answers: 0.5 for probabilities, else 0."""
    return 0.5 if float(output.min()) >= 0 and float(output.max()) <= 1 else 0.0


def accuracy(output: Any, target: Any, kind: TargetKind | None) -> float | None:
    """Return the share of right answers; None if the targets are not class numbers."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or not is_numbered(target, kind):
        return None
    answers = answers_of(output)
    return None if answers is None or answers.shape != target.shape else float((answers == target).float().mean())
