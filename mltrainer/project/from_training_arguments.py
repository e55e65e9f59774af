"""`TrainingArguments` of transformers as training keys, and the fields that no key covers.

A file leaves out the fields that it has not changed: those have transformers' own values. transformers itself is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mltrainer.errors import InputError
from mltrainer.project.argument_defaults import DEFAULTS, REASONS, modern
from mltrainer.project.scheduler_types import KWARGS, RETYPE, WITHOUT_WARMUP, Reading, schedule_of
from mltrainer.project.training_arguments import LeftOut

OPTIMIZERS: dict[str, str] = {  # a paged one keeps its state elsewhere and computes the same
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "paged_adamw_32bit": "adamw",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "adamw_8bit",
    "sgd": "sgd",
    "rmsprop": "rmsprop",
    "adagrad": "adagrad",
    "lion_32bit": "lion",
    "paged_lion_32bit": "lion",
    "schedule_free_adamw": "schedule_free",
}
WITH_BETAS, WITH_EPS = ("adamw", "adamw_8bit", "lion", "schedule_free"), ("adamw", "adamw_8bit", "schedule_free")


@dataclass(frozen=True)
class Imported:
    """Fields of `TrainingArguments` as training keys.

    Attributes:
        values: Training keys, nested.
        seed: The project's seed.
        metric: The metric that chooses the best checkpoint, where the fields name one.
        left_out: Fields that are not at their defaults and that no key says.
    """

    values: dict[str, Any]
    seed: int
    metric: dict[str, str] | None
    left_out: list[LeftOut]


def imported(fields: Mapping[str, Any]) -> Imported:
    """Return the training keys that fields of `TrainingArguments` stand for.

    Args:
        fields: The fields by name; missing ones have transformers' defaults.

    Raises:
        InputError: A field's value has no counterpart here; with its name.
    """
    changed = modern(fields)
    given, more = Reading(DEFAULTS | changed), _kwargs(changed)
    epochs = given.whole("num_train_epochs")
    values = {
        "epochs": epochs,
        "batch_size": given.whole("per_device_train_batch_size"),
        "accumulate": given.whole("gradient_accumulation_steps"),
        "optimizer": _our_optimizer(given),
        "schedule": _our_schedule(given, more, epochs),
        "clip": {"norm": given.number("max_grad_norm")} if given.take("max_grad_norm") else None,
        "label_smoothing": given.number("label_smoothing_factor"),
        "precision": next((name for name in ("bf16", "fp16") if given.take(name)), "fp32"),
        "compile": _compiles(given),
        "loader": _our_loader(given),
        "evaluate": _interval(given, "eval", epochs) or {"every_n_epochs": 1},
    }
    optional = {"checkpoint": _our_checkpoint(given, epochs), "launch": _our_launch(given)}
    values |= {key: value for key, value in optional.items() if value}
    if given.take("use_cpu"):
        values["device"] = "cpu"
    seed, metric = given.whole("seed"), _our_metric(given)
    if changed.get("data_seed") == seed:
        given.take("data_seed")
    return Imported(values, seed, metric, _unread(changed, given, more))


def _kwargs(changed: Mapping[str, Any]) -> Reading:
    more = changed.get(KWARGS) or {}
    if not isinstance(more, dict):
        raise InputError(f"{more!r} is no mapping", where=KWARGS, hint=RETYPE)
    return Reading(more)


def _unread(changed: Mapping[str, Any], given: Reading, more: Reading) -> list[LeftOut]:
    """Return the fields that are not at their defaults and had no effect."""
    fields = [LeftOut(name, REASONS.get(name, "no key covers it")) for name in changed if name not in given.seen]
    return fields + [LeftOut(f"{KWARGS}.{name}", "no key of that schedule covers it") for name in more if name not in more.seen]


def _our_optimizer(given: Reading) -> dict[str, Any]:
    kind = str(given.take("optim"))
    name = OPTIMIZERS.get(kind)
    if name is None:
        message = f"there is no optimizer like {kind!r} here; there are {', '.join(OPTIMIZERS)}"
        raise InputError(message, where="optim", hint=RETYPE)
    values: dict[str, Any] = {"name": name, "lr": given.number("learning_rate"), "weight_decay": given.number("weight_decay")}
    if name in WITH_BETAS:
        values["betas"] = [given.number("adam_beta1"), given.number("adam_beta2")]
    if name in WITH_EPS:
        values["eps"] = given.number("adam_epsilon")
    if name == "sgd":
        values["momentum"] = 0.0  # torch's, not this product's 0.9
    return values | {"decay_norms_and_biases": False} | _arguments(str(given.take("optim_args") or ""))


def _arguments(text: str) -> dict[str, Any]:
    """Return `optim_args`, such as "momentum=0.9,nesterov=true".

    Raises:
        InputError: A part of it is no such pair.
    """
    pairs = [part.split("=", 1) for part in text.replace(" ", "").split(",") if part]
    try:
        return {key: value.lower() == "true" if value.lower() in ("true", "false") else float(value) for key, value in pairs}
    except ValueError:
        message = f"expected pairs of a name and a number, true or false, found {text!r}"
        raise InputError(message, where="optim_args", hint='write it as in "momentum=0.9,nesterov=true"') from None


def _our_schedule(given: Reading, more: Reading, epochs: int) -> dict[str, Any]:
    kind, rate = str(given.take("lr_scheduler_type")), given.number("learning_rate")
    if rate <= 0:
        raise InputError(f"{rate} is no learning rate above 0", where="learning_rate", hint=RETYPE)
    given.take(KWARGS)
    warmup = 0.0 if kind in WITHOUT_WARMUP else given.number("warmup_steps")
    return schedule_of(kind, more, rate, epochs, warmup)


def _compiles(given: Reading) -> bool:
    """Return True if the model is compiled: a backend or a mode asks for it too."""
    if given["torch_compile_backend"] == "inductor":  # what is taken here
        given.take("torch_compile_backend")
    return bool(given.take("torch_compile") or given["torch_compile_backend"] or given["torch_compile_mode"])


def _our_loader(given: Reading) -> dict[str, Any]:
    values = {"workers": given.whole("dataloader_num_workers"), "pin_memory": bool(given.take("dataloader_pin_memory"))}
    return values | ({"prefetch": given.whole("dataloader_prefetch_factor")} if given["dataloader_prefetch_factor"] else {})


def _interval(given: Reading, what: str, epochs: int) -> dict[str, int]:
    """Return the number of epochs or steps between evaluations or saves; empty if the strategy does not set it.

    Raises:
        InputError: A share of all steps is no whole number of epochs.
    """
    strategy, name = f"{what}_strategy", f"{what}_steps"
    if given[strategy] == "epoch":
        given.take(strategy)
        return {"every_n_epochs": 1}
    if given[strategy] != "steps":
        return {}
    given.take(strategy)
    if given[name] is None:  # as transformers does
        name = "logging_steps"
    if given.number(name) >= 1:
        return {"every_n_steps": given.whole(name)}
    every = given.number(name) * epochs
    if every < 1 or abs(every - round(every)) > 1e-9:
        message = f"{given[name]} of all steps, in {epochs} epochs, is no whole number of epochs"
        raise InputError(message, where=name, hint="give a number of steps")
    return {"every_n_epochs": round(every)}


def _our_checkpoint(given: Reading, epochs: int) -> dict[str, Any]:
    values: dict[str, Any] = _interval(given, "save", epochs)
    if given["save_strategy"] == "best":
        given.take("save_strategy")
        values["save_best"] = True
    if given["load_best_model_at_end"]:
        values["save_best"] = given.take("load_best_model_at_end")
    if given["save_total_limit"]:
        values["keep"] = max(0, given.whole("save_total_limit") - 2)  # beside the best and the last
    return values


def _our_launch(given: Reading) -> dict[str, Any]:
    """Return `launch` if parameters, gradients and optimizer are sharded, as both sides can; else nothing."""
    if given["fsdp"] not in (True, "full_shard", ["full_shard"]):
        return {}
    given.take("fsdp")
    return {"parallel": "fsdp"}


def _our_metric(given: Reading) -> dict[str, str] | None:
    if not given["metric_for_best_model"]:
        return None
    name, rises = str(given.take("metric_for_best_model")).removeprefix("eval_"), given.take("greater_is_better")
    return {"name": name, "mode": "max" if (not name.endswith("loss") if rises is None else rises) else "min"}
