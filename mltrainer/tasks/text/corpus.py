"""A corpus of text files, read piece by piece: a gigabyte of text is never in memory as a whole."""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mltrainer.checkpointing.inference_script import SAMPLE, wide_encoding
from mltrainer.configs.project import Split
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.tasks.content import WHOLE_FILE, Corpus, file_row
from mltrainer.tasks.splits import SPLITS, BySplit
from mltrainer.workspace import Project, digest, machine_faults

SUFFIX = ".txt"
PIECE = 1 << 18  # bytes that are read at once
MOST_HASHED = 64 << 20  # bytes of a block whose lines are hashed to recognize it
OWN_LINE = 40  # characters; shorter lines are in many texts
LONGEST_LINE = 1 << 20  # bytes; a longer line is cut between two characters


def is_corpus(path: Path) -> bool:
    """Return True if a path is a text file, or a folder that holds some and no other folders."""
    if not path.is_dir():
        return path.suffix.lower() == SUFFIX
    return bool(text_files(path)) and not any(each.is_dir() for each in visible(path))


def visible(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted; hidden files and folders are left out."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def text_files(folder: Path) -> list[Path]:
    """Return the text files of a folder itself, sorted; hidden ones are left out, and the ending may be in capitals."""
    return [path for path in visible(folder) if path.suffix.lower() == SUFFIX]


def read_corpus(path: Path, place: str, root: Path) -> tuple[Corpus, list[FileRow]]:
    """Return the text files at a path, in sorted order, and their rows for the record; only their digests are computed.

    Args:
        path: A text file, or a folder of some.
        place: The path in messages and records.
        root: The project's folder, whose state folder holds files made from the text.

    Raises:
        InputError: There is no text in it.
        MachineError: A file may not be read, or the disk failed.
    """
    paths = text_files(path) if path.is_dir() else [path]
    rows = [file_row(each, Path(os.path.relpath(each, root)).as_posix()) for each in paths]
    if not sum(row.size for row in rows):
        raise InputError("the file is empty", where=place, hint=WHOLE_FILE)
    for each, row in zip(paths, rows, strict=True):
        _refuse_wide(each, row.path)
    sha256 = digest([row.sha256 for row in rows])
    return Corpus(paths, [row.size for row in rows], sha256, Project(root).state_dir / "tokens", place), rows


def pieces(corpus: Corpus, start: int, end: int) -> Iterator[str]:
    """Yield the text between two bytes of a corpus, in pieces that end with a line where lines are not too long.

    Raises:
        InputError: The text is not UTF-8; the message has the byte's place.
    """
    rest, position = b"", start
    for data in _bytes(corpus, start, end):
        rest += data
        # Only whole characters are decoded: a piece of bytes may end within one.
        cut = rest.rfind(b"\n") + 1 or (_character(rest, len(rest) - 1) if len(rest) > LONGEST_LINE else 0)
        if cut:
            yield _decoded(corpus, rest[:cut], position)
            rest, position = rest[cut:], position + cut
    if rest:
        yield _decoded(corpus, rest, position)


def line_hashes(corpus: Corpus, start: int, end: int) -> np.ndarray:
    """Return a 64-bit hash of each line between two bytes of a corpus that is long enough to be unique; else of whole pieces."""
    parts = itertools.islice(pieces(corpus, start, end), MOST_HASHED // PIECE)
    lines = [line.strip() for piece in parts for line in (piece.splitlines() if "\n" in piece else [piece])]
    own = [line for line in lines if len(line) >= OWN_LINE] or lines
    return np.frombuffer(b"".join(hashlib.blake2b(line.encode(), digest_size=8).digest() for line in own), dtype=np.uint64)


def _bytes(corpus: Corpus, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes between two places of the files, taken one after the other."""
    begins = 0
    for path, size in zip(corpus.paths, corpus.sizes, strict=True):
        low, high = max(start - begins, 0), min(end - begins, size)
        begins += size
        if low >= high:
            continue
        with machine_faults(str(path)), path.open("rb") as file:
            file.seek(low)
            while low < high and (data := file.read(min(PIECE, high - low))):
                low += len(data)
                yield data


def _refuse_wide(path: Path, place: str) -> None:
    """Refuse a text in UTF-16 or UTF-32: a model learns bytes, and half of these bytes say nothing.

    Raises:
        InputError: The text is in one of them; the message has the command that makes it UTF-8.
    """
    with machine_faults(place), path.open("rb") as file:
        wide = wide_encoding(file.read(SAMPLE))
    if wide is not None:
        command = f"iconv -f {wide} -t utf-8 {shlex.quote(path.name)} > NEW.txt"
        raise InputError(expected="a text in UTF-8", found=wide.upper(), where=place, hint=f"save it as UTF-8: {command}")


def _decoded(corpus: Corpus, data: bytes, position: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        offset = position + error.start
        what = f"not UTF-8: byte 0x{data[error.start]:02x} at byte offset {offset} of the text"
        raise InputError(what, where=corpus.place, hint="save it as UTF-8 (for cp1252: iconv -f cp1252 -t utf-8)") from error


def _character(data: bytes, place: int) -> int:
    """Return the first byte of the character that a byte belongs to."""
    while place > 0 and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def blocks(corpus: Corpus, split: Split) -> BySplit[tuple[int, int]]:
    """Return the first and the last byte of each split's block; those that are cut here end with a line where one is near."""
    held_out = corpus.held_out
    end = sum(corpus.sizes) - sum(held_out.values())
    # A split with a separate file takes no share of the training text.
    validation, test = (0.0 if name in held_out else getattr(split, name) for name in SPLITS[1:])
    first = _line_end(corpus, int(end * (1 - validation - test)), end) if validation or test else end
    second = _line_end(corpus, int(end * (1 - test)), end) if test else end
    found = BySplit(zip(SPLITS, ((0, first), (first, second), (second, end)), strict=True))
    for name, size in held_out.items():
        found[name], end = (end, end + size), end + size
    return found


def _line_end(corpus: Corpus, place: int, total: int) -> int:
    near = b"".join(_bytes(corpus, place, min(total, place + PIECE)))
    if (found := near.find(b"\n")) >= 0:
        return place + found + 1
    # No line ends near: the cut is at the next byte that begins a character.
    return place + next((at for at, byte in enumerate(near) if byte & 0xC0 != 0x80), 0)
