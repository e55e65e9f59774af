"""A training config as `TrainingArguments` of transformers, and back.

Out: a planned config becomes fields, each with its reason, and beside them the keys that no field can say. In: the fields of a
file, and transformers' own defaults of those that it leaves out, become training keys; fields that no key can say are named.
Neither direction imports transformers.
"""

from __future__ import annotations

import ast
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.configs.optimizers import Adagrad, Adam, AdamW, AdamW8bit, Lion, RmsProp, Sgd
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.schedules import Constant, Cosine, Linear, Polynomial
from mltrainer.errors import InputError

PACKAGE = "transformers"
RETYPE = "change the field, then type the same again"
REPLAN = "mltrainer phase run planning --set"


class Field(NamedTuple):
    """A field of `TrainingArguments` with its value and the reason for it."""

    name: str
    value: Any
    reason: str


class LeftOut(NamedTuple):
    """A key or a field that the other side cannot say, and what becomes of it."""

    key: str
    reason: str


# --- out --------------------------------------------------------------------------------------------


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
        config: Of a task whose steps are made here.
        samples: Training samples.

    Raises:
        InputError: transformers has no such optimizer or schedule, or the task is a program.
    """
    if config.task.is_opaque:
        raise InputError("the task is a program that trains by itself", where="task.script", mend="it has arguments of its own")
    per_epoch = math.ceil(samples / (config.batch_size * config.accumulate))
    parts = (_length, _optimizer, _schedule, _arithmetic, _evaluations, _loading)
    return Exported([field for part in parts for field in part(config, per_epoch)], [*_left_out(config)])


def _length(config: TrainingConfig, _per_epoch: int) -> Iterator[Field]:
    processes = config.processes
    steps = math.ceil(config.accumulate / processes)
    shared = "" if processes == 1 else f", shared by {processes} processes"
    yield Field("seed", config.seed, "seed: of all draws; transformers derives others from it, so the weights differ")
    yield Field("data_seed", config.seed, "the order of the samples follows from the same seed")
    yield Field("full_determinism", True, "runs repeat here, so that nothing less is taken there")
    yield Field("num_train_epochs", config.epochs, "epochs")
    yield Field("per_device_train_batch_size", config.batch_size, "batch_size: samples of a micro-batch")
    yield Field("gradient_accumulation_steps", steps, f"accumulate: {config.accumulate} micro-batches to a step{shared}")
    yield Field("per_device_eval_batch_size", config.batch_size, "batch_size; metrics do not depend on it")


def _optimizer(config: TrainingConfig, _per_epoch: int) -> Iterator[Field]:
    found = config.optimizer
    name, more = _named_optimizer(found)
    yield Field("optim", name, f"optimizer.name: {found.name}")
    if more:
        yield Field("optim_args", more, "what that optimizer has beside rate and decay")
    rate, decay = getattr(found, "lr", None), getattr(found, "weight_decay", None)
    yield Field("learning_rate", rate, "optimizer.lr")
    yield Field("weight_decay", decay, "optimizer.weight_decay; transformers spares biases and norms")
    if isinstance(found, Adam | AdamW | AdamW8bit | Lion):
        yield Field("adam_beta1", found.betas[0], "optimizer.betas")
        yield Field("adam_beta2", found.betas[1], "optimizer.betas")
    if isinstance(found, Adam | AdamW | AdamW8bit):
        yield Field("adam_epsilon", found.eps, "optimizer.eps")
    norm = config.clip.norm if config.clip is not None else None
    yield Field("max_grad_norm", norm or 0.0, "clip.norm" if norm else "clip: no norm is bounded; 0 means none")


def _named_optimizer(found: Any) -> tuple[str, str]:
    """Return the name and the arguments of an optimizer.

    Raises:
        InputError: transformers has none like it.
    """
    match found:
        case AdamW() | Adam(weight_decay=0.0):  # without decay they are the same
            return "adamw_torch_fused", ""
        case AdamW8bit():
            return "adamw_bnb_8bit", ""
        case Sgd():
            return "sgd", f"momentum={found.momentum},nesterov={str(found.nesterov).lower()}"
        case RmsProp():
            return "rmsprop", f"alpha={found.alpha},eps={found.eps},momentum={found.momentum}"
        case Adagrad():
            return "adagrad", f"eps={found.eps}"
        case Lion():
            return "lion_32bit", ""
    what = f"transformers' Trainer has no optimizer like {found.name}" + (" with L2 decay" if isinstance(found, Adam) else "")
    raise InputError(what, where="optimizer.name", mend=f"{REPLAN} optimizer.name=adamw, or train it here")


def _schedule(config: TrainingConfig, per_epoch: int) -> Iterator[Field]:
    schedule = config.schedule
    warmup = schedule.warmed_up(per_epoch)
    name, more = _named_schedule(schedule, getattr(config.optimizer, "lr", 0.0), warmup)
    yield Field("lr_scheduler_type", name, f"schedule.name: {schedule.name}")
    if more:
        yield Field("lr_scheduler_kwargs", more, "what is left of the rate at the end: schedule.final")
    if warmup:
        reason = f"schedule's warm-up at {per_epoch} steps an epoch; its first step has a rate of 0 there, not here"
        yield Field("warmup_steps", warmup, reason)


def _named_schedule(schedule: Any, rate: float, warmup: int) -> tuple[str, dict[str, float]]:
    """Return the name and the arguments of a schedule.

    Raises:
        InputError: transformers has none like it.
    """
    match schedule:
        case Constant():
            return "constant_with_warmup" if warmup else "constant", {}
        case Linear(final=0.0):
            return "linear", {}
        case Linear():
            return "polynomial", {"power": 1.0, "lr_end": schedule.final * rate}
        case Polynomial():
            return "polynomial", {"power": schedule.power, "lr_end": schedule.final * rate}
        case Cosine(final=0.0):
            return "cosine", {}
        case Cosine():
            return "cosine_with_min_lr", {"min_lr_rate": schedule.final}
    what = f"transformers' Trainer has no schedule like {schedule.name}"
    raise InputError(what, where="schedule.name", mend=f"{REPLAN} schedule.name=cosine, or train it here")


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
    every = evaluate.every_n_steps or (evaluate.every_n_epochs or 1) * per_epoch
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
    """Yield the keys that no field can say, where they are not as by default."""
    optimizer, clip, gradients, launch = config.optimizer, config.clip, config.gradients, config.launch
    given: dict[str, Any] = {
        "strategies": config.strategies,
        "averaging": config.averaging,
        "augment": config.augment,
        "callbacks": config.callbacks,
        "class_weights": config.class_weights != "none",
        "clip.value": clip is not None and clip.value,
        "clip.adaptive": clip is not None and clip.adaptive,
        "gradients": gradients.normalize or gradients.noise,
        "optimizer.sam": optimizer.sam,
        "optimizer.lookahead": optimizer.lookahead,
        "optimizer.layer_decay": optimizer.layer_decay != 1,
        "optimizer.groups": optimizer.groups,
        "schedule.warmup: cosine": config.schedule.warmup == "cosine" and config.schedule.warmed_up(1000),
        "channels_last": config.channels_last,
        "numerics: portable": config.numerics == "portable",
        "precision: auto": config.precision == "auto",
        "tensor_parallel": config.tensor_parallel > 1,
        f"launch.parallel: {launch.parallel}": config.processes > 1 and launch.parallel == "pipeline",
    }
    yield from (LeftOut(key, "no field says it: the Trainer trains without") for key, is_given in given.items() if is_given)
    if getattr(optimizer, "decay_norms_and_biases", False) and getattr(optimizer, "weight_decay", 0):
        yield LeftOut("optimizer.decay_norms_and_biases", "the Trainer always spares biases and norms")


# --- what is installed ------------------------------------------------------------------------------


def installed() -> tuple[str, frozenset[str]] | None:
    """Return the version of transformers here and the fields that its `TrainingArguments` has; None where it is not installed.

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


