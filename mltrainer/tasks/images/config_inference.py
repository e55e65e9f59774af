"""The config for a folder of pictures, or a table of their paths: size, colour and model, with reasons."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mltrainer.checkpointing.inference_script import InvalidInputError, read_csv
from mltrainer.errors import InputError
from mltrainer.tasks.data_findings import rare_classes, suited_metric
from mltrainer.tasks.images.image_folders import image_paths
from mltrainer.tasks.images.pictures import NEEDED, TABLES, PictureList, is_grey, list_pictures, names_pictures

LOOKED_AT = 2000  # pictures whose size and colour are read, evenly spaced
HEAD_BYTES = 1 << 16  # the bytes of a table that are read to find out its content
LARGEST_SIDE = 128  # chosen by us: the side to which larger pictures are shrunk, for a small network on a CPU
ALIKE = 1.1  # the largest quotient of two aspect ratios that count as one
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)  # of EXIF: pictures whose sides change places


def holds_pictures(path: Path) -> bool:
    """Return True if a path is a folder with a folder of pictures in it, or a table with a column of their names."""
    if path.is_dir():
        try:
            return bool(image_paths(path, str(path)))
        except InputError:
            return False
    return path.is_file() and path.suffix.lower() in TABLES and _names_some(path)


def _names_some(path: Path) -> bool:
    with open(path, "rb") as file:
        # The head may end within a character.
        head = file.read(HEAD_BYTES).decode("utf-8-sig", "replace")
    lines = head.splitlines()[:20]
    try:
        rows = [json.loads(line) for line in lines[:1]] if path.suffix.lower() == ".jsonl" else read_csv("\n".join(lines))
    except (InvalidInputError, ValueError, csv.Error):
        return False
    return bool(rows) and isinstance(rows[0], dict) and any(names_pictures(rows, name) for name in rows[0])


@dataclass(frozen=True)
class InferredImageConfig:
    """The config for pictures.

    Attributes:
        values: The values of `mltrainer.yaml`.
        notes: Sentences with the reasons.
        pictures: Number of pictures.
    """

    values: dict[str, Any]
    notes: list[str]
    pictures: int


def infer_pictures(path: Path, source: str, target: str | None) -> InferredImageConfig:
    """Return the values of `mltrainer.yaml` for pictures, and notes on them.

    Args:
        path: A folder of class folders, or a table.
        source: The value of `data.source` for it.
        target: A table's column of labels.

    Raises:
        InputError: Pillow is not installed, or the pictures cannot be listed.
    """
    listed = list_pictures(path, source, None, target)
    sizes, colours = _looked_at(listed)
    size, fit, why = _size(sizes)
    counts = Counter(listed.labels)
    names = sorted(counts)
    sizes_of = np.array([counts[name] for name in names])
    metric, warnings = suited_metric(names, sizes_of, "pictures")
    warnings += rare_classes(names, sizes_of)
    colour = "grey" if all(colours) else "rgb"
    of_table = {} if path.is_dir() else {"target": target} if target else {}
    values = {
        "task": {"kind": "image_classification"},
        "data": {"source": source, **of_table, "image": {"size": size, "fit": fit, "colour": colour}},
        "split": {"validation": 0.2, "test": 0.1, "stratify": True},
        "model": {"name": "cnn", "channels": channels(size)},
        "metric": {"name": metric, "mode": "max"},
    }
    what = f"{len(listed.paths)} pictures in {len(counts)} classes: image_classification, stratified, with a small CNN"
    return InferredImageConfig(values, [what, why, *(f"warning: {line}" for line in warnings)], len(listed.paths))


def _looked_at(listed: PictureList) -> tuple[list[tuple[int, int]], list[bool]]:
    """Return height and width of some pictures, upright, and whether each has grey levels only; damaged ones are left out."""
    try:
        from PIL import Image
    except ImportError as error:
        raise NEEDED from error
    places = np.unique(np.linspace(0, len(listed.paths) - 1, min(LOOKED_AT, len(listed.paths))).round().astype(int))
    seen = [row for place in places if (row := _look(Image, listed.paths[place])) is not None]
    if not seen:
        hint = "bring whole files, in a format that Pillow reads"
        raise InputError("none of these files is readable as an image", where=listed.place, hint=hint)
    return [size for size, _ in seen], [grey for _, grey in seen]


def _look(reader: Any, path: Path) -> tuple[tuple[int, int], bool] | None:
    """Return a picture's upright height and width, and whether it is grey; None where it is damaged, which planning reports."""
    try:
        with reader.open(path) as image:
            turned = image.getexif().get(ORIENTATION) in TURNED
            return image.size if turned else image.size[::-1], is_grey(image.mode)
    except Exception:
        return None


def _size(sizes: list[tuple[int, int]]) -> tuple[list[int], str, str]:
    """Return the size that pictures are brought to, the fit, and the reason."""
    (least_h, most_h), (least_w, most_w) = ((min(side), max(side)) for side in zip(*sizes, strict=True))
    if (least_h, least_w) == (most_h, most_w) and max(most_h, most_w) <= LARGEST_SIDE:
        return [most_h, most_w], "resize", f"all have {most_h}x{most_w} pixels"
    height, width = (median(side) for side in zip(*sizes, strict=True))
    shrink = min(1.0, LARGEST_SIDE / max(height, width))
    size = [max(8, round(side * shrink / 8) * 8) for side in (height, width)]
    ratios = [h / w for h, w in sizes]
    fit = "resize" if max(ratios) <= ALIKE * min(ratios) else "pad"
    found = f"{least_h} to {most_h} pixels high and {least_w} to {most_w} wide"
    return size, fit, f"they are {found}: brought to {size[0]}x{size[1]} ({fit}); change it with data.image in mltrainer.yaml"


def channels(size: list[int]) -> list[int]:
    """Return the channels of a small CNN for a picture's size: halved until about 8 pixels are left, four times at most."""
    layers = min(4, max(1, min(size).bit_length() - 3))
    first = 16 if min(size) >= 64 else 32
    return [first * 2**number for number in range(layers)]
