"""The digest of a model's weights: the same for the same bits, wherever and however they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor

from mltrainer.checkpointing.weights_tree import Chunk, Layout, leaf, root, share
from mltrainer.errors import InputError

WORD = 8  # bytes
THREADED_BYTES = 32 << 20  # of weights, which take 20 ms: below, starting threads is not worth it


class Sharing(Protocol):
    """The processes that hold the same weights and hash a share each: this one's number, their count, and an exchange."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def size(self) -> int:
        """The number of processes."""

    def gather(self, value: bytes) -> list[bytes]:
        """Return every process's value, in the order of ranks."""


def delivered(tree: Mapping[str, Any], *, trained: bool = False) -> dict[str, Tensor]:
    """Return the weights of a checkpoint that are measured and deployed: the averaged ones if it has some and not `trained`."""
    weights: dict[str, Tensor] = tree["model"] if trained else tree.get("delivered") or tree["model"]
    return weights


def raw_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor's elements in row-major order, little-endian on every machine that torch runs on.

    The bytes are shared with a contiguous CPU tensor, not copied.
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def dtype_name(tensor: Tensor) -> str:
    """Return a tensor's element type without torch's prefix, such as `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def weights_sha256(state_dict: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a model's tensors by name, type, shape and bytes.

    For each tensor, in the order of the names' Unicode code points, these bytes are hashed one after the other:

    1. the UTF-8 text `NAMELENGTH:NAME DTYPE D0,D1,... BYTES` and a newline, where NAMELENGTH counts the name's UTF-8
       bytes, DTYPE is such as `float32`, `bfloat16` or `bool`, the dimensions of a 0-dimensional tensor are the empty text,
       and BYTES is the number of bytes that follow;
    2. the elements in row-major order, little-endian, as in memory.

    Device, strides, order of insertion and sharing of memory make no difference; a zero's sign and a NaN's bits do.

    Args:
        state_dict: `model.state_dict()`, or the part `model` of a checkpoint's tree.

    Raises:
        InputError: An entry is not a tensor.
    """
    total = hashlib.sha256()
    for layout in layouts_of(state_dict):
        total.update(layout.header)
        total.update(raw_bytes(state_dict[layout.name]))
    return total.hexdigest()


def weights_tree_sha256(state_dict: Mapping[str, Any], ranks: Sharing | None = None, threads: int = 1) -> str:
    """Return the digest of a model's weights as a tree over chunks, whose bytes `weights_tree` describes.

    Device, strides, order of insertion, sharing of memory, processes and threads make no difference; a zero's sign and a NaN's
    bits do.

    Args:
        state_dict: `model.state_dict()`, or the part `model` of a checkpoint's tree.
        ranks: The processes that hold the same weights and call this together; None: this one hashes all.
        threads: The number of threads that hash.

    Raises:
        InputError: An entry is not a tensor.
    """
    layouts = layouts_of(state_dict)
    tensors = [state_dict[layout.name] for layout in layouts]
    threads = threads if sum(layout.size for layout in layouts) >= THREADED_BYTES else 1
    rank, size = (0, 1) if ranks is None else (ranks.rank, ranks.size)
    shares = [share(layouts, rank * threads + thread, size * threads) for thread in range(threads)]
    if threads == 1:
        own = [_leaves(tensors, *shares)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            own = list(pool.map(lambda chunks: _leaves(tensors, chunks), shares))
    joined = b"".join(own)
    return root(layouts, [joined] if ranks is None else ranks.gather(joined))


def bit_sums(state_dict: Mapping[str, Any]) -> dict[str, int]:
    """Return the sum of each tensor's words, as 64-bit integers that wrap around; it does not depend on the order of adding.

    It is no digest: it detects weights that differ by accident, in a fraction of a digest's time.
    """
    return {name: _bit_sum(tensor) for name, tensor in state_dict.items() if isinstance(tensor, Tensor)}


def _bit_sum(tensor: Tensor) -> int:
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    flat = flat if flat.data_ptr() % WORD == 0 else flat.clone()
    whole = len(flat) // WORD * WORD
    return int(flat[:whole].view(torch.int64).sum()) + int(flat[whole:].sum())


def layouts_of(state_dict: Mapping[str, Any]) -> list[Layout]:
    """Return the layouts of a model's tensors, sorted by name.

    Raises:
        InputError: An entry is not a tensor.
    """
    return [_layout(name, state_dict[name]) for name in sorted(state_dict)]


def _layout(name: str, tensor: Any) -> Layout:
    if not isinstance(tensor, Tensor):
        where, hint = f"state_dict[{name!r}]", "keep it out of state_dict(): weights are tensors alone"
        raise InputError(expected="a tensor", found=type(tensor).__name__, where=where, hint=hint)
    return Layout(name, dtype_name(tensor), tuple(tensor.shape), tensor.numel() * tensor.element_size())


def _leaves(tensors: Sequence[Tensor], chunks: Iterable[Chunk]) -> bytes:
    """Return the digests of some chunks; of tensors outside this memory, one chunk at a time is copied."""
    digests, number, flat = [], -1, torch.empty(0)
    for chunk in chunks:
        if chunk.tensor != number:  # a view, or of other strides than a row-major order's one copy
            number, flat = chunk.tensor, tensors[chunk.tensor].detach().contiguous().reshape(-1)
        width = flat.element_size()
        digests.append(leaf(raw_bytes(flat[chunk.begin // width : chunk.end // width])))
    return b"".join(digests)