def known_to(found: Exported, version: str, names: frozenset[str]) -> Exported:
    """Return the fields that a version of transformers takes; those that it lacks are left out, and named."""
    taken = [field for field in found.fields if field.name in names]
    lacking = [
        LeftOut(f"{one.name}: {one.value}", f"transformers {version} has no such field")
        for one in found.fields
        if one not in taken
    ]
    return Exported(taken, [*found.left_out, *lacking])


# --- in ---------------------------------------------------------------------------------------------

# transformers' own values of the fields that are read, 5.23: a file leaves out those that it has not changed.
DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "num_train_epochs": 3.0,
    "learning_rate": 5e-05,
    "lr_scheduler_type": "linear",
    "lr_scheduler_kwargs": None,
    "warmup_steps": 0,
    "optim": "adamw_torch_fused",
    "optim_args": None,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-08,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "label_smoothing_factor": 0.0,
    "bf16": False,
    "fp16": False,
    "torch_compile": False,
    "eval_strategy": "no",
    "eval_steps": None,
    "seed": 42,
    "use_cpu": False,
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": True,
    "dataloader_prefetch_factor": None,
    "save_total_limit": None,
}
SAID_ELSEWHERE = {  # fields that decide nothing of the weights, or that hold here whatever they say
    "output_dir", "logging_strategy", "logging_steps", "logging_first_step", "logging_dir", "logging_nan_inf_filter",
    "report_to", "run_name", "disable_tqdm", "log_level", "do_train", "do_eval", "do_predict", "save_strategy",
    "save_steps", "data_seed", "full_determinism", "per_device_eval_batch_size", "load_best_model_at_end",
    "remove_unused_columns", "dataloader_drop_last", "tf32",
}  # fmt: skip
OPTIMIZERS: dict[str, str] = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "sgd": "sgd",
    "rmsprop": "rmsprop",
    "adagrad": "adagrad",
    "lion_32bit": "lion",
}


