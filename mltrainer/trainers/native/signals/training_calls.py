"""Calls that are only for training - dropout, the batch's own statistics - observed while a model evaluates."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class Argument(NamedTuple):
    """The place and the name of an argument."""

    place: int
    name: str

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the argument of a call; None if it is missing."""
        return args[self.place] if len(args) > self.place else kwargs.get(self.name)


RATE, TRAINING, TRAIN = Argument(1, "p"), Argument(2, "training"), Argument(2, "train")
DROPOUTS: dict[Any, tuple[Argument, Argument | None]] = {
    **{
        getattr(functional, name): (RATE, TRAINING)
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    },
    **{getattr(torch, name): (RATE, TRAIN) for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")},
    functional.scaled_dot_product_attention: (Argument(4, "dropout_p"), None),  # without a mode: the rate is for every call
    functional.multi_head_attention_forward: (Argument(10, "dropout_p"), Argument(13, "training")),
}
BATCH_NORMS = {
    functional.batch_norm: (Argument(1, "running_mean"), Argument(5, "training")),
    torch.batch_norm: (Argument(3, "running_mean"), Argument(5, "training")),
}


class TrainingCalls(TorchFunctionMode):
    """Records calls for training while it is entered, and changes nothing.

    Attributes:
        found: A description of each kind of call, once.
        dropped: The largest rate of a dropout, 0 without one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.dropped = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do a call, and record it if it is for training."""
        kwargs = kwargs or {}
        self.dropped = max(self.dropped, _dropped(func, args, kwargs))
        told = _told(func, args, kwargs)
        if told is not None and told not in self.found:
            self.found.append(told)
        return func(*args, **kwargs)


def _dropped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Return the rate of a dropout call; 0 for any other call, and for one that is switched off."""
    if (found := DROPOUTS.get(func)) is None:
        return 0.0
    rate, training = found
    return float(rate.of(args, kwargs) or 0.0) if training is None or training.of(args, kwargs) else 0.0


def _told(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return a description of a call for training; None for any other."""
    if share := _dropped(func, args, kwargs):
        return f"dropout of {share:g}"
    if (norm := BATCH_NORMS.get(func)) is not None:
        running, training = norm
        if not training.of(args, kwargs):
            return None
        is_kept = running.of(args, kwargs) is not None
        return f"batch norm by the batch's own statistics{'' if is_kept else ', as it keeps none'}"
    return None
