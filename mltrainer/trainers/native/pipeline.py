"""A model cut into stages, one for each process, through which the micro-batches of a step flow (pipeline parallelism).

Source: Huang et al., 2019, arXiv 1811.06965; forward and backward passes alternate as in Narayanan et al., 2019 (1F1B). A stage
is a run of entries of one numbered container. Each process runs the user's own forward code: entries before its stage are passed
over, what its first entry is given comes from the process before, and where the next stage would begin, its part ends. No sum
crosses processes within a micro-batch, so that gradients have the bits of one process, whatever the number of stages.

torch's own `torch.distributed.pipelining` adds each micro-batch's gradients to those before it, and passes on no generators: with
dropout, the weights would depend on the number of stages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import TreeSpec, register_dataclass, tree_flatten, tree_unflatten

from mltrainer.checkpointing.weights import raw_bytes
from mltrainer.errors import InputError, MltrainerError
from mltrainer.trainers.native.exchange import others_may_be_lost
from mltrainer.trainers.native.partition import Partition
from mltrainer.trainers.native.ranks import Ranks

WHERE = "launch.parallel: pipeline"
MEND = "launch.parallel: fsdp, which needs less of the model, or zero1, which needs nothing of it"
T = TypeVar("T")
Tensors = list[Tensor | None]
PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.Size, torch.dtype, torch.device)


@dataclass(frozen=True)
class Stages:
    """The stages of a model.

    Attributes:
        container: The name of the container whose entries they are; empty for the model itself.
        entries: Its entries by name, in the order in which they are called.
        first: The number of each stage's first entry.
        owners: The stage of each parameter that one stage alone uses, by name.
    """

    container: str
    entries: dict[str, nn.Module]
    first: list[int]
    owners: dict[str, int]

    def of(self, stage: int) -> range:
        """Return the numbers of a stage's entries."""
        return range(self.first[stage], [*self.first, len(self.entries)][stage + 1])


def stages_of(model: nn.Module, size: int) -> Stages:
    """Return the stages in which the process that has most has least.

    Raises:
        InputError: No container has as many entries, or a norm outside of it keeps running statistics.
    """
    found = [_stages(model, name, module, size) for name, module in model.named_modules() if _is_called_in_order(module, size)]
    if not found:
        counts = [f"{name or 'the model'} with {len(module)}" for name, module in model.named_modules() if _is_numbered(module)]
        there = f"there is {', '.join(counts[:3])}" if counts else "there is none"
        what = f"a model is cut between the entries of an nn.Sequential or nn.ModuleList of {size} or more; {there}"
        raise InputError(what, where=WHERE, mend=f"fewer processes, or {MEND}")
    best = min(found, key=lambda stages: (bool(_norms_outside(model, stages)), _largest(model, stages)))
    for name in _norms_outside(model, best):
        what = f"{name} keeps running statistics and lies outside of {best.container or 'the model'}, or in several of its stages"
        raise InputError(what, where=WHERE, mend=MEND)
    return best


def _norms_outside(model: nn.Module, stages: Stages) -> list[str]:
    """Return the names of the norms with running statistics that do not belong to one stage alone."""
    users = _users(stages, model.named_modules(remove_duplicate=False))
    norms = {name: m for name, m in model.named_modules() if isinstance(m, _BatchNorm) and m.track_running_stats}
    return [name for name, norm in norms.items() if None in users[id(norm)] or len(users[id(norm)]) > 1]


def _is_numbered(module: nn.Module) -> bool:
    return isinstance(module, (nn.Sequential, nn.ModuleList))


def _is_called_in_order(module: nn.Module, size: int) -> bool:
    """Return True for a container of enough entries, each of which can be called and stands there once."""
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
    """Return the stages in which parameters or modules are, by their identity; None for a place outside of the container."""
    names = [*stages.entries]
    stage_of = {names[number]: stage for stage in range(len(stages.first)) for number in stages.of(stage)}
    users: dict[int, set[int | None]] = {}
    for name, one in named:
        entry = next((entry for entry in names if f"{name}.".startswith(f"{entry}.")), None)
        users.setdefault(id(one), set()).add(None if entry is None else stage_of[entry])
    return users


def _largest(model: nn.Module, stages: Stages) -> int:
    """Return the count of numbers in the process that has most; what belongs to no stage, every process has."""
    counts = dict.fromkeys(range(len(stages.first)), 0)
    outside = 0
    for name, p in model.named_parameters():
        if name in stages.owners:
            counts[stages.owners[name]] += p.numel()
        else:
            outside += p.numel()
    return outside + max(counts.values())