@dataclass(frozen=True)
class Imported:
    """Fields of `TrainingArguments` as training keys.

    Attributes:
        values: Training keys, nested.
        seed: Of the project.
        metric: The metric that chooses the best checkpoint, where the fields name one.
        left_out: Fields that no key can say.
    """

    values: dict[str, Any]
    seed: int
    metric: dict[str, str] | None
    left_out: list[LeftOut]


def imported(fields: Mapping[str, Any]) -> Imported:
    """Return the training keys that fields of `TrainingArguments` stand for.

    Args:
        fields: By name; those that are missing count as transformers' own.

    Raises:
        InputError: A field's value has no counterpart here; with its name.
    """
    given = {**DEFAULTS, **{name: value for name, value in fields.items() if value is not None}}
    if "optim_args" not in fields or not fields["optim_args"]:
        given["optim_args"] = ""
    epochs = _whole(given, "num_train_epochs")
    values = {
        "epochs": epochs,
        "batch_size": _whole(given, "per_device_train_batch_size"),
        "accumulate": _whole(given, "gradient_accumulation_steps"),
        "optimizer": _our_optimizer(given),
        "schedule": _our_schedule(given, epochs),
        "clip": {"norm": _number(given, "max_grad_norm")} if given["max_grad_norm"] else None,
        "label_smoothing": _number(given, "label_smoothing_factor"),
        "precision": next((name for name in ("bf16", "fp16") if given[name]), "fp32"),
        "compile": bool(given["torch_compile"]),
        "loader": {"workers": _whole(given, "dataloader_num_workers"), "pin_memory": bool(given["dataloader_pin_memory"])},
        **_our_evaluations(given),
    }
    if given["use_cpu"]:
        values["device"] = "cpu"
    known = {*DEFAULTS, *SAID_ELSEWHERE, "metric_for_best_model", "greater_is_better"}
    others = [LeftOut(name, "no key says it") for name in fields if name not in known and fields[name] not in (None, False)]
    return Imported(values, _whole(given, "seed"), _our_metric(given), others)


