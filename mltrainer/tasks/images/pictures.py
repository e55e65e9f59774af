"""Pictures with `data.image`: read by the functions of the delivered `inference.py`, hashed and decoded once, kept as uint8.

A project keeps the decoded pixels in its state folder. Later processes map them into memory: they compare each file's size and
times with those at the decoding, and the pixels' digest with the one stored beside them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from mltrainer.checkpointing.inference_script import PICTURES, InvalidInputError, picture, read_rows, refuse_bombs
from mltrainer.configs.project import Image
from mltrainer.errors import InputError
from mltrainer.leftovers import new_file
from mltrainer.records.common import FileRow
from mltrainer.reproducibility.environment import cores
from mltrainer.tasks.content import Arrays
from mltrainer.tasks.images.image_folders import fault_of, image_paths
from mltrainer.workspace import PROJECT_FILE, Project, digest, folder_sha256, machine_faults, write_atomic

NEEDED = InputError("reading images needs Pillow", hint='pip install "mltrainer[images]"')
ONE_BY_ONE = 1000  # files that records list one by one
AT_ONCE = 64  # pictures that a thread takes at a time
SHOWN = 5  # damaged files named in a message
TABLES = (".csv", ".tsv", ".jsonl")
STORE = "cache/pictures"  # in the state folder


@dataclass(frozen=True)
class PictureList:
    """Picture files with their labels, in the samples' order.

    Attributes:
        paths: The files.
        names: The files' paths in records and messages.
        labels: The class of each.
        place: The folder or table that lists them, in messages.
        folder: The folder that holds them all, with its path in records; None where some are elsewhere.
    """

    paths: list[Path]
    names: list[str]
    labels: list[str]
    place: str
    folder: tuple[Path, str] | None = None


@dataclass(frozen=True)
class DecodedPictures:
    """The pixels of listed pictures.

    Attributes:
        pixels: The pixels, uint8 [pictures, channels, height, width]; mapped from the project's copy where there is one.
        sha256: Digest of the pixels.
        digests: SHA-256 of each file.
        faults: The reason that a picture could not be read, by its place; its pixels are 0.
        colourful: Number of colour pictures that were made grey.
    """

    pixels: np.ndarray
    sha256: str
    digests: list[str]
    faults: dict[int, str]
    colourful: int


@dataclass(frozen=True)
class _Kept:
    """The content of the file beside the project's copy: the copy's origin, and `DecodedPictures` except for the pixels."""

    origin: str
    sha256: str
    digests: list[str]
    faults: dict[str, str]
    colourful: int


def read_pictures(listed: PictureList, config: Image, root: Path) -> tuple[Arrays, list[FileRow], list[str]]:
    """Return the pictures of a list, a row for each file, and sentences on their conversions.

    Args:
        listed: The files.
        config: Size, fit and colour.
        root: The project's folder; where it holds no project, nothing is kept.

    Raises:
        InputError: Pillow is not installed, or a file is no picture and `data.image.damaged` is stop.
        MachineError: A file may not be read, or the disk failed.
    """
    marks = [_mark(path, name) for path, name in zip(listed.paths, listed.names, strict=True)]
    store = Project(root).state_dir / STORE if (root / PROJECT_FILE).is_file() else None
    decoded = _kept(store, listed, marks, config) or _decode(store, listed, marks, config)
    if decoded.faults and config.damaged == "stop":
        raise _refusal(listed, decoded.faults)
    left = [place for place in range(len(listed.names)) if place not in decoded.faults]
    classes = sorted({listed.labels[place] for place in left})
    number = {name: nr for nr, name in enumerate(classes)}
    y = np.array([number[listed.labels[place]] for place in left], dtype=np.int64)
    pixels = decoded.pixels[left] if decoded.faults else decoded.pixels
    # All pixels were hashed already: naming those that are left spares hashing them again.
    x_sha256 = digest([decoded.sha256, left]) if decoded.faults else decoded.sha256
    rows = _rows(listed, decoded.digests, [size for size, *_ in marks])
    names = [listed.names[place] for place in left]
    return Arrays(pixels, y, classes, listed.place, x_sha256, names), rows, _notes(listed, decoded, config)


def _rows(listed: PictureList, digests: list[str], sizes: list[int]) -> list[FileRow]:
    """Return a row for each file; of many in one folder, one for all pictures in it, or records would be nothing else."""
    if len(listed.paths) <= ONE_BY_ONE or listed.folder is None:
        return [
            FileRow(path=name, sha256=sha256, size=size) for name, sha256, size in zip(listed.names, digests, sizes, strict=True)
        ]
    path, place = listed.folder
    inside = [name.removeprefix(f"{place}/") for name in listed.names]
    return [FileRow(path=place, sha256=folder_sha256(path, dict(zip(inside, digests, strict=True))), size=sum(sizes))]


def _mark(path: Path, name: str) -> list[int]:
    """Return a file's size and times, which show a change of it; the change time cannot be set back."""
    with machine_faults(name):
        try:
            stat = path.stat()
        except FileNotFoundError as error:
            raise InputError("no such file", where=name, hint="bring it there, or take it out of the table") from error
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _refusal(listed: PictureList, faults: dict[int, str]) -> InputError:
    shown = [f"{listed.names[place]}: {why}" for place, why in list(faults.items())[:SHOWN]]
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return InputError(
        f"{len(faults)} of {len(listed.names)} files are not readable as images: {'; '.join(shown)}{more}",
        where=listed.place,
        hint="remove or repair them, or leave them out: data: {image: {damaged: leave_out}}",
    )


