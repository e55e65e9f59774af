"""The first number of one step that is not finite: which module and operation gave it, forward or backward, and from what.

A step is taken again under watch. Of each call to torch and each module it is noted whether what it gave is finite; what is not
is followed from where it arose to the loss. So an infinity that is written down and does no harm, such as that of an attention
mask, is no finding. Of the backward pass, each node of the graph is watched likewise.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from mltrainer.tasks.strategy import MicroBatch
from mltrainer.tasks.structures import tensors_in
from mltrainer.tasks.user_code import user_line
from mltrainer.trainers.native.data.addresses import Batch, Step
from mltrainer.trainers.native.objective import buffers_kept
from mltrainer.trainers.native.optimization.precision import autocast, full
from mltrainer.trainers.native.stepping import Stepper

MOST_INPUTS = 4  # of an operation that are told
Found = dict[str, Any]
FAR = 1e6  # chosen by us: so many times the usual size, or 1, no scaled number is


def first_nonfinite(stepper: Stepper, number: int, step: Step, root: Path) -> Found | None:
    """Take a step again as far as its gradients and return the first number that is not finite; None where all are.

    Args:
        stepper: With weights and optimizer as they stood before the step; they stand so afterwards, too.
        number: The step, from 1.
        step: Its samples.
        root: The project's folder, to name the lines of its code.

    Returns:
        As `mltrainer.records.run.Located` holds it.
    """
    ids = step.micro_ids(stepper.config.batch_size)
    with buffers_kept(stepper.model), _uncompiled(stepper):
        for shard, (micro, own) in enumerate(zip(step.micro_batches, ids, strict=True)):
            stepper.clear()
            stepper.objective.seed(number, shard)
            if (found := _of_batch(stepper, micro, own, root)) is not None:
                return {**found, "outlier": outlier(micro, own)}
    return None


def outlier(batch: Batch, ids: np.ndarray) -> Found | None:
    """Return the sample whose numbers reach far beyond those of the others, as `Outlier` holds it; None where none does.

    Args:
        batch: In which the samples are.
        ids: Theirs.
    """
    parts = [(name, one) for name, one in _named(batch) if one.is_floating_point() and one.dim() and 2 < len(one) == len(ids)]
    for name, tensor in parts:
        reach = torch.nan_to_num(tensor.detach().double(), nan=0.0, posinf=0.0, neginf=0.0).abs().flatten(1).amax(1)
        usual, worst = float(reach.median()), int(reach.argmax())
        if float(reach[worst]) > FAR * max(usual, 1.0):
            return {"sample": int(ids[worst]), "tensor": name, "reach": float(reach[worst]), "usual": usual}
    return None


@contextlib.contextmanager
def _uncompiled(stepper: Stepper) -> Iterator[None]:
    """Let a compiled model be computed call by call, and leave no gradient behind."""
    own = vars(stepper.model)
    compiled = {name: own.pop(name) for name in ("forward",) if stepper.config.compile and name in own}
    try:
        yield
    finally:
        own.update(compiled)
        stepper.clear()


def _of_batch(stepper: Stepper, batch: Batch, ids: np.ndarray, root: Path) -> Found | None:
    watcher = Watcher(stepper.model, ids, root)
    watcher.begin(batch)
    with watcher.modules(), autocast(stepper.config), watcher:
        with watcher.part("forward"):
            untouched = stepper.objective.strategies.untouched(batch)
            outputs, targets = stepper.objective.task.forward(stepper.model, batch)
            watcher.claim(outputs)
        with watcher.part("loss"):
            kept = stepper.objective.strategies.kept(full(outputs))
            loss = stepper.objective.task.loss(full(outputs), targets)
            loss, _ = stepper.objective.strategies.join(loss, MicroBatch(untouched, kept, targets, ids))
    if holds(loss) is not None:
        return watcher.origin_of(loss)
    with watcher.backward(loss):
        stepper.scaler.scale(loss).backward()
    return watcher.origin_of_gradient()


# --- what a tensor holds --------------------------------------------------------------------------


def holds(tensor: Tensor) -> str | None:
    """Return `nan`, `inf` or `-inf`, whichever comes first in a tensor; None where every number is finite."""
    values = _values(tensor)
    if values is None or bool(values.isfinite().all()):
        return None
    return str(float(values[~values.isfinite()][0].real))


def _values(tensor: Tensor) -> Tensor | None:
    """Return the numbers of a tensor; None where they are whole or there are none."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return None
    values = tensor.detach()
    return values.coalesce().values() if values.is_sparse else values


