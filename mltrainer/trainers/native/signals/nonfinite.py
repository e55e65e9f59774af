"""The first number of a step that is not finite: the module and operation that gave it, forward or backward, and its inputs.

A step is taken again under watch. Each output of a call to torch or of a module is checked for numbers that are not finite; such
a number is followed from its origin to the loss. So an infinity that is written on purpose and does no harm, such as that of an
attention mask, is not reported. In the backward pass, each node of the graph is watched in the same way.
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

MOST_INPUTS = 4  # inputs of an operation that are reported
Found = dict[str, Any]
FAR = 1e6  # chosen by us: times the usual size (or 1) that no scaled number reaches


def first_nonfinite(stepper: Stepper, number: int, step: Step, root: Path) -> Found | None:
    """Take a step again up to its gradients and return the first number that is not finite; None if all are finite.

    Args:
        stepper: The stepper, with weights and optimizer as before the step; they are not changed.
        number: The step, from 1.
        step: The step's samples.
        root: The project's folder, for the places of its code.

    Returns:
        The record, in the form of `mltrainer.records.run.Located`.
    """
    with buffers_kept(stepper.model), _uncompiled(stepper):
        for shard, (micro, own) in enumerate(zip(step.micro_batches, step.micro_ids, strict=True)):
            stepper.clear()
            stepper.objective.seed(number, shard)
            if (found := _of_batch(stepper, micro, own, root)) is not None:
                return {**found, "outlier": outlier(micro, own)}
    return None


def outlier(batch: Batch, ids: np.ndarray) -> Found | None:
    """Return the sample whose numbers are far larger than the others', in the form of `Outlier`; None if there is none.

    Args:
        batch: The batch with the samples.
        ids: The samples' ids.
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
    """Compute a compiled model call by call for a block, and clear the gradients afterwards."""
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


# --- a tensor's content ---------------------------------------------------------------------------


def holds(tensor: Tensor) -> str | None:
    """Return the first of `nan`, `inf` and `-inf` in a tensor; None if every number is finite."""
    values = _values(tensor)
    if values is None or bool(values.isfinite().all()):
        return None
    return str(float(values[~values.isfinite()][0].real))


def _values(tensor: Tensor) -> Tensor | None:
    """Return the numbers of a tensor; None if they are integers or there are none."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return None
    values = tensor.detach()
    return values.coalesce().values() if values.is_sparse else values


def described(tensor: Tensor) -> Found:
    """Return a tensor's shape, type, range (without NaN), and first number that is not finite."""
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
    """Return the index and count of the numbers that are not finite, and the first one's sample if rows are samples."""
    values = tensor.detach()
    values = values.to_dense() if values.is_sparse else values
    bad = ~values.isfinite()
    index = [int(i) for i in bad.nonzero()[0]] if bad.dim() else []
    is_by_sample = bool(index) and len(values) == len(ids)
    return {"index": index, "count": int(bad.sum()), "sample": int(ids[index[0]]) if is_by_sample else None}


# --- the watch ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call to torch, or a module's output.

    Attributes:
        operation: The operation's name; None for a module's output from unseen operations.
        module: The name of the module around the call, empty outside of the model.
        kind: The module's class.
        part: The part of the task: "forward" or "loss".
        line: The call's place in the project, `file:line`, or None.
        inputs: The call's tensors, in the form of `described`.
    """

    operation: str | None
    module: str
    kind: str
    part: str
    line: str | None
    inputs: list[Found] = field(default_factory=list)

    def found(self, kind: str) -> Found:
        """Return the call's record, with a kind such as `forward`."""
        place = {"operation": self.operation, "module": self.module, "module_kind": self.kind, "part": self.part}
        return {"kind": kind, **place, "line": self.line, "inputs": self.inputs[:MOST_INPUTS]}


@dataclass(frozen=True)
class Origin:
    """The origin of a number that is not finite; `is_meant`: an infinity that was written on purpose."""

    order: int
    found: Found
    is_meant: bool = False


class Watcher(TorchFunctionMode):
    """Checks each call of a step for outputs that are not finite.

    Args:
        model: The model; its modules are watched in `modules`.
        ids: The ids of the batch's samples.
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
        """Record numbers that are not finite before the computation: in weights, buffers, and the batch itself."""
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
        """Name the part of the task that is computed in a block."""
        self._part = name
        yield

    @contextlib.contextmanager
    def modules(self) -> Iterator[None]:
        """Watch in a block which module is computed, and each module's outputs."""
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
        # A hook runs under this mode, unlike the mode's own handler: the check's computations would be recorded as the step's.
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
        call = self._call(func, given)  # before the call, which may change its inputs in place
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
        """Record a call's outputs that are not finite: with their origin here, or with that of the inputs they come from."""
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

        If no call gave such an input, it is a NaN that the call with the newest origin wrote into a part of a tensor, or an
        infinity from before the step.
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
        # The id alone proves nothing: a deleted tensor may have had it.
        return origin if reference is not None and reference() is tensor and holds(tensor) is not None else None

    def _taint(self, tensors: Iterable[Tensor], origin: Origin) -> None:
        for tensor in tensors:
            self._origin_of[id(tensor)] = (weakref.ref(tensor), origin)

    def origin_of(self, tensor: Tensor) -> Found | None:
        """Return the origin of a tensor's numbers that are not finite; the newest of all origins if no call shows it."""
        origin = self._known(tensor) or (self._origins[-1] if self._origins else None)
        return origin.found if origin is not None else None

    # --- backward ---

    def claim(self, gave: Any) -> None:
        """Assign the graph's nodes from the present part of the task that belong to no call or module."""
        self._claim(_numbers(gave), Call(None, "", "", self._part, None))

    def _claim(self, gave: list[Tensor], call: Call) -> None:
        """Assign the graph's nodes to the call that made them; a node of a user's own autograd function keeps its own name."""
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
        """Return the origin of a gradient that is not finite; None if all parameters' gradients and their norm are finite."""
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
    """Return the parameter with the largest gradient if the norm of all together is beyond the numbers' range."""
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
    """Yield the leaves of a call's arguments, from within tuples and lists."""
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
