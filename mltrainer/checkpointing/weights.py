"""The digest of a model's weights: the same for the same bits, wherever they are and however they were stored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mltrainer.errors import InputError


def delivered(tree: Mapping[str, Any], *, trained: bool = False) -> dict[str, Tensor]:
    """Return the weights of a checkpoint that are measured and deployed: averaged ones where it has some, if not `trained`."""
    found: dict[str, Tensor] = tree["model"] if trained else tree.get("delivered") or tree["model"]
    return found


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
    2. the elements in row-major order, little-endian, as they lie in memory.

    Device, strides, order of insertion and sharing of memory make no difference; a zero's sign and a NaN's bits do.

    Args:
        state_dict: `model.state_dict()`, or the part `model` of a checkpoint's tree.

    Raises:
        InputError: An entry is not a tensor.
    """
    total = hashlib.sha256()
    for name in sorted(state_dict):
        tensor = state_dict[name]
        if not isinstance(tensor, Tensor):
            raise InputError(f"expected a tensor, found {type(tensor).__name__}", where=f"state_dict[{name!r}]")
        data = raw_bytes(tensor)
        shape = ",".join(map(str, tensor.shape))
        # With its length before it, so that no name can look like another one's name and type.
        encoded = name.encode("utf-8", "surrogatepass")
        total.update(b"%d:%s %s %s %d\n" % (len(encoded), encoded, dtype_name(tensor).encode(), shape.encode(), data.nbytes))
        total.update(data)
    return total.hexdigest()
