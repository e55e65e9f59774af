"""What one batch shows of a model: its modules, its outputs beside the targets, its loss; training cannot notice it."""

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
from mltrainer.trainers.native.signals.distributions import histograms, weights_of
from mltrainer.trainers.native.signals.memory import memory_mb
from mltrainer.trainers.native.signals.modules import Modules, held, spread, symmetric, trained_share
from mltrainer.trainers.native.signals.overlooked import overlooked
from mltrainer.trainers.native.signals.plain import Probe, block_losses, plain_answers, probe_of, uses_targets
from mltrainer.trainers.native.signals.structure import structure_of
from mltrainer.trainers.native.signals.training_calls import TrainingCalls
from mltrainer.workspace import MACHINE_ERRNOS

SHARE = 0.02  # of a run's training may be spent on observing its model
FEWEST, MOST = 4, 12  # evaluations at which it is observed, evenly spaced, the first and the last among them
MOST_NAMED = 32  # classes, or labels of a sample, whose answers are counted: more are a vocabulary
LEAST_SAMPLES, SAMPLES = 16, 256  # on which it is observed
FITTED = 128  # training samples, at least, to which plain answers are fitted
LEAST_SPREAD = 1e-3  # of outputs, beside the largest: below, differences are rounding


@dataclass(frozen=True)
class Watch:
    """How often a model is observed, and on how many samples.

    Attributes:
        evaluations: At so many evaluations of the run, about.
        samples: Of each split.
    """

    evaluations: int
    samples: int

    @property
    def held_out(self) -> Watch:
        """The same with twice the samples, of validation: by them the model is compared with plain answers."""
        return replace(self, samples=min(2 * self.samples, SAMPLES))


def watch_for(plan: Plan) -> Watch:
    """Return the budget of observing a run: its samples go forward four times, about as much as training on them once."""
    affordable = SHARE * plan.steps * plan.step_samples
    evaluations = max(FEWEST, min(MOST, int(affordable / SAMPLES)))
    return Watch(evaluations, max(LEAST_SAMPLES, min(SAMPLES, int(affordable / evaluations))))


def at_start(task: OpenTask, model: nn.Module, config: TrainingConfig, watch: Watch, compares: bool = True) -> dict[str, Any]:
    """Return the untrained model's signals: of training samples in evaluation mode, and of its weights.

    Args:
        task: Opened.
        model: The untrained one.
        config: Of the training.
        watch: On how many samples.
        compares: Whether plain answers are fitted, beside which the run is judged.
    """
    with _as_added(task.root):
        batch = batch_of(task, config, "train", watch)
        found, outputs, target = _observed(task, model, config, batch)
        _, _, training_loss = passed(task.task, model, config, batch, training=True)
        # Of compiled code no call is seen.
        calls, in_training = (None if config.compile else _calls(task, model, config, mode) for mode in (False, True))
        has_targets = uses_targets(task.task, outputs, target)
        is_compared = compares and has_targets is not False and next(tensors_in(target), None) is not None
        plain = _plain(task, model, config, watch) if is_compared else None
        reached = _reached(task.task, model, config, batch)
        overlooks = None if isinstance(task.task, BuiltinTask) else _overlooks(task, model, config)
        # Dropout, or the batch's own statistics, change an answer by themselves, and have a diagnostic.
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
    """Return True if a new model's loss of some training samples changes with their targets; None where that cannot be asked."""
    try:
        with generators_kept():
            model = make_model(task).to(config.device)
            outputs, target, _ = passed(task.task, model, config, batch_of(task, config, "train", Watch(1, LEAST_SAMPLES)))
            return uses_targets(task.task, outputs, target)
    except Exception:  # training meets it, too, and tells it as what it is
        return None


def _reached(task: Task, model: nn.Module, config: TrainingConfig, batch: Any) -> list[str] | None:
    """Return the parameters that have a gradient other than zero in fp32; None of a run that is not in fp16.

    Where one of them has none in fp16, its numbers are too small there, and nothing in the code cuts the gradient off.
    """
    if choose(config.precision, config.device).chosen != "fp16" or config.compile:
        return None
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with _forward(task, model, config.model_copy(update={"precision": "fp32"}), batch, training=True) as (outputs, target):
        loss = task.loss(full(outputs), target)
        gradients: tuple[Tensor | None, ...] = ()
        if loss.requires_grad:
            gradients = torch.autograd.grad(loss, [*trained.values()], allow_unused=True)
    return [name for name, gradient in zip(trained, gradients, strict=False) if gradient is not None and bool(gradient.any())]


