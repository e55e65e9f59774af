"""A line for each step of an optimizer, with the bits of its gradients and weights; seen through PyTorch's public hooks alone.

Sums of the bits as integers show at every step, for a few memory reads: of all gradients, and of some of the weights, as what
changes those changes all. At intervals, and at the end, the weights are digested whole. On a GPU the sums stay there
until several can be fetched at once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings

_now = time.monotonic_ns  # bound before calls of clocks are traced: the observer's own are none of the program's

WHOLE_EVERY = 50  # steps
ONE_OF = 8  # at each step, the smallest of this number of weights is summed
HELD = 32  # sums on a GPU before they are fetched
SMALL = 1 << 14  # numbers; tensors of fewer are summed together
MANY = 4  # small weights of one width: joining them is then cheaper than a look at each
PAUSES = {2: 0.05, 5: 0.15}  # seconds, after which steps, where threads are to be put out of their usual pace


def begin(settings: Settings, process: Process) -> Chain:
    """Return the observer of this process."""
    return Chain(settings, process)


class Chain:
    """Observes the optimizers of one process.

    Args:
        settings: `steps`, after which the process ends, 0 for never; `disturbances`, of which `pace` has it stand still for
            moments; `kill`, the step after which the process is killed.
        process: Its name, and where the lines go.
    """

    def __init__(self, settings: Settings, process: Process) -> None:
        self._most, self._kill = settings.steps, settings.kill
        self._pauses = PAUSES if "pace" in settings.disturbances else {}
        self._process = process
        self._reset()
        process.on_fork(self._reset)
        atexit.register(self._at_exit)

    def _reset(self) -> None:
        """Start again: in a fork nothing has been observed yet."""
        self._file: Any = None
        self._pending: list[tuple[Any, ...]] = []
        self._tracked_optimizers: list[TrackedOptimizer] = []
        self._by_id: dict[int, TrackedOptimizer] = {}
        self._threads: dict[int, int] = {}  # by their first steps
        # A new one: another thread of the parent may have held the old one when it forked, and no thread here would let it go.
        self._lock = threading.Lock()  # of one step at a time
        self._step = 0

    def attach(self, torch: Any) -> None:
        """Begin to observe, once torch has been imported."""
        self._torch = torch
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._after)

    def _after(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        with self._lock:
            step = self._note_step(optimizer)
        # Outside of the lock: the other threads are to go on meanwhile, or all would only be later in the same order.
        if step in self._pauses:
            time.sleep(self._pauses[step])

    def _note_step(self, optimizer: Any) -> int:
        """Note a step that an optimizer has made, end the process where it was the last one, and return its number."""
        self._step += 1
        watched = self._tracked(optimizer)
        thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
        gradients, summed = watched.sums(optimizer)
        last = self._step == self._most
        whole = digest_of(self._torch, watched.weights(optimizer)) if self._step % WHOLE_EVERY == 0 else None
        self._pending.append((f"{self._step} {watched.number} {thread}", gradients, summed, whole))
        waits = not (isinstance(gradients, int) and isinstance(summed, int))
        if not waits or last or self._step == self._kill or len(self._pending) >= HELD:
            self._write()
        if self._step == self._kill:
            # As a machine ends it, after the step's line is written: nothing of the program's own saves anything on the way.
            os.kill(os.getpid(), 9)
        if last:
            self._write_end()
            self._process.end()
        return self._step

    def _tracked(self, optimizer: Any) -> TrackedOptimizer:
        """Return the watched state of an optimizer, made at its first step, when the models trained before are let go of.

        So trainings one after the other do not add up in memory.
        """
        tracked = self._by_id.get(id(optimizer))
        if tracked is None or tracked.reference() is not optimizer:  # the id may have belonged to an object that is gone
            for other in self._tracked_optimizers:
                other.held.clear()
            tracked = self._by_id[id(optimizer)] = TrackedOptimizer(self._torch, optimizer, len(self._tracked_optimizers))
            self._tracked_optimizers.append(tracked)
        return tracked

    def _write(self) -> None:
        """Write the steps that are held back: each line at once and whole, so that it stays, however the process ends."""
        held, self._pending = self._pending, []
        for entry in held:
            self._put(_entry(*entry))

    def _put(self, entry: str) -> None:
        if self._file is None:
            self._file = self._process.map("chain")
        self._file.write(f"{_now()} {entry}\n".encode())

    def _at_exit(self) -> None:
        """Write the rest when a program ends by itself."""
        if not self._step:
            return
        self._write()
        self._write_end()

    def _write_end(self) -> None:
        """Write the end's line: the digests of the weights, and of the models' buffers and other parameters."""
        gc.collect()  # garbage would otherwise be seen in one run and not in the other
        trained = [(watched, optimizer) for watched in self._tracked_optimizers if (optimizer := watched.reference()) is not None]
        weights = [weight for watched, optimizer in trained for weight in watched.weights(optimizer)]
        # Sorted by content: the collector lists objects by their place in memory.
        digests = sorted(digest_of(self._torch, [tensor]) for tensor in beside(self._torch, weights))
        held = hashlib.sha256("".join(digests).encode()).hexdigest()
        self._put(f"end {digest_of(self._torch, weights)} {held}")


class TrackedOptimizer:
    """An optimizer that makes steps. Summed are all gradients, and the smallest of every few weights of a group.

    Attributes:
        number: The optimizer's number, in the order of first steps.
        reference: A weak reference to the optimizer.
        held: The optimizer and the modules that it trains, which a program's `main` has let go of by the end.

    Args:
        torch: The module.
        optimizer: The one that makes the steps.
        number: The optimizer's number, as above.
    """

    def __init__(self, torch: Any, optimizer: Any, number: int) -> None:
        self._torch, self.number, self.reference = torch, number, weakref.ref(optimizer)
        self._models = [weakref.ref(module) for module in _holders(torch, _parameters(optimizer))]
        self.held: list[Any] = []
        self._choose(optimizer)

    def _choose(self, optimizer: Any) -> None:
        self._order = _model_order(optimizer, [reference() for reference in self._models])
        self._count = len(_parameters(optimizer))
        weights = self.weights(optimizer)
        self._of_gradients = Sums(self._torch, weights, range(self._count))
        self._of_weights = Sums(self._torch, weights, _some_of(optimizer, weights))

    def weights(self, optimizer: Any) -> list[Any]:
        """Return the optimizer's weights, those of each group in the order in which their model has them.

        An optimizer that is given the same weights in another order, such as that of a set, makes the same step.
        """
        parameters = _parameters(optimizer)
        return [parameters[number] for number in self._order] if len(self._order) == len(parameters) else parameters

    def sums(self, optimizer: Any) -> tuple[Any, Any]:
        """Return the sums of the bits of the weights' gradients, and of some weights; and hold the trained modules."""
        if len(_parameters(optimizer)) != self._count:
            self._choose(optimizer)  # it has been given others
        weights = self.weights(optimizer)
        if not self.held:
            self.held = [optimizer, *(reference() for reference in self._models)]
        with self._torch.no_grad():
            gradients = self._of_gradients.of(lambda numbers: [g for n in numbers if (g := weights[n].grad) is not None])
            return gradients, self._of_weights.of(lambda numbers: [weights[n] for n in numbers])


