"""A planned config as `TrainingArguments` of transformers: fields, each with its reason, and the keys that no field covers.

transformers itself is not imported. The other way is `from_training_arguments`.
"""

from __future__ import annotations

import ast
import importlib.util
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from mltrainer.configs.optimizers import Adagrad, Adam, AdamW, AdamW8bit, Lion, RmsProp, ScheduleFree, Sgd
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.project.scheduler_types import WITHOUT_WARMUP, scheduler_type

PACKAGE = "transformers"
REPLAN = "mltrainer phase run planning --set"
NO_FIELD = "no field covers it: the Trainer trains without it"
CARRIED = {  # by fields, or by the script, which trains the project's task on the plan's samples
    "name", "seed", "task", "data", "split", "model", "epochs", "batch_size", "accumulate", "precision", "label_smoothing",
    "device", "compile", "gradient_checkpointing", "early_stopping", "evaluate", "loader", "schedule",
}  # fmt: skip
PARTLY: dict[str, tuple[str, ...]] = {  # keys of which some parts are carried: these
    "metric": ("name", "mode"),
    "optimizer": (
        "name", "lr", "weight_decay", "betas", "eps", "momentum", "nesterov", "alpha", "decay_norms_and_biases",
    ),
    "clip": ("norm",),
    "gradients": (),
    "checkpoint": ("save_best", "keep"),
    "launch": ("processes", "machines", "parallel"),
}  # fmt: skip
_HERE = "gates, diagnostics and reports of mltrainer need it, not the training"
_SAVED = "there each evaluation is saved, so that the best one can be kept"
REASONS = {
    **dict.fromkeys(("id", "acceptance", "conformal", "budget", "signals"), _HERE),
    **dict.fromkeys(("checkpoint.every_n_epochs", "checkpoint.every_n_steps", "checkpoint.every_minutes"), _SAVED),
    **dict.fromkeys(("threads", "numerics"), "it decides the bits of a run of mltrainer"),
    **dict.fromkeys(
        ("launch.engine", "launch.slurm", "launch.ray", "launch.restarts", "launch.life_sign_s"),
        "accelerate.yaml is started by you",
    ),
    "tracking": "report_to names trackers there",
    "metric.ties": "there the first of equal evaluations is the best",
    "checkpoint.save_last": "there the last evaluation is saved",
}


class Field(NamedTuple):
    """A field of `TrainingArguments` with its value and the reason for it."""

    name: str
    value: Any
    reason: str


class LeftOut(NamedTuple):
    """A key or a field without a counterpart, and its treatment."""

    key: str
    reason: str


def listed(left_out: Iterable[LeftOut]) -> list[str]:
    """Return a line for each reason, with the keys or fields without a counterpart."""
    keys: dict[str, list[str]] = {}
    for one in left_out:
        keys.setdefault(one.reason, []).append(one.key)
    return [f"{', '.join(names)}: {reason}" for reason, names in keys.items()]


@dataclass(frozen=True)
class Exported:
    """A config as `TrainingArguments`.

    Attributes:
        fields: Those that differ from transformers' defaults, or that matter whatever these become.
        left_out: Keys of the config that no field can say.
    """

    fields: list[Field]
    left_out: list[LeftOut]


def exported(config: TrainingConfig, samples: int) -> Exported:
    """Return a planned config as `TrainingArguments`.

    Args:
        config: The config of a task whose steps mltrainer makes.
        samples: Training samples.

    Raises:
        InputError: transformers has no such optimizer or schedule, or the task is a program.
    """
    if config.task.is_opaque:
        raise InputError("the task is a program that trains by itself", where="task.script", hint="it has arguments of its own")
    per_epoch = math.ceil(samples / (config.batch_size * config.accumulate))
    parts = (_length, _optimizer, _schedule, _arithmetic, _evaluations, _loading)
    return Exported([field for part in parts for field in part(config, per_epoch)], [*_left_out(config)])


def _length(config: TrainingConfig, _per_epoch: int) -> Iterator[Field]:
    processes = config.processes
    steps = math.ceil(config.accumulate / processes)
    shared = "" if processes == 1 else f", shared by {processes} processes"
    yield Field("seed", config.seed, "seed: of all draws; transformers derives others from it, so the weights differ")
    yield Field("data_seed", config.seed, "the order of the samples follows from the same seed")
    yield Field("full_determinism", True, "runs repeat here, so they must repeat there")
    yield Field("num_train_epochs", config.epochs, "epochs")
    yield Field("per_device_train_batch_size", config.batch_size, "batch_size: samples of a micro-batch")
    yield Field("gradient_accumulation_steps", steps, f"accumulate: {config.accumulate} micro-batches to a step{shared}")
    yield Field("per_device_eval_batch_size", config.batch_size, "batch_size; metrics do not depend on it")