class _SentOn(BaseException):  # no error, and no `except Exception` of the user's code is to catch it
    """The rest of a forward pass is the next stage's."""


@dataclass
class Pass:
    """A micro-batch between its forward and its backward pass in this process.

    Attributes:
        sent: The tensors that went to the next stage and ask for a gradient.
        gradients: Of the tensors that came from the stage before and do; None where none has come yet.
    """

    sent: list[Tensor] = field(default_factory=list)
    gradients: Tensors = field(default_factory=list)

    def asking(self, tensor: Tensor) -> Tensor:
        """Return a tensor from the stage before so that its gradient is kept here."""
        # A copy: the entry may change it in place, which torch refuses of a tensor that no operation has made.
        copied = tensor.requires_grad_().clone()
        place = len(self.gradients)
        self.gradients.append(None)
        # Not the leaf's: torch lays that one out like its tensor, and with other strides a product may be rounded otherwise.
        copied.register_hook(functools.partial(self._keep, place))
        return copied

    def _keep(self, place: int, gradient: Tensor) -> None:
        self.gradients[place] = gradient


@dataclass(frozen=True)
class Given:
    """An output of an entry that is one of its inputs, such as a cache.

    Attributes:
        place: Its number among these.
    """

    place: int


@dataclass(frozen=True)
class Form:
    """The outputs of an entry without their numbers.

    Attributes:
        spec: Their structure.
        leaves: Of a tensor an empty one of its type.
    """

    spec: TreeSpec
    leaves: list[Any]


def _form(name: str, outputs: Any, inputs: Any) -> Form:
    """Return the form of an entry's outputs.

    Raises:
        InputError: Something in them is no tensor, and may be another one at the next call.
    """
    places = {id(leaf): place for place, leaf in enumerate(_flattened(inputs)[0])}
    leaves, spec = _flattened(outputs)
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            found.append(torch.empty(0, dtype=leaf.dtype))
        elif not isinstance(leaf, PLAIN) and id(leaf) not in places:
            what = f"{name} hands on a {type(leaf).__name__}, of which it is not known what the next stage needs"
            raise InputError(what, where=WHERE, mend=f"tuples, lists, dicts or dataclasses of tensors; or {MEND}")
        else:
            found.append(leaf if isinstance(leaf, PLAIN) else Given(places[id(leaf)]))
    return Form(spec, found)


