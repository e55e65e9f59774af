"""The content of a data source before any fitting: a table of columns, arrays of samples and labels, or text files."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.errors import InputError, first_names
from mltrainer.records.common import FileRow
from mltrainer.workspace import machine_faults, sha256_bytes, sha256_file

if TYPE_CHECKING:
    from mltrainer.tasks.tables.columns import Cells
    from mltrainer.tasks.tables.table_cache import TableCache

WHOLE_FILE = "bring the whole file, or change data.source in mltrainer.yaml"  # the next step, in messages
WHOLE_NUMBER = re.compile(r"-?\d{1,600}")  # Python's limit of digits can be set as low as 640
TWO_CLASSES = "bring samples of at least two classes, or predict another column"


def listed(names: Sequence[str] | np.ndarray, most: int = 3, separator: str = ", ") -> str:
    """Return the first of some names in words, and the number of the others."""
    return first_names([*names], most, separator)


@dataclass(frozen=True)
class Table:
    """Columns of equal length.

    Attributes:
        columns: The cells by column, in the file's order: float64 with NaN for missing, or text (objects, or a polars series).
        numbering: Returns the line or row number of each row in its file; for messages only, as it may read the file again.
        place: The file's name, or the data set's.
        cache: The cache of a large table's columns, shared by processes; None: no cache.
        later: The first row and the name of each file after the first, for a table from several files.
        notes: Sentences on unusual choices in reading it.
        missing: The spellings of a missing value whose cells were emptied.
    """

    columns: Mapping[str, Cells]
    numbering: Callable[[], np.ndarray]
    place: str
    cache: TableCache | None = None
    later: tuple[tuple[int, str], ...] = ()
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return self.cache.rows if self.cache is not None else len(next(iter(self.columns.values())))

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """The line or row number of each row in its file."""
        return self.numbering()

    def where(self, row: int) -> str:
        """Return the place of a row as `file:line`."""
        return f"{self._place(row)}:{self.rows[row]}"

    @property
    def sizes(self) -> list[int]:
        """Number of rows from each file."""
        ends = [*(first for first, _ in self.later), len(self)]
        return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]

    def line(self, row: int) -> str:
        """Return the line of a row, with its file's name where that is not the table's first."""
        return str(self.rows[row]) if self._place(row) == self.place else self.where(row)

    def _place(self, row: int) -> str:
        return next((place for first, place in reversed(self.later) if row >= first), self.place)


def require_columns(table: Table, names: Iterable[str], where: str) -> None:
    """Refuse names that are no columns of a table; `where` names the config's key.

    Raises:
        InputError: A name is no column; the message has the nearest one.
    """
    for name in names:
        if name not in table.columns:
            hint = f"name a column of {table.place}{_without_header(table)}"
            raise InputError.unknown("column", name, table.columns, of=f"in {table.place}", where=where, hint=hint)


def _without_header(table: Table) -> str:
    """Return a hint at the names of columns without a header, where the names that were read look like values; else ""."""
    if not any(map(_is_number, table.columns)):
        return ""
    return f"; if its first line holds no names, they are column_1 to column_{len(table.columns)}"


def cells_of(table: Table, row: int) -> dict[str, str]:
    """Return the cells of a row by column; a missing number is empty."""
    found = {name: cells[row] for name, cells in table.columns.items()}
    # NaN alone differs from itself; the cells are of any type here.
    return {name: "" if cell is None or cell != cell else _plainly(cell) for name, cell in found.items()}


def _plainly(cell: Any) -> str:
    return f"{cell:.12g}" if isinstance(cell, float) else str(cell)


def without(table: Table, missing: list[str]) -> Table:
    """Return a table in which cells are empty that mean no value; in columns of numbers, those equal to such a number."""
    if not missing:
        return table
    columns = {name: _emptied(cells, missing) for name, cells in table.columns.items()}
    return replace(table, columns=columns, missing=[*table.missing, *missing])


NO_TARGET = "is read as no value, and a row without a target is left out"


def target_gaps(table: Table, target: str, missing: list[str]) -> list[str]:
    """Return a sentence for each spelling of a missing value among a target's cells, with the setting for a class."""
    cells = table.columns.get(target)
    if cells is None or cells.dtype == np.float64:
        return []
    counts = {text: int((cells == text).sum()) for text in missing}
    return [
        f"{text!r} is in {count} of {len(table)} cells of the target {target!r}: it {NO_TARGET}; where it is a class, write "
        f"data: {{missing: {json.dumps([one for one in missing if one != text], ensure_ascii=False)}}}"
        for text, count in counts.items()
        if count
    ]


def _emptied(cells: Cells, missing: list[str]) -> Cells:
    if not isinstance(cells, np.ndarray):
        import polars

        is_meant = cells.is_in(missing)
        if not is_meant.any():
            return cells
        kept = polars.when(is_meant).then(polars.lit("")).otherwise(cells)
        return polars.select(kept.alias(cells.name)).to_series()
    if cells.dtype == object:
        meant = set(missing)
        emptied = np.empty(len(cells), dtype=object)
        emptied[:] = ["" if cell in meant else cell for cell in cells.tolist()]
        return emptied
    return np.where(np.isin(cells, [float(text) for text in missing if _is_number(text)]), np.nan, cells)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


