"""One process's stage of a model: its part of each micro-batch, and the check that all stages together are the model."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_unflatten

from mltrainer.checkpointing.weights import raw_bytes
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.objective import Objective, buffers_kept
from mltrainer.trainers.native.optimization.gradients import dense, is_measured_by_rows
from mltrainer.trainers.native.parallel.parallelism import noted
from mltrainer.trainers.native.parallel.partition import Owned, Partition
from mltrainer.trainers.native.parallel.pipeline.cuts import MEND, WHERE, stages_of
from mltrainer.trainers.native.parallel.pipeline.handover import Form, Mail, flattened, form_of, stand_in
from mltrainer.trainers.native.parallel.zero1 import Zero1
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.shards import TreeSum

T = TypeVar("T")
STAGED = f"with {WHERE} a process computes its own stage alone, and has the matrices of no other; {MEND}"


class _SentOn(BaseException):  # not an Exception, so that no `except Exception` of the user's code catches it
    """The end of this stage's part of a forward pass; the next stage computes the rest."""


@dataclass
class Pass:
    """A micro-batch between its forward and its backward pass in this process.

    Attributes:
        sent: The tensors sent to the next stage that require a gradient.
        gradients: The gradients of received tensors that require one; None for a gradient that has not arrived.
    """

    sent: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor | None] = field(default_factory=list)

    def asking(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor from the stage before, and store its gradient here when it arrives."""
        # A copy: the entry may change it in place, which torch refuses for a leaf tensor.
        copied = tensor.requires_grad_().clone()
        place = len(self.gradients)
        self.gradients.append(None)
        # Not the leaf's gradient: torch lays that one out like its tensor, and other strides may round a product differently.
        copied.register_hook(partial(self._keep, place))
        return copied

    def _keep(self, place: int, gradient: Tensor) -> None:
        self.gradients[place] = gradient


class Pipeline(Zero1):
    """The part of a model that this process computes, except in steps taken with whole parameters.

    Args:
        model: The model, on its device.
        ranks: The processes, one for each stage.

    Attributes:
        homes: The rank that provides each trained parameter's gradient, by name, once the stages are checked.

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
        self._mail = Mail(next(model.parameters()).device)
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
        """Return the numbers of all shards, which go through all processes."""
        return range(count)

    # --- a step ---

    def prepare(self, objective: Objective, number: int, step: Step, whole: bool) -> Step:
        """Free other stages' parameters, once the stages are checked; or gather them, after another check.

        A step that is one micro-batch uses whole parameters: stages would wait for each other. So does a step without any.

        Raises:
            InputError: The stages compute something else than the whole model, as may the steps taken with them.
        """
        whole = whole or step.count <= 1
        if not step.count:
            return super().prepare(objective, number, step, whole)
        if self.is_split if whole else self._proven_for != self._asking():
            self._prove(objective, number, step)
        super().prepare(objective, number, step, whole)
        own = self.ranks.own(step.count, objective.config.accumulate)
        return replace(step, micro_batches=[step.micro_batches[shard] for shard in own], shards=own) if whole else step

    def backward(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Leave the gradients of a step's mean loss where this process's updates read them; return that loss, with its terms."""
        return (self._accumulate_in_stages if self.is_split else super().backward)(objective, number, step)

    def _accumulate_in_stages(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Add up micro-batches that go through the processes, each with its stage of the model."""
        tree, statistics = TreeSum(), objective.statistics.rows(step.count)
        ids, entries = step.micro_ids, [*self.stages.entries.values()]
        modules = [module for entry in entries[self._first : self._end] for module in entry.modules()]
        passes: dict[int, tuple[Pass, tuple[Tensor, ...] | None]] = {}
        # The number of micro-batches that go ahead is the number of stages after this one.
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
        """Return a step's gradients for this process's updates, and the sums over all processes of other tensors.

        Args:
            own: The gradients whose home is this process, by name.
            others: Loss, weight and the statistics of norms; -0.0, which changes no sum, if another process has them.
        """
        small, parts = self.partition.small, self.partition.own
        sent = [own[n] if n in own else torch.full_like(parts[n], -0.0) for n in small]
        summed = self.ranks.tree_sum([*sent, *others])
        rows = {n: own[n] if n in own else torch.zeros_like(parts[n]) for n in self.partition.cut}
        return self.partition.in_order(rows, dict(zip(small, summed, strict=False))), summed[len(small) :]

    def _asking(self) -> set[str]:
        """Return the names of the parameters that are trained now: some may be frozen for a while."""
        return {name for name, p in self.trained.items() if p.requires_grad}

    # --- between steps ---

    def _free(self) -> None:
        """Free the large parameters of other stages."""
        for name in self.partition.cut:
            if (p := self._elsewhere.get(name)) is not None:
                self._layouts[name] = p.detach().to("meta")
                p.data = torch.empty(0, dtype=p.dtype, device=p.device)

    def _make_whole(self) -> None:
        for name, layout in self._layouts.items():
            p = self._elsewhere[name]
            p.data = torch.empty_like(layout, device=p.device)
        self.partition.gather()

    # --- a micro-batch ---

    def _forward(self, compute: Callable[[], T]) -> tuple[Pass, T | None]:
        """Compute this process's part of a micro-batch's forward pass.

        Args:
            compute: The forward pass of the whole model, and the loss.

        Returns:
            The data for the backward pass, and the result of `compute`, which is None except in the last stage.

        Raises:
            InputError: The model does not call its entries once each, in their order.
        """
        self._pass, self._next = Pass(), 0
        # With gradients before the stage too, whose graph is not kept: a task may check whether it is training.
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
        """Compute this process's part of a micro-batch's backward pass; leave the gradients in the parameters.

        Args:
            passed: The pass from `_forward`.
            objective: The objective to differentiate; None except in the last stage.
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
        """Return the gradients of the parameters whose home is this process, by name, and clear them.

        Raises:
            InputError: Another parameter has a gradient, which it did not have in the check.
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
        """Replace each entry's forward pass by a function of the entry's number, its own forward pass and the arguments."""
        entries = [*self.stages.entries.values()]
        own = [vars(entry).get("forward") for entry in entries]  # a module may have an instance's own forward
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
        """Refuse outputs whose structure or non-tensor values change: other stages use the noted ones.

        Raises:
            InputError: The outputs changed; with the entry's name.
        """
        noted = self._outputs[number]
        # Compared as text, in which NaN equals itself.
        if found.spec != noted.spec or repr(found.leaves) != repr(noted.leaves):
            name = self.stages.name(number)
            what = f"{name} hands on other values than tensors, and not the same for each micro-batch"
            raise InputError(what, where=WHERE, hint=f"tensors; or {MEND}")

    def _require_called(self, number: int) -> None:
        """Refuse a call of an entry, or the end of the forward pass, before all earlier entries were called.

        Raises:
            InputError: The order is wrong; with the names.
        """
        if number != self._next:
            names = [*self.stages.entries, "the end"]
            what = f"the model comes to {names[number]} where {names[self._next]} was expected: stages are called once, in order"
            raise InputError(what, where=WHERE, hint=MEND)

    def _passed_over(self, number: int, args: Any, kwargs: Any) -> Any:
        """Return a value in the form of a skipped entry's outputs; nobody reads it: this stage's inputs come from the one before.

        Raises:
            InputError: The entry has no tensor among its inputs.
        """
        form, inputs = self._outputs[number], flattened((args, kwargs))[0]
        tensors = [leaf for leaf in inputs if isinstance(leaf, Tensor)]
        if not tensors:
            what = f"{self.stages.name(number)} is given no tensor that can be found"
            raise InputError(what, where=WHERE, hint=f"hand on tuples, lists, dicts or dataclasses of tensors; or {MEND}")
        return tree_unflatten([stand_in(leaf, inputs, tensors) for leaf in form.leaves], form.spec)

    def _send_on(self, args: Any, kwargs: Any) -> None:
        """Send the inputs of the next stage's first entry, and the states of the generators."""
        leaves = flattened((args, kwargs))[0]
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        # A tensor used twice has one gradient, whose summands are added in the order of one process.
        once = {id(leaves[place]): leaves[place] for place in places}
        numbers = {key: number for number, key in enumerate(once)}
        asking = [tensor.requires_grad for tensor in once.values()]
        self._pass.sent = [tensor for tensor in once.values() if tensor.requires_grad]
        header = (len(leaves), {place: numbers[id(leaves[place])] for place in places}, asking, seeds.generator_states())
        self._mail.send(self.ranks.rank + 1, [tensor.detach() for tensor in once.values()], header)

    def _take_up(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the arguments of this stage's first entry, with the tensors from the stage before in their places.

        Raises:
            InputError: The arguments have another form in the stage before.
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
        seeds.set_generator_states(generators)
        found: tuple[Any, Any] = tree_unflatten(leaves, spec)
        return found

    # --- parameters of two stages ---

    def _join_lent(self) -> None:
        """Add a later stage's gradients of parameters whose home is an earlier stage, such as tied weights.

        The sum of two numbers is the same in either order.
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

    # --- the check ---

    def _prove(self, objective: Objective, number: int, step: Step) -> None:
        """Refuse a model that computes something else in stages than whole, and find the process that provides each gradient.

        The first micro-batch of a step is computed whole and in stages, its last one in between; nothing changes.

        Raises:
            InputError: The results differ; raised in all processes, with the difference.
        """
        self.clear()
        self.gather()
        ids = step.micro_ids

        def compute(shard: int) -> Tensor:
            objective.seed(number, shard)
            # A copy: a forward pass may change its batch in place, and the batch is still needed for training.
            return objective.share(copy.deepcopy(step.micro_batches[shard]), ids[shard], is_noted=False)[0]

        with buffers_kept(self.model), self._without_zeros():
            different = self._faults(partial(compute, 0), partial(compute, step.count - 1))
        self._proven_for = self._asking()
        if different:
            raise _computes_something_else(different[0])

    @contextlib.contextmanager
    def _without_zeros(self) -> Iterator[None]:
        """Put small numbers into parameters that are zero: errors multiplied by them would show only once they are trained."""
        zeros = {name: p.detach().clone() for name, p in self.trained.items() if not p.any()}
        generator = torch.Generator().manual_seed(0)
        for name in zeros:
            p = self.trained[name]
            p.data.copy_(0.01 * torch.rand(p.shape, generator=generator))
        try:
            yield
        finally:
            for name, zero in zeros.items():
                if (p := self.trained[name]).shape == zero.shape:  # else it was freed
                    p.data.copy_(zero)

    def _faults(self, compute: Callable[[], Tensor], other: Callable[[], Tensor]) -> list[str]:
        """Return the differences found by all processes."""
        expected, objective = self._whole(compute)
        # With another micro-batch: a leftover here, such as a number in an attribute, must not be the stages' expected result.
        self._note(other)
        self._split()
        passed, found = self._forward(compute)
        if found is not None and found.shape != objective.shape:
            raise _computes_something_else("its loss")
        self._lent = {}
        try:
            self._backward(passed, found)
        except RuntimeError as error:  # for instance because of a value left by an earlier pass
            what = f"in stages the model cannot be differentiated: {str(error).partition('.')[0]}"
            raise InputError(what, where=WHERE, hint=MEND) from error
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
        """Return one process's results: the objective, and the gradients that this process may have to provide."""
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
        """Record the forms of the entries' outputs, which later processes return in an entry's place."""
        self._outputs = []
        with self._routed(self._noted):
            objective = compute()
        if objective.requires_grad:
            objective.backward()  # to free memory: an attribute may hold the graph
        for p in self.trained.values():
            p.grad = None

    def _noted(self, number: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outputs = forward(*args, **kwargs)
        if number == len(self._outputs):
            self._outputs.append(form_of(self.stages.name(number), outputs, (args, kwargs)))
        return outputs

    def _agree_on_homes(self) -> list[str]:
        """Find the process that provides each gradient, and a second one that adds to it; return what cannot be shared."""
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


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and raw_bytes(one) == raw_bytes(other)


def _same_gradient(expected: Tensor | None, found: Tensor | None) -> bool:
    """Return True for the same bits; a missing gradient counts as zeros."""
    if expected is None or found is None:
        return all(gradient is None or not gradient.any() for gradient in (expected, found))
    return _same(expected, dense(found))


def in_turn(count: int, ahead: int) -> Iterator[tuple[int | None, int | None]]:
    """Yield a step's micro-batches in a stage's order: one to go forward, and one to go back.

    Args:
        count: The number of micro-batches.
        ahead: The number of forward passes before the first backward pass; the stage then holds one more set of activations.
    """
    for number in range(count + ahead):
        yield number if number < count else None, number - ahead if number >= ahead else None
