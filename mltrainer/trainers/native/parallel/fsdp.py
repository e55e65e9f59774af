"""Large parameters that are split among processes, and are whole only while a block of the model computes (FSDP).

Source: Zhao et al., 2023, arXiv 2304.11277. torch's own FSDP sums gradients in an order that depends on the number of processes,
and cuts rows in the middle of a vector; here the rows are those of `partition.py`, and every sum has the tree's order.

Between steps a process keeps its rows of a parameter. A block gathers its parameters before its forward pass and before the
first operation of its backward pass, and frees them after each; gradients are summed as soon as the backward pass of a block
has made them.
"""

from __future__ import annotations

import collections
import enum
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from mltrainer.errors import InputError
from mltrainer.trainers.native.data.addresses import Batch, Step
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.optimization.gradients import dense
from mltrainer.trainers.native.parallel.parallelism import Parallelism, noted, taken_away
from mltrainer.trainers.native.parallel.partition import Partition, cuts
from mltrainer.trainers.native.ranks import Ranks

WHOLE = "launch.parallel: zero1 shares the optimizer's state alone, and needs nothing of the model"
EMPTY = f"with launch.parallel: fsdp a block's matrices are empty while another part computes; {WHOLE}"


class Shard(enum.Enum):
    """The use of a micro-batch's gradients."""

    SUMMED = "they are summed with those of the other processes' micro-batches"
    FILLER = "nothing: this process computed it only because all must compute at the same time"
    ALONE = "they are the step's: every process computed the same micro-batch"


@dataclass(eq=False)
class Block:
    """A module whose large parameters are gathered together.

    Attributes:
        name: The module's name; empty for parameters outside of blocks, which stay whole for the whole micro-batch.
        parameters: The block's large parameters, by name.
        missing: The names of parameters without a gradient so far.
        is_gathered: Whether the parameters are whole.
        in_backward: Whether the backward pass has reached the block.
        watches: The hooks of forward passes under way, which see the tensors saved for the backward pass.
    """

    name: str
    parameters: dict[str, nn.Parameter]
    missing: set[str] = field(default_factory=set)
    is_gathered: bool = True
    in_backward: bool = False
    watches: list[saved_tensors_hooks] = field(default_factory=list)