def described(tensor: Tensor) -> Found:
    """Return a tensor's shape, type and range; of what is no number, nothing counts."""
    values = _values(tensor)
    lowest, largest = (None, None) if values is None or values.is_complex() else _range(values)
    shape, dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    return {"shape": shape, "dtype": dtype, "lowest": lowest, "largest": largest, "holds": holds(tensor)}


def _range(values: Tensor) -> tuple[float | None, float | None]:
    lowest, largest = (float(end) for end in values.aminmax())
    if not math.isnan(lowest):
        return lowest, largest
    known = values[~values.isnan()]
    return _range(known) if known.numel() else (None, None)


def place_of(tensor: Tensor, ids: np.ndarray) -> Found:
    """Return the index and count of the numbers that are not finite, and the first one's sample if the first dimension tells."""
    values = tensor.detach()
    values = values.to_dense() if values.is_sparse else values
    bad = ~values.isfinite()
    index = [int(i) for i in bad.nonzero()[0]] if bad.dim() else []
    is_by_sample = bool(index) and len(values) == len(ids)
    return {"index": index, "count": int(bad.sum()), "sample": int(ids[index[0]]) if is_by_sample else None}


# --- the watch ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call to torch, or what a module gave.

    Attributes:
        operation: Its name; None where a module gave it by means that are not seen.
        module: The module in which it happened, empty outside of the model.
        kind: The module's class.
        part: "forward" or "loss".
        line: `file:line` in the project, or None.
        inputs: The tensors that it took, as `described`.
    """

    operation: str | None
    module: str
    kind: str
    part: str
    line: str | None
    inputs: list[Found] = field(default_factory=list)

    def found(self, kind: str) -> Found:
        """Return the call's record, of a kind such as `forward`."""
        told = {"operation": self.operation, "module": self.module, "module_kind": self.kind, "part": self.part}
        return {"kind": kind, **told, "line": self.line, "inputs": self.inputs[:MOST_INPUTS]}


@dataclass(frozen=True)
class Origin:
    """Where a number that is not finite arose; `is_meant`: an infinity that was written down as such."""

    order: int
    found: Found
    is_meant: bool = False


