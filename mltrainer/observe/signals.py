"""The measurements of an optimizer's steps beside their bits: loss, learning rate, gradients, updates; training does not notice.

Nothing waits for a GPU or a disk: some steps are held, and written at once. The loss is that of a variable of this name where
the step was asked for, if there is one: a program gives it to nobody else.
"""

from __future__ import annotations

import atexit
import gc
import sys
import time
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings

_now = time.monotonic_ns  # bound before calls of clocks are traced: the observer's own are none of the program's

HELD = 32  # steps before they are written; values on a GPU are fetched then
FIRST = 3  # steps at which each weight is looked at by itself
CLOSE = 400  # steps that are looked at closely; a longer run is looked at more rarely from then on
GRADIENTS, WEIGHTS = (1, 5), (20, 100)  # up to there and beyond, every so manieth step's gradients, and each weight by itself
SMALL = 1 << 14  # numbers; gradients of fewer are looked at together
DEEP = 40  # frames in which a loss is looked for


def begin(settings: Settings, process: Process) -> Signals:
    """Return the observer of this process."""
    return Signals(settings, process)


class Signals:
    """Notes the measurements of each step of an optimizer.

    Lines: `about` with the weights' names and the number of trained parameters; `step` with its number, the optimizer's, learning
    rate, loss, gradient norm and time; `layers` with the step and, for each named weight, gradient norm and update by its size.

    Args:
        settings: `steps`, after which the process ends.
        process: Its name, and where the lines go.
    """

    def __init__(self, settings: Settings, process: Process) -> None:
        self._most = settings.steps
        self._lines = process.lines("signals")
        self._reset()
        process.on_fork(self._reset)
        atexit.register(self._write)

    def _reset(self) -> None:
        self._step = 0
        self._pending: list[list[Any]] = []
        self._optimizers: dict[int, weakref.ref[Any]] = {}  # optimizers by identity, which a later one may have again
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}  # the weights, with their names
        self._before: dict[int, Any] = {}  # weights before a step that is looked at closely

    def attach(self, torch: Any) -> None:
        """Begin to observe, once torch has been imported."""
        self._torch = torch
        optimizers = sys.modules["torch.optim.optimizer"]
        optimizers.register_optimizer_step_pre_hook(self._enter)
        optimizers.register_optimizer_step_post_hook(self._leave)

    def _enter(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        if not _is_held(self._optimizers.get(id(optimizer)), optimizer):
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)
            self._name(optimizer)
        number = self._step + 1
        if number <= FIRST or _is_due(number, WEIGHTS):
            with self._torch.no_grad():
                self._before = {id(p): p.detach().clone() for p in _parameters(optimizer) if _is_wide(p)}

    def _leave(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        self._step += 1
        with self._torch.no_grad():
            total = self._total(_gradients(self._torch, optimizer)) if _is_due(self._step, GRADIENTS) else None
            loss = _loss_of(self._torch, sys._getframe(1))
            rate = optimizer.param_groups[0].get("lr")
            number = [*self._optimizers].index(id(optimizer))
            self._pending.append(["step", self._step, number, rate, loss, total, _now()])
            if self._before:
                self._pending.append(["layers", self._step, *self._layers(optimizer)])
                self._before = {}
        if self._step == self._most or len(self._pending) >= HELD:
            self._write()

    def _total(self, tensors: list[Any]) -> Any:
        """Return the norm of all tensors together, or None; small ones are brought together first: they are many."""
        small: dict[Any, list[Any]] = {}
        parts: list[Any] = []
        for tensor in tensors:
            small.setdefault(tensor.device, []).append(tensor) if tensor.numel() < SMALL else parts.append(tensor)
        parts += [self._torch.cat([tensor.reshape(-1).float() for tensor in group]) for group in small.values()]
        norms = [self._norm(part) for part in parts]
        return self._norm(self._torch.stack([norm.to(norms[0].device) for norm in norms])) if norms else None

    def _norm(self, tensor: Any) -> Any:
        return self._torch.linalg.vector_norm(tensor.detach(), dtype=self._torch.float32)

    def _layers(self, optimizer: Any) -> tuple[Any, Any]:
        """Return gradient norm, and update as a share of the weight, of each weight that is listed separately."""
        looked = [(self._name_of(p), p, self._before[id(p)]) for p in _parameters(optimizer) if id(p) in self._before]
        named = [row for row in looked if row[0] is not None]
        norms = {name: self._norm(p.grad) for name, p, _ in named if _is_plain(self._torch, p.grad)}
        return norms, {name: self._norm(p.detach() - before) / self._norm(before) for name, p, before in named}

    def _name(self, optimizer: Any) -> None:
        """Name an optimizer's weights, and write the names of new ones: a later optimizer of the same weights adds none."""
        ours = {id(p): p for p in _parameters(optimizer)}
        fresh = {key: p for key, p in ours.items() if self._name_of(p) is None}
        names: dict[int, str] = {}
        for module in [each for each in gc.get_objects() if issubclass(type(each), self._torch.nn.Module)]:
            for name, parameter in module.named_parameters():
                # The longest name is that in the outermost module: the collector lists the inner ones too.
                if id(parameter) in fresh and len(name) > len(names.get(id(parameter), "")):
                    names[id(parameter)] = name
        numbered = {key: names.get(key, f"weight {number}") for number, key in enumerate(ours) if key in fresh}
        names_apart = _apart(numbered, {name for held, name in self._names.values() if held() is not None})
        known = {name for _, name in self._names.values()}
        new = {key: p for key, p in fresh.items() if names_apart[key] not in known}
        self._names.update({key: (weakref.ref(p), names_apart[key]) for key, p in fresh.items()})
        if new:
            wide = [names_apart[key] for key, p in new.items() if _is_wide(p)]
            self._lines.write("about", wide, sum(p.numel() for p in new.values() if p.requires_grad))

    def _name_of(self, parameter: Any) -> str | None:
        held, name = self._names.get(id(parameter), (None, ""))
        return name if _is_held(held, parameter) else None

    def _write(self) -> None:
        held, self._pending = self._pending, []
        for row in held:
            self._lines.write(*(_plain(value) for value in row), flush=False)
        if held:
            self._lines.flush()


def _apart(names: dict[int, str], taken: set[str]) -> dict[int, str]:
    """Return unique names: weights of several models may have the same."""
    numbered_names: dict[int, str] = {}
    for key, name in names.items():
        number = 1
        while (numbered := name if number == 1 else f"{name} ({number})") in taken:
            number += 1
        taken.add(numbered)
        numbered_names[key] = numbered
    return numbered_names


def _is_held(held: Any, present: Any) -> bool:
    """Return True if an object is the one that was held, and no later one at the same place in memory."""
    return held is not None and held() is present


def _is_wide(parameter: Any) -> bool:
    return bool(parameter.dim() > 1 and parameter.requires_grad)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _gradients(torch: Any, optimizer: Any) -> list[Any]:
    return [p.grad for p in _parameters(optimizer) if _is_plain(torch, p.grad)]


def _is_due(step: int, every: tuple[int, int]) -> bool:
    return step % every[step > CLOSE] == 0


def _is_plain(torch: Any, tensor: Any) -> bool:
    return tensor is not None and type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type != "meta"


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
        value = frame.f_locals.get("loss")
        if value is not None and type(value) is torch.Tensor and value.numel() == 1:
            # A copy: the program may add to the same tensor before the held steps are written.
            return value.detach().clone()
        frame = frame.f_back
    return None