def _notes(listed: PictureList, decoded: DecodedPictures, config: Image) -> list[str]:
    height, width = config.size
    notes = [f"pictures are brought to {height}x{width} pixels ({config.fit}), {config.colour}"]
    if decoded.colourful:
        notes.append(f"{decoded.colourful} pictures in colour were made grey")
    if decoded.faults:
        names = ", ".join(listed.names[place] for place in list(decoded.faults)[:SHOWN])
        notes.append(f"{len(decoded.faults)} files that are no pictures were left out: {names}")
    return notes


# --- decoding -----------------------------------------------------------------------------------


def decode(listed: PictureList, config: Image, pixels: np.ndarray, threads: int) -> DecodedPictures:
    """Decode pictures into an array, each at its place, with some threads; the result does not depend on their number.

    Args:
        listed: The files.
        config: Size, fit and colour.
        pixels: The array to fill, uint8 zeros [pictures, channels, height, width].
        threads: Number of threads.
    """
    try:
        import PIL.Image
    except ImportError as error:
        raise NEEDED from error
    PIL.Image.init()  # not in several threads at once
    lows = range(0, len(listed.paths), AT_ONCE)
    with warnings.catch_warnings(), ThreadPoolExecutor(threads) as pool:
        refuse_bombs()  # here, for all threads: these filters are the process's
        rows = [row for part in pool.map(partial(_decode_some, listed, config, pixels), lows) for row in part]
    faults = {place: fault for place, (_, fault, _) in enumerate(rows) if fault is not None}
    sha256 = hashlib.sha256(pixels.reshape(-1).data).hexdigest()
    return DecodedPictures(pixels, sha256, [sha256 for sha256, _, _ in rows], faults, sum(colourful for _, _, colourful in rows))


def _decode_some(listed: PictureList, config: Image, pixels: np.ndarray, low: int) -> list[tuple[str, str | None, bool]]:
    return [_decode_one(listed, config, pixels, place) for place in range(low, min(low + AT_ONCE, len(listed.paths)))]


