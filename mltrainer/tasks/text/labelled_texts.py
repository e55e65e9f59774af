"""Texts with their classes: a table's column, or a folder of text files for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.tasks.content import Arrays, Corpus, Table, class_order, file_row
from mltrainer.tasks.tables.files import decode, text_array
from mltrainer.tasks.text.corpus import SUFFIX, text_files, visible
from mltrainer.workspace import machine_faults

TEXT, LABEL = "text", "label"  # the columns of a folder of text files


def is_text_folder(folder: Path) -> bool:
    """Return True if a folder holds folders of text files, and no class folder with anything else."""
    inner = _folders(folder)
    return any(map(text_files, inner)) and all(visible(each) == text_files(each) for each in inner)


def _folders(folder: Path) -> list[Path]:
    return [path for path in visible(folder) if path.is_dir()]


def read_texts(folder: Path, place: str) -> tuple[Table, list[FileRow]]:
    """Return the texts of a folder with one folder per class as a table, and its files; classes and files in sorted order.

    Args:
        folder: The folder, with one folder per class.
        place: The folder's path in messages and records.

    Raises:
        InputError: A class without a text, or a file that is empty or not UTF-8.
        MachineError: A file may not be read, or the disk failed.
    """
    with machine_faults(place):
        found = {inner.name: text_files(inner) for inner in _folders(folder)}
    empty = [name for name, paths in found.items() if not paths]
    if empty:
        raise InputError(f"no {SUFFIX} files in {', '.join(empty)}", where=place, hint="remove the folder, or bring its texts")
    texts, labels, rows = [], [], []
    for label, paths in found.items():
        for path in paths:
            name = f"{place}/{path.relative_to(folder).as_posix()}"
            with machine_faults(name):
                data = path.read_bytes()
            rows.append(file_row(path, name, data))
            texts.append(decode(data, name))
            labels.append(label)
    return Table({TEXT: text_array(texts), LABEL: text_array(labels)}, lambda: np.arange(1, len(texts) + 1), place), rows


def folder_target(content: Table | Arrays | Corpus) -> str | None:
    """Return the column of classes of texts that came from a folder; None of other content."""
    return LABEL if isinstance(content, Table) and list(content.columns) == [TEXT, LABEL] else None


def text_cells(table: Table, name: str) -> list[str]:
    """Return a column's cells as text, the empty text where a value is missing; whole numbers without a point."""
    cells = table.columns[name]
    if not isinstance(cells, np.ndarray) or cells.dtype == object:
        return [str(cell) for cell in cells]
    return ["" if np.isnan(cell) else str(int(cell) if cell.is_integer() else cell) for cell in cells.tolist()]


def text_column(table: Table, named: str | None, target: str, ignore: Sequence[str]) -> str:
    """Return the name of the column of texts: the one that is named, or the only one beside the target.

    Raises:
        InputError: There is no such column, it holds numbers, or several could be meant.
    """
    others = [name for name in table.columns if name != target and name not in ignore]
    name = named or (others[0] if len(others) == 1 else None)
    if name is None or name not in table.columns:
        what = f"no column {named!r}" if named else "more than one column beside the target"
        hint = f"data: {{text: COLUMN}}, one of {', '.join(others[:12])}"
        raise InputError(f"{table.place} has {what}; the one with the texts is needed", where="data.text", hint=hint)
    if table.columns[name].dtype == np.float64 or name == target:
        what = "the target" if name == target else "numbers"
        raise InputError(f"column {name!r}", expected="texts", found=what, where="data.text", hint="data: {text: COLUMN}")
    return name


def classes_of(cells: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return each text's class number, and the classes' names: whole numbers in numeric order, else sorted text."""
    names = sorted(set(cells), key=class_order)
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[cell] for cell in cells], dtype=np.int64), names