@dataclass(frozen=True)
class Arrays:
    """Samples as one array.

    Attributes:
        x: The samples, float32, samples first; images as [samples, channels, height, width], where they are pictures, uint8.
        y: The targets: int64 class numbers from 0, or float64 values to predict.
        classes: The classes' names; None for values to predict.
        place: The file's name, or the data set's.
        x_sha256: Digest of x, where reading it has made one.
        names: The file of each sample, where each has one.
    """

    x: np.ndarray
    y: np.ndarray
    classes: list[str] | None
    place: str
    x_sha256: str | None = None
    names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Corpus:
    """Text files, one after the other.

    Attributes:
        paths: The files.
        sizes: The files' sizes in bytes.
        sha256: Digest of all files, in their order.
        cache: The folder for files derived from them.
        place: The file's or folder's name.
        held_out: Number of bytes, at the end, of each split with separate files, in order.
    """

    paths: list[Path]
    sizes: list[int]
    sha256: str
    cache: Path
    place: str
    held_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """The content of a data source, with the files that it was read from.

    Attributes:
        content: The samples.
        files: The row of each file that was read, by its path relative to the project; none for built-in data.
        notes: Sentences on the conversions.
        tokenizer: The `tokenizer.json` of `data.tokens.file`, one of the files; None where there is none.
        given: The place in `splits.SPLITS` of each sample, where splits have separate files; None where they have not.
    """

    content: Table | Arrays | Corpus
    files: list[FileRow]
    notes: list[str] = field(default_factory=list)
    tokenizer: bytes | None = None
    given: np.ndarray | None = None

    @property
    def sha256(self) -> str:
        """The digest of all samples with their labels, in their order, and of the tokenizer, where one is given."""
        samples = content_sha256(self.content)
        return samples if self.tokenizer is None else hashlib.sha256(samples.encode() + self.tokenizer).hexdigest()


def file_row(path: Path, place: str, data: bytes | None = None) -> FileRow:
    """Return the row of a file, which messages and records call `place`; `data` is its content, where it was read already."""
    with machine_faults(place):
        known = (sha256_file(path), path.stat().st_size) if data is None else (sha256_bytes(data), len(data))
    return FileRow(path=place, sha256=known[0], size=known[1])


def class_order(name: str) -> tuple[int, int, str]:
    """Return the sort key of a class's name: whole numbers in numeric order, then other texts.

    A number longer than Python reads is a text, as is one with two signs.
    """
    return (0, int(name), name) if WHOLE_NUMBER.fullmatch(name) else (1, 0, name)


def content_sha256(content: Table | Arrays | Corpus) -> str:
    """Return the digest of all samples with their labels, in their order."""
    if isinstance(content, Table) and content.cache is not None and content.cache.content_sha256:
        return content.cache.content_sha256
    if isinstance(content, Corpus):
        return content.sha256
    digest = hashlib.sha256()
    if isinstance(content, Arrays):
        if content.x_sha256 is None:
            add_array(digest, content.x)
        else:
            add_text(digest, f"{content.x_sha256} {content.x.dtype.str}{content.x.shape}")
        add_array(digest, content.y)
        digest.update(repr(content.classes).encode())
    else:
        for name, cells in content.columns.items():
            add_text(digest, name)
            add_cells(digest, cells)
    return digest.hexdigest()


def add_cells(digest: Any, cells: Cells) -> None:
    """Add a column to a digest; text has the same digest in polars and in an array of objects."""
    if isinstance(cells, np.ndarray):
        add_array(digest, cells)
        return
    import polars

    digest.update(f"|O({len(cells)},)".encode())
    for part in range(0, len(cells), 100_000):  # in parts: the joined text is as large as the column
        some, joined = cells[part : part + 100_000], io.BytesIO()
        # As `add_text` writes each cell, its length and a colon in front, but by polars for all of them at once.
        polars.select(some.str.len_bytes().alias("bytes"), some.alias("cells")).write_csv(
            joined, include_header=False, separator=":", line_terminator="", quote_style="never"
        )
        digest.update(joined.getbuffer())


def add_array(digest: Any, array: np.ndarray) -> None:
    """Add an array's type, shape and content to a digest; text cells each with their length."""
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    if array.dtype == object:
        for cell in array:
            add_text(digest, cell)
    else:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)


def add_text(digest: Any, text: str) -> None:
    """Add a text with its length, so that `ab, c` and `a, bc` differ."""
    # A lone surrogate, as in a file name that is no UTF-8, must not stop the digest.
    raw = text.encode("utf-8", "surrogatepass")
    digest.update(b"%d:" % len(raw) + raw)
