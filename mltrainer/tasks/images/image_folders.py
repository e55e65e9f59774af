"""Folders of images, a folder per class, all of one size."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from mltrainer.checkpointing.inference_script import PICTURES
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.tasks.content import Arrays, file_row
from mltrainer.workspace import machine_faults

GREY = ("1", "L")


def read_images(folder: Path, place: str) -> tuple[Arrays, list[FileRow], list[str]]:
    """Return the images of a folder, its files, and the conversions; classes and files in sorted order.

    Args:
        folder: The folder, with one folder per class.
        place: The folder's path in messages and records.

    Raises:
        InputError: Pillow is not installed, no class folders, a damaged image, or images of unequal sizes.
    """
    paths = image_paths(folder, place)
    pixels, rows, modes = [], [], set()
    for path in paths:
        name = f"{place}/{path.relative_to(folder).as_posix()}"
        with machine_faults(name):
            data = path.read_bytes()
        rows.append(file_row(path, name, data))
        image = _decode(data, name)
        modes.add(image.mode)
        pixels.append(image)
    grey = modes <= set(GREY)
    _refuse_unequal(pixels, rows)
    x = np.stack([_array(image, grey) for image in pixels])
    classes = sorted({path.parent.name for path in paths})
    y = np.array([classes.index(path.parent.name) for path in paths], dtype=np.int64)
    notes = ["pixels were divided by 255"]
    if not grey and modes != {"RGB"}:
        notes.append(f"images of modes {', '.join(sorted(modes))} were converted to RGB")
    return Arrays(x, y, classes, place, names=[row.path for row in rows]), rows, notes


def fault_of(error: Exception) -> str:
    """Return Pillow's message on a damaged file, without the name of the bytes in memory that it was read from."""
    return f"{type(error).__name__}: {re.sub(r' *<_io[.]BytesIO object[^>]*>', '', str(error))}"


def image_paths(folder: Path, place: str) -> list[Path]:
    """Return the images of every class folder, sorted.

    Raises:
        InputError: There is no class folder, or one without images.
    """
    with machine_faults(place):
        folders = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        found = {
            f: sorted(p for p in f.iterdir() if p.suffix.lower() in PICTURES and not p.name.startswith(".")) for f in folders
        }
    if not folders:
        raise InputError(
            expected="a folder per class", found="none", where=place, hint="put the images of each class in a folder of its own"
        )
    empty = [f.name for f, paths in found.items() if not paths]
    if empty:
        what = f"no images in {', '.join(empty)}; known are {', '.join(sorted(PICTURES))}"
        raise InputError(what, where=place, hint="add images of the class, or remove its folder")
    return [path for paths in found.values() for path in paths]


def _decode(data: bytes, name: str) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("reading images needs Pillow", where=name, hint='pip install "mltrainer[images]"') from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow warns of a decompression bomb before it refuses one
            image = Image.open(io.BytesIO(data))
            image.load()
    except Exception as error:
        hint = "bring the whole file, or take it out of the data"
        raise InputError(f"not readable as an image: {fault_of(error)}", where=name, hint=hint) from error
    # These have 16 or 32 bits: converting them to 8 would silently cut off levels.
    if image.mode.startswith(("I", "F")):
        found, hint = f"pixels of mode {image.mode}", "save it with 8 bits, scaled as you choose"
        raise InputError(expected="8 bits per channel", found=found, where=name, hint=hint)
    return image


def _array(image: Any, grey: bool) -> np.ndarray:
    array = np.asarray(image.convert("L" if grey else "RGB"), dtype=np.float32) / 255
    return array[None] if grey else np.ascontiguousarray(array.transpose(2, 0, 1))


def _refuse_unequal(images: list[Any], rows: list[FileRow]) -> None:
    for image, row in zip(images, rows, strict=True):
        if image.size != images[0].size:
            (a, b), (c, d) = images[0].size, image.size
            raise InputError(
                f"{c}x{d} pixels, but {rows[0].path} has {a}x{b}; all images must be of one size",
                where=row.path,
                hint="name a size in mltrainer.yaml, to which all are brought: data: {image: {size: [64, 64]}}",
            )
