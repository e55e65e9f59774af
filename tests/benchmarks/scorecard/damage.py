"""Damage done to a checkpoint between two runs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def flip_bit(path: Path) -> None:
    """Flip one high bit of the mantissa of one weight in a checkpoint's file."""
    data = bytearray(path.read_bytes())
    start, end = _pickled_weight(path, data) if zipfile.is_zipfile(path) else _safetensors_weight(data)
    data[(start + (end - start) // 2) // 4 * 4 + 2 + start % 4] ^= 0x40
    path.write_bytes(data)


def _pickled_weight(path: Path, data: bytearray) -> tuple[int, int]:
    """Return where the first matrix of a file of torch.save lies: weights come before their moments."""
    import torch

    matrix = next(_matrices(torch.load(path, weights_only=False))).numpy().tobytes()
    start = data.index(matrix)
    return start, start + len(matrix)


def _matrices(value: Any) -> Iterator[Any]:
    """Yield the tensors of two dimensions in a nested state."""
    if getattr(value, "ndim", 0) == 2:
        yield value
    for item in value.values() if isinstance(value, dict) else ():
        yield from _matrices(item)


def _safetensors_weight(data: bytearray) -> tuple[int, int]:
    """Return where the model's largest tensor lies in a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    rows = json.loads(data[8 : 8 + size])
    offsets = [row["data_offsets"] for name, row in rows.items() if name != "__metadata__" and not name.startswith("optimizer")]
    start, end = max(offsets, key=lambda pair: pair[1] - pair[0])
    return 8 + size + start, 8 + size + end


def drop_tensors(path: Path, prefix: str) -> None:
    """Rewrite a safetensors file without the tensors of a prefix."""
    from safetensors.numpy import load_file, save_file

    save_file({name: value for name, value in load_file(path).items() if not name.startswith(prefix)}, path)


def drop_key(path: Path, key: str) -> None:
    """Rewrite a file of torch.save without one key."""
    import torch

    state = torch.load(path, weights_only=False)
    del state[key]
    torch.save(state, path)