def _flattened(values: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of nested values and their structure; a dataclass with tensors is no leaf."""
    leaves, spec = tree_flatten(values)
    kinds = {
        type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and _has_tensors(leaf)
    }
    for kind in kinds:
        register_dataclass(kind)
    return _flattened(values) if kinds else (leaves, spec)


def _has_tensors(value: Any) -> bool:
    fields = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return any(isinstance(leaf, Tensor) for leaf in _flattened(fields)[0])


class Pipeline:
    """The part of a model that this process computes.

    Args:
        model: On its device.
        ranks: The processes, one for each stage.

    Attributes:
        partition: The parameters that this process updates; set by whoever makes it.
        homes: The rank that gives each trained parameter's gradient, by name, once `prove` has found it.
        is_split: Whether parameters of other stages are let go of.

    Raises:
        InputError: The model has no stages.
    """

    partition: Partition

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self._model, self._ranks = model, ranks
        self.stages = stages_of(model, ranks.size)
        own = self.stages.of(ranks.rank)
        self._first, self._end, self._is_last = own.start, own.stop, ranks.rank == ranks.size - 1
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._elsewhere = {n: p for n, p in self._trained.items() if self.stages.owners.get(n, ranks.rank) != ranks.rank}
        self._layouts: dict[str, Tensor] = {}
        self._mail = Mail()
        self._outputs: list[Form] = []
        self._lent: dict[tuple[int, int], list[str]] = {}
        self._pass, self._next = Pass(), 0
        self.homes: dict[str, int] = {}
        self.is_split = False
        self._proven_for: set[str] | None = None

    @property
    def is_proven(self) -> bool:
        """Whether `prove` was called for the parameters that are trained now: some may be held for a while."""
        return self._proven_for == self._asking()

    def _asking(self) -> set[str]:
        return {name for name, p in self._trained.items() if p.requires_grad}

    @property
    def norms(self) -> list[nn.Module]:
        """The modules of this process's stage, whose running statistics it alone changes."""
        own = [*self.stages.entries.values()][self._first : self._end]
        return [module for entry in own for module in entry.modules()]

    # --- between steps ---

    def split(self) -> None:
        """Let go of the large parameters of other stages."""
        if self.is_split:
            return
        self.is_split = True
        for name in self.partition.cut:
            if (p := self._elsewhere.get(name)) is not None:
                self._layouts[name] = p.detach().to("meta")
                p.data = torch.empty(0, dtype=p.dtype, device=p.device)

    def gather(self) -> None:
        """Make all parameters whole, as evaluations, checkpoints and signals read them."""
        if not self.is_split:
            return
        self.is_split = False
        for name, layout in self._layouts.items():
            p = self._elsewhere[name]
            p.data = torch.empty_like(layout, device=p.device)
        self.partition.gather()

    # --- a step ---

    @property
    def ahead(self) -> int:
        """The number of forward passes that this process makes before its first backward pass."""
        return self._ranks.size - 1 - self._ranks.rank

    def forward(self, compute: Callable[[], T]) -> tuple[Pass, T | None]:
        """Go forward through this process's part of a micro-batch.

        Args:
            compute: The forward pass of the whole model, and the loss.

        Returns:
            What the backward pass needs, and what `compute` returned: None but in the last stage.

        Raises:
            InputError: The model does not call its entries once each, in their order.
        """
        self._pass, self._next = Pass(), 0
        # With gradients before the stage too, whose graph nobody keeps: a task may ask whether it is trained.
        with self._routed(self._called), _explained():
            try:
                found = compute()
            except _SentOn:
                return self._pass, None
        self._require_called(len(self.stages.entries))
        if not self._is_last:
            what = f"the model goes on where the stage that ends before {[*self.stages.entries][self._end]} raises its end"
            raise InputError(what, where=WHERE, mend=f"name the exceptions of each `except` around the blocks; or {MEND}")
        return self._pass, found

    def backward(self, passed: Pass, objective: Tensor | None) -> None:
        """Go backward through this process's part of a micro-batch; leave the gradients in the parameters.

        Args:
            passed: As `forward` returned it.
            objective: What is differentiated; None but in the last stage.
        """
        rank = self._ranks.rank
        if objective is not None:
            objective.backward()
        elif passed.sent:
            given, _ = self._mail.receive(rank + 1)
            reached = [(tensor, gradient) for tensor, gradient in zip(passed.sent, given, strict=True) if gradient is not None]
            if reached:
                torch.autograd.backward([tensor for tensor, _ in reached], [gradient for _, gradient in reached])
        if passed.gradients:
            self._mail.send(rank - 1, passed.gradients)
        self._join_lent()

    def own_gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the parameters whose home is this process, by name, and leave none behind.

        Raises:
            InputError: Another parameter has got one, which it did not get at first.
        """
        found = {}
        for name, p in self._trained.items():
            if self.homes[name] == self._ranks.rank:
                found[name] = torch.zeros_like(p) if p.grad is None else _dense(p.grad)
            elif p.grad is not None:
                raise InputError(
                    f"{name} has a gradient in two stages, and had none in one of them at first", where=WHERE, mend=MEND
                )
            p.grad = None
        return found

    def end(self) -> None:
        """End a step: wait until others have what was sent to them."""
        self._mail.flush()

    # --- an entry ---

    @contextlib.contextmanager
    def _routed(self, route: Callable[..., Any]) -> Iterator[None]:
        """Have a function called in place of each entry's forward pass, with its number and that."""
        entries = [*self.stages.entries.values()]
        own = [vars(entry).get("forward") for entry in entries]  # a module may have been given another one than its class's
        for number, entry in enumerate(entries):
            entry.forward = functools.partial(route, number, entry.forward)
        try:
            yield
        finally:
            for entry, forward in zip(entries, own, strict=True):
                if forward is None:
                    del entry.forward
                else:
                    entry.forward = forward

    def _called(self, number: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._require_called(number)
        self._next += 1
        if number == self._end:
            self._send_on(args, kwargs)
            raise _SentOn
        if number < self._first:
            return self._passed_over(number, args, kwargs)
        if number == self._first and number > 0:
            args, kwargs = self._take_up(args, kwargs)
        outputs = forward(*args, **kwargs)
        self._require_same_form(number, _form([*self.stages.entries][number], outputs, (args, kwargs)))
        return outputs

    def _require_same_form(self, number: int, found: Form) -> None:
        """Refuse outputs whose structure or numbers that are no tensors change: other stages have those that were noted.

        Raises:
            InputError: With the entry's name.
        """
        noted = self._outputs[number]
        # By their text, in which a number that is none is like itself.
        if found.spec != noted.spec or repr(found.leaves) != repr(noted.leaves):
            name = [*self.stages.entries][number]
            what = f"{name} hands on other values than tensors, and not the same for each micro-batch"
            raise InputError(what, where=WHERE, mend=f"tensors; or {MEND}")

    def _require_called(self, number: int) -> None:
        """Refuse that an entry is called, or the forward pass over, before all entries before it were called.

        Raises:
            InputError: With the names.
        """
        if number != self._next:
            names = [*self.stages.entries, "the end"]
            what = f"the model comes to {names[number]} where {names[self._next]} was expected: stages are called once, in order"
            raise InputError(what, where=WHERE, mend=MEND)

    def _passed_over(self, number: int, args: Any, kwargs: Any) -> Any:
        """Return something in the form of an entry's outputs: nobody reads it, as what is read comes from the stage before.

        Raises:
            InputError: The entry is given no tensor.
        """
        form, inputs = self._outputs[number], _flattened((args, kwargs))[0]
        tensors = [leaf for leaf in inputs if isinstance(leaf, Tensor)]
        if not tensors:
            what = f"{[*self.stages.entries][number]} is given no tensor that can be found"
            raise InputError(what, where=WHERE, mend=f"hand on tuples, lists, dicts or dataclasses of tensors; or {MEND}")
        return tree_unflatten([_stand_in(leaf, inputs, tensors) for leaf in form.leaves], form.spec)

    def _send_on(self, args: Any, kwargs: Any) -> None:
        """Send what the next stage's first entry is given, and where the generators stand."""
        leaves = _flattened((args, kwargs))[0]
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        # One that is given twice has one gradient, whose summands are added in the order of one process.
        once = {id(leaves[place]): leaves[place] for place in places}
        numbers = {key: number for number, key in enumerate(once)}
        asking = [tensor.requires_grad for tensor in once.values()]
        self._pass.sent = [tensor for tensor in once.values() if tensor.requires_grad]
        told = (len(leaves), {place: numbers[id(leaves[place])] for place in places}, asking, _generators())
        self._mail.send(self._ranks.rank + 1, [tensor.detach() for tensor in once.values()], told)

    def _take_up(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the arguments of this stage's first entry, with the tensors from the stage before in their places.

        Raises:
            InputError: It is of another form there.
        """
        leaves, spec = _flattened((args, kwargs))
        tensors, (count, places, asking, generators) = self._mail.receive(self._ranks.rank - 1)
        if count != len(leaves):
            name = [*self.stages.entries][self._first]
            what = f"{name} is given {len(leaves)} values here and {count} where the entry before it was computed"
            raise InputError(what, where=WHERE, mend=MEND)
        taken = [
            self._pass.asking(tensor) if asks and tensor is not None else tensor
            for tensor, asks in zip(tensors, asking, strict=True)
        ]
        for place, number in places.items():
            leaves[place] = taken[number]
        _set_generators(generators)
        found: tuple[Any, Any] = tree_unflatten(leaves, spec)
        return found

    # --- what two stages use ---

    def _join_lent(self) -> None:
        """Add the gradients that a later stage has of parameters whose home is an earlier one, such as tied weights.

        Two numbers have one sum in either order.
        """
        for (home, lender), names in self._lent.items():
            if self._ranks.rank == lender:
                self._mail.send(home, [self._taken_away(name) for name in names])
            if self._ranks.rank == home:
                for name, gradient in zip(names, self._mail.receive(lender)[0], strict=True):
                    p = self._trained[name]
                    if gradient is not None:
                        p.grad = gradient if p.grad is None else _dense(p.grad) + gradient

    def _taken_away(self, name: str) -> Tensor | None:
        p = self._trained[name]
        gradient, p.grad = p.grad, None
        return None if gradient is None else _dense(gradient)

    # --- the proof ---

    def prove(self, compute: Callable[[], Tensor], other: Callable[[], Tensor]) -> None:
        """Refuse a model that computes something else in stages than whole, and find out which process gives which gradient.

        Args:
            compute: Returns the objective of one micro-batch in training mode, with the same draws each time; changes nothing.
            other: That of another micro-batch.

        Raises:
            InputError: In all processes, with what differs.
        """
        with self._without_zeros():
            different = self._faults(compute, other)
        self._proven_for = self._asking()
        if different:
            raise _computes_something_else(different[0])

    @contextlib.contextmanager
    def _without_zeros(self) -> Iterator[None]:
        """Have small numbers in parameters that are zero: what is multiplied by them differs only once they are trained."""
        zeros = {name: p.detach().clone() for name, p in self._trained.items() if not p.any()}
        generator = torch.Generator().manual_seed(0)
        for name in zeros:
            p = self._trained[name]
            p.data.copy_(0.01 * torch.rand(p.shape, generator=generator))
        try:
            yield
        finally:
            for name, zero in zeros.items():
                if (p := self._trained[name]).shape == zero.shape:  # else it was let go of
                    p.data.copy_(zero)

    def _faults(self, compute: Callable[[], Tensor], other: Callable[[], Tensor]) -> list[str]:
        """Return the differences that all processes have found."""
        expected, objective = self._whole(compute)
        # Of another one: what stays behind here, such as a number in an attribute, is not to be what the stages would compute.
        self._note(other)
        self.split()
        passed, found = self.forward(compute)
        if found is not None and found.shape != objective.shape:
            raise _computes_something_else("its loss")
        self._lent = {}
        with _differentiated():
            self.backward(passed, found)
        self.end()
        faults = self._agree_on_homes()
        self._join_lent()
        self.end()
        if found is not None and not _same(found.detach(), objective):
            faults.append("its loss")
        gradients = {name: p.grad for name, p in self._trained.items() if self.homes[name] == self._ranks.rank}
        faults += [f"the gradient of {name}" for name, g in gradients.items() if not _same_gradient(expected[name], g)]
        for p in self._trained.values():
            p.grad = None
        return [fault for each in self._ranks.gather(faults) for fault in each]

    def _whole(self, compute: Callable[[], Tensor]) -> tuple[dict[str, Tensor | None], Tensor]:
        """Return the gradients that this process may have to give, and the objective, as one process computes them."""
        objective = compute()
        if objective.requires_grad:
            objective.backward()
        found: dict[str, Tensor | None] = {}
        for name, p in self._trained.items():
            if name not in self._elsewhere:
                found[name] = None if p.grad is None else _dense(p.grad)
            p.grad = None
        return found, objective.detach()

    def _note(self, compute: Callable[[], Tensor]) -> None:
        """Note the forms of the entries' outputs, which the processes after an entry return in its place."""
        self._outputs = []
        with self._routed(self._noted):
            objective = compute()
        if objective.requires_grad:
            objective.backward()  # for what it frees: an attribute may hold the graph
        for p in self._trained.values():
            p.grad = None

    def _noted(self, number: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outputs = forward(*args, **kwargs)
        if number == len(self._outputs):
            self._outputs.append(_form([*self.stages.entries][number], outputs, (args, kwargs)))
        return outputs

    def _agree_on_homes(self) -> list[str]:
        """Find the process that gives each gradient, and another that adds to it; return what cannot be."""
        reached = self._ranks.gather([name for name, p in self._trained.items() if p.grad is not None])
        givers = {name: [rank for rank, names in enumerate(reached) if name in names] for name in self._trained}
        owners = self.stages.owners
        self.homes = {name: owners.get(name, min(ranks, default=0)) for name, ranks in givers.items()}
        faults = [f"{name}, of which {len(ranks)} stages have a gradient" for name, ranks in givers.items() if len(ranks) > 2]
        for name, ranks in givers.items():
            if len(ranks) == 2:
                self._lent.setdefault((ranks[0], ranks[1]), []).append(name)
        return faults


def _computes_something_else(what: str) -> InputError:
    found = f"in stages the model computes something else: {what}, which a value that goes around a stage may change"
    return InputError(found, where=WHERE, mend=MEND)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Add to what the user's code raises that it ran in stages."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, MltrainerError):
            error.add_note(f"with {WHERE} a process computes its own stage alone, and has the matrices of no other; {MEND}")
        raise


@contextlib.contextmanager
def _differentiated() -> Iterator[None]:
    """Refuse a model whose backward pass fails in stages, where it did not whole: as of a value that an earlier pass has left.

    Raises:
        InputError: With torch's own words.
    """
    try:
        yield
    except RuntimeError as error:
        what = f"in stages the model cannot be differentiated: {str(error).partition('.')[0]}"
        raise InputError(what, where=WHERE, mend=MEND) from error


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and raw_bytes(one) == raw_bytes(other)


def _same_gradient(expected: Tensor | None, found: Tensor | None) -> bool:
    """Return True for the same bits; none is the same as zeros, by which it is replaced."""
    if expected is None or found is None:
        return all(gradient is None or not gradient.any() for gradient in (expected, found))
    return _same(expected, _dense(found))


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient


def _stand_in(leaf: Any, inputs: list[Any], tensors: list[Tensor]) -> Any:
    """Return something of the kind of an output: of a tensor one of its type, which the loss may be traced through."""
    if isinstance(leaf, Given):
        return inputs[leaf.place]
    if not isinstance(leaf, Tensor):
        return leaf
    return next((tensor for tensor in tensors if tensor.dtype == leaf.dtype), tensors[0].to(leaf.dtype))


def _generators() -> tuple[Any, ...]:
    """Return the states of the generators of torch, Python and NumPy."""
    return torch.default_generator.get_state().numpy().tobytes(), random.getstate(), np.random.get_state()


def _set_generators(states: tuple[Any, ...]) -> None:
    of_torch, python, numpy = states
    torch.default_generator.set_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
    random.setstate(python)
    np.random.set_state(numpy)


class Mail:
    """Tensors from one process to another, on the CPU; a sender does not wait for the receiver."""

    def __init__(self) -> None:
        self._under_way: list[tuple[dist.Work, Tensor]] = []

    def send(self, to: int, tensors: Sequence[Tensor | None], told: Any = None) -> None:
        """Send tensors, and something that is told with them, to the process of a rank; they may not change until `flush`."""
        forms = [None if tensor is None else (tensor.dtype, tuple(tensor.shape), tensor.stride()) for tensor in tensors]
        # Between the processes of one training, which run the same code: nothing of it was ever in a file.
        head = torch.frombuffer(bytearray(pickle.dumps((forms, told))), dtype=torch.uint8)
        contents = [_memory(tensor) for tensor in tensors if tensor is not None]
        self._under_way = [(work, kept) for work, kept in self._under_way if not work.is_completed()]
        for part in (torch.tensor([len(head)]), head, *(content for content in contents if content.numel())):
            with others_may_be_lost():
                work = dist.isend(part, to)
            assert work is not None
            self._under_way.append((work, part))

    def receive(self, sender: int) -> tuple[Tensors, Any]:
        """Return the next tensors that the process of a rank has sent, and what it told with them."""
        head = self._received(
            torch.empty(int(self._received(torch.empty(1, dtype=torch.int64), sender)), dtype=torch.uint8), sender
        )
        forms, told = pickle.loads(head.numpy().tobytes())  # noqa: S301 - a process of this training sent it
        found: Tensors = []
        for form in forms:
            found.append(None if form is None else self._laid_out(form, sender))
        return found, told

    def _laid_out(self, form: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]], sender: int) -> Tensor:
        """Return a received tensor as it lay in memory there: by the layout a product is computed in one way or another."""
        dtype, shape, stride = form
        room = torch.empty(_span(shape, stride), dtype=dtype)
        if room.numel():
            self._received(room.view(torch.uint8), sender)
        return room.as_strided(shape, stride)

    @staticmethod
    def _received(room: Tensor, sender: int) -> Tensor:
        with others_may_be_lost():
            dist.recv(room, sender)
        return room

    def flush(self) -> None:
        """Wait until all has been received."""
        with others_may_be_lost():
            for work, _ in self._under_way:
                work.wait()
        self._under_way = []


def _memory(tensor: Tensor) -> Tensor:
    """Return the bytes from a tensor's first number to its last, as they lie in memory."""
    tensor = tensor.detach()
    return tensor.as_strided((_span(tensor.shape, tensor.stride()),), (1,)).view(torch.uint8)


def _span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the count of numbers between a tensor's first and its last one, with both."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def in_turn(count: int, ahead: int) -> Iterator[tuple[int | None, int | None]]:
    """Yield the micro-batches of a step in the order in which a stage takes them: one to go forward, one to go back.

    Args:
        count: How many there are.
        ahead: How many a stage goes forward before it goes back: then it holds the activations of as many, and one more.
    """
    for number in range(count + ahead):
        yield number if number < count else None, number - ahead if number >= ahead else None
