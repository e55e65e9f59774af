"""What goes from stage to stage: the forms of the entries' outputs, which a skipped entry repeats, and messages of tensors."""

from __future__ import annotations

import dataclasses
import enum
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import TreeSpec, register_dataclass, tree_flatten

from mltrainer.errors import InputError
from mltrainer.trainers.native.exchange import others_may_be_lost
from mltrainer.trainers.native.parallel.pipeline.cuts import MEND, WHERE

PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.Size, torch.dtype, torch.device)


@dataclass(frozen=True)
class Given:
    """An output of an entry that is one of its inputs, such as a cache.

    Attributes:
        place: The index of that input.
    """

    place: int


@dataclass(frozen=True)
class Form:
    """The outputs of an entry without their numbers.

    Attributes:
        spec: The structure of the outputs.
        leaves: The leaves; an empty tensor of the same type for each tensor.
    """

    spec: TreeSpec
    leaves: list[Any]


def form_of(name: str, outputs: Any, inputs: Any) -> Form:
    """Return the form of an entry's outputs.

    Raises:
        InputError: An output is not a tensor, and may differ at the next call.
    """
    places = {id(leaf): place for place, leaf in enumerate(flattened(inputs)[0])}
    leaves, spec = flattened(outputs)
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            found.append(torch.empty(0, dtype=leaf.dtype))
        elif not isinstance(leaf, PLAIN) and id(leaf) not in places:
            what = f"{name} hands on a {type(leaf).__name__}, of which it is not known what the next stage needs"
            raise InputError(what, where=WHERE, hint=f"tuples, lists, dicts or dataclasses of tensors; or {MEND}")
        else:
            found.append(leaf if isinstance(leaf, PLAIN) else Given(places[id(leaf)]))
    return Form(spec, found)


def flattened(values: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of nested values and their structure; a dataclass with tensors is no leaf."""
    leaves, spec = tree_flatten(values)
    kinds = {
        type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and _has_tensors(leaf)
    }
    for kind in kinds:
        register_dataclass(kind)
    return flattened(values) if kinds else (leaves, spec)


def _has_tensors(value: Any) -> bool:
    fields = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return any(isinstance(leaf, Tensor) for leaf in flattened(fields)[0])


def stand_in(leaf: Any, inputs: list[Any], tensors: list[Tensor]) -> Any:
    """Return a value for an output of a skipped entry; for a tensor one of the same type, with a graph for the loss."""
    if isinstance(leaf, Given):
        return inputs[leaf.place]
    if not isinstance(leaf, Tensor):
        return leaf
    return next((tensor for tensor in tensors if tensor.dtype == leaf.dtype), tensors[0].to(leaf.dtype))


# --- messages --------------------------------------------------------------------------------------


class Mail:
    """Tensors sent from one process to another, by way of the CPU's memory; a sender does not wait for the receiver.

    Args:
        device: The device of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._under_way: list[tuple[dist.Work, Tensor]] = []

    def send(self, to: int, tensors: Sequence[Tensor | None], value: Any = None) -> None:
        """Send tensors, and a value with them, to the process of a rank; the tensors may not change until `flush`."""
        forms = [None if tensor is None else (tensor.dtype, tuple(tensor.shape), tensor.stride()) for tensor in tensors]
        # Pickle is safe between the processes of one training, which run the same code: nothing of it was ever in a file.
        head = torch.frombuffer(bytearray(pickle.dumps((forms, value))), dtype=torch.uint8)
        contents = [_memory(tensor) for tensor in tensors if tensor is not None]
        self._under_way = [(work, kept) for work, kept in self._under_way if not work.is_completed()]
        for part in (torch.tensor([len(head)]), head, *(content for content in contents if content.numel())):
            with others_may_be_lost():
                work = dist.isend(part, to)
            assert work is not None
            self._under_way.append((work, part))

    def receive(self, sender: int) -> tuple[list[Tensor | None], Any]:
        """Return the next tensors from the process of a rank, and the value sent with them."""
        head = self._received(
            torch.empty(int(self._received(torch.empty(1, dtype=torch.int64), sender)), dtype=torch.uint8), sender
        )
        forms, value = pickle.loads(head.numpy().tobytes())  # noqa: S301 - a process of this training sent it
        return [None if form is None else self._laid_out(form, sender) for form in forms], value

    def _laid_out(self, form: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]], sender: int) -> Tensor:
        """Return a received tensor in the sender's memory layout, on which the computation of a product depends."""
        dtype, shape, stride = form
        room = torch.empty(_span(shape, stride), dtype=dtype)
        if room.numel():
            self._received(room.view(torch.uint8), sender)
        return room.to(self._device).as_strided(shape, stride)

    @staticmethod
    def _received(room: Tensor, sender: int) -> Tensor:
        with others_may_be_lost():
            dist.recv(room, sender)
        return room

    def flush(self) -> None:
        """Wait until all messages are received."""
        with others_may_be_lost():
            for work, _ in self._under_way:
                work.wait()
        self._under_way = []


def _memory(tensor: Tensor) -> Tensor:
    """Return the bytes from a tensor's first number to its last, as they are in memory, on the CPU."""
    tensor = tensor.detach()
    return tensor.as_strided((_span(tensor.shape, tensor.stride()),), (1,)).view(torch.uint8).cpu()


def _span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the count of numbers from a tensor's first to its last one in memory, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
