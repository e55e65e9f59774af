"""Damage done to a checkpoint between two runs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

_LOCAL_HEADER = 30  # bytes of a zip file's local header before name and extra field


def flip_bit(path: Path) -> None:
    """Flip one high bit of the mantissa of one weight in a checkpoint's file."""
    data = bytearray(path.read_bytes())
    start, end = _zip_weight(path, data) if zipfile.is_zipfile(path) else _safetensors_weight(data)
    data[(start + (end - start) // 2) // 4 * 4 + 2 + start % 4] ^= 0x40
    path.write_bytes(data)


def _zip_weight(path: Path, data: bytearray) -> tuple[int, int]:
    """Return where the first of the largest tensors lies in a file of torch.save: weights come before their moments."""
    with zipfile.ZipFile(path) as file:
        records = [row for row in file.infolist() if "/data/" in row.filename]
    chosen = max(records, key=lambda row: (row.file_size, -int(row.filename.rpartition("/")[2])))
    at = chosen.header_offset
    name, extra = (int.from_bytes(data[at + low : at + low + 2], "little") for low in (26, 28))
    start = at + _LOCAL_HEADER + name + extra
    return start, start + chosen.file_size


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