class Watcher(TorchFunctionMode):
    """Notes of each call of a step whether what it gave is finite.

    Args:
        model: Its modules are watched in `modules`.
        ids: Of the batch's samples.
        root: The project's folder.
    """

    def __init__(self, model: nn.Module, ids: np.ndarray, root: Path) -> None:
        super().__init__()
        self._model, self._ids, self._root = model, ids, root
        self._inside: list[tuple[str, str]] = []
        self._part, self._is_quiet = "forward", False
        self._origins: list[Origin] = []
        self._origin_of: dict[int, tuple[weakref.ref[Tensor], Origin]] = {}
        self._call_of: dict[Node, Call] = {}
        self._flows: dict[Node, tuple[Found | None, Found | None, list[Found]]] = {}

    def begin(self, batch: Batch) -> None:
        """Note what is not finite before anything is computed: weights, buffers, the batch itself."""
        for name, tensor in [*self._model.named_parameters(), *self._model.named_buffers()]:
            # An infinity in a buffer may be a mask's; in a weight, or as NaN, it can only do harm.
            is_mask = isinstance(tensor, nn.Parameter) is False and not _has_nan([tensor])
            self._note_given("weights", name, tensor, is_meant=is_mask)
        for name, tensor in _named(batch):
            self._note_given("data", name, tensor)

    def _note_given(self, kind: str, name: str, tensor: Tensor, is_meant: bool = False) -> None:
        if holds(tensor) is not None:
            place = place_of(tensor, self._ids if kind == "data" else np.zeros(0))
            self._taint([tensor], self._new({"kind": kind, "tensor": name, **described(tensor), **place}, is_meant))

    # --- forward ---

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Name the part of the task that is being computed."""
        self._part = name
        yield

    @contextlib.contextmanager
    def modules(self) -> Iterator[None]:
        """Watch which module is being computed, and what each gives."""
        hooks = []
        for name, module in self._model.named_modules():
            own = (name, type(module).__name__)
            hooks.append(module.register_forward_pre_hook(lambda _m, _in, own=own: self._inside.append(own)))
            hooks.append(module.register_forward_hook(self._left))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _left(self, module: nn.Module, given: Any, gave: Any) -> None:
        name, kind = self._inside[-1]
        # A hook runs under this mode, unlike the mode's own handler: what judging computes would be noted as the step's.
        self._is_quiet = True
        call = Call(None, name, kind, self._part, None, [described(tensor) for tensor in _numbers(given)])
        self._judge(call, _numbers(given), _numbers(gave))
        self._is_quiet = False
        self._inside.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._is_quiet:
            return func(*args, **kwargs)
        given = _numbers((*args, *kwargs.values()))
        call = self._call(func, given)  # before: what is changed in place has other values afterwards
        gave = func(*args, **kwargs)
        changed = args[0] if call.operation == "setitem" else gave
        self._judge(call, given, _numbers(changed), any(map(_is_infinite, _plain((*args, *kwargs.values())))))
        return gave

    def _call(self, func: Any, given: list[Tensor]) -> Call:
        name, kind = self._inside[-1] if self._inside else ("", "")
        operation = str(getattr(func, "__name__", func)).strip("_")
        if operation == "get":  # an attribute, such as `shape`
            return Call(operation, name, kind, self._part, None)
        return Call(operation, name, kind, self._part, user_line(self._root), [described(tensor) for tensor in given])

    def _judge(self, call: Call, given: list[Tensor], gave: list[Tensor], writes_infinity: bool = False) -> None:
        """Note what a call gave that is not finite: as arisen here, or as come from where its inputs had it from."""
        self._claim(gave, call)
        bad = [tensor for tensor in gave if holds(tensor) is not None and not (call.operation is None and self._known(tensor))]
        if not bad:
            return
        sources = self._sources(call, given)
        is_unlike = _has_nan(bad) and all(origin.is_meant for origin in sources)
        if sources and not is_unlike:
            origin = min(sources, key=lambda one: (one.is_meant, one.order))
        else:
            shown = {**call.found("forward"), **described(bad[0]), **place_of(bad[0], self._ids)}
            origin = self._new(shown, writes_infinity and not _has_nan(bad))
        self._taint(bad, origin)

    def _sources(self, call: Call, given: list[Tensor]) -> list[Origin]:
        """Return the origins of a call's inputs that are not finite.

        What no call gave is a NaN that was written into a part of a tensor, by the call that made the newest one, or an
        infinity that was made before the step.
        """
        bad = [(tensor, shown) for tensor, shown in zip(given, call.inputs, strict=False) if shown["holds"] is not None]
        known = [origin for tensor, _ in bad if (origin := self._known(tensor))]
        if known or not bad:
            return known
        has_nan = _has_nan(tensor for tensor, _ in bad)
        if has_nan and self._origins:
            return [self._origins[-1]]
        return [self._new({**call.found("forward"), **bad[0][1]}, is_meant=not has_nan)]

    def _new(self, found: Found, is_meant: bool) -> Origin:
        self._origins.append(Origin(len(self._origins), found, is_meant))
        return self._origins[-1]

    def _known(self, tensor: Tensor) -> Origin | None:
        reference, origin = self._origin_of.get(id(tensor), (None, None))
        # The id alone proves nothing: a tensor that is gone may have had it.
        return origin if reference is not None and reference() is tensor and holds(tensor) is not None else None

    def _taint(self, tensors: Iterable[Tensor], origin: Origin) -> None:
        for tensor in tensors:
            self._origin_of[id(tensor)] = (weakref.ref(tensor), origin)

    def origin_of(self, tensor: Tensor) -> Found | None:
        """Return the origin of a tensor's numbers that are not finite; the newest of all origins where no call shows it."""
        origin = self._known(tensor) or (self._origins[-1] if self._origins else None)
        return origin.found if origin is not None else None

    # --- backward ---

    def claim(self, gave: Any) -> None:
        """Note which nodes of the graph were made in the present part of the task and are no call's or module's."""
        self._claim(_numbers(gave), Call(None, "", "", self._part, None))

    def _claim(self, gave: list[Tensor], call: Call) -> None:
        """Note which nodes of the graph a call made; one of a class of the user's goes by its own name."""
        waiting: list[Node | None] = [tensor.grad_fn for tensor in gave]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in self._call_of:
                is_own = isinstance(node, BackwardCFunction)
                own = replace(call, operation=node.name().removesuffix("Backward"), line=None, inputs=[]) if is_own else call
                self._call_of[node] = own
                waiting += [inner for inner, _ in node.next_functions]

    @contextlib.contextmanager
    def backward(self, loss: Tensor) -> Iterator[None]:
        """Watch the backward pass of a loss."""
        self.claim(loss)
        hooks = [node.register_hook(self._flowed(node)) for node in self._call_of if node.next_functions]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _flowed(self, node: Node) -> Any:
        def note(gave: Any, given: Any) -> None:
            bad_in, bad_out = (next((t for t in _numbers(side) if holds(t) is not None), None) for side in (given, gave))
            if bad_in is not None or bad_out is not None:
                shown = None if bad_out is None else {**described(bad_out), **place_of(bad_out, self._ids)}
                incoming = [described(tensor) for tensor in _numbers(given)]
                self._flows[node] = (None if bad_in is None else described(bad_in), shown, incoming)

        return note

    def origin_of_gradient(self) -> Found | None:
        """Return the origin of a gradient that is not finite; None if the gradients of all parameters and their norm are."""
        gradients = {name: p.grad for name, p in self._model.named_parameters() if p.grad is not None}
        bad = {name: gradient for name, gradient in gradients.items() if holds(gradient) is not None}
        if not bad:
            return _of_norm(gradients)
        first = [node for node, (given, gave, _) in self._flows.items() if given is None and gave is not None]
        node = next((node for node in first if self._reaches_parameter(node)), None)
        if node is None:
            name, gradient = next(iter(bad.items()))
            return {"kind": "gradient", "tensor": name, **described(gradient), **place_of(gradient, np.zeros(0))}
        _, gave, incoming = self._flows[node]
        return {**self._call_of[node].found("backward"), "node": node.name(), **(gave or {}), "incoming": incoming[:MOST_INPUTS]}

    def _reaches_parameter(self, start: Node) -> bool:
        """Return True if numbers that are not finite flow from a node to a parameter."""
        waiting, seen = [start], {start}
        while waiting:
            for node, _ in waiting.pop().next_functions:
                leaf = getattr(node, "variable", None)
                if leaf is not None and leaf.grad is not None and holds(leaf.grad) is not None:
                    return True
                if node is not None and node in self._flows and node not in seen:
                    seen.add(node)
                    waiting.append(node)
        return False


