"""A line for each step of an optimizer: what its gradients and weights are, chained; through PyTorch's public hooks alone.

Sums of the bits as integers tell at every step, for a few memory reads; every so many steps, and at the end, the weights
are digested whole. On a GPU the sums stay there until several can be fetched at once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import os
import sys
import time
import weakref
from typing import Any

WHOLE_EVERY = 50  # steps
HELD = 32  # sums on a GPU before they are fetched
SMALL = 1 << 14  # numbers; tensors of fewer are summed together
PAUSES = {2: 0.05, 5: 0.15}  # seconds, after which steps, where threads are to be put out of their usual pace


def begin(settings: dict[str, Any], process: Any) -> Chain:
    """Return the observer of this process."""
    return Chain(settings, process)


class Chain:
    """Observes the optimizers of one process.

    Args:
        settings: `steps`, after which the process ends, 0 for never; `pause`, whether to stand still for moments; `kill`,
            the step after which the process is killed.
        process: Its name, and where the lines go.
    """

    def __init__(self, settings: dict[str, Any], process: Any) -> None:
        self._most, self._kill = int(settings.get("steps") or 0), int(settings.get("kill") or 0)
        self._pauses = PAUSES if settings.get("pause") else {}
        self._process = process
        self._forget()
        process.on_fork(self._forget)
        atexit.register(self._at_exit)

    def _forget(self) -> None:
        """Begin anew: in a fork nothing has been observed yet."""
        self._file: Any = None
        self._held: list[list[Any]] = []
        self._optimizers: list[Any] = []
        self._step, self._head = 0, b""

    def attach(self, torch: Any) -> None:
        """Begin to observe, once torch has been imported."""
        self._torch = torch
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._after)

    def _after(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        self._step += 1
        weights = _parameters(optimizer)
        gradients = sum_of(self._torch, [p.grad for p in weights if p.grad is not None])  # still there, of closures too
        last = self._step == self._most
        whole = digest_of(self._torch, weights) if self._step % WHOLE_EVERY == 0 else None
        self._held.append([self._step, self._number(optimizer), gradients, sum_of(self._torch, weights), whole])
        waits = any(not isinstance(value, int) for value in self._held[-1][2:4])
        if not waits or last or self._step == self._kill or len(self._held) >= HELD:
            self._write()
        if self._step in self._pauses:
            time.sleep(self._pauses[self._step])
        if self._step == self._kill:
            os.kill(os.getpid(), 9)
        if last:
            self._write_end()
            self._end()

    def _number(self, optimizer: Any) -> int:
        """Return an optimizer's number in the order of first steps."""
        known = [reference() for reference in self._optimizers]
        for number, other in enumerate(known):
            if other is optimizer:
                return number
        self._optimizers.append(weakref.ref(optimizer))
        return len(known)

    def _write(self) -> None:
        """Write the steps that are held back, each chained to those before it."""
        if self._file is None:
            self._file = self._process.open("chain")
        held, self._held = self._held, []
        for step, number, gradients, weights, whole in held:
            entry = f"{step} {number} {_total(gradients):016x} {_total(weights):016x} {whole or '-'}"
            self._head = hashlib.sha256(self._head + entry.encode()).digest()
            self._file.write(f"{time.monotonic_ns()} {entry} {self._head.hex()[:16]}\n")
        self._file.flush()

    def _at_exit(self) -> None:
        """Write what is left, where a program ends by itself."""
        if not self._step:
            return
        self._write()
        self._write_end()

    def _write_end(self) -> None:
        """Write what is left at the end: the weights, and what the models hold beside them."""
        gc.collect()  # what is garbage by then would else be seen in one run and not in the other
        weights = [p for reference in self._optimizers if (optimizer := reference()) is not None for p in _parameters(optimizer)]
        digests = sorted(digest_of(self._torch, [tensor]) for tensor in beside(self._torch, weights))
        held = hashlib.sha256("".join(digests).encode()).hexdigest()
        self._file.write(f"{time.monotonic_ns()} end {digest_of(self._torch, weights)} {held}\n")
        self._file.flush()

    def _end(self) -> None:
        """End the process, whatever would come next: what it was to show, it has shown."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(0)


def sum_of(torch: Any, tensors: list[Any]) -> Any:
    """Return the sum of all bits of some tensors read as integers, which wraps around; numbers on a GPU are left there."""
    strided, usual = torch.strided, (torch.Tensor, torch.nn.Parameter)
    small: dict[Any, list[Any]] = {}
    flat: list[Any] = []
    with torch.no_grad():
        for tensor in tensors:
            if type(tensor) in usual and tensor.layout is strided and 0 < tensor.numel() < SMALL:
                small.setdefault((tensor.dtype, tensor.device), []).append(tensor)
            else:
                flat += _rows(torch, tensor)
        rows = [torch._utils._flatten_dense_tensors(group) for group in small.values()]  # in one call: they are many
        flat += [row.resolve_conj().resolve_neg() for row in rows]
        sums = [_bits(torch, tensor) for tensor in flat if tensor.device.type != "meta"]
    return sum(int(total) for total in sums) if all(total.device.type == "cpu" for total in sums) else sums


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


def _total(sums: Any) -> int:
    """Return a sum as it stands in a line: 64 bits."""
    return (sums if isinstance(sums, int) else sum(int(total) for total in sums)) & (1 << 64) - 1


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def beside(torch: Any, weights: list[Any]) -> list[Any]:
    """Return what the modules that hold some weights hold beside them, in no order.

    Buffers that a checkpoint holds, and parameters that something other than these weights' optimizer trains.
    """
    ours = {id(weight) for weight in weights}
    modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    holders = [module for module in modules if any(id(parameter) in ours for parameter in module.parameters())]
    held: dict[int, Any] = {}
    for part in {id(part): part for module in holders for part in module.modules()}.values():
        left_out = getattr(part, "_non_persistent_buffers_set", ())
        held.update({id(p): p for p in part.parameters(recurse=False) if p.requires_grad})
        held.update({id(buffer): buffer for name, buffer in part.named_buffers(recurse=False) if name not in left_out})
    return [tensor for number, tensor in held.items() if number not in ours and _is_plain(torch, tensor)]


def _is_plain(torch: Any, tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_quantized


def _rows(torch: Any, tensor: Any) -> list[Any]:
    """Return a tensor's own numbers in one row, of a sparse one values and places; nothing where it has none here."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()  # this process's part of one that is spread over several
    parts = [tensor._values(), tensor._indices()] if tensor.is_sparse else [tensor]
    plain = [part.detach().resolve_conj().resolve_neg() for part in parts]
    rows = [torch.view_as_real(part) if part.is_complex() else part for part in plain]
    rows = [row.contiguous() for row in rows if row.numel() > 0 and row.device.type != "meta"]
    return [row.as_strided((row.numel(),), (1,)) for row in rows]  # a single number may have another stride
