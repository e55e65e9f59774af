"""Samples and labels from NumPy files; nothing pickled is ever loaded."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mltrainer.errors import InputError
from mltrainer.tasks.content import WHOLE_FILE, Arrays

CHANNELS = (1, 3, 4)  # sizes of the last axis that mark images with their channels last


def read_npz(data: bytes, place: str) -> tuple[Arrays, list[str]]:
    """Return the arrays `x` and `y` of an .npz file, and the conversions in sentences.

    Raises:
        InputError: The file is damaged, holds pickles, or lacks one of the two.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            names = list(archive.files)
            found = {name: archive[name] for name in ("x", "y") if name in names}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"not readable as .npz without pickles: {error}", where=place, hint=WHOLE_FILE) from error
    except TypeError as error:  # a single .npy array under the name of an archive
        hint = "np.savez(file, x=..., y=...)"
        raise InputError(expected="an archive with x and y", found="a single array", where=place, hint=hint) from error
    missing = [name for name in ("x", "y") if name not in found]
    if missing:
        raise InputError(
            "the arrays", expected="x and y", found=", ".join(names) or "none", where=place, hint="np.savez(file, x=..., y=...)"
        )
    x, y = found.values()
    return arrays(x, y, place)


def label_file(path: Path) -> Path:
    """Return the .npy file of labels beside one of samples: `x.npy` has `y.npy`, `train_x.npy` has `train_y.npy`.

    Raises:
        InputError: The name does not end in x, or the file is not there.
    """
    other = path.with_name(f"{path.stem[:-1]}y.npy")
    if not path.stem.endswith("x") or not other.is_file():
        raise InputError(
            f"a .npy file holds one array: {path.name} needs its labels in a file beside it, such as x.npy and y.npy",
            where=str(path),
            hint=f"np.save({other.name!r}, labels)" if path.stem.endswith("x") else "name them x.npy and y.npy",
        )
    return other


def read_npy(data: bytes, labels: bytes, place: str) -> tuple[Arrays, list[str]]:
    """Return the arrays of two .npy files.

    Raises:
        InputError: One of them is damaged or holds pickles.
    """
    try:
        x, y = (np.load(io.BytesIO(raw), allow_pickle=False) for raw in (data, labels))
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"not readable as .npy without pickles: {error}", where=place, hint=WHOLE_FILE) from error
    return arrays(x, y, place)


def arrays(x: np.ndarray, y: np.ndarray, place: str) -> tuple[Arrays, list[str]]:
    """Return samples as float32 and labels as int64 or float64, and each conversion in a sentence.

    Raises:
        InputError: Wrong types or shapes, numbers that are not finite, labels that are not 0 to classes - 1.
    """
    if x.ndim < 2 or len(x) == 0 or x[:1].size == 0:
        raise InputError(
            "the shape of x", expected="[samples, features] or more axes, none of them empty", found=list(x.shape), where=place
        )
    if y.shape != (len(x),):
        raise InputError("the shape of y, one label per sample of x", expected=[len(x)], found=list(y.shape), where=place)
    if x.dtype.kind not in "fiub":
        raise InputError("x", expected="numbers", found=x.dtype, where=place)
    samples, notes = _samples(x, place)
    labels, classes = _labels(y, place)
    return Arrays(samples, labels, classes, place), notes


def _samples(x: np.ndarray, place: str) -> tuple[np.ndarray, list[str]]:
    notes = []
    # With two axes it is a table, whose small whole numbers are no pixels.
    if x.ndim >= 3 and x.dtype == np.uint8:
        notes.append("uint8 pixels were divided by 255")
        x = x.astype(np.float32) / 255
    if x.dtype != np.float32:
        notes.append(f"x was converted from {x.dtype} to float32")
    # What float32 cannot hold becomes infinite here, and is refused with its row below.
    with np.errstate(over="ignore"):
        samples = x.astype(np.float32)
    if samples.ndim == 3:
        notes.append("x has no channel axis; one channel was added")
        samples = samples[:, None]
    # Only where the last axis alone can be channels: [n, 3, 32, 3] stays as it is.
    elif samples.ndim == 4 and samples.shape[1] not in CHANNELS and samples.shape[3] in CHANNELS:
        notes.append(f"channels last {list(x.shape[1:])} were moved first")
        samples = np.ascontiguousarray(samples.transpose(0, 3, 1, 2))
    refuse_nonfinite(samples, place)
    return samples, notes


def refuse_nonfinite(x: np.ndarray, place: str) -> None:
    """Refuse samples with NaN or infinity.

    Raises:
        InputError: A sample holds NaN or infinity; the message has their number and the first one's row.
    """
    bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
    if bad.any():
        first = int(bad.argmax())
        what = f"{int(bad.sum())} of {len(x)} samples of x hold NaN or infinity; the first is row {first}"
        raise InputError(what, where=place, hint="take these samples out, or put numbers in their place")


def _labels(y: np.ndarray, place: str) -> tuple[np.ndarray, list[str] | None]:
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            what = f"y holds NaN or infinity, first in row {int((~np.isfinite(y)).argmax())}"
            raise InputError(what, where=place, hint="take these samples out of x and y")
        return y.astype(np.float64), None
    if y.dtype.kind not in "iu":
        raise InputError("y", expected="class numbers (integers) or values to predict (floats)", found=y.dtype, where=place)
    values = np.unique(y)
    return y.astype(np.int64), [str(value) for value in values.tolist()]


def class_numbers(y: np.ndarray, place: str) -> Any:
    """Return labels as class numbers after checking that they are 0 to classes - 1.

    Raises:
        InputError: A label is not whole or out of range; the message has its row and the allowed labels.
    """
    if y.dtype.kind == "f":
        row = int((y != np.floor(y)).argmax())
        raise InputError(
            "y",
            expected="class numbers (integers)",
            found=f"{y.dtype}, such as {y[row]} in row {row}",
            where=place,
            hint="y.astype(np.int64)",
        )
    count = len(np.unique(y))
    wrong = (y < 0) | (y >= count)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"{count} classes",
            expected=f"labels from 0 to {count - 1}",
            found=f"{y[row]} in row {row} ({int(wrong.sum())} rows)",
            where=place,
            hint="y = np.unique(y, return_inverse=True)[1]",
        )
    return y