def _model_order(optimizer: Any, models: list[Any]) -> list[int]:
    """Return the numbers of an optimizer's weights, sorted within each group as the models that hold them do.

    Weights of one model take each other's places alone: those of several models, and those of none, stay where they are.
    """
    roots = _roots(models)
    order: list[int] = []
    for group in optimizer.param_groups:
        places: dict[int, list[int]] = {}
        for number, weight in enumerate(group["params"]):
            root = next((n for n, places in enumerate(roots) if id(weight) in places), -1)
            places.setdefault(root, []).append(number)
        start, numbers = len(order), [*range(len(group["params"]))]
        for root, own in places.items():
            if root >= 0:
                in_model = sorted(own, key=lambda number: roots[root][id(group["params"][number])])
                for place, number in zip(own, in_model, strict=True):
                    numbers[place] = number
        order += [start + number for number in numbers]
    return order


def _roots(models: list[Any]) -> list[dict[int, int]]:
    """Return the places of the parameters, by identity, in each module that is no part of another one of them."""
    living = [module for module in models if module is not None]
    parts = {id(part) for module in living for part in module.modules() if part is not module}
    return [
        {id(parameter): place for place, parameter in enumerate(module.parameters())}
        for module in living
        if id(module) not in parts
    ]


def _some_of(optimizer: Any, weights: list[Any]) -> list[int]:
    """Return the numbers of the weights that are watched, of each group, since groups have separate rates and decays."""
    watched: list[int] = []
    start = 0
    for count in (len(group["params"]) for group in optimizer.param_groups):
        sizes = [weight.numel() for weight in weights[start : start + count]]
        parts = [range(first, min(first + ONE_OF, len(sizes))) for first in range(0, len(sizes), ONE_OF)]
        watched += [start + min(part, key=sizes.__getitem__) for part in parts]
        start += len(sizes)
    return watched


