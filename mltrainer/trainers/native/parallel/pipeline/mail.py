"""Messages of tensors between processes, with their memory layout."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mltrainer.trainers.native.exchange import others_may_be_lost


class Mail:
    """Tensors sent from one process to another, on the CPU; a sender does not wait for the receiver."""

    def __init__(self) -> None:
        self._under_way: list[tuple[dist.Work, Tensor]] = []

    def send(self, to: int, tensors: Sequence[Tensor | None], told: Any = None) -> None:
        """Send tensors, and a value with them, to the process of a rank; the tensors may not change until `flush`."""
        forms = [None if tensor is None else (tensor.dtype, tuple(tensor.shape), tensor.stride()) for tensor in tensors]
        # Pickle is safe between the processes of one training, which run the same code: nothing of it was ever in a file.
        head = torch.frombuffer(bytearray(pickle.dumps((forms, told))), dtype=torch.uint8)
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
        forms, told = pickle.loads(head.numpy().tobytes())  # noqa: S301 - a process of this training sent it
        return [None if form is None else self._laid_out(form, sender) for form in forms], told

    def _laid_out(self, form: tuple[torch.dtype, tuple[int, ...], tuple[int, ...]], sender: int) -> Tensor:
        """Return a received tensor in the sender's memory layout, on which the computation of a product depends."""
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
        """Wait until all messages are received."""
        with others_may_be_lost():
            for work, _ in self._under_way:
                work.wait()
        self._under_way = []


def _memory(tensor: Tensor) -> Tensor:
    """Return the bytes from a tensor's first number to its last, as they are in memory."""
    tensor = tensor.detach()
    return tensor.as_strided((_span(tensor.shape, tensor.stride()),), (1,)).view(torch.uint8)


def _span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the count of numbers from a tensor's first to its last one in memory, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
