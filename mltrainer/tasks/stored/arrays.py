"""Arrays and tokens that are read from their files row by row: `.npy`, and `.bin` without a header."""

from __future__ import annotations

import ast
import math
import operator
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltrainer.configs.project import Split
from mltrainer.errors import InputError
from mltrainer.tasks.splits import SPLITS, BySplit
from mltrainer.tasks.stored.manifest import FileManifest, Slots, StoredFile
from mltrainer.tasks.stored.records import Part, Records

MAGIC = b"\x93NUMPY"
WHOLE = "bring the whole file"
MOST_HEADER = 10_000  # bytes, as NumPy reads it
AS_ROWS = "save it by np.save as an array of numbers in C order"


class ArrayFile:
    """One array in a file.

    Args:
        manifest: The file's manifest.
        kind: The type of a `.bin` file's numbers; a `.npy` file has it in its header.

    Attributes:
        shape: The array's shape.
        type: The type of its numbers.
    """

    def __init__(self, manifest: FileManifest, kind: str = "uint16") -> None:
        self.file, name = StoredFile(manifest), manifest.location.name
        if name.endswith(".npy"):
            self.type, self.shape, self._begins = _header(self.file, name)
        else:
            self.type, self._begins = np.dtype(kind).newbyteorder("<"), 0
            self.shape = (manifest.size // self.type.itemsize,)
        self._row = math.prod(self.shape[1:]) * self.type.itemsize
        if self._begins + self._row * self.shape[0] != manifest.size:
            what = f"{manifest.size} bytes do not hold {list(self.shape)} numbers of {self.type}"
            hint = WHOLE if name.endswith(".npy") else f"{WHOLE}, or say its type: data: {{tokens: {{type: uint32}}}}"
            raise InputError(what, where=name, hint=hint)

    def rows(self, start: int, count: int) -> np.ndarray:
        """Return some rows, as a writable array."""
        data = self.file.read(self._begins + start * self._row, count * self._row)
        # Copied: an array over bytes is read-only, which torch warns about.
        return np.frombuffer(data, dtype=self.type).reshape(count, *self.shape[1:]).copy()


@dataclass(frozen=True)
class _Header:
    """The header of a `.npy` file, in NumPy's words."""

    descr: Any
    fortran_order: bool
    shape: tuple[int, ...]


def _header(file: StoredFile, name: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return the type and shape of a `.npy` file's array, and the byte at which it begins.

    Raises:
        InputError: The file is no `.npy` file, or holds objects or columns.
    """
    size = file.manifest.size
    start = file.read(0, min(size, 12))
    if len(start) < 12 or start[:6] != MAGIC:
        raise InputError("not readable as .npy", where=name, hint=AS_ROWS)
    form, begins = ("<H", 10) if start[6] == 1 else ("<I", 12)
    (length,) = struct.unpack_from(form, start, 8)
    try:
        header = _Header(**ast.literal_eval(file.read(begins, min(length, size - begins, MOST_HEADER)).decode("latin1")))
        kind, shape = np.dtype(header.descr), tuple(map(operator.index, header.shape))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise InputError(f"not readable as .npy: {error}", where=name, hint=AS_ROWS) from error
    if not _is_plain(kind) or header.fortran_order or min(shape, default=0) < 1:
        order = ", column by column" if header.fortran_order else ""
        what = f"an array {list(shape)} of {kind}{order}; rows of numbers were expected"
        raise InputError(what, where=name, hint=AS_ROWS)
    return kind, shape, begins + length


def _is_plain(kind: np.dtype[Any]) -> bool:
    """Return True for a type with values of one size that need no unpickling."""
    return kind.itemsize > 0 and kind.subdtype is None and not kind.hasobject and not kind.names


def array_slots(file: StoredFile) -> Slots:
    """Return an array's rows as one slot; of a file without a header, none is known yet."""
    name = file.manifest.location.name
    rows = ArrayFile(file.manifest).shape[0] if name.endswith(".npy") else 0
    return [(rows, file.manifest.size)]


class ArrayRows(Records):
    """The rows of an array, with those of a second one of equal length where there are labels: tuples, the labels last.

    Raises:
        InputError: The arrays are of unequal length.
    """

    kind = "arrays"

    def __init__(self, files: list[FileManifest]) -> None:
        super().__init__(files)
        self._arrays = [ArrayFile(one) for one in files]
        lengths = {one.shape[0] for one in self._arrays}
        if len(lengths) > 1:
            what = f"{' and '.join(one.location.name for one in files)} have {' and '.join(map(str, sorted(lengths)))} rows"
            raise InputError(what, where="data.source", hint="give every sample a label")

    @property
    def holding_samples(self) -> list[FileManifest]:
        """The array of samples: labels of two splits may be the same by chance."""
        return self.files[:1]

    @property
    def slots(self) -> tuple[np.ndarray, np.ndarray]:
        """One slot with all rows."""
        return np.array([self._arrays[0].shape[0]]), np.array([self.files[0].size])

    def read(self, slot: int, row: int) -> Any:
        """Return a row, or a tuple of one of each array."""
        found = [one.rows(row, 1)[0] for one in self._arrays]
        return tuple(found) if len(found) > 1 else found[0]

    def place(self, slot: int, row: int) -> str:
        """Return file and row."""
        return f"{self.files[0].location.name}, row {row}"


class TokenWindows(Records):
    """Windows of tokens in a file: tuples of a window and the window one token later, int64.

    Windows overlap by one token, so that every token but the first is predicted once. Each split is a contiguous block.

    Args:
        files: The manifest of one file.
        length: Number of tokens of a window.
        kind: The type of a `.bin` file's tokens.
        block: The first token and the one after the last; None for all.

    Raises:
        InputError: The file holds no whole numbers.
    """

    kind = "tokens"

    def __init__(self, files: list[FileManifest], length: int, kind: str, block: tuple[int, int] | None = None) -> None:
        super().__init__(files)
        self._array, self._length, self._type = ArrayFile(files[0], kind), length, kind
        name = files[0].location.name
        if self._array.type.kind not in "iu" or len(self._array.shape) != 1:
            what = f"an array {list(self._array.shape)} of {self._array.type}; one row of token ids was expected"
            raise InputError(what, where=name, hint="np.save(file, ids)")
        self.block = block or (0, self._array.shape[0])

    @property
    def slots(self) -> tuple[np.ndarray, np.ndarray]:
        """One slot with all windows."""
        first, end = self.block
        return np.array([max(0, end - first - 1) // self._length]), np.array([self.files[0].size])

    def read(self, slot: int, row: int) -> Any:
        """Return a window, and the window one token later."""
        tokens = self.window(row)
        return tokens[:-1], tokens[1:]

    def window(self, row: int) -> np.ndarray:
        """Return the tokens of a window and the one after it, int64."""
        return self._array.rows(self.block[0] + row * self._length, self._length + 1).astype(np.int64)

    def place(self, slot: int, row: int) -> str:
        """Return file and first token."""
        return f"{self.files[0].location.name}, token {self.block[0] + row * self._length}"

    def parts(self, split: Split, seed: int, wanted: tuple[str, ...]) -> BySplit[Part]:
        """Return contiguous blocks, so that neighbouring tokens of a text are not in two splits.

        Args:
            split: The shares.
            seed: Not used: the blocks follow one another.
            wanted: The splits without a separate source.
        """
        total, ends, end = self._array.shape[0], BySplit[int](), 1.0
        for name in (*reversed(SPLITS[1:]), SPLITS[0]):
            ends[name] = int(total * end + 1e-6)
            end -= getattr(split, name) if name in wanted and name != SPLITS[0] else 0.0
        begins = BySplit({"train": 0, "validation": ends.train, "test": ends.validation})
        return BySplit({name: Part.whole(self._of_block(begins[name], ends[name])) for name in wanted})

    def _of_block(self, first: int, end: int) -> TokenWindows:
        return TokenWindows(self.files, self._length, self._type, (first, end))