class Sums:
    """Sums tensors of one optimizer; those of its small weights that fit together are joined in one call, unseen one by one.

    Args:
        torch: The module.
        weights: The optimizer's parameters.
        numbers: The numbers of the tensors that are summed, or whose gradients are.
    """

    def __init__(self, torch: Any, weights: list[Any], numbers: Iterable[int]) -> None:
        kinds: dict[Any, list[int]] = {}
        for number in numbers:
            weight = weights[number]
            is_usual = _is_plain(torch, weight) and weight.is_floating_point() and weight.dim() > 0 and weight.numel() > 0
            shape = weight.shape[1:] if weight.numel() < SMALL else None
            kinds.setdefault((weight.dtype, weight.device, shape) if is_usual else None, []).append(number)
        self._torch = torch
        self._large = [n for kind, some in kinds.items() if kind is not None and kind[2] is None for n in some]
        self._alike = [some for kind, some in kinds.items() if kind is not None and kind[2] is not None and len(some) >= MANY]
        seen = {*self._large, *(n for some in self._alike for n in some)}
        self._others = [n for some in kinds.values() for n in some if n not in seen]

    def of(self, tensors: Callable[[list[int]], list[Any]]) -> Any:
        """Return the sum of all bits of the tensors that a function returns for some numbers."""
        sums = [total for tensor in tensors(self._large) for total in self._whole(tensor, [tensor])]
        for numbers in self._alike:
            sums += self._joined(tensors(numbers))
        if self._others:
            sums += _sums(self._torch, tensors(self._others))
        return _added(sums)

    def _joined(self, tensors: list[Any]) -> list[Any]:
        """Return the sum of some tensors; several where they do not fit any more, such as a sparse gradient."""
        try:
            row = self._torch.cat(tensors)
        except (RuntimeError, TypeError, ValueError):
            return _sums(self._torch, tensors)
        return self._whole(row, tensors)

    def _whole(self, tensor: Any, parts: list[Any]) -> list[Any]:
        """Return the sum of a tensor by its memory, for the fewest calls; for an unusual tensor, of its parts."""
        torch = self._torch
        if _is_plain(torch, tensor) and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj() or tensor.is_meta):
            with contextlib.suppress(RuntimeError):  # no whole number of integers
                return [tensor.view(torch.int64).sum()]
        return _sums(torch, parts)


def _sums(torch: Any, tensors: list[Any]) -> list[Any]:
    return [_bits(torch, row) for row in in_rows(torch, tensors)]


def _added(sums: list[Any]) -> Any:
    return sum(int(total) for total in sums) if all(total.device.type == "cpu" for total in sums) else sums


