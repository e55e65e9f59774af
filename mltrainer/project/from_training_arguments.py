"""`TrainingArguments` of transformers as training keys, and the fields that no key can say.

A file leaves out the fields that it has not changed: those have transformers' own values. transformers itself is not imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mltrainer.errors import InputError
from mltrainer.project.training_arguments import LeftOut

RETYPE = "change the field, then type the same again"
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
