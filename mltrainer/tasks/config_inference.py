"""The config for a data file: its kind of data, the place of a table in it, spellings of a missing value, and the inference."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mltrainer.checkpointing.inference_script import (
    DELIMITERS,
    PARSERS,
    SAMPLE,
    SHEETS,
    InvalidInputError,
    as_number,
    decoded,
    suffix_of,
    unpacked,
    wide_encoding,
)
from mltrainer.configs.project import NO_VALUE, Data
from mltrainer.errors import InputError
from mltrainer.tasks.content import NO_TARGET, Arrays, Corpus, Table, require_columns, target_gaps, without
from mltrainer.tasks.sources import DELIMITED, read_source, table_of
from mltrainer.tasks.tables.columns import NUMERIC_SHARE, Column, parse_column
from mltrainer.tasks.tables.config_inference import InferredConfig, infer_table
from mltrainer.tasks.tables.files import sheet_cells
from mltrainer.tasks.tables.split_columns import split_column
from mltrainer.tasks.text.config_inference import infer_texts
from mltrainer.tasks.text.corpus import visible
from mltrainer.tasks.text.labelled_texts import folder_target
from mltrainer.workspace import machine_faults

MOST_COLUMNS = 50_000  # chosen by us: 16,000 columns of 50 rows took 8 s of computing, which grows with them
GENERATED = 128  # characters of a sample of text to generate, by default


WITHOUT_COLUMNS = {Corpus: "a folder of texts, which has none", Arrays: "arrays, whose target is y"}


def refuse_target(target: str, what: str, place: str) -> NoReturn:
    """Refuse `--target` of data without columns.

    Raises:
        InputError: Always; the message has the kind of the data and the option's purpose.
    """
    text = f"--target {target} names the column to predict, and this is {what}"
    raise InputError(text, where=place, hint="leave --target out, or bring one table")


@dataclass(frozen=True)
class Reading:
    """A person's statements on a table.

    Attributes:
        ignore: Columns that are no features.
        sheet: The sheet of a workbook; None: the first one.
        skip_lines: Number of lines above the table; None: inferred.
    """

    ignore: Sequence[str] = ()
    sheet: str | None = None
    skip_lines: int | None = None


def infer_project(paths: Mapping[str, Path], target: str | None, how: Reading | None = None) -> InferredConfig:
    """Return the task, metric and column kinds inferred from data and its target column.

    Args:
        paths: A table, arrays, a text or a folder of images, as "train"; "validation" and "test" where they are separate.
        target: The column to predict; not needed for images and arrays.
        how: The person's statements on the table; None: none.

    Raises:
        InputError: The file or the column does not exist, or its content is not valid.
    """
    how = how or Reading()
    content, data = _read(paths, target, how)
    if target is not None and not isinstance(content, Table):
        refuse_target(target, WITHOUT_COLUMNS[type(content)], content.place)
    if isinstance(content, Table):
        _refuse_too_wide(content)
    if isinstance(content, Corpus):
        what = f"{sum(content.sizes)} bytes of text in {len(content.paths)} files: text_generation"
        return InferredConfig("text_generation", "bits_per_byte", [what], rows=sum(content.sizes) // GENERATED)
    if isinstance(content, Arrays) and content.x.ndim == 4 and content.classes is not None:
        shape = list(content.x.shape[1:])
        what = f"{len(content)} images of shape {shape} in {len(content.classes)} classes: image_classification"
        return InferredConfig("image_classification", "accuracy", [what])
    table, name = table_of(content, target or folder_target(content))
    require_columns(table, how.ignore, "--ignore")
    read = table = replace(table, columns={key: cells for key, cells in table.columns.items() if key not in how.ignore})
    table, plain, gaps = _emptied(read)
    named = split_column(plain, name)
    split_by = named.name if named and named.is_sure else None
    if split_by is not None:
        table = replace(table, columns={key: cells for key, cells in table.columns.items() if key != split_by})
        plain = {key: column for key, column in plain.items() if key != split_by}
    found = infer_texts(table, name, plain) or infer_table(table, name, plain, split_by)
    notes = [*table.notes, *_reading_notes(data, table, how), *([named.why] if named and named.is_sure else [])]
    asked = [named.why] if named and not named.is_sure else []
    asked += [*(note for note in notes if NO_TARGET in note), *target_gaps(read, name, [*NO_VALUE, *gaps])]
    notes = [note for note in notes if NO_TARGET not in note]
    notes += [f"missing values are written {', '.join(map(repr, gaps))} too"] if gaps else []
    missing = [*NO_VALUE, *gaps] if gaps else []
    return replace(
        found,
        ignored=[*how.ignore, *found.ignored],
        explanation=[*found.explanation, *notes],
        warnings=[*asked, *found.warnings],
        missing=missing,
        reading=data.reading,
        split={named.key: named.name} if named and named.is_sure else found.split,
    )


def _reading_notes(data: Data, table: Table, how: Reading) -> list[str]:
    """Return sentences on the table's place in its file: a missing header, and lines above it."""
    notes = [] if data.header else [f"there is no header: columns are column_1 to column_{len(table.columns)}"]
    if data.skip_lines and how.skip_lines is None:
        count = f"the first {data.skip_lines} lines are" if data.skip_lines > 1 else "the first line is"
        notes.append(f"{count} above the header and left out; --skip-lines 0 keeps all")
    return notes