def in_rows(torch: Any, tensors: list[Any]) -> list[Any]:
    """Return the numbers of some tensors in rows; small ones of one kind in one row: they are many."""
    small: dict[Any, list[Any]] = {}
    rows: list[Any] = []
    for tensor in tensors:
        if _is_small(torch, tensor):
            small.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        else:
            rows += _rows(torch, tensor)
    joined = (torch.cat([tensor.reshape(-1) for tensor in group]) for group in small.values())
    return rows + [row.resolve_conj().resolve_neg() for row in joined if row.device.type != "meta"]


def _bits(torch: Any, tensor: Any) -> Any:
    """Return the sum of the bits of numbers in one row, in as wide integers as fit."""
    size = tensor.element_size()
    if tensor.numel() * size % 8 == 0 and tensor.storage_offset() * size % 8 == 0:
        return tensor.view(torch.int64).sum()
    bits = tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size])
    return bits.sum(dtype=torch.int32 if size == 4 else torch.int64)


def digest_of(torch: Any, tensors: list[Any]) -> str:
    """Return the digest of tensors whole."""
    sha = hashlib.sha256()
    with torch.no_grad():
        for row in (row for tensor in tensors for row in _rows(torch, tensor)):
            sha.update(memoryview(row.cpu().view(torch.uint8).numpy()))
    return sha.hexdigest()


def _entry(step: str, gradients: Any, weights: Any, whole: str | None) -> str:
    return f"{step} {_total(gradients):016x} {_total(weights):016x} {whole or '-'}"


def _total(sums: Any) -> int:
    """Return a sum as a line has it: 64 bits."""
    return (sums if isinstance(sums, int) else sum(int(total) for total in sums)) & (1 << 64) - 1


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def beside(torch: Any, weights: list[Any]) -> list[Any]:
    """Return the other tensors of the modules that hold some weights, in no order.

    Buffers that a checkpoint holds, and parameters that something other than these weights' optimizer trains.
    """
    held: dict[int, Any] = {}
    for part in {id(part): part for module in _holders(torch, weights) for part in module.modules()}.values():
        left_out = getattr(part, "_non_persistent_buffers_set", ())
        held.update({id(p): p for p in part.parameters(recurse=False) if p.requires_grad})
        held.update({id(buffer): buffer for name, buffer in part.named_buffers(recurse=False) if name not in left_out})
    ours = {id(weight) for weight in weights}
    return [tensor for number, tensor in held.items() if number not in ours and _is_plain(torch, tensor)]


def _holders(torch: Any, weights: list[Any]) -> list[Any]:
    """Return the modules that hold some of the weights, themselves or in a part of theirs."""
    ours = {id(weight) for weight in weights}
    # By the type and not by isinstance, which asks a lazy object for its class and so makes it load itself.
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    return [module for module in modules if any(id(parameter) in ours for parameter in module.parameters())]


def _is_small(torch: Any, tensor: Any) -> bool:
    return _is_plain(torch, tensor) and 0 < tensor.numel() < SMALL


def _is_plain(torch: Any, tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_quantized


def _rows(torch: Any, tensor: Any) -> list[Any]:
    """Return a tensor's own numbers in one row, of a sparse one values and places; nothing where it has none here."""
    if _is_plain(torch, tensor) and tensor.is_floating_point() and tensor.is_contiguous() and not tensor.is_neg():
        parts = [tensor]  # as nearly all are
    else:
        parts = _parts(torch, tensor)
    rows = [part for part in parts if part.numel() > 0 and part.device.type != "meta"]
    return [row.as_strided((row.numel(),), (1,)) for row in rows]  # a single number may have another stride


def _parts(torch: Any, tensor: Any) -> list[Any]:
    """Return the tensors that hold the numbers of a tensor of any make, contiguous and real."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()  # this process's part of one that is spread over several
    parts = [tensor._values(), tensor._indices()] if tensor.is_sparse else [tensor]
    plain = [part.detach().resolve_conj().resolve_neg() for part in parts]
    return [torch.view_as_real(part).contiguous() if part.is_complex() else part.contiguous() for part in plain]