def _number(given: Mapping[str, Any], name: str) -> float:
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{value!r} is no number", where=name, mend=RETYPE)
    return float(value)


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = _number(given, name)
    if value != int(value) or value < 0:
        raise InputError(f"{value!r} is no whole number", where=name, mend="give one: steps, epochs and batches are whole here")
    return int(value)


def _our_optimizer(given: Mapping[str, Any]) -> dict[str, Any]:
    name = OPTIMIZERS.get(str(given["optim"]))
    if name is None:
        what = f"there is no optimizer like {given['optim']!r} here; there are {', '.join(OPTIMIZERS)}"
        raise InputError(what, where="optim", mend=RETYPE)
    values: dict[str, Any] = {"name": name, "lr": _number(given, "learning_rate"), "weight_decay": _number(given, "weight_decay")}
    if name in ("adamw", "adamw_8bit", "lion"):
        values["betas"] = [_number(given, "adam_beta1"), _number(given, "adam_beta2")]
    if name in ("adamw", "adamw_8bit"):
        values["eps"] = _number(given, "adam_epsilon")
    if name == "sgd":
        values["momentum"] = 0.0  # torch's, not this product's 0.9
    if name not in ("adamw_8bit",):
        values["decay_norms_and_biases"] = False
    return values | _arguments(str(given["optim_args"]))


def _arguments(text: str) -> dict[str, Any]:
    """Return `optim_args`, such as "momentum=0.9,nesterov=true"."""
    pairs = (part.split("=", 1) for part in text.replace(" ", "").split(",") if "=" in part)
    words = {"true": True, "false": False}
    return {key: words.get(value.lower(), value) if value.lower() in words else float(value) for key, value in pairs}


def _our_schedule(given: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    kind, rate = str(given["lr_scheduler_type"]), _number(given, "learning_rate")
    if rate <= 0:
        raise InputError(f"{rate} is no learning rate above 0", where="learning_rate", mend=RETYPE)
    more = given["lr_scheduler_kwargs"] or {}
    if not isinstance(more, dict):
        raise InputError(f"{more!r} is no mapping", where="lr_scheduler_kwargs", mend=RETYPE)
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "linear": lambda: {"name": "linear"},
        "cosine": lambda: {"name": "cosine"},
        "constant": lambda: {"name": "constant"},
        "constant_with_warmup": lambda: {"name": "constant"},
        "polynomial": lambda: {"name": "polynomial", "power": more.get("power", 1.0), "final": more.get("lr_end", 1e-7) / rate},
        "cosine_with_min_lr": lambda: {"name": "cosine", "final": more.get("min_lr_rate", more.get("min_lr", 0.0) / rate)},
    }
    if kind not in makers:
        what = f"there is no schedule like {kind!r} here; there are {', '.join(makers)}"
        raise InputError(what, where="lr_scheduler_type", mend=RETYPE)
    warmup = _number(given, "warmup_steps")
    if kind == "constant" or not warmup:
        return makers[kind]()
    # Below 1 it is a share of all steps.
    return makers[kind]() | ({"warmup_epochs": warmup * epochs} if warmup < 1 else {"warmup_steps": int(warmup)})


def _our_evaluations(given: Mapping[str, Any]) -> dict[str, Any]:
    by_steps = given["eval_strategy"] == "steps" and given["eval_steps"] is not None
    evaluate = {"every_n_steps": _whole(given, "eval_steps")} if by_steps else {"every_n_epochs": 1}
    values: dict[str, Any] = {"evaluate": evaluate}
    if given["save_total_limit"]:
        values["checkpoint"] = {"keep": max(0, _whole(given, "save_total_limit") - 2)}
    return values


def _our_metric(given: Mapping[str, Any]) -> dict[str, str] | None:
    name = str(given.get("metric_for_best_model") or "").removeprefix("eval_")
    if not name:
        return None
    rises = given.get("greater_is_better")
    return {"name": name, "mode": "max" if (not name.endswith("loss") if rises is None else rises) else "min"}


def listed(left_out: Iterable[LeftOut]) -> list[str]:
    """Return a line for each key or field that the other side cannot say."""
    return [f"{one.key}: {one.reason}" for one in left_out]
