"""The cuts of a model into stages, and the owners of its parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mltrainer.errors import InputError

WHERE = "launch.parallel: pipeline"
MEND = "launch.parallel: fsdp, which needs less of the model, or zero1, which needs nothing of it"


@dataclass(frozen=True)
class Stages:
    """The stages of a model.

    Attributes:
        container: The name of the container whose entries form the stages; empty for the model itself.
        entries: The container's entries by name, in the order of their calls.
        first: The number of each stage's first entry.
        owners: The stage of each parameter that only one stage uses, by name.
    """

    container: str
    entries: dict[str, nn.Module]
    first: list[int]
    owners: dict[str, int]

    def name(self, number: int) -> str:
        """Return the name of an entry by its number."""
        return [*self.entries][number]

    def of(self, stage: int) -> range:
        """Return the numbers of a stage's entries."""
        return range(self.first[stage], [*self.first, len(self.entries)][stage + 1])


def stages_of(model: nn.Module, size: int) -> Stages:
    """Return the stages that keep the largest process smallest.

    Raises:
        InputError: No container has enough entries, or a norm outside of it keeps running statistics.
    """
    found = [_stages(model, name, module, size) for name, module in model.named_modules() if _is_called_in_order(module, size)]
    if not found:
        counts = [f"{name or 'the model'} with {len(module)}" for name, module in model.named_modules() if _is_numbered(module)]
        there = f"there is {', '.join(counts[:3])}" if counts else "there is none"
        what = f"a model is cut between the entries of an nn.Sequential or nn.ModuleList of {size} or more; {there}"
        raise InputError(what, where=WHERE, hint=f"fewer processes, or {MEND}")
    best = min(found, key=lambda stages: (bool(_norms_outside(model, stages)), _largest(model, stages)))
    for name in _norms_outside(model, best):
        what = f"{name} keeps running statistics and is outside of {best.container or 'the model'}, or in several of its stages"
        raise InputError(what, where=WHERE, hint=MEND)
    return best


def _norms_outside(model: nn.Module, stages: Stages) -> list[str]:
    """Return the names of the norms with running statistics that belong to no single stage."""
    users = _users(stages, model.named_modules(remove_duplicate=False))
    norms = {name: m for name, m in model.named_modules() if isinstance(m, _BatchNorm) and m.track_running_stats}
    return [name for name, norm in norms.items() if None in users[id(norm)] or len(users[id(norm)]) > 1]


def _is_numbered(module: nn.Module) -> bool:
    return isinstance(module, (nn.Sequential, nn.ModuleList))


def _is_called_in_order(module: nn.Module, size: int) -> bool:
    """Return True for a container of enough entries, each of which can be called and occurs once."""
    entries = [*module.children()]
    if not (_is_numbered(module) and len(entries) >= size and len(entries) == len(module)):  # type: ignore[arg-type]  # numbered ones have a length
        return False
    return all(type(entry).forward is not nn.Module.forward for entry in entries)


def _stages(model: nn.Module, container: str, module: nn.Module, size: int) -> Stages:
    """Return stages of nearly equal numbers of parameters, each of at least one entry."""
    prefix = f"{container}." if container else ""
    entries = {f"{prefix}{name}": entry for name, entry in module.named_children()}
    upto = [0, *itertools.accumulate(1 + sum(p.numel() for p in entry.parameters()) for entry in entries.values())]
    first = [0]
    for stage in range(1, size):
        choices = range(first[-1] + 1, len(entries) - (size - stage) + 1)
        first.append(min(choices, key=lambda number: abs(upto[number] - upto[-1] * stage / size)))
    found = Stages(container, entries, first, {})
    return Stages(container, entries, first, _owners(model, found))


def _owners(model: nn.Module, stages: Stages) -> dict[str, int]:
    users = _users(stages, model.named_parameters(remove_duplicate=False))
    owners = {name: users[id(p)] for name, p in model.named_parameters()}
    return {name: stage for name, found in owners.items() for stage in found if stage is not None and len(found) == 1}


def _users(stages: Stages, named: Iterable[tuple[str, object]]) -> dict[int, set[int | None]]:
    """Return the stages of each parameter or module, by its identity; None for a place outside of the container."""
    names = [*stages.entries]
    stage_of = {names[number]: stage for stage in range(len(stages.first)) for number in stages.of(stage)}
    users: dict[int, set[int | None]] = {}
    for name, one in named:
        entry = next((entry for entry in names if f"{name}.".startswith(f"{entry}.")), None)
        users.setdefault(id(one), set()).add(None if entry is None else stage_of[entry])
    return users


def _largest(model: nn.Module, stages: Stages) -> int:
    """Return the count of numbers in the largest process; every process has those that belong to no stage."""
    counts = dict.fromkeys(range(len(stages.first)), 0)
    outside = 0
    for name, p in model.named_parameters():
        if name in stages.owners:
            counts[stages.owners[name]] += p.numel()
        else:
            outside += p.numel()
    return outside + max(counts.values())
