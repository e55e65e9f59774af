"""Frozen parameters: some for the whole run, some until an epoch."""

from __future__ import annotations

import re

from torch import nn

from mltrainer.checkpointing.starting import matches
from mltrainer.configs.starting import Start
from mltrainer.errors import InputError
from mltrainer.trainers.native.optimization.groups import refuse_unmatched

NEVER = 0  # the epoch of a parameter that stays frozen


class Held:
    """The frozen parameters of a model; they depend on the epoch alone, so that resuming needs no state.

    A frozen parameter has no gradient, so that no optimizer changes it, not even by weight decay. A norm whose own parameters are
    all frozen keeps its statistics.

    Args:
        model: The model; parameters frozen for the whole run lose `requires_grad` at once, the others not before `enter`.
        start: The patterns, or None.
        is_adapted: Whether a strategy freezes parameters.

    Raises:
        InputError: A pattern matches nothing, or nothing is left to train.
    """

    def __init__(self, model: nn.Module, start: Start | None, *, is_adapted: bool = False) -> None:
        first = first_epochs(model, start) if start is not None else {}
        own = dict(model.named_parameters())
        for name in (name for name, epoch in first.items() if epoch == NEVER):
            own[name].requires_grad_(False)
        if start is not None and not any(p.requires_grad for p in own.values()):
            raise InputError("all parameters are frozen: nothing is left to train", where="start.freeze", hint="freeze fewer")
        self._later = [(own[name], epoch) for name, epoch in first.items() if epoch != NEVER]
        if start is not None and not any(p.requires_grad for name, p in own.items() if not first.get(name)):
            when = min(epoch for _, epoch in self._later)
            what = f"all parameters are frozen before epoch {when}: nothing is left to train until then"
            raise InputError(what, where="start.unfreeze", hint="freeze fewer, such as all but the last layer")
        self._is_adapted = is_adapted
        self._norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)] if first or is_adapted else []
        self._epoch = -1
        self._still: list[nn.Module] = []

    def begin(self) -> None:
        """Let the parameters that are frozen for a time require a gradient, as before the first step."""
        self._epoch = -1
        for parameter, _ in self._later:
            parameter.requires_grad_(True)

    def enter(self, epoch: int) -> None:
        """Freeze and unfreeze the parameters for an epoch (from 1); called before every step."""
        if epoch != self._epoch:
            self._epoch = epoch
            for parameter, first in self._later:
                parameter.requires_grad_(epoch >= first)
            self._still = [norm for norm in self._norms if _is_held(norm, self._is_adapted)]
        for norm in self._still:
            norm.training = False  # after each evaluation, the whole model is set to train again


def _is_held(norm: nn.Module, is_adapted: bool) -> bool:
    """Return True if a norm keeps its statistics; one without parameters does if a strategy freezes all that it does not name."""
    own = list(norm.parameters())
    return is_adapted if not own else not any(p.requires_grad for p in own)


def first_epochs(model: nn.Module, start: Start) -> dict[str, int]:
    """Return the first epoch in which each frozen parameter is trained, by name; `NEVER` for one that stays frozen.

    Raises:
        InputError: A pattern matches no parameter, or one of `unfreeze` matches no frozen one.
    """
    names = [name for name, _ in model.named_parameters()]
    for number, pattern in enumerate(start.freeze):
        refuse_unmatched(pattern, names, "parameter", f"start.freeze[{number}]")
    found = {name: NEVER for name in names if matches(start.freeze, name)}
    for number, stage in enumerate(start.unfreeze):
        refuse_unmatched(stage.match, list(found), "held parameter", f"start.unfreeze[{number}].match")
        found |= {name: min(stage.epoch, found[name] or stage.epoch) for name in found if re.search(stage.match, name)}
    return found
