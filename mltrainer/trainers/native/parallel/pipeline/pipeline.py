"""One process's stage of a model: its part of each micro-batch, and the proof that all stages together are the model."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_unflatten

from mltrainer.checkpointing.weights import raw_bytes
from mltrainer.errors import InputError
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.objective import Objective, buffers_kept
from mltrainer.trainers.native.optimization.gradients import dense, is_measured_by_rows
from mltrainer.trainers.native.parallel.parallelism import noted
from mltrainer.trainers.native.parallel.partition import Owned, Partition
from mltrainer.trainers.native.parallel.pipeline.cuts import MEND, WHERE, stages_of
from mltrainer.trainers.native.parallel.pipeline.forms import Form, flattened, form_of, stand_in
from mltrainer.trainers.native.parallel.pipeline.mail import Mail
from mltrainer.trainers.native.parallel.zero1 import Zero1
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.shards import TreeSum

T = TypeVar("T")
STAGED = f"with {WHERE} a process computes its own stage alone, and has the matrices of no other; {MEND}"


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
    gradients: list[Tensor | None] = field(default_factory=list)

    def asking(self, tensor: Tensor) -> Tensor:
        """Return a tensor from the stage before so that its gradient is kept here."""
        # A copy: the entry may change it in place, which torch refuses of a tensor that no operation has made.
        copied = tensor.requires_grad_().clone()
        place = len(self.gradients)
        self.gradients.append(None)
        # Not the leaf's: torch lays that one out like its tensor, and with other strides a product may be rounded otherwise.
        copied.register_hook(partial(self._keep, place))
        return copied

    def _keep(self, place: int, gradient: Tensor) -> None:
        self.gradients[place] = gradient


class Pipeline(Zero1):
    """The part of a model that this process computes, where steps are not taken with whole parameters.

    Args:
        model: The model, on its device.
        ranks: The processes, one for each stage.

    Attributes:
        homes: The rank that gives each trained parameter's gradient, by name, once the stages are proven.

    Raises:
        InputError: The model has no stages.
    """

    splits = True

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.stages = stages_of(model, ranks.size)
        super().__init__(model, ranks)
        own = self.stages.of(ranks.rank)
        self._first, self._end, self._is_last = own.start, own.stop, ranks.rank == ranks.size - 1
        self._elsewhere = {n: p for n, p in self.trained.items() if self.stages.owners.get(n, ranks.rank) != ranks.rank}
        self._layouts: dict[str, Tensor] = {}
        self._mail = Mail()
        self._outputs: list[Form] = []
        self._lent: dict[tuple[int, int], list[str]] = {}
        self._pass, self._next = Pass(), 0
        self.homes: dict[str, int] = {}
        self._proven_for: set[str] | None = None

    def _partition(self) -> Partition:
        owners, size = self.stages.owners, self.ranks.size
        large = {name: p.shape for name, p in self.trained.items() if name in owners and is_measured_by_rows(p)}
        return Partition(self.ranks, self.trained, {n: Owned(s, s[0], size, owners[n]) for n, s in large.items()})

    def shards(self, count: int, _planned: int) -> Sequence[int]:
        """Return the numbers of all shards, which flow through all processes."""
        return range(count)

    # --- a step ---

    def prepare(self, objective: Objective, number: int, step: Step, whole: bool) -> Step:
        """Let go of other stages' parameters, once stages are proven; or gather them, once these are proven again.

        A step that is one micro-batch is taken whole: stages would wait for each other.

        Raises:
            InputError: The stages compute something else: so did the steps that were taken in them.
        """
        whole = whole or step.count == 1
        if self.is_split if whole else self._proven_for != self._asking():
            self._prove(objective, number, step)
        super().prepare(objective, number, step, whole)
        own = self.ranks.own(step.count, objective.config.accumulate)
        return replace(step, micro_batches=[step.micro_batches[shard] for shard in own], shards=own) if whole else step

    def backward(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Leave the gradients of a step's mean loss in what this process updates; return that loss, with its terms."""
        return (self._accumulate_in_stages if self.is_split else super().backward)(objective, number, step)

    def _accumulate_in_stages(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Add up micro-batches that flow through the processes, each of which has a stage of the model."""
        tree, statistics = TreeSum(), objective.statistics.rows(step.count)
        ids, entries = step.micro_ids(objective.config.batch_size), [*self.stages.entries.values()]
        modules = [module for entry in entries[self._first : self._end] for module in entry.modules()]
        passes: dict[int, tuple[Pass, tuple[Tensor, ...] | None]] = {}
        # As many go ahead as there are stages after this one.
        for ahead, back in in_turn(step.count, self.ranks.size - 1 - self.ranks.rank):
            if ahead is not None:
                objective.seed(number, ahead)
                with objective.statistics.captured(statistics, ahead, modules):
                    passes[ahead] = self._forward(partial(objective.share, step.micro_batches[ahead], ids[ahead]))
            if back is not None:
                passed, shared = passes.pop(back)
                self._backward(passed, None if shared is None else shared[0])
                tree.add([*self._own_gradients().values(), *(() if shared is None else shared[1:])])
        self._mail.flush()
        self._agree_on_types(objective)
        own = tree.total()
        names = [name for name, home in self.homes.items() if home == self.ranks.rank]
        total, weight = own[len(names) :] or objective.no_loss()
        joined = self._joined(dict(zip(names, own, strict=False)), [total, weight, *statistics])
        return self._completed(objective, number, *joined)

    def _joined(self, own: dict[str, Tensor], others: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return a step's gradients, of each what this process updates, and the sums over all processes of other tensors.

        Args:
            own: The gradients whose home is this process, by name.
            others: Loss, weight and the statistics of norms; -0.0, which changes no sum, where another process has them.
        """
        small, parts = self.partition.small, self.partition.own
        sent = [own[n] if n in own else torch.full_like(parts[n], -0.0) for n in small]
        summed = self.ranks.tree_sum([*sent, *others])
        rows = {n: own[n] if n in own else torch.zeros_like(parts[n]) for n in self.partition.cut}
        return self.partition.in_order(rows, dict(zip(small, summed, strict=False))), summed[len(small) :]

    def _asking(self) -> set[str]:
        """Return the names of the parameters that are trained now: some may be held for a while."""
        return {name for name, p in self.trained.items() if p.requires_grad}

    # --- between steps ---

    def _split(self) -> None:
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

    # --- a micro-batch ---

    def _forward(self, compute: Callable[[], T]) -> tuple[Pass, T | None]:
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
        with self._routed(self._called), noted(STAGED):
            try:
                found = compute()
            except _SentOn:
                return self._pass, None
        self._require_called(len(self.stages.entries))
        if not self._is_last:
            what = f"the model goes on where the stage that ends before {self.stages.name(self._end)} raises its end"
            raise InputError(what, where=WHERE, hint=f"name the exceptions of each `except` around the blocks; or {MEND}")
        return self._pass, found

    def _backward(self, passed: Pass, objective: Tensor | None) -> None:
        """Go backward through this process's part of a micro-batch; leave the gradients in the parameters.

        Args:
            passed: As `_forward` returned it.
            objective: What is differentiated; None but in the last stage.
        """
        rank = self.ranks.rank
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

    def _own_gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the parameters whose home is this process, by name, and leave none behind.

        Raises:
            InputError: Another parameter has got one, which it did not get at first.
        """
        found = {}
        for name, p in self.trained.items():
            if self.homes[name] == self.ranks.rank:
                found[name] = torch.zeros_like(p) if p.grad is None else dense(p.grad)
            elif p.grad is not None:
                raise InputError(
                    f"{name} has a gradient in two stages, and had none in one of them at first", where=WHERE, hint=MEND
                )
            p.grad = None
        return found

    # --- an entry ---

    @contextlib.contextmanager
    def _routed(self, route: Callable[..., Any]) -> Iterator[None]:
        """Have a function called in place of each entry's forward pass, with its number and that."""
        entries = [*self.stages.entries.values()]
        own = [vars(entry).get("forward") for entry in entries]  # a module may have been given another one than its class's
        for number, entry in enumerate(entries):
            entry.forward = partial(route, number, entry.forward)
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
        self._require_same_form(number, form_of(self.stages.name(number), outputs, (args, kwargs)))
        return outputs

    def _require_same_form(self, number: int, found: Form) -> None:
        """Refuse outputs whose structure or numbers that are no tensors change: other stages have those that were noted.

        Raises:
            InputError: With the entry's name.
        """
        noted = self._outputs[number]
        # By their text, in which a number that is none is like itself.
        if found.spec != noted.spec or repr(found.leaves) != repr(noted.leaves):
            name = self.stages.name(number)
            what = f"{name} hands on other values than tensors, and not the same for each micro-batch"
            raise InputError(what, where=WHERE, hint=f"tensors; or {MEND}")

    def _require_called(self, number: int) -> None:
        """Refuse that an entry is called, or the forward pass over, before all entries before it were called.

        Raises:
            InputError: With the names.
        """
        if number != self._next:
            names = [*self.stages.entries, "the end"]
            what = f"the model comes to {names[number]} where {names[self._next]} was expected: stages are called once, in order"
            raise InputError(what, where=WHERE, hint=MEND)

    def _passed_over(self, number: int, args: Any, kwargs: Any) -> Any:
        """Return something in the form of an entry's outputs: nobody reads it, as what is read comes from the stage before.

        Raises:
            InputError: The entry is given no tensor.
        """
        form, inputs = self._outputs[number], flattened((args, kwargs))[0]
        tensors = [leaf for leaf in inputs if isinstance(leaf, Tensor)]
        if not tensors:
            what = f"{self.stages.name(number)} is given no tensor that can be found"
            raise InputError(what, where=WHERE, hint=f"hand on tuples, lists, dicts or dataclasses of tensors; or {MEND}")
        return tree_unflatten([stand_in(leaf, inputs, tensors) for leaf in form.leaves], form.spec)

    def _send_on(self, args: Any, kwargs: Any) -> None:
        """Send what the next stage's first entry is given, and where the generators stand."""
        leaves = flattened((args, kwargs))[0]
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        # One that is given twice has one gradient, whose summands are added in the order of one process.
        once = {id(leaves[place]): leaves[place] for place in places}
        numbers = {key: number for number, key in enumerate(once)}
        asking = [tensor.requires_grad for tensor in once.values()]
        self._pass.sent = [tensor for tensor in once.values() if tensor.requires_grad]
        told = (len(leaves), {place: numbers[id(leaves[place])] for place in places}, asking, _generators())
        self._mail.send(self.ranks.rank + 1, [tensor.detach() for tensor in once.values()], told)

    def _take_up(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the arguments of this stage's first entry, with the tensors from the stage before in their places.

        Raises:
            InputError: It is of another form there.
        """
        leaves, spec = flattened((args, kwargs))
        tensors, (count, places, asking, generators) = self._mail.receive(self.ranks.rank - 1)
        if count != len(leaves):
            name = self.stages.name(self._first)
            what = f"{name} is given {len(leaves)} values here and {count} where the entry before it was computed"
            raise InputError(what, where=WHERE, hint=MEND)
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
            if self.ranks.rank == lender:
                self._mail.send(home, [self._taken_away(name) for name in names])
            if self.ranks.rank == home:
                for name, gradient in zip(names, self._mail.receive(lender)[0], strict=True):
                    p = self.trained[name]
                    if gradient is not None:
                        p.grad = gradient if p.grad is None else dense(p.grad) + gradient

    def _taken_away(self, name: str) -> Tensor | None:
        p = self.trained[name]
        gradient, p.grad = p.grad, None
        return None if gradient is None else dense(gradient)

    # --- the proof ---

    def _prove(self, objective: Objective, number: int, step: Step) -> None:
        """Refuse a model that computes something else in stages than whole, and find out which process gives which gradient.

        It is judged by the first micro-batch of a step, and its last between; nothing changes.

        Raises:
            InputError: In all processes, with what differs.
        """
        self.clear()
        self.gather()
        ids = step.micro_ids(objective.config.batch_size)

        def compute(shard: int) -> Tensor:
            objective.seed(number, shard)
            # A copy: a forward pass may change its batch in place, which is yet to be trained on.
            return objective.share(copy.deepcopy(step.micro_batches[shard]), ids[shard], is_noted=False)[0]

        with buffers_kept(self.model), self._without_zeros():
            different = self._faults(partial(compute, 0), partial(compute, step.count - 1))
        self._proven_for = self._asking()
        if different:
            raise _computes_something_else(different[0])

    @contextlib.contextmanager
    def _without_zeros(self) -> Iterator[None]:
        """Have small numbers in parameters that are zero: what is multiplied by them differs only once they are trained."""
        zeros = {name: p.detach().clone() for name, p in self.trained.items() if not p.any()}
        generator = torch.Generator().manual_seed(0)
        for name in zeros:
            p = self.trained[name]
            p.data.copy_(0.01 * torch.rand(p.shape, generator=generator))
        try:
            yield
        finally:
            for name, zero in zeros.items():
                if (p := self.trained[name]).shape == zero.shape:  # else it was let go of
                    p.data.copy_(zero)

    def _faults(self, compute: Callable[[], Tensor], other: Callable[[], Tensor]) -> list[str]:
        """Return the differences that all processes have found."""
        expected, objective = self._whole(compute)
        # Of another one: what stays behind here, such as a number in an attribute, is not to be what the stages would compute.
        self._note(other)
        self._split()
        passed, found = self._forward(compute)
        if found is not None and found.shape != objective.shape:
            raise _computes_something_else("its loss")
        self._lent = {}
        with _differentiated():
            self._backward(passed, found)
        self._mail.flush()
        faults = self._agree_on_homes()
        self._join_lent()
        self._mail.flush()
        if found is not None and not _same(found.detach(), objective):
            faults.append("its loss")
        gradients = {name: p.grad for name, p in self.trained.items() if self.homes[name] == self.ranks.rank}
        faults += [f"the gradient of {name}" for name, g in gradients.items() if not _same_gradient(expected[name], g)]
        for p in self.trained.values():
            p.grad = None
        return [fault for each in self.ranks.gather(faults) for fault in each]

    def _whole(self, compute: Callable[[], Tensor]) -> tuple[dict[str, Tensor | None], Tensor]:
        """Return the gradients that this process may have to give, and the objective, as one process computes them."""
        objective = compute()
        if objective.requires_grad:
            objective.backward()
        found: dict[str, Tensor | None] = {}
        for name, p in self.trained.items():
            if name not in self._elsewhere:
                found[name] = None if p.grad is None else dense(p.grad)
            p.grad = None
        return found, objective.detach()

    def _note(self, compute: Callable[[], Tensor]) -> None:
        """Note the forms of the entries' outputs, which the processes after an entry return in its place."""
        self._outputs = []
        with self._routed(self._noted):
            objective = compute()
        if objective.requires_grad:
            objective.backward()  # for what it frees: an attribute may hold the graph
        for p in self.trained.values():
            p.grad = None

    def _noted(self, number: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outputs = forward(*args, **kwargs)
        if number == len(self._outputs):
            self._outputs.append(form_of(self.stages.name(number), outputs, (args, kwargs)))
        return outputs

    def _agree_on_homes(self) -> list[str]:
        """Find the process that gives each gradient, and another that adds to it; return what cannot be."""
        reached = self.ranks.gather([name for name, p in self.trained.items() if p.grad is not None])
        givers = {name: [rank for rank, names in enumerate(reached) if name in names] for name in self.trained}
        owners = self.stages.owners
        self.homes = {name: owners.get(name, min(ranks, default=0)) for name, ranks in givers.items()}
        faults = [f"{name}, of which {len(ranks)} stages have a gradient" for name, ranks in givers.items() if len(ranks) > 2]
        for name, ranks in givers.items():
            if len(ranks) == 2:
                self._lent.setdefault((ranks[0], ranks[1]), []).append(name)
        return faults


def _computes_something_else(what: str) -> InputError:
    found = f"in stages the model computes something else: {what}, which a value that goes around a stage may change"
    return InputError(found, where=WHERE, hint=MEND)


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
        raise InputError(what, where=WHERE, hint=MEND) from error


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and raw_bytes(one) == raw_bytes(other)


def _same_gradient(expected: Tensor | None, found: Tensor | None) -> bool:
    """Return True for the same bits; none is the same as zeros, by which it is replaced."""
    if expected is None or found is None:
        return all(gradient is None or not gradient.any() for gradient in (expected, found))
    return _same(expected, dense(found))


def _generators() -> tuple[Any, ...]:
    """Return the states of the generators of torch, Python and NumPy."""
    return torch.default_generator.get_state().numpy().tobytes(), random.getstate(), np.random.get_state()


def _set_generators(states: tuple[Any, ...]) -> None:
    of_torch, python, numpy = states
    torch.default_generator.set_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
    random.setstate(python)
    np.random.set_state(numpy)


def in_turn(count: int, ahead: int) -> Iterator[tuple[int | None, int | None]]:
    """Yield the micro-batches of a step in the order in which a stage takes them: one to go forward, one to go back.

    Args:
        count: How many there are.
        ahead: How many a stage goes forward before it goes back: then it holds the activations of as many, and one more.
    """
    for number in range(count + ahead):
        yield number if number < count else None, number - ahead if number >= ahead else None