def _optimizer(config: TrainingConfig, _per_epoch: int) -> Iterator[Field]:
    optimizer = config.optimizer
    name, more = _named_optimizer(optimizer)
    yield Field("optim", name, f"optimizer.name: {optimizer.name}")
    if more:
        yield Field("optim_args", more, "what that optimizer has beside rate and decay")
    rate, decay = getattr(optimizer, "lr", None), getattr(optimizer, "weight_decay", None)
    yield Field("learning_rate", rate, "optimizer.lr")
    yield Field("weight_decay", decay, "optimizer.weight_decay; transformers spares biases and norms")
    if isinstance(optimizer, Adam | AdamW | AdamW8bit | Lion | ScheduleFree):
        yield Field("adam_beta1", optimizer.betas[0], "optimizer.betas")
        yield Field("adam_beta2", optimizer.betas[1], "optimizer.betas")
    if isinstance(optimizer, Adam | AdamW | AdamW8bit | ScheduleFree):
        yield Field("adam_epsilon", optimizer.eps, "optimizer.eps")
    norm = config.clip.norm if config.clip is not None else None
    yield Field("max_grad_norm", norm or 0.0, "clip.norm" if norm else "clip: no norm is bounded; 0 means none")


def _named_optimizer(optimizer: Any) -> tuple[str, str]:
    """Return the name and the arguments of an optimizer.

    Raises:
        InputError: transformers has none like it.
    """
    match optimizer:
        case AdamW() | Adam(weight_decay=0.0):  # without decay they are the same
            return "adamw_torch_fused", ""
        case AdamW8bit():
            return "adamw_bnb_8bit", ""
        case Sgd():
            return "sgd", f"momentum={optimizer.momentum},nesterov={str(optimizer.nesterov).lower()}"
        case RmsProp():
            return "rmsprop", f"alpha={optimizer.alpha},eps={optimizer.eps},momentum={optimizer.momentum}"
        case Adagrad():
            return "adagrad", f"eps={optimizer.eps}"
        case Lion():
            return "lion_32bit", ""
        case ScheduleFree():
            return "schedule_free_adamw", ""
    decay = " with L2 decay" if isinstance(optimizer, Adam) else ""
    message = f"transformers' Trainer has no optimizer like {optimizer.name}{decay}"
    raise InputError(message, where="optimizer.name", hint=f"{REPLAN} optimizer.name=adamw, or train it here")


def _schedule(config: TrainingConfig, per_epoch: int) -> Iterator[Field]:
    schedule = config.schedule
    warmup = schedule.warmed_up(per_epoch)
    steps, rate = config.epochs * per_epoch, getattr(config.optimizer, "lr", 0.0)
    name, more = scheduler_type(schedule, rate, steps, per_epoch, config.metric.mode)
    yield Field("lr_scheduler_type", name, f"schedule.name: {schedule.name}")
    if more:
        yield Field("lr_scheduler_kwargs", more, "the schedule's other keys")
    if warmup and name not in WITHOUT_WARMUP:
        reason = f"schedule's warm-up at {per_epoch} steps an epoch; its first step has a rate of 0 there, not here"
        yield Field("warmup_steps", warmup, reason)


def _arithmetic(config: TrainingConfig, _per_epoch: int) -> Iterator[Field]:
    if config.device == "cpu":
        yield Field("use_cpu", True, "device: cpu; a GPU that is there is not taken")
    else:
        yield Field("tf32", False, "fp32 is computed in full, as here")
    if config.precision in ("bf16", "fp16"):
        yield Field(config.precision, True, f"precision: {config.precision} of forward and backward, weights stay fp32")
    if config.compile:
        yield Field("torch_compile", True, "compile")
    if config.gradient_checkpointing:
        listed = ", ".join(config.gradient_checkpointing)
        yield Field("gradient_checkpointing", True, f"gradient_checkpointing: {listed}; there it is each block of the model")
    if config.label_smoothing:
        yield Field("label_smoothing_factor", config.label_smoothing, "label_smoothing")
    if config.launch.parallel == "fsdp" and config.processes > 1:
        yield Field("fsdp", "full_shard", "launch.parallel: fsdp; gradients, parameters and optimizer are shared out")