def _of_norm(gradients: Mapping[str, Tensor]) -> Found | None:
    """Return the parameter with the largest gradient where the norm of all together is beyond the numbers' range."""
    norms = {name: float(torch.linalg.vector_norm(gradient)) for name, gradient in gradients.items()}
    if not norms or math.isfinite(float(torch.linalg.vector_norm(torch.tensor([*norms.values()])))):
        return None
    name = max(norms, key=lambda one: norms[one])
    return {"kind": "norm", "tensor": name, **described(gradients[name])}


# --- structures -----------------------------------------------------------------------------------


def _numbers(value: Any) -> list[Tensor]:
    return [tensor for tensor in tensors_in(value) if tensor.is_floating_point() or tensor.is_complex()]


def _has_nan(tensors: Iterable[Tensor]) -> bool:
    return any(bool(values.isnan().any()) for tensor in tensors if (values := _values(tensor)) is not None)


def _plain(value: Any) -> Iterator[Any]:
    """Yield the leaves of a call's arguments, out of tuples and lists."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _plain(part)
    else:
        yield value


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _named(batch: Batch) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a batch, each with its part's name: its key, else "inputs" with a number, or "targets"."""
    last = len(batch) - 1
    names = {place: "targets" if place == last else "inputs" if last == 1 else f"inputs {place + 1}" for place in range(last + 1)}
    parts = batch.items() if isinstance(batch, dict) else ((names[place], part) for place, part in enumerate(batch))
    for name, part in parts:
        for tensor in tensors_in(part):
            yield str(name), tensor
