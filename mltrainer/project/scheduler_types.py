"""Learning-rate schedules in the words of transformers' `lr_scheduler_type`, both ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from mltrainer.configs.schedules import Constant, Cosine, CosineRestarts, Linear, Plateau, Polynomial, Sequence
from mltrainer.errors import InputError
from mltrainer.workspace import is_number

KWARGS = "lr_scheduler_kwargs"
RETYPE = "change the field, then type the same again"
WITHOUT_WARMUP = ("constant", "reduce_lr_on_plateau")  # transformers leaves it out there, whatever warmup_steps says


class Reading(dict[str, Any]):
    """Values by name that notes which of them were read, so that the others can be named."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.seen: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        """Return a value, which counts as read."""
        self.seen.add(name)
        return self.get(name, default)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number, which counts as read.

        Raises:
            InputError: The value is no such number.
        """
        value = self.take(name, default)
        if not is_number(value) or not math.isfinite(value):
            raise InputError(f"{value!r} is no number", where=name, hint=RETYPE)
        return float(value)

    def whole(self, name: str) -> int:
        """Return a whole number from 0, which counts as read.

        Raises:
            InputError: The value is no such number.
        """
        value = self.number(name)
        if value != int(value) or value < 0:
            raise InputError(
                f"{value!r} is no whole number", where=name, hint="give one: steps, epochs and batches are whole here"
            )
        return int(value)


def schedule_of(kind: str, more: Reading, rate: float, epochs: int, warmup: float) -> dict[str, Any]:
    """Return the keys of `schedule` that a `lr_scheduler_type` means.

    Args:
        kind: The `lr_scheduler_type`.
        more: Its `lr_scheduler_kwargs`.
        rate: The learning rate.
        epochs: The run's number of epochs.
        warmup: `warmup_steps`; below 1 a share of all steps.

    Raises:
        InputError: There is no such schedule here, or a value has no counterpart.
    """
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "linear": lambda: {"name": "linear"},
        "cosine": lambda: {"name": "cosine"},
        "constant": lambda: {"name": "constant"},
        "constant_with_warmup": lambda: {"name": "constant"},
        "polynomial": lambda: {"name": "polynomial", "power": more.take("power", 1.0), "final": more.take("lr_end", 1e-7) / rate},
        "cosine_with_min_lr": lambda: {"name": "cosine", "final": _least(more, rate)},
        "cosine_warmup_with_min_lr": lambda: {"name": "cosine", "final": _least(more, rate)},
        "cosine_with_restarts": lambda: _restarts(more, epochs * (1 - warmup) if warmup < 1 else epochs),
        "reduce_lr_on_plateau": lambda: _plateau(more, rate),
        "warmup_stable_decay": lambda: _stable_and_decay(more),
    }
    if kind not in makers:
        message = f"there is no schedule like {kind!r} here; there are {', '.join(makers)}"
        raise InputError(message, where="lr_scheduler_type", hint=RETYPE)
    if kind in WITHOUT_WARMUP or not warmup:
        return makers[kind]()
    return makers[kind]() | ({"warmup_epochs": warmup * epochs} if warmup < 1 else {"warmup_steps": int(warmup)})


def _least(more: Reading, rate: float) -> float:
    """Return the share of the rate at the end of the schedule."""
    share, least = more.take("min_lr_rate"), more.take("min_lr", 0.0)
    return float(least / rate if share is None else share)


def _restarts(more: Reading, epochs: float) -> dict[str, Any]:
    """Return cosines of equal length; with one cycle, a single cosine."""
    cycles = more.number("num_cycles", 1)
    if cycles <= 1:
        return {"name": "cosine"}
    return {"name": "cosine_restarts", "first_epochs": epochs / cycles, "growth": 1.0}


def _plateau(more: Reading, rate: float) -> dict[str, Any]:
    """Return PyTorch's plateau, which reduces at the evaluation after `patience` bad ones."""
    # A relative threshold stays unread, and is named.
    delta = more.number("threshold") if more.get("threshold_mode") == "abs" else 0.0
    more.seen |= {"mode"} | ({"threshold_mode"} if delta else set())
    patience = int(more.number("patience", 10)) + 1
    final = more.number("min_lr", 0.0) / rate
    return {
        "name": "plateau",
        "factor": more.number("factor", 0.1),
        "patience": patience,
        "min_delta": delta,
        "final": final,
    }


def _stable_and_decay(more: Reading) -> dict[str, Any]:
    """Return a constant rate and then a decay to the end of the run.

    Raises:
        InputError: The length of the constant rate is missing, or the decay has another shape.
    """
    shape, stable = more.take("decay_type", "cosine"), more.take("num_stable_steps")
    more.seen.add("num_decay_steps")  # what is left of the run
    if shape not in ("linear", "cosine"):
        raise InputError(f"there is no decay like {shape!r} here", where=f"{KWARGS}.decay_type", hint="take cosine or linear")
    if stable is None:
        message = "expected the number of steps at a constant rate, since the length of the run is counted in epochs here"
        raise InputError(message, where=f"{KWARGS}.num_stable_steps", hint="give it: all steps less warm-up and num_decay_steps")
    decay = {"name": shape, "final": more.number("min_lr_ratio", 0.0)}
    parts = [{"schedule": {"name": "constant"}, "steps": int(stable)}, {"schedule": decay}]
    return {"name": "sequence", "parts": parts, "warmup": more.take("warmup_type", "linear")}


def scheduler_type(schedule: Any, rate: float, steps: int, per_epoch: int, mode: str) -> tuple[str, dict[str, Any]]:
    """Return the `lr_scheduler_type` and the `lr_scheduler_kwargs` of a schedule.

    Args:
        schedule: The config's schedule.
        rate: The learning rate.
        steps: The run's number of optimizer steps.
        per_epoch: Steps of an epoch.
        mode: The metric's direction, max or min.

    Raises:
        InputError: transformers has none like it.
    """
    warmup = schedule.warmed_up(per_epoch)
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
        case CosineRestarts(growth=1.0, final=0.0):
            return "cosine_with_restarts", {"num_cycles": (steps - warmup) / (schedule.first_epochs * per_epoch)}
        case Plateau():
            return "reduce_lr_on_plateau", _plateau_kwargs(schedule, rate, mode)
        case Sequence() if _is_stable_decay(schedule):
            stable = schedule.closed(per_epoch)
            return "warmup_stable_decay", _decay_kwargs(schedule, stable, steps - warmup - stable)
    message = f"transformers' Trainer has no schedule like {schedule.name}"
    raise InputError(
        message, where="schedule.name", hint="mltrainer phase run planning --set schedule.name=cosine, or train it here"
    )


def _plateau_kwargs(schedule: Plateau, rate: float, mode: str) -> dict[str, Any]:
    delta = {"threshold": schedule.min_delta, "threshold_mode": "abs"}
    return {"mode": mode, "factor": schedule.factor, "patience": schedule.patience - 1, "min_lr": schedule.final * rate, **delta}


def _is_stable_decay(schedule: Sequence) -> bool:
    """Return True for a constant rate and then a decay to the end, both of the whole rate."""
    kinds = [part.schedule for part in schedule.parts]
    shaped = len(kinds) == 2 and isinstance(kinds[0], Constant) and isinstance(kinds[1], Linear | Cosine)
    return shaped and all(part.factor == 1 for part in schedule.parts)


def _decay_kwargs(schedule: Sequence, stable: int, decay: int) -> dict[str, Any]:
    last: Any = schedule.parts[1].schedule
    return {"num_stable_steps": stable, "num_decay_steps": decay, "decay_type": last.name, "min_lr_ratio": last.final}