def _refuse_too_wide(table: Table) -> None:
    """Refuse a table of more columns than can be examined one by one."""
    if len(table.columns) > MOST_COLUMNS:
        what = f"{len(table.columns)} columns; init looks at each of at most {MOST_COLUMNS}"
        raise InputError(
            what, where=table.place, hint="keep the columns that may predict the target, or bring arrays: an .npz with x and y"
        )


def _read(paths: Mapping[str, Path], target: str | None, how: Reading) -> tuple[Table | Arrays | Corpus, Data]:
    """Return the data's content, and the `data` part of a config by which it was read."""
    root = paths["train"].resolve().parent
    train, *held_out = (os.path.relpath(path.resolve(), root) for path in paths.values())
    data = Data.model_validate(
        {
            "source": train,
            "target": target,
            **_place_in_file(paths["train"], target, how),
            **dict(zip([*paths][1:], held_out, strict=True)),
        }
    )
    content = read_source(data, root).content
    if not isinstance(content, Table) or not _lacks_header(content, target):
        return content, data
    data = data.model_copy(update={"header": False})
    return read_source(data, root).content, data


def _place_in_file(path: Path, target: str | None, how: Reading) -> dict[str, Any]:
    """Return the keys of `data` for the place of a table in its file; of a folder by its first file."""
    first = next(iter(visible(path)), path) if path.is_dir() else path
    is_read = target is not None and suffix_of(first) in (*DELIMITED, *SHEETS) and first.is_file()
    found = place_in_file(first, how.sheet) if is_read else {"sheet": how.sheet}
    return found if how.skip_lines is None else {**found, "skip_lines": how.skip_lines}


def _emptied(table: Table) -> tuple[Table, dict[str, Column], list[str]]:
    """Return a table without spellings of a missing value, its columns as inferred from their cells alone, and the spellings."""
    plain = plain_columns(table)
    gaps = missing_spellings(table, plain)
    holding = [name for name, column in plain.items() if not set(gaps).isdisjoint(texts_of(column, table))] if gaps else []
    table = without(table, gaps)
    # Only columns that held such a spelling are inferred again; the others have not changed.
    return table, {**plain, **{name: parse_column(name, table.columns[name]) for name in holding}}, gaps


def _lacks_header(table: Table, target: str | None) -> bool:
    """Return True if a target is named by its position, which means that the first line holds no names."""
    place = re.fullmatch(r"column_(\d+)", target or "")
    return place is not None and target not in table.columns and 1 <= int(place[1]) <= len(table.columns)


def plain_columns(table: Table) -> dict[str, Column]:
    """Return a table's columns as inferred from their cells alone."""
    return {name: parse_column(name, cells) for name, cells in table.columns.items()}


