"""The components of a config: what an ablation takes out or swaps, one at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from mltrainer.configs.loading import assign, at, known_keys, parse_assignment, validate_values
from mltrainer.configs.project import ProjectConfig, TrainingConfig, config_digest
from mltrainer.errors import InputError

COMMAND = "mltrainer ablate"
TASK_OPTIONS = "task.options."
OPTIONS = (TASK_OPTIONS, "optimizer.options.")  # of classes and plug-ins, which say themselves what they take
FREE = ("model", "start", "strategies")  # of the project's own keys those that leave samples, splits, seed and metric alone
BEFORE = ("device", "numerics", "threads")  # set before a process starts, which trains one variant after the other
OTHERWISE = "give a copy of the project the other value, and compare the reports of both"
# Only a plus before `key=` joins: one in a value, such as 1e+3, does not.
_JOINED = re.compile(r"\+(?=[a-z_][\w.]*=)")

Values = dict[str, Any]


@dataclass(frozen=True)
class Component:
    """A part of a training that a config can do without.

    Attributes:
        name: The part's name, in the field's words.
        key: The config's key by which it is switched on.
        without: The key's value that takes it out.
        beside: Keys that make no sense without it, with the values that they get then.
        keeps: Keys of its group that stay as they are, although another name in the group would reset them.
        needs: A key without which it does nothing.
    """

    name: str
    key: str
    without: Any
    beside: Values = field(default_factory=dict)
    keeps: tuple[str, ...] = ()
    needs: str | None = None


COMPONENTS = (
    Component("dropout", "model.dropout", 0.0),
    Component("weight decay", "optimizer.weight_decay", 0.0),
    Component("no decay of norms and biases", "optimizer.decay_norms_and_biases", True, needs="optimizer.weight_decay"),
    Component("label smoothing", "label_smoothing", 0.0),
    Component("class weights", "class_weights", "none"),
    Component("augmentation", "augment", None),
    Component("augmentation: crops", "augment.crop", None),
    Component("augmentation: flips", "augment.flip", None),
    Component("augmentation: affine maps", "augment.affine", None),
    Component("augmentation: colours", "augment.colour", None),
    Component("augmentation: RandAugment", "augment.randaugment", None),
    Component("augmentation: erasing", "augment.erase", None),
    Component("augmentation: mixup", "augment.mixup", None),
    Component("augmentation: CutMix", "augment.cutmix", None),
    Component(
        "learning-rate schedule",
        "schedule.name",
        "constant",
        keeps=("schedule.warmup_epochs", "schedule.warmup_steps", "schedule.warmup"),
    ),
    Component("warm-up", "schedule.warmup_epochs", 0),
    Component("warm-up", "schedule.warmup_steps", 0),
    Component("momentum", "optimizer.momentum", 0.0, beside={"optimizer.nesterov": False}),
    Component("Nesterov's momentum", "optimizer.nesterov", False),
    Component("sharpness-aware minimization", "optimizer.sam", None),
    Component("lookahead", "optimizer.lookahead", None),
    Component("layer-wise learning rates", "optimizer.layer_decay", 1.0),
    Component("parameter groups", "optimizer.groups", []),
    Component("gradient clipping", "clip", None),
    Component("gradient normalization", "gradients.normalize", False),
    Component("gradient noise", "gradients.noise", None),
    Component("weight averaging", "averaging", None),
    Component("pretrained weights", "start", None),
    Component("frozen parameters", "start.freeze", [], beside={"start.unfreeze": []}),
    Component("training strategies", "strategies", []),
    Component("reduced precision", "precision", "fp32"),
    Component("embeddings of numbers", "model.numbers", "plain"),
    Component("ensemble", "model.members", 1),
    Component("neighbouring tokens", "model.ngrams", 1),
)


@dataclass(frozen=True)
class Swap:
    """One change of a config, of one key or of several that are one change.

    Attributes:
        name: The swapped part, in words.
        changes: Dotted key and new value.
        takes_out: Whether it takes a component out, so that a worse metric means that the component helps.
    """

    name: str
    changes: Values
    takes_out: bool = False

    def applied(self, config: TrainingConfig) -> TrainingConfig:
        """Return the config with the change.

        Raises:
            InputError: It is no valid config then.
        """
        values = assign(config.model_dump(), self.changes.items())
        return validate_values(TrainingConfig, values, f"{COMMAND} {self.name}")


def components(config: TrainingConfig) -> list[Swap]:
    """Return the swaps that take out the components switched on in a config, where the config stays valid and changes.

    Early stopping is none: the best evaluation is what counts, which later ones can only replace by a better one.
    """
    values = config.model_dump()
    on = [component for component in COMPONENTS if _is_on(component, values)]
    apart = sum(component.key.startswith("augment.") for component in on) > 1  # one alone is the whole augmentation
    kept = (component for component in on if apart or not component.key.startswith("augment."))
    swaps = (Swap(component.name, _changes(component, values), takes_out=True) for component in kept)
    return [swap for swap in swaps if _is_another(swap, config)]


def options_of(config: TrainingConfig) -> Values:
    """Return the options that a config gives a task or an optimizer of one's own, by dotted key.

    What one means is known to the class alone: none is taken out by itself, and each can be given another value.
    """
    values = config.model_dump()
    groups = {prefix: at(values, prefix.removesuffix(".")) or {} for prefix in OPTIONS}
    return {f"{prefix}{name}": value for prefix, options in groups.items() for name, value in options.items()}


def _is_on(component: Component, values: Values) -> bool:
    found = at(values, component.key)
    if component.needs is not None and not at(values, component.needs):
        return False
    if isinstance(found, dict):
        return any(item is not None for item in found.values())
    return found is not None and found != component.without


def _changes(component: Component, values: Values) -> Values:
    beside = {key: value for key, value in component.beside.items() if at(values, key) not in (None, value)}
    return {component.key: component.without, **beside, **{key: at(values, key) for key in component.keeps}}


def _is_another(swap: Swap, config: TrainingConfig) -> bool:
    """Return True if a swap gives a valid config with another digest."""
    try:
        changed = TrainingConfig.model_validate(assign(config.model_dump(), swap.changes.items()))
    except ValidationError:
        return False
    return config_digest(changed) != config_digest(config)


# --- what a person asks for -----------------------------------------------------------------------


def swaps_of(config: TrainingConfig, asked: Sequence[str | Mapping[str, Any]]) -> list[Swap]:
    """Return the requested swaps, each once; all components if none was requested.

    Args:
        config: The config to change.
        asked: For each swap, a component's key or name, to take it out; `KEY=VALUE`, several of one change joined by `+`; or
            values by dotted key.

    Raises:
        InputError: A key does not exist or cannot be swapped, a value does not fit, a swap changes nothing, or the config has
            no component to take out.
    """
    found = components(config)
    swaps = [_swap_of(one, found) for one in asked] or found
    if not swaps:
        hint = f"name a swap of your own, such as {COMMAND} optimizer.lr=3e-4"
        raise InputError("the config has no component that could be taken out", hint=hint)
    digests: dict[str, Swap] = {}
    for swap in swaps:
        digests.setdefault(_digest_of(swap, config), swap)
    return list(digests.values())


def _digest_of(swap: Swap, config: TrainingConfig) -> str:
    """Return the digest of the config that a swap gives.

    Raises:
        InputError: It is not valid, or trains just what the config trains.
    """
    for key in swap.changes:
        _require_key(key)
    digest = config_digest(swap.applied(config))
    if digest == config_digest(config):
        now = ", ".join(f"{key} is {at(config.model_dump(), key)!r}" for key in swap.changes)
        message, hint = f"the swap changes nothing of a training: {now} in the config", f"give another value: {COMMAND} KEY=VALUE"
        raise InputError(message, where=f"{COMMAND} {swap.name}", hint=hint)
    return digest


def _swap_of(asked: str | Mapping[str, Any], found: Sequence[Swap]) -> Swap:
    if not isinstance(asked, str):
        return _swap_by_changes(dict(asked), found)
    if "=" in asked:
        return _swap_by_changes(dict(parse_assignment(part, COMMAND) for part in _JOINED.split(asked)), found)
    by_name = {name: swap for swap in found for name in (swap.name, next(iter(swap.changes)))}
    if asked in by_name:
        return by_name[asked]
    listing = f"name one that `{COMMAND} --list` shows, or " if found else ""
    raise InputError.unknown(
        "component",
        asked,
        by_name,
        of="that is switched on",
        where=f"{COMMAND} {asked}",
        hint=f"{listing}give a key's other value: {COMMAND} KEY=VALUE",
    )


def _swap_by_changes(changes: Values, found: Sequence[Swap]) -> Swap:
    """Return a user-defined swap; one that takes a component out has the component's name."""
    known = next((swap for swap in found if swap.changes == changes), None)
    return known or Swap(" + ".join(f"{key}={_value_text(value)}" for key, value in changes.items()), changes)


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value).replace(" ", "").replace("None", "null")


def _require_key(key: str) -> None:
    """Refuse a key that no training config has, or that decides more than how a model is trained.

    Raises:
        InputError: The key is refused; the message has the nearest key, or the reason.
    """
    where = f"{COMMAND} {key}"
    if key.startswith(OPTIONS):
        return
    *parents, last = key.split(".")
    names = known_keys(TrainingConfig, tuple(parents))
    if last not in names:
        raise InputError.unknown(
            "key", key, [".".join([*parents, name]) for name in names], of="of a training config", where=where
        )
    first = key.split(".")[0]
    if first in ProjectConfig.model_fields and first not in FREE:
        raise InputError(f"{first} is the same for all compared runs, so it cannot be swapped", where=where, hint=OTHERWISE)
    if first in BEFORE:
        raise InputError(f"{first} is set before a process starts, so it cannot be swapped", where=where, hint=OTHERWISE)
