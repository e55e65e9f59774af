"""The rows of large parameters that each process updates, if processes share the optimizer's state or more.

A parameter whose gradient's norm is computed by rows is cut into blocks of rows, one for each process; if processes have stages
of the model, one of them has all rows. All other parameters are small, and every process updates them whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mltrainer.checkpointing.format import Rows
from mltrainer.trainers.native.optimization.gradients import is_measured_by_rows, norm_summands, row_norms
from mltrainer.trainers.native.ranks import Ranks

BUCKET = 2**22  # the least numbers of a message, if there are as many: fewer messages, and no second copy of a model
VECTOR = 16  # numbers of a CPU's widest vector, AVX-512's: a kernel that begins elsewhere rounds some numbers differently


@dataclass(frozen=True)
class Cut:
    """The cuts of a parameter: the process of rank r has the rows [r * each, (r + 1) * each), as far as they exist.

    Attributes:
        shape: The parameter's shape.
        each: The number of rows of a process; the last processes may have fewer, or none.
        size: The number of processes.
    """

    shape: torch.Size
    each: int
    size: int

    @property
    def row(self) -> int:
        """The count of numbers in a row."""
        return math.prod(self.shape[1:])

    @property
    def block(self) -> int:
        """The count of numbers in a full block of rows."""
        return self.each * self.row

    def rows(self, rank: int) -> slice:
        """Return the rows of a process."""
        return slice(min(rank * self.each, self.shape[0]), min((rank + 1) * self.each, self.shape[0]))

    def blocks(self, room: Tensor) -> list[Tensor]:
        """Return the rows of each process as views of [processes, block] numbers, which need not be contiguous."""
        rows = [self.rows(rank) for rank in range(self.size)]
        return [
            block[: (own.stop - own.start) * self.row].view(own.stop - own.start, *self.shape[1:])
            for block, own in zip(room, rows, strict=True)
        ]


@dataclass(frozen=True)
class Owned(Cut):
    """The cuts of a parameter that one process holds whole, and the others not at all.

    Attributes:
        owner: The rank of that process.
    """

    owner: int

    def rows(self, rank: int) -> slice:
        """Return all rows of the owner, none of others."""
        return slice(0, self.shape[0] if rank == self.owner else 0)


def cut(shape: torch.Size, size: int) -> Cut:
    """Return a parameter's blocks for a number of processes: nearly equal, each with its end at the end of a vector."""
    together = VECTOR // math.gcd(VECTOR, math.prod(shape[1:]))
    return Cut(shape, -(-shape[0] // (together * size)) * together, size)


def cuts(parameters: Mapping[str, Tensor], size: int) -> dict[str, Cut]:
    """Return the blocks of all large parameters, by name."""
    return {name: cut(p.shape, size) for name, p in parameters.items() if is_measured_by_rows(p)}


class Partition:
    """The part of each parameter that this process updates: its rows of a large one, all of a small one.

    Args:
        ranks: The processes.
        parameters: The trainable parameters, by name.
        cuts: The cuts of the cut parameters, by name.
        in_place: Whether rows share the memory of their parameter.

    Attributes:
        own: The tensors that the optimizer updates, by the parameter's name.
    """

    def __init__(
        self, ranks: Ranks, parameters: Mapping[str, nn.Parameter], cuts: Mapping[str, Cut], in_place: bool = False
    ) -> None:
        self._ranks, self._parameters, self._cuts = ranks, dict(parameters), dict(cuts)
        self.own = {name: self._rows(name, p, in_place) for name, p in parameters.items()}

    def _rows(self, name: str, p: nn.Parameter, in_place: bool) -> nn.Parameter:
        found = self._cuts.get(name)
        if found is None or (isinstance(found, Owned) and found.owner == self._ranks.rank):
            return p
        rows = p.detach()[found.rows(self._ranks.rank)]
        return nn.Parameter(rows if in_place else rows.clone())

    @property
    def is_shared(self) -> bool:
        """Whether processes update different numbers."""
        return bool(self._cuts)

    @property
    def cut(self) -> list[str]:
        """The names of the parameters that are cut."""
        return [*self._cuts]

    @property
    def small(self) -> list[str]:
        """The names of the other parameters, which every process updates whole."""
        cut = {*self.cut}
        return [name for name in self.own if name not in cut]

    # --- gradients ---

    def summed_rows(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's rows of the cut parameters' gradients, summed over all processes, by name."""
        found: dict[str, Tensor] = {}
        for names in self._buckets(gradients):
            sizes, like = [self._cuts[name].block for name in names], gradients[names[0]]
            sent = self._ranks.room(like.dtype, sum(sizes)).zero_()
            for name, room in zip(names, sent.split(sizes, 1), strict=True):
                for rank, block in enumerate(self._cuts[name].blocks(room)):
                    block.copy_(gradients[name][self._cuts[name].rows(rank)])
            blocks = self._ranks.scatter_sum(sent).split(sizes)
            found |= {name: self._laid_out(name, block) for name, block in zip(names, blocks, strict=True)}
        return found

    def _buckets(self, tensors: Mapping[str, Tensor]) -> Iterator[list[str]]:
        """Yield lists of names of tensors of one type, for one message each."""
        bucket: list[str] = []
        for name, tensor in tensors.items():
            is_full = sum(tensors[other].numel() for other in bucket) >= BUCKET
            if bucket and (is_full or tensors[bucket[0]].dtype != tensor.dtype):
                yield bucket
                bucket = []
            bucket.append(name)
        if bucket:
            yield bucket

    def _laid_out(self, name: str, block: Tensor) -> Tensor:
        """Return this process's rows in their parameter's memory layout: fused optimizers pair numbers by place in memory."""
        own = self.own[name].detach()
        return torch.empty_like(own).copy_(block[: own.numel()].view(own.shape))

    def rows_of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's rows of whole tensors of cut parameters, by name."""
        return {name: tensor[self._cuts[name].rows(self._ranks.rank)] for name, tensor in tensors.items()}

    def in_order(self, rows: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> list[Tensor]:
        """Return one tensor for each parameter: rows of the cut ones, and the others."""
        return [rows[name] if name in rows else others[name] for name in self._parameters]

    def norm_summands(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return for each gradient the numbers whose norm is its norm: for a cut one, the norms of all processes' rows."""
        if not self.cut:
            return norm_summands(gradients)
        named = dict(zip(self._parameters, gradients, strict=True))
        norms = self._norms_of_all({name: named[name] for name in self.cut})
        others = norm_summands([named[name] for name in self.small])
        return self.in_order(norms, dict(zip(self.small, others, strict=True)))

    def _norms_of_all(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the norms of all processes' rows; one message holds them, as they are few numbers."""
        norms = {name: row_norms(gradient) for name, gradient in gradients.items()}
        cuts = [self._cuts[name] for name in norms]
        padded = [pad(own, (0, found.each - len(own))) for own, found in zip(norms.values(), cuts, strict=True)]
        rooms = self._ranks.gather_blocks(torch.cat(padded)).clone().split([found.each for found in cuts], 1)
        whole = [
            torch.cat(
                [block[: rows.stop - rows.start] for block, rows in zip(room, map(found.rows, range(found.size)), strict=True)]
            )
            for room, found in zip(rooms, cuts, strict=True)
        ]
        # Mixed types are sent as the widest: back in their own type, their norm is rounded like that of a whole gradient.
        return {name: found.to(norms[name].dtype) for name, found in zip(norms, whole, strict=True)}

    # --- parameters and their states ---

    def places(self, place: int) -> list[int]:
        """Return the place numbers of all processes, in the order of ranks."""
        device = next(iter(self.own.values())).device
        return [int(n) for n in self._ranks.gather_blocks(torch.tensor([place], device=device)).flatten()]

    def gather(self) -> None:
        """Copy the rows that the other processes updated into this process's parameters."""
        self.gather_into({name: self._parameters[name] for name in self._cuts})

    @torch.no_grad()
    def gather_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill tensors with all rows of the parameters of their names."""
        for names in self._buckets(tensors):
            sizes, like = [self._cuts[name].block for name in names], self.own[names[0]]
            block = torch.zeros(sum(sizes), dtype=like.dtype, device=like.device)
            for name, room in zip(names, block.split(sizes), strict=True):
                room[: self.own[name].numel()].view(self.own[name].shape).copy_(self.own[name])
            for name, rooms in zip(names, self._ranks.gather_blocks(block).split(sizes, 1), strict=True):
                for rank, rows in enumerate(self._cuts[name].blocks(rooms)):
                    tensors[name][self._cuts[name].rows(rank)].copy_(rows)

    @torch.no_grad()
    def adopt(self) -> None:
        """Copy this process's rows from its newly loaded parameters."""
        for name in self._cuts:
            self.own[name].copy_(self._parameters[name][self._cuts[name].rows(self._ranks.rank)])

    def whole(self, name: str, rows: Tensor) -> Tensor:
        """Return the whole tensor from all processes' rows, such as a moment; a tensor that is not cut is whole already."""
        found = self._cuts.get(name)
        if found is None:
            return rows
        block = torch.zeros(found.block, dtype=rows.dtype, device=rows.device)
        block[: rows.numel()].view(rows.shape).copy_(rows)
        return torch.cat(found.blocks(self._ranks.gather_blocks(block)))

    def marked(self, name: str, tensor: Tensor) -> Tensor | Rows:
        """Return a tensor for a checkpoint; marked if it is this process's rows of a parameter that no process has whole."""
        return Rows(tensor) if name in self._cuts and tensor.shape == self.own[name].shape else tensor

    def marked_state(self, state: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Return an optimizer's state with this process's rows marked.

        Args:
            state: The state of this process's optimizer, from `state_dict`.
            names: The names of the optimizer's parameters, in its order.
        """
        return self._converted(state, names, self.marked)

    def own_state(self, state: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Return this process's part of an optimizer's state that is whole."""
        return self._converted(state, names, self._own_part)

    def _own_part(self, name: str, tensor: Tensor) -> Tensor:
        """Return this process's part of a tensor that belongs to a cut parameter, if it has the parameter's shape."""
        found = self._cuts[name]
        return tensor[found.rows(self._ranks.rank)] if tensor.shape == found.shape else tensor

    def _converted(
        self, state: Mapping[str, Any], names: Sequence[str], convert: Callable[[str, Tensor], Tensor | Rows]
    ) -> dict[str, Any]:
        cut = {*self.cut}
        if not cut:
            return dict(state)
        entries = dict(state["state"])
        for place, name in enumerate(names):
            if name in cut and place in entries:
                entries[place] = {
                    key: convert(name, value) if isinstance(value, Tensor) else value for key, value in entries[place].items()
                }
        return {**state, "state": entries}
