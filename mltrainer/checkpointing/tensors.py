"""The digest of a model's weights as a safetensors file holds them, without torch: a clone can recompute it."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from mltrainer.checkpointing.weights_tree import Layout, leaf, root, share
from mltrainer.errors import InputError
from mltrainer.workspace import RESTORE, read_json

TYPES = {  # safetensors' names of element types: torch's name, as `weights.weights_sha256` hashes it, and bytes per element
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2), "C64": ("complex64", 8),
    "I64": ("int64", 8), "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "BOOL": ("bool", 1),
    "U64": ("uint64", 8), "U32": ("uint32", 4), "U16": ("uint16", 2), "U8": ("uint8", 1),
    "F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1),
}  # fmt: skip
WEIGHTS_FILE = "model.safetensors"  # of a delivered model
LENGTH_BYTES = 8  # of the header's length, at the file's begin
MAX_HEADER_BYTES = 64 * 2**20  # as for reading checkpoints: some hundred thousand tensors
READ_BYTES = 1 << 20
Header = Mapping[str, Any]
_entries = itemgetter("dtype", "shape", "data_offsets")  # of a tensor in the header


def file_weights_sha256(path: Path, names: Mapping[str, str] | None = None) -> str:
    """Return the digest of a safetensors file's tensors, equal to `weights.weights_sha256` of the same tensors in memory.

    Args:
        path: The file; of a large one only a piece at a time is in memory.
        names: The name that each tensor is hashed under, with its name in the file; None for all, under their own names.

    Raises:
        InputError: The file cannot be read, or is no whole safetensors file.
    """
    return _digested(path, names, _whole)


def file_weights_tree_sha256(path: Path, names: Mapping[str, str] | None = None) -> str:
    """Return the digest of a safetensors file's tensors, equal to `weights.weights_tree_sha256` of the same tensors in memory.

    Args:
        path: The file.
        names: The names to hash under, as in `file_weights_sha256`.

    Raises:
        InputError: The file cannot be read, or is no whole safetensors file.
    """
    return _digested(path, names, _tree)


def checkpoint_weights_sha256(folder: Path) -> str:
    """Return the digest of the weights that a checkpoint's folder would deliver: the averaged ones if it has some.

    Raises:
        InputError: A file of it cannot be read.
    """
    return file_weights_sha256(folder / "state.safetensors", _names(folder / "state.json"))


def checkpoint_weights_tree_sha256(folder: Path, *, trained: bool = False) -> str:
    """Return the tree digest of the weights that a checkpoint's folder would deliver, or of its `trained` weights.

    Raises:
        InputError: A file of it cannot be read.
    """
    return file_weights_tree_sha256(folder / "state.safetensors", _names(folder / "state.json", trained))


def checkpoint_member_sha256(folder: Path, prefix: str) -> str:
    """Return the digest of the weights of one member of an ensemble, whose names in a checkpoint begin with a prefix.

    Raises:
        InputError: A file of it cannot be read.
    """
    named = _names(folder / "state.json")
    own = {name.removeprefix(prefix): stored for name, stored in named.items() if name.startswith(prefix)}
    return file_weights_sha256(folder / "state.safetensors", own)


def checkpoint_weights(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Return the type and the bytes of each weight that a checkpoint's folder would deliver; all are in memory.

    Raises:
        InputError: A file of it cannot be read.
    """
    path = folder / "state.safetensors"
    try:
        with open(path, "rb") as file:
            weights = {}
            for stored in _stored(file, _names(folder / "state.json")):
                file.seek(stored.begin)
                weights[stored.layout.name] = (stored.layout.dtype, file.read(stored.layout.size))
            return weights
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _names(path: Path, trained: bool = False) -> dict[str, str]:
    """Return the names of a checkpoint's weights, each with its name in the tensors' file."""
    tree = read_json(path)
    try:
        part = tree["model"] if trained else tree.get("delivered") or tree["model"]
        return {name: str(entry["$tensor"]) for name, entry in part.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"it contains no weights ({type(error).__name__}: {error})") from error


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"not readable as tensors: {why}", where=str(path), hint=RESTORE)


@dataclass(frozen=True)
class _Stored:
    """A tensor's layout, and the place of its bytes in the file."""

    layout: Layout
    begin: int


def _digested(path: Path, names: Mapping[str, str] | None, digest: Callable[[IO[bytes], list[_Stored]], str]) -> str:
    try:
        with open(path, "rb") as file:
            return digest(file, _stored(file, names))
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _stored(file: IO[bytes], names: Mapping[str, str] | None) -> list[_Stored]:
    """Return the tensors to hash, sorted by the names that they are hashed under; the file orders them by width."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    # Bounded before it is read: the file itself says how long its header is.
    if length > min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
        raise ValueError(f"a header of {length} bytes, in a file of {size}")
    header: Header = json.loads(file.read(length))
    wanted = {name: name for name in header if name != "__metadata__"} if names is None else names
    base = LENGTH_BYTES + length
    return [_one(name, header[wanted[name]], base, size - base) for name in sorted(wanted)]


def _one(name: str, row: Header, base: int, room: int) -> _Stored:
    kind, dimensions, (begin, end) = _entries(row)
    dtype, width = TYPES[kind]
    if not 0 <= begin <= end <= room or end - begin != width * math.prod(dimensions):
        raise ValueError(f"tensor {name!r} goes from byte {begin} to byte {end}")
    return _Stored(Layout(name, dtype, tuple(dimensions), end - begin), base + begin)


def _whole(file: IO[bytes], tensors: list[_Stored]) -> str:
    """Return the digest of all headers and bytes, one after the other."""
    total = hashlib.sha256()
    for stored in tensors:
        total.update(stored.layout.header)
        file.seek(stored.begin)
        left = stored.layout.size
        while left and (piece := file.read(min(left, READ_BYTES))):
            total.update(piece)
            left -= len(piece)
    return total.hexdigest()


def _tree(file: IO[bytes], tensors: list[_Stored]) -> str:
    """Return the digest as a tree over chunks."""
    layouts, leaves = [stored.layout for stored in tensors], []
    for chunk in share(layouts, 0, 1):
        file.seek(tensors[chunk.tensor].begin + chunk.begin)
        leaves.append(leaf(file.read(chunk.end - chunk.begin)))
    return root(layouts, leaves)