def _decode_one(listed: PictureList, config: Image, pixels: np.ndarray, place: int) -> tuple[str, str | None, bool]:
    """Put one picture at its place; return its file's digest, its fault or None, and whether colours were lost."""
    with machine_faults(listed.names[place]):
        data = listed.paths[place].read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    grey = config.colour == "grey"
    try:
        pixels[place] = picture(data, config.size, config.fit, grey)
    # No fault of the picture: leaving it out for this would give other data on another machine.
    except MemoryError:
        raise
    except Exception as error:  # whatever Pillow raises for a damaged file
        return sha256, fault_of(error), False
    return sha256, None, grey and _is_colourful(data)


def _is_colourful(data: bytes) -> bool:
    import PIL.Image

    return not is_grey(PIL.Image.open(io.BytesIO(data)).mode)


def is_grey(mode: str) -> bool:
    """Return True if Pillow's mode of a picture has grey levels only."""
    return mode in ("1", "L", "LA", "La") or mode.startswith("I;16")


# --- the project's copy -------------------------------------------------------------------------


def _shape(listed: PictureList, config: Image) -> tuple[int, int, int, int]:
    height, width = config.size
    return len(listed.paths), 1 if config.colour == "grey" else 3, height, width


def _origin(listed: PictureList, marks: list[list[int]], config: Image) -> str:
    """Return the digest of the pixels' origin: the files, the config by which they are read, and Pillow's version."""
    import PIL

    # Pillow's version too: another one may decode the same file to other pixels.
    return digest([listed.names, marks, config.model_dump(), PIL.__version__])


def _name(listed: PictureList, config: Image) -> str:
    return digest([listed.place, config.model_dump()])[:16]


def _kept(store: Path | None, listed: PictureList, marks: list[list[int]], config: Image) -> DecodedPictures | None:
    """Return the project's copy, mapped into memory; None where it is of other files, damaged, or missing."""
    if store is None:
        return None
    path = store / f"{_name(listed, config)}.npy"
    try:
        kept = _Kept(**json.loads(path.with_suffix(".json").read_bytes()))
        if kept.origin != _origin(listed, marks, config):
            return None
        pixels = np.load(path, mmap_mode="c", allow_pickle=False)  # written to by nobody; torch wants it writable
        found = hashlib.sha256(pixels.reshape(-1).data).hexdigest()
        faults = {int(place): why for place, why in kept.faults.items()}
        whole = found == kept.sha256 and pixels.shape == _shape(listed, config)
        return DecodedPictures(pixels, found, kept.digests, faults, kept.colourful) if whole else None
    except (ImportError, OSError, ValueError, TypeError, AttributeError):
        return None


def _decode(store: Path | None, listed: PictureList, marks: list[list[int]], config: Image) -> DecodedPictures:
    """Decode, and keep the pixels where there is a project whose disk has room for them."""
    room = None if store is None else _room(store, listed, config)
    if store is None or room is None:
        return decode(listed, config, np.zeros(_shape(listed, config), dtype=np.uint8), cores())
    path = store / f"{_name(listed, config)}.npy"
    descriptor, temporary, pixels = room
    try:
        decoded = decode(listed, config, pixels, cores())
        os.replace(temporary, path)
    # Whatever ends it, a person's Ctrl-C too: the file has the size of all pixels.
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    faults = {str(place): why for place, why in decoded.faults.items()}
    kept = _Kept(_origin(listed, marks, config), decoded.sha256, decoded.digests, faults, decoded.colourful)
    # After the pixels: pixels left by a crash in between have no digest beside them and are not used.
    write_atomic(path.with_suffix(".json"), json.dumps(vars(kept)).encode())
    return decoded