def _plain(task: OpenTask, model: nn.Module, config: TrainingConfig, watch: Watch) -> dict[str, Any] | None:
    """Return the losses that plain answers reach by the loss of a task of one's own; the built-in ones have reference models."""
    if isinstance(task.task, BuiltinTask):
        return None
    try:
        # Once, and with a single pass: on fewer training samples nothing is fitted.
        batches = (
            batch_of(task, config, "train", Watch(1, max(watch.samples, FITTED))),
            batch_of(task, config, "validation", watch.held_out),
        )
        probes = [_asked(task.task, model, config, one) for one in batches]
    except MltrainerError:
        raise
    except Exception:  # training meets it, too, and tells it as what it is
        return None
    return None if probes[0] is None or probes[1] is None else plain_answers(task.task, probes[0], probes[1], config.metric.name)


def _asked(task: Task, model: nn.Module, config: TrainingConfig, batch: Any) -> Probe | None:
    given: list[Any] = []
    # A hook would compile a compiled model anew.
    handle = None if config.compile else model.register_forward_pre_hook(lambda _, *got: given.append(got), with_kwargs=True)
    try:
        outputs, target, _ = passed(task, model, config, batch)
    finally:
        if handle is not None:
            handle.remove()
    return probe_of(given[0] if given else (), outputs, target)


def _overlooks(task: OpenTask, model: nn.Module, config: TrainingConfig) -> dict[str, Any] | None:
    """Return the answers that a loss overlooks, of as many samples as show a class that is rare."""
    try:
        outputs, target, _ = passed(task.task, model, config, batch_of(task, config, "train", Watch(1, FITTED)))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:  # training tells it as what it is
        if is_out_of_memory(error):
            raise
        return None
    return overlooked(task.task, outputs, target)


def _calls(task: OpenTask, model: nn.Module, config: TrainingConfig, training: bool) -> TrainingCalls:
    """Return the calls that are for training alone and are made in one of the modes."""
    # On few samples, apart: some modules take a slower way, with other last bits, where their calls are seen.
    calls = TrainingCalls()
    with calls:
        passed(task.task, model, config, batch_of(task, config, "train", Watch(1, LEAST_SAMPLES)), training)
    return calls