# Chosen by us. In any column these mean nothing else:
SURE = {"n/a", "#n/a", "<na>", "null", "nan", "nat", "\\n", "n.a.", "#null!", "#value!", "#ref!", "#div/0!", "#name?"}
SURE |= {"0000-00-00", "0000-00-00 00:00:00"}
# and these in columns of numbers or dates, where a word can be no category:
MARKS = {"-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "*", "??", "???"}
WORDS = {"na", "none", "nil", "missing", "unknown", "undefined", "not available", "not applicable", "empty", "k.a.", "k. a."}
LOOKED_AT = 2000  # distinct texts of a column that are tried


def missing_spellings(table: Table, plain: Mapping[str, Column]) -> list[str]:
    """Return the spellings of a missing value that a table's cells use, sorted.

    A word that is a category in one column is none in another: both would be emptied.

    Args:
        table: The cells.
        plain: The columns as inferred from their cells alone.
    """
    texts = {name: texts_of(column, table) for name, column in plain.items()}
    measured = {name for name, found in texts.items() if _is_measured(plain[name], found)}
    named = {text for name, found in texts.items() if name not in measured for text in found}
    found = {text for each in texts.values() for text in each if text.lower() in SURE}
    found |= {text for name in measured for text in texts[name] if text.lower() in MARKS | WORDS}
    return sorted(text for text in found if text.lower() not in WORDS or text not in named)


def texts_of(column: Column, table: Table) -> list[str]:
    """Return the distinct texts among which a spelling could be: in a number column, those that are no numbers."""
    if column.kind != "number":
        return column.texts
    cells = table.columns[column.name]
    return sorted({str(cells[int(row)]) for row in column.wrong})


def _is_measured(column: Column, texts: list[str]) -> bool:
    """Return True if a column holds numbers or dates, except for possible spellings of a missing value."""
    if column.kind == "number":
        return True
    others = [text for text in texts if text.lower() not in SURE | MARKS | WORDS]
    if len(others) < 2:
        return False
    looked = [others[nr] for nr in np.unique(np.linspace(0, len(others) - 1, min(len(others), LOOKED_AT)).astype(int))]
    kinds = ("number", "formatted", "decimal_comma", "date", "date_day_first")
    return any(sum(PARSERS[kind](text) is not None for text in looked) >= NUMERIC_SHARE * len(looked) for kind in kinds)


Records = list[tuple[int, list[str]]]

HEAD_LINES = 500  # lines; chosen by us: archives of instruments have a hundred lines of remarks


def place_in_file(path: Path, sheet: str | None = None) -> dict[str, Any]:
    """Return the keys of `data` for the place of a table in its file: lines above it, 0 where that is unclear, and the sheet.

    Args:
        path: A CSV file or a workbook.
        sheet: The sheet's name; None: the first one.

    Raises:
        InputError: The workbook or the sheet cannot be read.
    """
    if suffix_of(path) not in SHEETS:
        text = _first_text(path)
        return {"skip_lines": _lines_above(max((_records(text, mark) for mark in DELIMITERS), key=_steadiness))}
    with machine_faults(path.name):
        data = path.read_bytes()
    sheets, cells = sheet_cells(data, path.name, sheet)
    rows = [(nr, list(row)) for nr, row in enumerate(cells.head(HEAD_LINES).iter_rows(), 1) if any(row)]
    return {"skip_lines": _lines_above(rows), "sheet": sheet or sheets[0]}


def _first_text(path: Path) -> str:
    """Return a file's first lines; none of a file that is no text, which its reader refuses."""
    with machine_faults(path.name), path.open("rb") as file:
        head = file.read(SAMPLE) if path.suffix != ".gz" else file.read()
    try:
        head = unpacked(head)[:SAMPLE]
        return decoded(head if wide_encoding(head) else head[: head.rfind(b"\n") + 1])
    except (OSError, ValueError, InvalidInputError):
        return ""


def _records(text: str, delimiter: str) -> Records:
    """Return the line number and the cells of each record that is not blank."""
    reader, found, begins = csv.reader(text.splitlines(keepends=True)[:HEAD_LINES], delimiter=delimiter), [], 1
    for cells in reader:
        if cells:
            found.append((begins, [cell.strip() for cell in cells]))
        begins = reader.line_num + 1
    return found


def _steadiness(records: Records) -> tuple[int, int]:
    """Return the number of records of the most frequent width, where that is not 1, and this width."""
    widths = Counter(len(cells) for _, cells in records)
    width = max(widths, key=lambda size: widths[size], default=1)
    return (widths[width], width) if width > 1 else (0, 1)


def _lines_above(records: Records) -> int:
    """Return the number of lines above the first record that is filled like a header, where all of them can be a title's."""
    many, width = _steadiness(records)
    above = list(itertools.takewhile(lambda one: len(one[1]) != width or not _is_filled(one[1], width), records))
    if 2 * many < len(records) or not 0 < len(above) < len(records):
        return 0
    line, header = records[len(above)]
    first = above[0][1]
    # A single line of one cell less may be a header that lacks a name, as R writes it above the names of rows.
    lacks_name = len(above) == 1 and len(first) == width - 1 > 1 and all(first) and not first[0].startswith("#")
    return line - 1 if _are_names(header) and not lacks_name else 0


def _is_filled(cells: list[str], width: int) -> bool:
    return 2 * len([*filter(None, cells)]) > width


def _are_names(cells: list[str]) -> bool:
    """Return True if a record can hold a table's names: they differ, the first is a word, and none has a fraction."""
    named = [cell for cell in cells if cell]
    has_fraction = any("." in cell and as_number(cell) is not None for cell in named)
    return len(set(named)) == len(named) and as_number(cells[0]) is None and not has_fraction
