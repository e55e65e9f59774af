"""A sample's contents: its source's cells, else a picture, else its first numbers."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.questions.rows.ask import Content
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.structures import one_of, tensors_in
from mltrainer.trainers.native.data.addresses import evaluation_batches

SIDE, SMALLEST = 96, 6  # of a picture's longer side at most, so that a page stays small; and of one that is a picture
MOST_NUMBERS, MOST_LETTERS = 12, 400
CHANNELS = (1, 3)


def contents(opened: OpenTask, config: TrainingConfig, split: str, ids: list[int]) -> Iterator[Content]:
    """Yield the contents of some samples of a split."""
    samples = opened.split(split)
    position = {int(sample): place for place, sample in enumerate(np.asarray(samples.ids).tolist())}
    positions = np.array([position[sample] for sample in ids], dtype=np.int64)
    begins = 0
    for batch in evaluation_batches(samples, positions, config, split):
        count = len(next(tensors_in(batch)))
        for place, sample in enumerate(ids[begins : begins + count]):
            cells = {name: cell[:MOST_LETTERS] for name, cell in opened.cells(sample).items()}
            inputs = None if cells else _inputs(one_of(batch, place, count), opened.task.target_key)
            picture = None if inputs is None else picture_of(inputs)
            values = [] if inputs is None or picture is not None else inputs.flatten()[:MOST_NUMBERS].tolist()
            yield Content(place=opened.place(sample), cells=cells, picture=picture, values=values)
        begins += count


def _inputs(batch: Any, target_key: str) -> Tensor | None:
    """Return the first input of a batch of one."""
    parts = [part for name, part in batch.items() if name != target_key] if isinstance(batch, dict) else batch[:-1]
    found = next(tensors_in(list(parts)), None)
    return None if found is None or not found.dim() else found[0]


def picture_of(values: Tensor) -> str | None:
    """Return a sample as a PNG in base64; None where its shape is no picture's."""
    planes = values[None] if values.dim() == 2 else values
    if planes.dim() != 3 or planes.shape[0] not in CHANNELS or min(planes.shape[1:]) < SMALLEST:
        return None
    step = -(-max(planes.shape[1:]) // SIDE)
    pixels = planes[:, ::step, ::step].detach().cpu().float().nan_to_num().numpy()
    # Numbers that were standardized have no levels of their own: each picture's range is stretched to what can be seen.
    low, high = (0.0, 255.0) if not values.is_floating_point() else (float(pixels.min()), float(pixels.max()))
    levels = ((pixels - low) / max(high - low, 1e-12) * 255).clip(0, 255).round().astype(np.uint8)
    return base64.b64encode(png(levels.transpose(1, 2, 0))).decode()


def png(pixels: np.ndarray) -> bytes:
    """Return uint8 pixels [height, width, 1 or 3] as a PNG file (PNG specification, 3rd edition, W3C)."""
    height, width, channels = pixels.shape
    colour = {1: 0, 3: 2}[channels]
    # Each line of a PNG begins with its filter; 0: none.
    lines = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.reshape(height, -1)], axis=1)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)), (b"IDAT", zlib.compress(lines.tobytes(), 9))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, [*parts, (b"IEND", b"")]))


def _chunk(part: tuple[bytes, bytes]) -> bytes:
    kind, data = part
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