def _difference_of_part(task: Task, model: nn.Module, config: TrainingConfig, batch: Any) -> float | None:
    """Return the largest difference that it makes to answers, beside their spread, that half of the batch is left out.

    None where the model takes no part of it, gives no answer for each sample, or draws its answers.
    """
    config, count = config.model_copy(update={"precision": "fp32"}), length(batch)
    # The second one: what goes from sample to sample reaches none before it.
    half = mapped(lambda one: one[count // 2 :] if one.dim() and len(one) == count else one, batch)
    try:
        asked = ((config, batch), (config, half), (config.model_copy(update={"seed": config.seed + 1}), half))
        whole, part, drawn = (main_output(passed(task, model, how, one)[0]) for how, one in asked)
        whole = whole[count // 2 :]
        if part.shape != whole.shape or not torch.equal(part, drawn):
            return None
        scale = torch.maximum(whole.std(), LEAST_SPREAD * whole.abs().max())
        found = float((whole - part).abs().max() / scale)
    except Exception as error:  # of the user's model, which may refuse another number of samples
        if is_out_of_memory(error):
            raise
        return None
    return found if math.isfinite(found) else None


def _structure(task: OpenTask, model: nn.Module, config: TrainingConfig) -> dict[str, Any] | None:
    exact = config.model_copy(update={"precision": "fp32"})
    batch = batch_of(task, config, "train", Watch(1, LEAST_SAMPLES))
    return structure_of(model, lambda: passed(task.task, model, exact, batch))


def at_evaluation(task: OpenTask, model: nn.Module, config: TrainingConfig, watch: Watch) -> dict[str, Any]:
    """Return a model's signals between two steps: of validation samples, and of training samples in both modes."""
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
    """Return the cosines between the gradients of the losses that a task tells apart; empty where they are not compared."""
    names = [*task.task.terms]
    # Compiled code, and what the backward pass computes anew, are for one gradient of a forward pass.
    if len(names) < 2 or config.compile or config.gradient_checkpointing:
        return {}
    trained = [p for p in model.parameters() if p.requires_grad]
    with _forward(task.task, model, config, batch, training=True) as (outputs, target):
        losses = losses_of(task.task, full(outputs), target)
        if not all(loss.requires_grad for loss in losses):  # of what is held until a later epoch
            return {}
        found = cosines(gramian(losses, trained)).tolist()
    pairs = itertools.combinations(range(len(names)), 2)
    return {"cosines": {f"{names[one]}, {names[other]}": found[one][other] for one, other in pairs}}


@contextlib.contextmanager
def _as_added(root: Path) -> Iterator[None]:
    """Say of an error that observing met it, which training itself may never do, and how to train without.

    Raises:
        InputError: With the user's line, where one is on the stack.
    """
    try:
        yield
    except MltrainerError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or (isinstance(error, OSError) and error.errno in MACHINE_ERRNOS):
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
        number: From 1.
        planned: The evaluations of the whole run.
        wanted: At how many of them, about.
    """
    if planned <= wanted or number in (1, planned):
        return True
    return math.floor(number * (wanted - 1) / planned) > math.floor((number - 1) * (wanted - 1) / planned)


def _observed(task: OpenTask, model: nn.Module, config: TrainingConfig, batch: Any) -> tuple[dict[str, Any], Any, Any]:
    """Return a model's signals on one batch, in evaluation mode, with its outputs and targets.

    Args:
        task: Whose forward pass and loss.
        model: On its device.
        config: Seed and precision.
        batch: As `batch_of` gives it.

    Returns:
        `loss`; `accuracy`, `by_class` and `answered`, None where the targets are no classes; `output`, `target`, `modules`;
        `distributions` of some layers' weights and activations; `first` and `last`, the types of the first and last module that
        gave something.
    """
    modules = Modules(nn.Module() if config.compile else model)  # a hook would compile a compiled model anew
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
    """Return outputs as the loss gets them, targets and loss of one batch; in training mode, too, buffers stay as they are."""
    with _forward(task, model, config, batch, training) as (outputs, target):
        loss = task.loss(full(outputs), target)
    return full(outputs), target, float(loss)


def batch_of(task: OpenTask, config: TrainingConfig, split: str, watch: Watch) -> Any:
    """Return one batch of a split, always the same one: the first samples of a stream, else evenly spaced ones."""
    samples = task.split(split)
    batch, *_ = evaluation_batches(samples, samples.spread(watch.samples), config, split)
    return batch


@contextlib.contextmanager
def _forward(task: Task, model: nn.Module, config: TrainingConfig, batch: Any, training: bool) -> Iterator[tuple[Any, Any]]:
    """Yield a model's outputs of a batch and its targets, to compute losses of them."""
    with evaluating(model):
        model.train(training)
        # After the batch was read: samples that this process reads itself have seeded the generators for their own draws.
        seeds.seed_everything(seeds.key(config.seed, "observe"))
        with autocast(config):
            yield task.forward(model, mapped(Tensor.clone, batch))  # which may change what it gets


@torch.no_grad()
def _tried(task: OpenTask, outputs: Any, target: Any) -> dict[str, float | None]:
    """Return the loss with other targets, and the cross-entropies of outputs taken for probabilities and for logits."""
    output = main_output(outputs)
    if not isinstance(target, Tensor) or not isinstance(output, Tensor) or not target.dim() or len(target) < 2:
        return dict.fromkeys(("shuffled_loss", "constant_loss", "shifted_loss", "as_binary", "as_probabilities", "as_logits"))
    found = {
        "shuffled_loss": _loss_with(task.task, outputs, target.roll(len(target) // 2, 0)),
        "constant_loss": _loss_with(task.task, outputs, target[:1].expand_as(target).clone()),
        # A softmax of logits is the same where all of them are larger by one.
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
    """Return a classifier's outputs as [answers, classes], with their labels; None where the targets are none of these classes.

    Answers are for samples, or for places of them, with the classes in the second or in the last dimension; of labels below
    zero, which a loss leaves out, there are none.
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
    """Return the counts of each class's answers, of those that are right, and of the answers of the largest class beside it.

    None where the targets are not known to be classes, or are too many to name. Of several labels, each of which holds or does
    not, those that hold are a class beside the others.

    Args:
        output: The model's, of a batch.
        target: Its targets.
        classes: Both as `by_class` gives them.
        kind: What the targets are.
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
    if holds.shape[1] == 1:  # of two classes the other one may be the rare one
        others = torch.stack([(~holds).sum(0), (~holds & ~named).sum(0), holds.sum(0)], 1)
        counts = torch.cat([others, counts])
    return counts.tolist()


def answered(rows: Tensor, labels: Tensor) -> list[list[int]] | None:
    """Return of each class the answer that its samples get most, and how many get it; None of a vocabulary.

    Args:
        rows: Outputs [answers, classes].
        labels: The class of each.
    """
    classes = rows.shape[1]
    if classes > MOST_NAMED:
        return None
    counts = (labels * classes + rows.argmax(1)).bincount(minlength=classes**2).reshape(classes, classes)
    return torch.stack([counts.argmax(1), counts.amax(1)], 1).tolist()


def _loss_with(task: Task, outputs: Any, target: Tensor) -> float | None:
    """Return the loss of outputs beside other targets; None where the task's loss refuses these, as it may."""
    try:
        return float(task.loss(outputs, target))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None


def _as_binary(output: Tensor, target: Tensor) -> float | None:
    """Return the binary cross-entropy of outputs taken for logits; None where there is not one for each target."""
    if output.numel() != target.numel() or output.is_complex() or target.is_complex():
        return None
    return float(nn.functional.binary_cross_entropy_with_logits(output.double().flatten(), target.double().flatten()))


# --- outputs and targets --------------------------------------------------------------------------


def of_output(output: Any, classes: tuple[Tensor, Tensor] | None = None) -> dict[str, Any] | None:
    """Return shape, range and spread of outputs, and the share of the most frequent answer; None where they are no tensor.

    Args:
        output: Of a batch.
        classes: The same as `by_class` gives it.
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
    """Return True if outputs are none below 0 and sum to 1, in the second or the last dimension."""
    if output.dim() < 2 or float(output.min()) < 0:
        return False
    sums = [output.sum(dimension) for dimension in (1, -1) if output.shape[dimension] > 1]
    return any(torch.allclose(one, torch.ones_like(one), atol=1e-4) for one in sums)


def of_target(target: Any, kind: TargetKind | None) -> dict[str, Any] | None:
    """Return shape and range of targets, and of class numbers how many there are and how even; None where they are no tensor."""
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
    """Return True if targets are nothing but 0 and 1, or -1 and 1, as labels are that hold or do not."""
    return not target.is_complex() and (bool(((target == 0) | (target == 1)).all()) or bool((target.abs() == 1).all()))


def is_numbered(target: Tensor, kind: TargetKind | None) -> bool:
    """Return True if targets are class numbers: int64 of one dimension, none negative."""
    return kind == "classes" and target.dim() == 1 and target.dtype == torch.int64 and bool((target >= 0).all())


def entropy(counts: Tensor) -> float:
    """Return the entropy of class counts, in nats."""
    shares = counts.double() / counts.sum()
    return float(-torch.xlogy(shares, shares).sum())


def answers_of(output: Tensor) -> Tensor | None:
    """Return the class that each output names: the largest of several, or one number on either side of its middle."""
    if output.dim() == 2 and output.shape[1] > 1:
        return output.argmax(1)
    if output.dim() > 2:
        return None
    return (output.flatten() > _middle(output)).long()


def _middle(output: Tensor) -> float:
    """Return the number on whose sides two answers lie: of probabilities a half, of others 0."""
    return 0.5 if float(output.min()) >= 0 and float(output.max()) <= 1 else 0.0


def accuracy(output: Any, target: Any, kind: TargetKind | None) -> float | None:
    """Return the share of right answers; None where the targets are no class numbers."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or not is_numbered(target, kind):
        return None
    answers = answers_of(output)
    return None if answers is None or answers.shape != target.shape else float((answers == target).float().mean())