def _evaluations(config: TrainingConfig, per_epoch: int) -> Iterator[Field]:
    evaluate = config.evaluate
    every = evaluate.interval(per_epoch)
    how = "epoch" if evaluate.every_n_epochs == 1 else "steps"
    for what, reason in (
        ("eval", "evaluate"),
        ("save", "the best one can be kept only where each evaluation is saved"),
        ("logging", "the training loss is the mean between evaluations"),
    ):
        yield Field(f"{what}_strategy", how, reason)
        if how == "steps":
            yield Field(f"{what}_steps", every, f"evaluate at {per_epoch} steps an epoch")
    yield Field("logging_nan_inf_filter", False, "a loss that is no number must be seen, not replaced by a mean")
    if config.checkpoint.save_best:
        yield Field("load_best_model_at_end", True, "checkpoint.save_best: what is delivered is the best by the metric")
    if config.checkpoint.save_best or config.schedule.name == "plateau":
        yield Field("metric_for_best_model", config.metric.name, "metric.name")
        yield Field("greater_is_better", config.metric.mode == "max", "metric.mode")
    yield Field("save_total_limit", config.checkpoint.keep + 2, "checkpoint.keep, beside best and last")
    yield Field("report_to", "none", "trackers send what leaves the machine: name those that you want")


def _loading(config: TrainingConfig, _per_epoch: int) -> Iterator[Field]:
    loader = config.loader
    yield Field("dataloader_num_workers", loader.processes, "loader.workers")
    if loader.processes:
        yield Field("dataloader_prefetch_factor", loader.prefetch, "loader.prefetch")
    yield Field("dataloader_pin_memory", loader.pin_memory and config.device == "cuda", "loader.pin_memory, on a GPU")
    yield Field("remove_unused_columns", False, "a batch is the task's own, whatever the model's forward names")


def _left_out(config: TrainingConfig) -> Iterator[LeftOut]:
    """Yield the keys without a field, if they are not at their defaults."""
    whole = TrainingConfig.model_fields.keys() - PARTLY.keys() - CARRIED
    yield from _changed(config, "", [key for key in TrainingConfig.model_fields if key in whole])
    for name, kept in PARTLY.items():
        part = getattr(config, name)
        if isinstance(part, BaseModel):
            yield from _changed(part, f"{name}.", [key for key in type(part).model_fields if key not in kept])
    yield from _conditional(config)


def _changed(values: BaseModel, prefix: str, names: Iterable[str]) -> Iterator[LeftOut]:
    fields = type(values).model_fields
    for name in names:
        if getattr(values, name) != fields[name].get_default(call_default_factory=True, validated_data={}):
            yield LeftOut(f"{prefix}{name}", REASONS.get(f"{prefix}{name}", NO_FIELD))


def _conditional(config: TrainingConfig) -> Iterator[LeftOut]:
    """Yield keys that a field covers only for some of their values."""
    optimizer: Any = config.optimizer
    schedule, launch = config.schedule, config.launch
    warms_up = bool(schedule.warmed_up(1000))
    given = {
        "schedule.warmup": warms_up and schedule.warmup == "cosine" and schedule.name != "sequence",
        f"schedule's warm-up before {schedule.name}": warms_up and schedule.name == "plateau",
        "precision: auto": config.precision == "auto",
        f"launch.parallel: {launch.parallel}": config.processes > 1 and launch.parallel == "pipeline",
        "early_stopping": config.early_stopping is not None and not config.checkpoint.save_best,
    }
    yield from (LeftOut(key, NO_FIELD) for key, is_given in given.items() if is_given)
    if optimizer.decay_norms_and_biases and getattr(optimizer, "weight_decay", 0.0):
        yield LeftOut("optimizer.decay_norms_and_biases", "the Trainer always spares biases and norms")


# --- what is installed ------------------------------------------------------------------------------


def installed() -> tuple[str, frozenset[str]] | None:
    """Return the version of the installed transformers and the fields of its `TrainingArguments`; None if it is not installed.

    Its source is parsed, not run: importing it takes seconds.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    tree = ast.parse((Path(spec.origin).parent / "training_args.py").read_text("utf-8"))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments")
    names = (
        one.target.id
        for node in classes
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    )
    return metadata.version(PACKAGE), frozenset(names)


def known_to(arguments: Exported, version: str, names: frozenset[str]) -> Exported:
    """Return the fields that a version of transformers takes; fields that it lacks are left out, and named."""
    taken = [field for field in arguments.fields if field.name in names]
    lacking = [
        LeftOut(f"{one.name}: {one.value}", f"transformers {version} has no such field")
        for one in arguments.fields
        if one not in taken
    ]
    return Exported(taken, [*arguments.left_out, *lacking])