class FSDP(Parallelism):
    """Parallelism with split parameters, grouped in blocks; the model's modules get hooks."""

    splits = True

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        super().__init__(model, ranks)
        self._shard = Shard.SUMMED
        self._whole = {name: self.trained[name].detach() for name in self.partition.cut}
        self._gradients: dict[str, Tensor] = {}
        self._rows: dict[str, Tensor] = {}
        self._blocks = [*_blocks(model, self.partition.cut)]
        self._small = {name: self.trained[name] for name in self.partition.small}
        modules = dict(model.named_modules())
        for block in self._blocks:
            for name, p in block.parameters.items():
                p.register_post_accumulate_grad_hook(functools.partial(self._arrived, block, name))
            if block.name:
                modules[block.name].register_forward_pre_hook(functools.partial(self._enter, block))
                modules[block.name].register_forward_hook(functools.partial(self._unwatch, block), always_call=True)
                modules[block.name].register_forward_hook(functools.partial(self._leave, block))

    def _partition(self) -> Partition:
        return Partition(self.ranks, self.trained, cuts(self.trained, self.ranks.size))

    def shards(self, count: int, _planned: int) -> Sequence[int]:
        """Return the numbers of this process's shards, every `size`-th, because all processes compute at the same time.

        The processes are then the lowest levels of the tree, which sums each of their shards at once. A number of `count` or more
        is not a shard, and fills the time in which others still compute one. Every process computes a step of one shard.
        """
        rank, size = self.ranks.rank, self.ranks.size
        return [0] if count == 1 else range(rank, -(-count // size) * size, size)

    # --- between steps ---

    def _free(self) -> None:
        """Free all but this process's rows."""
        # Separate memory: a whole parameter may share its memory, for instance with NumPy, which prevents shrinking it.
        self._whole = {name: torch.empty_like(whole) for name, whole in self._whole.items()}
        for block in self._blocks:
            self._let_go(block)

    def _make_whole(self) -> None:
        for block in self._blocks:
            self._gather(block)

    # --- a micro-batch ---

    def _alone(self, objective: Objective, number: int, step: Step) -> Tensor:
        self._begin(Shard.ALONE)
        with noted(EMPTY):
            loss = super()._alone(objective, number, step)
        self._hand_over(self.partition.in_order(self._end(), self._small_gradients()))
        return loss

    def _weighted(self, objective: Objective, micro: Batch, ids: np.ndarray, is_own: bool) -> list[Tensor]:
        """Return the sums over all processes of their micro-batches, which they compute at the same time."""
        self._begin(Shard.SUMMED if is_own else Shard.FILLER)
        with noted(EMPTY):
            loss, weight = objective.backward_share(micro, ids, is_noted=is_own)
        tensors = [*self._small_gradients().values(), loss, weight]
        if not is_own:
            tensors = [torch.full_like(tensor, -0.0) for tensor in tensors]
        # Block by block during the backward pass, then the rest: the same order in every process.
        rows = self._end()
        *gradients, loss, weight = self.ranks.tree_sum(tensors)
        return [*self.partition.in_order(rows, dict(zip(self._small, gradients, strict=True))), loss, weight]

    def _summed(self, gradients: list[Tensor], others: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return gradients, [*others[:2], *self.ranks.tree_sum(others[2:])]

    def _small_gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the parameters that are not cut, by name, and clear them."""
        return dict(zip(self._small, taken_away([*self._small.values()]), strict=True))

    def _begin(self, shard: Shard) -> None:
        """Begin a micro-batch."""
        self._shard, self._rows = shard, {}
        for block in self._blocks:
            block.missing, block.in_backward = set(block.parameters), False
            if not block.name:
                self._gather(block)

    def _end(self) -> dict[str, Tensor]:
        """End a micro-batch; return this process's rows of its gradients, by name."""
        # In the order of the model: blocks that the loss did not reach have no gradient in any process.
        for block in self._blocks:
            if block.missing:
                self._take(block)
            elif self.is_split and block.is_gathered:
                self._let_go(block)  # an operation read it after its gradients were there
        self._require_same_place(-1)
        return self._rows

    def _require_same_place(self, place: int) -> None:
        """Refuse different blocks in one exchange: a model that calls some blocks only for some micro-batches.

        Raises:
            InputError: The processes are at different blocks; raised in all of them, before any data of the blocks is mixed.
        """
        places = self.partition.places(place)
        if len({*places}) > 1:
            what = "some blocks are computed for some micro-batches alone, and cannot be split among processes"
            raise InputError(what, where="launch.parallel: fsdp", hint=WHOLE)

    # --- a block ---

    def _enter(self, block: Block, _module: nn.Module, _inputs: Any) -> None:
        """Gather a block before its forward pass."""
        self._gather(block)
        block.watches.append(saved_tensors_hooks(functools.partial(self._saved, block), self._needed))
        block.watches[-1].__enter__()

    def _unwatch(self, block: Block, *_: Any) -> None:
        block.watches.pop().__exit__()

    def _saved(self, block: Block, tensor: Tensor) -> Tensor | tuple[Block, Tensor]:
        """Return a tensor in its saved form for the backward pass: with its block, if it is in a block's parameter memory."""
        return (block, tensor) if self.is_split and self._is_of(block, tensor) else tensor

    def _needed(self, saved: Tensor | tuple[Block, Tensor]) -> Tensor:
        """Return a saved tensor for the backward pass, after gathering the block whose parameter it is.

        Hooks on a block's outputs gather it too, but too late if the loss depends on something else of the block,
        such as a penalty stored as an attribute.
        """
        if isinstance(saved, Tensor):
            return saved
        block, tensor = saved
        self._enter_backward(block)
        return tensor

    def _leave(self, block: Block, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        """Free a block after its forward pass, and have it gathered again when the backward pass reaches it.

        Raises:
            InputError: Some of its outputs share its parameters' memory.
        """
        if not self.is_split:
            return
        self._refuse_own_memory(block, outputs)
        if block.in_backward:
            return
        # A block recomputed in the backward pass has saved nothing, and reads the parameters themselves.
        for tensor in tree_leaves(outputs):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda _gradient: self._enter_backward(block))
        self._let_go(block)

    def _refuse_own_memory(self, block: Block, outputs: Any) -> None:
        """Refuse outputs that are a block's parameters or views of them: reading them later would read freed memory.

        Raises:
            InputError: The block returns such an output; with the block's name.
        """
        if any(isinstance(t, Tensor) and self._is_of(block, t) for t in tree_leaves(outputs)):
            what = f"{block.name} returns a view of its own parameters, which are let go of after its forward pass"
            raise InputError(what, where="launch.parallel: fsdp", hint=WHOLE)

    def _is_of(self, block: Block, tensor: Tensor) -> bool:
        """Return True if a tensor is in the memory of a block's whole parameters."""
        place = tensor.untyped_storage().data_ptr()
        return any(self._whole[name].untyped_storage().data_ptr() == place for name in block.parameters)

    def _enter_backward(self, block: Block) -> None:
        """Gather a block before its backward pass."""
        block.in_backward = True
        self._gather(block)

    def _arrived(self, block: Block, name: str, p: nn.Parameter) -> None:
        """Take a gradient; after a block's last one, sum them and free the block."""
        if block.missing:
            assert p.grad is not None
            self._gradients[name], p.grad = dense(p.grad), None
            block.missing.discard(name)
            if not block.missing:
                self._take(block)

    def _take(self, block: Block) -> None:
        found = {name: self._gradients.pop(name, None) for name in block.parameters}
        whole = {name: torch.zeros_like(self._whole[name]) if g is None else g for name, g in found.items()}
        block.missing, block.in_backward = set(), False
        if self.is_split:
            self._let_go(block)
        if self._shard is Shard.ALONE:
            self._rows |= self.partition.rows_of(whole)
            return
        if self._shard is Shard.FILLER:
            for gradient in whole.values():
                gradient.fill_(-0.0)  # x + -0.0 has the bits of x
        self._require_same_place(len(self._blocks) + self._blocks.index(block))
        self._rows |= self.partition.summed_rows(whole)

    def _gather(self, block: Block) -> None:
        if self.is_split and not block.is_gathered:
            self._require_same_place(self._blocks.index(block))
            for name in block.parameters:
                self._whole[name].untyped_storage().resize_(self._whole[name].nbytes)
            self.partition.gather_into({name: self._whole[name] for name in block.parameters})
            for name, p in block.parameters.items():
                p.data = self._whole[name]
            block.is_gathered = True

    def _let_go(self, block: Block) -> None:
        for name, p in block.parameters.items():
            # Empty, so that reading it outside of its block fails instead of giving wrong numbers.
            p.data = torch.empty(0, dtype=p.dtype, device=p.device)
            self._whole[name].untyped_storage().resize_(0)
        block.is_gathered = False


def _blocks(model: nn.Module, names: Sequence[str]) -> Iterator[Block]:
    """Yield the blocks of the named parameters, in the order of the model.

    A block is the innermost entry of a numbered container (`layers.3`, `0.2`) around a parameter. Parameters in no container,
    such as an embedding, and shared ones, such as tied weights, belong to the block without a name.
    """
    parameters, modules = dict(model.named_parameters()), dict(model.named_modules())
    uses = collections.Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    found: dict[str, dict[str, nn.Parameter]] = {}
    for name in names:
        entry = re.match(r"(.*\.)?\d+(?=\.)", name) if uses[id(parameters[name])] == 1 else None
        # A ModuleDict or ModuleList in a container is never called: nothing would gather its parameters.
        is_called = entry is not None and type(modules[entry[0]]).forward is not nn.Module.forward
        found.setdefault(entry[0] if entry and is_called else "", {})[name] = parameters[name]
    return (Block(name, own) for name, own in found.items())
