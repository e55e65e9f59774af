"""What the steps of an optimizer show beside their bits: loss, learning rate, gradients and updates; training does not notice.

Nothing waits for a GPU: what lies there is held until several steps can be fetched at once. The loss is that of a variable of
this name where the step was asked for, if there is one: a program tells it to nobody else.
"""

from __future__ import annotations

import atexit
import gc
import sys
from types import FrameType
from typing import Any

HELD = 32  # steps on a GPU before they are fetched
FIRST, EVERY = 3, 20  # at the first steps, and then so often, each weight is looked at by itself
DEEP = 40  # frames in which a loss is looked for


def begin(settings: dict[str, Any], process: Any) -> Signals:
    """Return the observer of this process."""
    return Signals(settings, process)


class Signals:
    """Notes what each step of an optimizer shows.

    Lines: `about` with the weights' names and how many numbers are trained; `step` with its number, the optimizer's, learning
    rate, loss and gradient norm; `layers` with the step and, for each named weight, gradient norm and update by its size.

    Args:
        settings: `steps`, after which the process ends.
        process: Its name, and where the lines go.
    """

    def __init__(self, settings: dict[str, Any], process: Any) -> None:
        self._most = int(settings.get("steps") or 0)
        self._lines = process.lines("signals")
        self._forget()
        process.on_fork(self._forget)
        atexit.register(self._write)

    def _forget(self) -> None:
        self._step = 0
        self._held: list[list[Any]] = []
        self._names: dict[int, dict[int, str]] = {}  # of each optimizer's weights, by identity
        self._before: dict[int, Any] = {}  # weights before a step that is looked at closely

    def attach(self, torch: Any) -> None:
        """Begin to observe, once torch has been imported."""
        self._torch = torch
        optimizers = sys.modules["torch.optim.optimizer"]
        optimizers.register_optimizer_step_pre_hook(self._enter)
        optimizers.register_optimizer_step_post_hook(self._leave)

    def _enter(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        if id(optimizer) not in self._names:
            self._names[id(optimizer)] = self._named(optimizer)
        number = self._step + 1
        if number <= FIRST or number % EVERY == 0:
            names = self._names[id(optimizer)]
            with self._torch.no_grad():
                self._before = {id(p): p.detach().clone() for p in _parameters(optimizer) if id(p) in names}

    def _leave(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        self._step += 1
        weights = [p for p in _parameters(optimizer) if _is_plain(self._torch, p.grad)]
        rates = [group.get("lr") for group in optimizer.param_groups]
        with self._torch.no_grad():
            norms = [self._norm(p.grad) for p in weights]
            total = self._norm(self._torch.stack([norm.to(norms[0].device) for norm in norms])) if norms else None
            loss = _loss_of(self._torch, sys._getframe(1))
            self._held.append(["step", self._step, [*self._names].index(id(optimizer)), rates[0] if rates else None, loss, total])
            if self._before:
                self._held.append(["layers", self._step, *self._layers(optimizer, weights, norms)])
                self._before = {}
        waits = any(_is_elsewhere(value) for value in self._held[-1][3:])
        if not waits or self._step == self._most or len(self._held) >= HELD:
            self._write()

    def _norm(self, tensor: Any) -> Any:
        return self._torch.linalg.vector_norm(tensor.detach(), dtype=self._torch.float32)

    def _layers(self, optimizer: Any, weights: list[Any], norms: list[Any]) -> tuple[Any, Any]:
        """Return gradient norm, and update as a share of the weight, of each weight that has a name."""
        found = {id(p): norm for p, norm in zip(weights, norms)}  # noqa: B905 - Python 3.9 has no strict
        named = [p for p in _parameters(optimizer) if id(p) in self._before]
        updates = [self._norm(p.detach() - self._before[id(p)]) / self._norm(self._before[id(p)]) for p in named]
        names = self._names[id(optimizer)]
        return {names[id(p)]: found.get(id(p)) for p in named}, {names[id(p)]: u for p, u in zip(named, updates)}  # noqa: B905

    def _named(self, optimizer: Any) -> dict[int, str]:
        """Return the names of an optimizer's weights of two dimensions or more, and tell them, once."""
        ours = {id(p): p for p in _parameters(optimizer)}
        names: dict[int, str] = {}
        for module in [found for found in gc.get_objects() if issubclass(type(found), self._torch.nn.Module)]:
            for name, parameter in module.named_parameters():
                if id(parameter) in ours and len(name) > len(names.get(id(parameter), "")):
                    names[id(parameter)] = name
        told = {key: names.get(key, f"weight {number}") for number, key in enumerate(ours)}
        wide = {key: told[key] for key, parameter in ours.items() if parameter.dim() > 1 and parameter.requires_grad}
        wide = _apart(wide, {name for others in self._names.values() for name in others.values()})
        self._lines.write("about", list(wide.values()), sum(p.numel() for p in ours.values() if p.requires_grad))
        return wide

    def _write(self) -> None:
        held, self._held = self._held, []
        for row in held:
            self._lines.write(*(_plain(value) for value in row), flush=False)
        if held:
            self._lines.flush()


def _apart(names: dict[int, str], taken: set[str]) -> dict[int, str]:
    """Return names of which each stands once: weights of several models may be called alike."""
    found: dict[int, str] = {}
    for key, name in names.items():
        number = 1
        while (told := name if number == 1 else f"{name} ({number})") in taken:
            number += 1
        taken.add(told)
        found[key] = told
    return found


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_plain(torch: Any, tensor: Any) -> bool:
    return tensor is not None and type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type != "meta"


def _is_elsewhere(value: Any) -> bool:
    """Return whether a value must be fetched from a device."""
    values = value.values() if isinstance(value, dict) else [value]
    return any(getattr(getattr(one, "device", None), "type", "cpu") != "cpu" for one in values)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return float(value) if hasattr(value, "dtype") else value


def _loss_of(torch: Any, frame: FrameType | None) -> Any:
    """Return the loss that the nearest function which knows one has in a variable of this name, or None."""
    for _ in range(DEEP):
        if frame is None:
            break
        found = frame.f_locals.get("loss")
        if found is not None and type(found) is torch.Tensor and found.numel() == 1:
            return found.detach().clone()
        frame = frame.f_back
    return None