def _room(store: Path, listed: PictureList, config: Image) -> tuple[int, Path, np.ndarray] | None:
    """Return a new file with room for the pixels, held and mapped, or None where the state folder cannot hold it."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = new_file(store, ".npy")
    except OSError:
        return None
    try:
        pixels = np.lib.format.open_memmap(temporary, "w+", np.uint8, _shape(listed, config))
        if hasattr(os, "posix_fallocate"):  # not on macOS: there a full disk ends the process
            os.posix_fallocate(descriptor, 0, temporary.stat().st_size)
    except OSError:
        temporary.unlink(missing_ok=True)
        os.close(descriptor)
        return None
    return descriptor, temporary, pixels


# --- lists --------------------------------------------------------------------------------------


def list_pictures(path: Path, place: str, column: str | None, target: str | None) -> PictureList:
    """Return the pictures that a folder of class folders or a table of paths lists.

    Args:
        path: The folder, or a CSV or JSONL file, to whose folder the paths in it are relative.
        place: The path in messages and records.
        column: The table's column of paths; None: the only column that holds names of picture files.
        target: The table's column of labels; None: the only other column.

    Raises:
        InputError: There are no class folders, or one is empty; columns are not there or not clear; or a path leads out of the
            table's folder without being absolute.
    """
    if path.is_dir():
        paths = image_paths(path, place)
        labels = [each.parent.name for each in paths]
        names = [f"{place}/{label}/{each.name}" for label, each in zip(labels, paths, strict=True)]
        return PictureList(paths, names, labels, place, (path, place))
    if path.suffix.lower() not in TABLES:
        what = f"data.image belongs to a folder of pictures or a table of paths ({', '.join(TABLES)})"
        raise InputError(what, where=place, hint="remove data.image from mltrainer.yaml")
    return _listed_in_table(path, place, column, target)


def _listed_in_table(path: Path, place: str, column: str | None, target: str | None) -> PictureList:
    """Return the pictures that a table names, in its order; rows without a label are left out."""
    with machine_faults(place):
        try:
            rows = read_rows(path)
        except (InvalidInputError, ValueError, csv.Error) as error:
            hint = "give a table with a column of paths and a column of labels"
            raise InputError(f"not readable as a table of pictures: {error}", where=place, hint=hint) from error
    column, target = _columns(rows, place, column, target)
    labelled = [(os.path.normpath(row[column]) if row[column] else "", row[target]) for row in rows if row[target]]
    folder, base = path.resolve().parent, Path(place).parent
    for cell, label in labelled:
        _refuse_path(cell, label, folder, place)
    names = [cell if Path(cell).is_absolute() else (base / cell).as_posix() for cell, _ in labelled]
    above = None if any(map(os.path.isabs, names)) else os.path.commonpath([os.path.dirname(cell) for cell, _ in labelled])
    around = None if above is None else (folder / above, (base / above).as_posix())
    return PictureList([folder / cell for cell, _ in labelled], names, [label for _, label in labelled], place, around)


def _columns(rows: list[dict[str, str]], place: str, column: str | None, target: str | None) -> tuple[str, str]:
    """Return the column of paths and that of labels."""
    names = list(rows[0]) if rows else []
    paths = [column] if column is not None else [name for name in names if name != target and names_pictures(rows, name)]
    labels = [target] if target is not None else [name for name in names if name not in paths]
    for key, found in (("data.image.column", paths), ("data.target", labels)):
        if len(found) != 1 or found[0] not in names:
            what = f"{', '.join(map(repr, found)) or 'no column'} as {key}; the table has {', '.join(names) or 'no rows'}"
            raise InputError(what, where=place, hint=f"name one column with {key}")
    return paths[0], labels[0]


def names_pictures(rows: list[dict[str, str]], name: str) -> bool:
    """Return True if a column of a table holds names of picture files and nothing else."""
    return all(str(row[name]).lower().endswith(PICTURES) for row in rows)


def _refuse_path(cell: str, label: str, folder: Path, place: str) -> None:
    if not cell or "\0" in cell:
        raise InputError(f"{cell!r} is no path, beside the label {label!r}", where=place, hint="name a file, or remove the row")
    if not Path(cell).is_absolute() and not Path(os.path.normpath(folder / cell)).is_relative_to(folder):
        hint = "move the pictures below the table's folder, or give absolute paths"
        raise InputError(f"{cell!r} leads out of the table's folder", where=place, hint=hint)
