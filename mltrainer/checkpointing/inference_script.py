"""Predict with the model in this folder: `python inference.py rows.csv` prints one JSON object per row.

The input is a table with raw values (.csv, .parquet, .xlsx, .json: a list of objects, .jsonl: an object per line), texts (such
a table, or .txt with a text on each line), a picture (.png, .jpg and others) or a folder of them, an array (.npy), several arrays
by name (.npz) where the model has several inputs, or rows for the module beside this file. inference.json, beside this file,
describes columns and classes. Needs NumPy, onnxruntime for model.onnx or torch for model.pt2, tokenizers for texts,
Pillow for pictures, polars for Parquet and workbooks, fastexcel for workbooks, and transformers for chat templates. A model that
generates text continues the one in the given file, as far as `--tokens` says, and always in the same way under one `--seed`; one
that was fine-tuned on conversations answers each line of a .jsonl file with {"messages": [...]} or {"prompt": ...}.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import gzip
import importlib.util
import io
import itertools
import json
import math
import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 256  # rows that the model reads at once
SHOWN = 60  # characters of a row that does not fit

Inputs = np.ndarray | dict[str, np.ndarray]  # one array, or several by name
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
DELIMITERS = "\t;|,"
SAMPLE, LINES = 1 << 16, 20  # characters and lines of a table that determine the delimiter
ONNX = ("model.onnx", "model_int8_static.onnx", "model_int8_dynamic.onnx")  # the first that was delivered
JSON_ROWS = (".json", ".jsonl", ".ndjson")
MISSING = ("", "NA", "NaN", "nan", "null", "None", "?")  # where inference.json names no others
# NumPy's names of what ONNX reads
NUMBERS = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(int64)": "int64", "tensor(int32)": "int32"}


class InvalidInputError(Exception):
    """An input that does not fit the model; the message says where."""


def here() -> Path:
    """Return the folder of this file, with the model and inference.json."""
    return Path(__file__).resolve().parent


# --- reading ------------------------------------------------------------------------------------


def read_table(path: Path, spec: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a table, as text; inference.json says which lines and which sheet hold them."""
    return read_rows(path, spec.get("header", True), spec.get("skip_lines", 0), spec.get("sheet"))


def read_rows(path: Path, header: bool = True, skip_lines: int = 0, sheet: str | None = None) -> list[dict[str, str]]:
    """Return the rows of a table, as text; a key that an object lacks is a missing value."""
    suffix = suffix_of(path)
    if suffix == ".parquet":
        return read_parquet(path)
    data = unpacked(path.read_bytes())
    if suffix in SHEETS:
        cells = read_sheet(data, sheet, skip_lines)[1]
        return rows_of([list(row) for row in cells.iter_rows() if any(row)], header)
    text = decoded(data)  # newlines inside quotes stay as they are
    if suffix not in JSON_ROWS:
        return read_csv(without_lines(text, skip_lines), header)
    value = json.loads(text) if suffix == ".json" else json_lines(text)
    rows = value if isinstance(value, list) else [value]
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidInputError(f"{path.name}: every row must be an object with the columns' names as keys")
    rows = [flattened(row) for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: as_text(row.get(name)) for name in names} for row in rows]


def json_lines(text: str) -> list[Any]:
    """Return the JSON values of a text with one a line; blank lines are left out."""
    # Not splitlines(), which also parts at U+2028 and others that a JSON text may hold.
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def read_parquet(path: Path) -> list[dict[str, str]]:
    """Return the rows of a Parquet file, as text: whole numbers without a point, dates in ISO form."""
    try:
        import polars
    except ImportError as error:
        raise InvalidInputError("reading Parquet needs polars: pip install polars") from error
    try:
        frame = polars.read_parquet(io.BytesIO(unpacked(path.read_bytes())))
    except polars.exceptions.PolarsError as error:
        raise InvalidInputError(f"{path.name}: not readable as Parquet: {error}") from error
    return [{name: plain_cell(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]


def read_sheet(data: bytes, sheet: str | None = None, skip_lines: int = 0) -> tuple[list[str], Any]:
    """Return the names of a workbook's sheets, and the columns of one that hold something, as polars' frame of text.

    Args:
        data: The workbook.
        sheet: The sheet's name; None: the first one. Another name is that of the only one.
        skip_lines: The number of rows above the table.
    """
    try:
        import fastexcel
        import polars
    except ImportError as error:
        raise InvalidInputError(f"reading a workbook needs {error.name}: pip install fastexcel polars") from error
    try:
        book = fastexcel.read_excel(data)
        names = list(book.sheet_names)
        if sheet is not None and sheet not in names and len(names) > 1:
            raise InvalidInputError(f"there is no sheet {sheet!r}; the workbook has {', '.join(map(repr, names))}")
        name = sheet if sheet in names else names[0]
        # Without skip_rows, empty rows at the top are left out and later ones have another number than in the sheet.
        text, numbers = (
            book.load_sheet(name, header_row=None, skip_rows=0, dtypes=kind).to_polars() for kind in ("string", "float")
        )
    except fastexcel.FastExcelError as error:
        raise InvalidInputError(f"not readable as a workbook: {str(error).partition(chr(10))[0]}") from error
    columns = [_sheet_cells(cells, numbers[cells.name])[skip_lines:] for cells in text]
    return names, polars.DataFrame([cells for cells in columns if (cells != "").any()])


def _sheet_cells(text: Any, numbers: Any) -> Any:
    """Return a column's cells as text; of a number all its digits, as fastexcel writes no more than nine decimals."""
    import polars

    is_cut = text.cast(polars.Float64, strict=False) != numbers
    cells = polars.select(polars.when(is_cut).then(numbers.cast(polars.String)).otherwise(text).alias(text.name)).to_series()
    # A time of day is a moment of the day 0.
    return cells.fill_null("").str.strip_chars().str.replace("^1899-12-3[01] ", "")


def plain_cell(value: Any) -> str:
    """Return a Parquet value as a table's cell."""
    if isinstance(value, (float, Decimal)):
        number = float(value)
        is_whole = math.isfinite(number) and number.is_integer() and abs(number) <= EXACT
        return "" if math.isnan(number) else str(int(number)) if is_whole else repr(number)
    return as_text(value)


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object without objects in it: their keys become `place.city`, and lists the text of their JSON."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": cell for inner, cell in flattened(value).items()}
        else:
            flat[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return flat


def suffix_of(path: Path) -> str:
    """Return a file name's extension in lower case; of x.csv.gz, .csv."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


UNPACKED_FROM = 1 << 26  # bytes; less is unpacked whatever it was packed from
MOST_UNPACKED = 200  # times the packed size: tables come to 50 at most, gzip itself to 1,032 of one letter


def unpacked(data: bytes) -> bytes:
    """Return a file's bytes; of a file packed by gzip, the bytes inside."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    most = max(UNPACKED_FROM, MOST_UNPACKED * len(data))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            # Read up to a bound: of a few packed kilobytes gzip makes gigabytes.
            content = file.read(most + 1)
    except (EOFError, zlib.error) as error:
        raise OSError(f"packed by gzip, and damaged: {error}") from error
    if len(content) > most:
        raise OSError(f"packed by gzip, and more than {MOST_UNPACKED} times larger inside, too much for a table")
    return content


def wide_encoding(data: bytes) -> str | None:
    """Return UTF-16 or UTF-32 where a byte order mark or the places of zero bytes say so, or None."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [part.count(0) / max(1, len(part)) for part in (data[:SAMPLE:2], data[1:SAMPLE:2])]
    # Most characters of a table are ASCII, half of whose bytes are zero: always the first, or always the second.
    if max(zeros) < 0.5 or min(zeros) > 0.25:
        return None
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"


def decoded(data: bytes) -> str:
    """Return a file's text: UTF-8, UTF-16 or UTF-32 where it is that, or Windows-1252 where none of it could be UTF-8."""
    if (wide := wide_encoding(data)) is not None:
        return data.decode(wide)
    if b"\0" in data:
        raise InvalidInputError("it is no text: it contains NUL bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if not data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "ignore").isascii():
            raise  # a damaged byte among others
        return data.decode("cp1252")


def as_text(value: Any) -> str:
    """Return a JSON value as a table's cell."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value).strip()


def read_csv(text: str, header: bool = True) -> list[dict[str, str]]:
    """Return the rows of a CSV text; without a header its columns are `column_1`, `column_2`, ..."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text, header), strict=True)
    return rows_of([cells for cells in reader if cells], header)


def without_lines(text: str, count: int) -> str:
    """Return a text without its first lines."""
    return text.split("\n", count)[-1] if text.count("\n") >= count else ""


def rows_of(lines: list[list[str]], header: bool) -> list[dict[str, str]]:
    """Return records as rows by column, whose names the first one holds."""
    if not lines:
        raise InvalidInputError("the file is empty")
    names = names_of(lines[0] if header else [""] * len(lines[0]))
    rows = lines[1:] if header else lines
    for number, cells in enumerate(rows, 1):
        if len(cells) != len(names):
            raise InvalidInputError(f"row {number}: expected {len(names)} cells, found {len(cells)}")
    return [dict(zip(names, (cell.strip() for cell in cells), strict=True)) for cells in rows]


def delimiter_of(text: str, header: bool = True) -> str:
    """Return the delimiter of a CSV text: a tab, `;`, `|` or comma, as often in each of the first lines.

    Of several delimiters the most frequent; without a header, not the comma, which may be a decimal comma.
    """
    sample = text[:SAMPLE] if len(text) <= SAMPLE else text[: text.rfind("\n", 0, SAMPLE) + 1]  # whole lines only
    lines = [line for line in re.sub(r'"[^"]*"', "", sample or text).splitlines() if line.strip()][:LINES]
    steady = [mark for mark in DELIMITERS if lines and lines[0].count(mark) and len({line.count(mark) for line in lines}) == 1]
    if steady and not header:
        return steady[0]
    return max(reversed(steady or DELIMITERS), key=lines[0].count) if lines else ","


def names_of(header: Sequence[str]) -> list[str]:
    """Return the columns' names: those of the header, `column_3` where it has none, `x_2` for the second `x`."""
    unique_names: dict[str, None] = {}  # in order; a list would be searched for each of 100,000 columns
    taken = {cell.strip() for cell in header}
    copies: dict[str, Iterator[int]] = {}
    for number, cell in enumerate(header, 1):
        name = cell.strip() or f"column_{number}"
        if name in unique_names:
            others = (f"{name}_{copy}" for copy in copies.setdefault(name, itertools.count(2)))
            name = next(other for other in others if other not in taken and other not in unique_names)
        unique_names[name] = None
    return list(unique_names)


def to_matrix(rows: list[dict[str, str]], spec: dict[str, Any]) -> np.ndarray:
    """Return the model's input: float32 [rows, columns], numbers NaN where missing, categories as codes, -1 where unknown."""
    missing = spec.get("missing", MISSING)
    blocks = [column_block(rows, column, missing) for column in spec["columns"]]
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(rows), 0), dtype=np.float32)


def column_block(rows: list[dict[str, str]], column: dict[str, Any], missing: Sequence[str]) -> np.ndarray:
    """Return a column's part of the matrix, float32 [rows, parts]; one part where inference.json names no others."""
    kind = column["kind"]
    if kind == "difference":
        dates = ({**column, "name": name, "kind": date} for name, date in zip(column["of"], column["dates"], strict=True))
        first, second = (parsed(rows, date, missing) for date in dates)
        return np.array((second - first) / DAY, dtype=np.float32)[:, None]
    if kind == "text":
        return np.array([word_counts(cell) for cell in cells_of(rows, column["name"], missing)], dtype=np.float32).reshape(
            -1, WORDS
        )
    values = parsed(rows, column, missing)
    return date_parts(values, column["parts"]) if kind in DATES else values.astype(np.float32)[:, None]


def cells_of(rows: list[dict[str, str]], name: str, missing: Sequence[str]) -> list[str]:
    """Return a column's cells, "" where missing."""
    for number, row in enumerate(rows, 1):
        if name not in row:
            raise InvalidInputError(f"row {number}: no column {name!r}; found {', '.join(row)}")
    return ["" if row[name] in missing else row[name] for row in rows]


def parsed(rows: list[dict[str, str]], column: dict[str, Any], missing: Sequence[str]) -> np.ndarray:
    """Return a column's values, float64: numbers, NaN where missing; codes of categories, -1 where missing or unknown."""
    kind, name = column["kind"], column["name"]
    cells = cells_of(rows, name, missing)
    if kind == "category":
        codes = {value: code for code, value in enumerate(column["categories"])}
        return np.array([codes.get(cell, -1) for cell in cells], dtype=np.float64)
    if kind == "hashed":
        return np.array([bucket_of(cell) if cell else -1 for cell in cells], dtype=np.float64)
    values = np.array([number_in(cell, kind) for cell in cells], dtype=np.float64)
    unit = column.get("unit")
    if kind in FORMATS:
        values[np.array([unit_of(cell, FORMATS[kind]) not in ("", unit) for cell in cells], dtype=bool)] = math.nan
    wrong = [number for number, cell in enumerate(cells) if cell and math.isnan(values[number])]
    if wrong and column.get("wrong") != "missing":
        what = f"expected {WANTED[kind]}{f' in {unit}' if unit else ''}, found {cells[wrong[0]]!r}"
        raise InvalidInputError(f"row {wrong[0] + 1}, column {name!r}: {what}")
    return values


def number_in(cell: str, kind: str) -> float:
    """Return a cell's number within float32's range; NaN for any other cell."""
    value = PARSERS[kind](cell) if cell else None
    return math.nan if value is None or not abs(value) <= LARGEST else value


def as_number(cell: str) -> float | None:
    """Return the number that a cell is, or None; Python's `1_000` is none, and any dash before it is a minus."""
    try:
        return None if "_" in cell else float(cell if cell.isascii() else cell.translate(MINUSES))
    except ValueError:
        return None


def read_texts(path: Path, spec: dict[str, Any]) -> list[str]:
    """Return the texts of a file: each line of a .txt, or a table's column."""
    if path.suffix == ".txt":
        return [line.strip() for line in path.read_bytes().decode("utf-8-sig").splitlines()]
    rows, name = read_table(path, spec), spec["text"]
    for number, row in enumerate(rows, 1):
        if name not in row:
            raise InvalidInputError(f"row {number}: no column {name!r}; found {', '.join(row)}")
    return [row[name] for row in rows]


def open_tokenizer(spec: dict[str, Any], folder: Path) -> Any:
    """Return the tokenizer in a model's folder."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InvalidInputError("texts need the package tokenizers: pip install -r requirements.txt") from error
    return Tokenizer.from_file(str(folder / spec["tokenizer"]))


def to_tokens(texts: list[str], spec: dict[str, Any], tokenizer: Any) -> np.ndarray:
    """Return the model's input: int64 [texts, tokens]; the tokenizer's file sets truncation and padding."""
    ids = [encoded.ids for encoded in tokenizer.encode_batch(texts)]
    return np.array(ids, dtype=np.int64).reshape(len(texts), *spec["input"]["shape"])


# --- cells that are no plain numbers; training reads them with the same functions ----------------

BUCKETS = 256  # of a column with many categories
WORDS = 64  # buckets that the words of a text are counted in
MOST_COUNTED = 255  # of a bucket's words: training keeps a count in a byte
LARGEST = float(np.finfo(np.float32).max)
DAY = 86_400.0
YEAR = 365.2425 * DAY
DATES = ("date", "date_day_first")
TRUE = {"true", "t", "yes", "y", "on", "1", "ja", "j", "wahr", "oui", "vrai", "si", "s\u00ed"}
EXACT = 2**53  # float64 holds each whole number up to here
FALSE = {"false", "f", "no", "n", "off", "0", "nein", "falsch", "non", "faux"}
NAMES_OF_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
MONTHS = {name[:size]: number for number, name in enumerate(NAMES_OF_MONTHS, 1) for size in range(3, 10)}  # Sept too, not Mars
MINUSES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"), "-")  # hyphens and dashes that stand for a minus
SIGNS = r"(?:[A-Z]{1,2})?[$\u20ac\u00a3\u00a5\u20b9]|[A-Z]{3}|Rs\.?"  # currencies
POINT = r"(?:(?:[1-9]\d{0,2}(?:[,'\s]\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"  # a digit before the exponent: E10 is a code
COMMA = r"(?:(?:[1-9]\d{0,2}(?:[.'\s]\d{3})+|\d+)(?:,\d*)?|,\d+)(?:[eE][-+]?\d+)?"
SCALES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "G": 9}  # powers of ten
LETTERS = r"[^\W\d_]"
NAMED_UNIT = rf"(?![eE]\b)(?:{LETTERS}{{1,12}}|[$\u20ac\u00a3\u00a5])[\u00b2\u00b3]?"
OUT_OF = rf"(?:/|(?:out )?of )\s*\d+(?:\s+{LETTERS}{{1,12}})?"  # 4 out of 5 stars, 4/5
UNIT = rf"\u00b0{LETTERS}?|\u2030|{OUT_OF}|{NAMED_UNIT}(?:/{LETTERS}{{1,12}}[\u00b2\u00b3]?)?\.?"
ORDINALS = ("st", "nd", "rd", "th")
WRITTEN = {
    comma: re.compile(
        rf"(?P<opens>\()?(?P<sign>[-+])?(?:{SIGNS})?\s*(?P<inner>[-+])?(?P<digits>{number})\s*"
        rf"(?:(?P<scale>{'|'.join(SCALES)})?\s*(?:{SIGNS})?(?P<percent>%)?|(?P<unit>{UNIT}))(?P<after>-)?(?P<closes>\))?"
    )
    for comma, number in ((False, POINT), (True, COMMA))
}
SCALED = "k, M, B"  # the unit name of numbers that are written in thousands, millions or billions
CLOCK = r"(?:[T\s]+(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*([AaPp][Mm])?)?\s*(Z|UTC|[-+]\d{2}:?\d{2})?"
YEAR_FIRST = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}}){CLOCK}")
COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(?:(\d{2}(?:\.\d+)?))?(Z|[-+]\d{2}:?\d{2})?")  # ISO 8601's basic form
YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})[-/.](\d{{4}}){CLOCK}")
SHORT_YEAR = re.compile(rf"(\d{{1,2}})(/)(\d{{1,2}})/(\d{{2}}){CLOCK}")  # with dots, or dashes, it may be a version, or a code
BASIC_DAY = re.compile(r"((?:19|20)\d{2})(\d{2})(\d{2})")  # ISO 8601's, without a time
YEAR_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")
QUARTER = re.compile(r"(?P<year>\d{4})[\s-]?Q(?P<quarter>[1-4])|Q(?P<first>[1-4])[\s/-]?(?P<last>\d{4})")
WEEK = re.compile(r"(\d{4})-?W(\d{2})")  # ISO 8601's
YEAR_NAMED = re.compile(r"(\d{4})[\s/-]([A-Za-z]{3,9})\.?")
TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*([AaPp][Mm])?")
NAMED = re.compile(rf"(?:(\d{{1,2}})[\s.-]+)?([A-Za-z]{{3,9}})\.?(?:\s+(\d{{1,2}}),)?[\s/-]+(\d{{4}}|(?<=-)\d{{2}}){CLOCK}")


def as_formatted(cell: str, comma: bool = False) -> float | None:
    """Return a number with thousands separators, a currency, a percent sign, a unit or a scale such as 3.5k, or None.

    Its minus may be any dash, stand behind it, or be written as brackets; `comma`: the decimal mark is a comma.
    """
    match = _written(cell, comma)
    if match is None:
        return None
    digits = re.sub(r"[.'\s]" if comma else r"[,'\s]", "", match["digits"]).replace(",", ".")
    # As an exponent: 1.1 * 1e6 is not the number that 1100000 is.
    value = float(f"{digits}e{SCALES[match['scale']]}" if match["scale"] else digits)
    minuses = [match["sign"], match["inner"], match["after"], "-" if match["opens"] else None].count("-")
    value = -value if minuses % 2 else value
    return value / 100 if match["percent"] else value


def unit_of(cell: str, comma: bool = False) -> str:
    """Return the unit of a number, its plural as the singular; `SCALED` for 3.5k; empty where there is none."""
    match = _written(cell, comma)
    if match is None or not (match["unit"] or match["scale"]):
        return ""
    unit = (match["unit"] or SCALED).rstrip(".")
    unit = ORDINALS[-1] if unit in ORDINALS else unit
    # Two letters may differ by capitals alone: Mb and MB, m and M.
    return unit if match["scale"] or len(unit) < 3 else unit.lower().removesuffix("s")


def _written(cell: str, comma: bool) -> re.Match[str] | None:
    match = WRITTEN[comma].fullmatch(cell if cell.isascii() else cell.translate(MINUSES))
    if match is None or (match["opens"] is None) != (match["closes"] is None):
        return None
    is_scaled_twice = match["scale"] and "e" in match["digits"].lower()
    return None if is_scaled_twice or (match["after"] and match["sign"]) else match


def as_boolean(cell: str) -> float | None:
    """Return 1 for yes, 0 for no in their usual spellings, or None."""
    word = cell.lower()
    return 1.0 if word in TRUE else 0.0 if word in FALSE else None


def as_seconds(cell: str, day_first: bool = False) -> float | None:
    """Return a date's seconds since 1970 in UTC, or None; 3.4.2020 is in April, 3/4/2020 too with the day first.

    A month and a quarter are their first day, a week is its Monday; a time alone is one of 1 January 1970.
    """
    if match := YEAR_FIRST.fullmatch(cell):
        return seconds_of(match[1], match[2], match[3], match.groups()[3:])
    if match := COMPACT.fullmatch(cell):
        return seconds_of(match[1], match[2], match[3], (match[4], match[5], match[6], None, match[7]))
    if match := YEAR_LAST.fullmatch(cell) or SHORT_YEAR.fullmatch(cell):
        first, second = (match[1], match[3]) if day_first or match[2] == "." else (match[3], match[1])
        return seconds_of(match[4], second, first, match.groups()[4:])
    if match := BASIC_DAY.fullmatch(cell):
        return seconds_of(match[1], match[2], match[3], (None,) * 5)
    if match := QUARTER.fullmatch(cell):
        begins = 3 * int(match["quarter"] or match["first"]) - 2
        return seconds_of(match["year"] or match["last"], str(begins), "1", (None,) * 5)
    if match := WEEK.fullmatch(cell):
        return monday_of(int(match[1]), int(match[2]))
    if match := YEAR_MONTH.fullmatch(cell):
        return seconds_of(match[1], match[2], "1", (None,) * 5)
    if match := TIME.fullmatch(cell):
        return seconds_of("1970", "1", "1", (*match.groups(), None))
    if (match := NAMED.fullmatch(cell)) and (month := MONTHS.get(match[2].lower())) and not (match[1] and match[3]):
        return seconds_of(match[4], str(month), match[1] or match[3] or "1", match.groups()[4:])
    if (match := YEAR_NAMED.fullmatch(cell)) and (month := MONTHS.get(match[2].lower())):
        return seconds_of(match[1], str(month), "1", (None,) * 5)
    return None


def seconds_of(year: str, month: str, day: str, clock: Sequence[Any]) -> float | None:
    """Return a moment's seconds since 1970, or None where there is no such day or hour."""
    hour, minute, second, half, zone = clock
    hours = int(hour or 0) % 12 + 12 * (half.lower() == "pm") if half else int(hour or 0)
    # Of two digits as POSIX has it: 69 to 99 are of the last century.
    full = int(year) if len(year) == 4 else int(year) + (1900 if int(year) >= 69 else 2000)
    try:
        moment = datetime(full, int(month), int(day), hours, int(minute or 0), tzinfo=UTC)
    except ValueError:
        return None
    offset = 0 if zone in (None, "Z", "UTC") else (-1 if zone[0] == "-" else 1) * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return moment.timestamp() + float(second or 0) - offset


def monday_of(year: int, week: int) -> float | None:
    """Return the seconds since 1970 of a week's Monday, or None where the year has no such week."""
    try:
        return datetime.combine(date.fromisocalendar(year, week, 1), time.min, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def date_parts(seconds: np.ndarray, parts: Sequence[str]) -> np.ndarray:
    """Return dates as numbers, float32 [rows, parts]: days since 1970, and points on the circles of year, week, day."""
    days = np.floor(seconds / DAY)
    turns = {"year": seconds / YEAR, "week": (days + 3) / 7, "day": seconds / DAY - days}
    columns = []
    for part in parts:
        name, _, wave = part.partition("_")
        columns.append(seconds / DAY if part == "days" else {"sin": np.sin, "cos": np.cos}[wave](2 * np.pi * turns[name]))
    return np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((len(seconds), 0), dtype=np.float32)


def bucket_of(cell: str) -> int:
    """Return the bucket of a category: its CRC-32 modulo 256."""
    return zlib.crc32(cell.encode("utf-8", "surrogatepass")) % BUCKETS


def word_counts(cell: str) -> list[int]:
    """Return the counts of a text's words, in lower case, in 64 buckets by CRC-32; each count is at most 255."""
    counts = [0] * WORDS
    for word in re.findall(r"\w+", cell.lower()):
        counts[zlib.crc32(word.encode("utf-8", "surrogatepass")) % WORDS] += 1
    return [min(count, MOST_COUNTED) for count in counts]


PARSERS: dict[str, Callable[[str], float | None]] = {
    "number": as_number,
    "formatted": as_formatted,
    "decimal_comma": lambda cell: as_formatted(cell, comma=True),
    "boolean": as_boolean,
    "date": as_seconds,
    "date_day_first": lambda cell: as_seconds(cell, day_first=True),
}
FORMATS = {"formatted": False, "decimal_comma": True}  # whether the decimal mark is a comma
WANTED = {
    "number": "a finite number",
    "formatted": "a number",
    "decimal_comma": "a number with a decimal comma",
    "boolean": "yes or no",
    "date": "a date",
    "date_day_first": "a date with the day first",
}


# --- pictures: training reads them with these functions too -------------------------------------


def picture(data: bytes, size: Sequence[int], fit: str, grey: bool) -> np.ndarray:
    """Return a picture file's pixels as the model reads them: uint8 [channels, height, width].

    Args:
        data: The file's bytes.
        size: Height and width of the result.
        fit: "resize" stretches to the size, "crop" cuts at two edges, "pad" leaves two edges black.
        grey: Whether there is one channel, else three.

    Raises:
        ValueError: It is no picture, or one whose pixels are no grey levels or colours.
        Exception: Whatever else Pillow raises for a damaged file.
    """
    from PIL import Image, ImageOps

    image = Image.open(io.BytesIO(data))
    least = 2 * max(size)
    image.draft(image.mode, (least, least))  # a large JPEG is decoded at a fraction of its size, but never below this
    image = fitted(ImageOps.exif_transpose(_eight_bits(image)).convert("L" if grey else "RGB"), size, fit)
    array = np.asarray(image)
    return array[None] if grey else np.ascontiguousarray(array.transpose(2, 0, 1))


def refuse_bombs() -> None:
    """Make an error of Pillow's warning of a picture that is far larger than its file; its other warnings say nothing here."""
    from PIL import Image

    warnings.simplefilter("ignore")
    warnings.simplefilter("error", Image.DecompressionBombWarning)


def _eight_bits(image: Any) -> Any:
    """Return a picture with 8 bits for each channel; of 16 the upper ones are kept."""
    if image.mode.startswith("I;16"):
        from PIL import Image

        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode[0] in "IF":
        raise ValueError(f"pixels of mode {image.mode}; 8 or 16 bits for each channel were expected")
    return image


def fitted(image: Any, size: Sequence[int], fit: str) -> Any:
    """Return a Pillow image brought to a height and width; it is smoothed where it shrinks."""
    (height, width), (across, down) = size, image.size
    if (across, down) == (width, height):
        return image
    bilinear = 2  # Image.Resampling.BILINEAR
    if fit == "resize":
        return image.resize((width, height), bilinear)
    if fit == "crop":
        scale = max(width / across, height / down)
        left, top = max(0.0, (across - width / scale) / 2), max(0.0, (down - height / scale) / 2)
        return image.resize((width, height), bilinear, box=(left, top, across - left, down - top))
    scale = min(width / across, height / down)
    inner = image.resize((max(1, round(across * scale)), max(1, round(down * scale))), bilinear)
    left, top = (width - inner.width) // 2, (height - inner.height) // 2
    return inner.crop((-left, -top, width - left, height - top))  # the outside is black


def read_pictures(paths: list[Path], spec: dict[str, Any]) -> np.ndarray:
    """Return picture files as the model reads them."""
    return np.stack([read_picture(path.read_bytes(), path.name, spec) for path in paths])


def read_picture(data: bytes, name: str, spec: dict[str, Any]) -> np.ndarray:
    """Return the bytes of a picture's file as the model reads it."""
    given = spec["input"]["picture"]
    try:
        with warnings.catch_warnings():
            refuse_bombs()
            return picture(data, given["size"], given["fit"], spec["input"]["shape"][0] == 1)
    except ImportError as error:
        raise InvalidInputError("reading pictures needs Pillow: pip install pillow") from error
    except Exception as error:
        raise InvalidInputError(f"{name}: not readable as a picture: {type(error).__name__}: {error}") from error


def pictures_in(path: Path) -> list[Path]:
    """Return the picture files of a folder and those below it, sorted; of a file, itself; none where it is no picture."""
    if not path.is_dir():
        return [path] if path.suffix.lower() in PICTURES else []
    pictures = sorted(each for each in path.rglob("*") if each.suffix.lower() in PICTURES and not each.name.startswith("."))
    if not pictures:
        raise InvalidInputError(f"{path.name}: no pictures in this folder; known are {', '.join(PICTURES)}")
    return pictures


# --- arrays and files ---------------------------------------------------------------------------


def read_images(path: Path, spec: dict[str, Any]) -> np.ndarray:
    """Return images as the model reads them; the array may lack the axis of samples, or of the one channel."""
    # A pickle runs code, and the file is anybody's.
    return to_images(np.load(path, allow_pickle=False), path.name, spec)


def to_images(array: np.ndarray, name: str, spec: dict[str, Any]) -> np.ndarray:
    """Return an array of images as the model reads them; see `read_images`."""
    shape = tuple(spec["input"]["shape"])
    if array.shape in (shape, shape[1:]):
        array = array[None]
    if array.ndim == 0 or array.shape[1:] not in (shape, shape[1:]) or array[:1].size != math.prod(shape):
        shape_text = f"an array of shape {list(array.shape)}"
        raise InvalidInputError(f"{name}: expected images of shape {list(shape)}, found {shape_text}")
    if spec["input"].get("dtype") == "uint8":
        if array.dtype != np.uint8:
            raise InvalidInputError(f"{name}: expected uint8 pixels from 0 to 255, found {array.dtype}")
        return array.reshape(len(array), *shape)
    scaled: np.ndarray = array.astype(np.float32) * np.float32(spec["input"].get("scale", 1.0))
    return scaled.reshape(len(array), *shape)


READS = {
    "table": "a .csv, .parquet, .xlsx, .json or .jsonl file with raw rows",
    "texts": "a .csv, .json, .jsonl or .txt file with texts",
}


def read_input(path: Path, spec: dict[str, Any]) -> Inputs:
    """Return a file's content as the model reads it; an array is the input of a custom model, unchanged."""
    if "preprocess" in spec:
        return preprocessed(path, spec)
    if "model_inputs" in spec:
        return read_named(path, spec["model_inputs"])
    given = spec.get("input")
    kind = given.get("name") if isinstance(given, dict) else None
    if (kind in READS) == (path.suffix == ".npy"):
        wanted = READS.get(kind or "", "an .npy file")
        raise InvalidInputError(f"{path.name}: this model reads {wanted}")
    if kind == "table":
        return to_matrix(read_table(path, spec), spec)
    if kind == "texts":
        return to_tokens(read_texts(path, spec), spec, open_tokenizer(spec, here()))
    return read_images(path, spec) if kind == "images" else np.asarray(np.load(path, allow_pickle=False))


def read_named(path: Path, names: list[str]) -> Inputs:
    """Return the arrays of an .npz file for a model of several inputs, or of inputs with names."""
    if path.suffix != ".npz":
        raise InvalidInputError(f"{path.name}: this model reads an .npz file with the arrays {', '.join(names)}")
    with np.load(path, allow_pickle=False) as archive:
        return by_name({name: archive[name] for name in archive.files}, names)


def by_name(arrays: dict[str, np.ndarray], names: list[str]) -> Inputs:
    """Return arrays in the order in which the model takes them."""
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InvalidInputError(f"no array {', '.join(missing)}; found {', '.join(arrays) or 'none'}")
    return {name: np.asarray(arrays[name]) for name in names}


def preprocessed(path: Path, spec: dict[str, Any]) -> Inputs:
    """Return raw input after the module that came with the model has transformed it."""
    return prepared(open_preprocess(spec, here()), read_raw(path), spec)


def open_preprocess(spec: dict[str, Any], folder: Path) -> Callable[[list[Any], dict[str, Any]], Any]:
    """Return the function `preprocess` of the module that came with the model."""
    name = Path(spec["preprocess"]).name
    module_spec = importlib.util.spec_from_file_location("preprocess", folder / name)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    # Before it is executed, as an import does: a dataclass or a pickle in it looks its module up by name.
    sys.modules["preprocess"] = module
    module_spec.loader.exec_module(module)
    function: Callable[[list[Any], dict[str, Any]], Any] = module.preprocess
    return function


def prepared(preprocess: Callable[[list[Any], dict[str, Any]], Any], rows: list[Any], spec: dict[str, Any]) -> Inputs:
    """Return the model's input, made from raw rows by the module's function."""
    inputs = preprocess(rows, spec)
    return by_name(inputs, spec.get("model_inputs", list(inputs))) if isinstance(inputs, dict) else np.asarray(inputs)


def read_raw(path: Path) -> list[Any]:
    """Return raw rows: of a table as dicts, of .json and .jsonl as they are, a .txt file's lines, an .npy array's rows.

    Any other file is one row, its path; a folder is a row for each of its files, by name.
    """
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file())
    suffix = suffix_of(path)
    if suffix not in (".csv", ".npy", ".txt", *JSON_ROWS):
        return [path.resolve(strict=True)]
    data = unpacked(path.read_bytes())
    if suffix == ".npy":
        return list(np.load(io.BytesIO(data), allow_pickle=False))
    text = data.decode("utf-8-sig")
    if suffix == ".json":
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    if suffix == ".csv":
        return list(read_csv(text))
    return json_lines(text) if suffix in JSON_ROWS else [line for line in text.splitlines() if line.strip()]


def parts_of(inputs: Inputs) -> list[np.ndarray]:
    """Return a model's inputs in their order."""
    return list(inputs.values()) if isinstance(inputs, dict) else [inputs]


def batch_of(inputs: Inputs, start: int) -> Inputs:
    """Return the rows that the model reads at once, from one on."""
    rows = slice(start, start + BATCH)
    return {name: part[rows] for name, part in inputs.items()} if isinstance(inputs, dict) else inputs[rows]


# --- running ------------------------------------------------------------------------------------


def open_model(folder: Path) -> Callable[[Inputs], np.ndarray]:
    """Return a function that runs the model: by ONNX where a file and onnxruntime are there, else by torch."""
    failures = []
    onnx = next((name for name in ONNX if (folder / name).is_file()), ONNX[0])
    for name, opener in ((onnx, OnnxModel), ("model.pt2", open_torch)):
        if not (folder / name).is_file():
            failures.append(f"{name} is not here")
            continue
        try:
            return opener(folder / name)
        except ImportError as error:
            failures.append(f"{name} needs {error.name}")
        except Exception as error:  # each library has its own for a damaged file
            reason = str(error).partition("\n")[0]
            raise InvalidInputError(
                f"{name} cannot be read ({type(error).__name__}: {reason}); bring it as it was delivered"
            ) from error
    raise InvalidInputError(f"no model here can be run: {'; '.join(failures)}")


class OnnxModel:
    """An ONNX model that is run by calling it, and gives its first output.

    Attributes:
        types: NumPy's name of each input's type, None where it is another one.
    """

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it notes each session and sends that to its maker
        import onnxruntime

        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.types = {entry.name: NUMBERS.get(entry.type) for entry in self._session.get_inputs()}

    def __call__(self, inputs: Inputs) -> np.ndarray:
        """Return the first output."""
        parts = dict(zip(self.types, parts_of(inputs), strict=True))
        for name, part in parts.items():
            wanted = self.types[name]
            if wanted not in (None, part.dtype.name):
                raise InvalidInputError(f"{name} holds {part.dtype}, and the model reads {wanted}: save it as {wanted}")
        return np.asarray(self._session.run(None, parts)[0])


def open_torch(path: Path) -> Callable[[Inputs], np.ndarray]:
    """Return a function that runs a torch.export program and gives its first output."""
    import torch

    module = torch.export.load(path).module()

    def run(inputs: Inputs) -> np.ndarray:
        with torch.no_grad():
            outputs = module(*(torch.from_numpy(part) for part in parts_of(inputs)))
        first = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
        return np.asarray(first.numpy())

    return run


# --- continuing a text ---------------------------------------------------------------------------


def prompts_of(path: Path, spec: dict[str, Any]) -> list[str]:
    """Return the texts to continue: the whole file's, or where the model learned conversations, one for each row of JSON."""
    chats = spec.get("conversations")
    if chats is None or suffix_of(path) not in JSON_ROWS:
        return [path.read_bytes().decode("utf-8-sig")]
    rows = enumerate(read_raw(path), 1)
    return [row if isinstance(row, str) else prompt_of(row, chats, number, here()) for number, row in rows]


def prompt_of(row: Any, chats: dict[str, Any], number: int, folder: Path) -> str:
    """Return the part of a row before its answer, as in training: a prompt, or messages without those answers at their end."""
    given = row if isinstance(row, dict) else {}
    messages = given.get("messages")
    if messages is None and isinstance(given.get("prompt"), str):
        return str(given["prompt"])
    are_messages = isinstance(messages, list) and all(isinstance(one, dict) for one in messages)
    while are_messages and messages and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    if not are_messages or not messages:
        form = '{"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ...}'
        raise InvalidInputError(f"row {number}: expected {form}, found {json.dumps(row)[:SHOWN]}")
    return rendered(messages, chats, number, folder)


def rendered(messages: list[dict[str, Any]], chats: dict[str, Any], number: int, folder: Path) -> str:
    """Return messages as the chat template in the model's folder writes them, with what begins an answer behind them."""
    if chats["template"] is None:
        raise InvalidInputError(f'row {number}: the model has no chat template, and learned prompts: bring {{"prompt": ...}}')
    render, template = open_renderer(), (folder / Path(chats["template"]).name).read_text("utf-8")
    try:
        texts, _ = render([messages], chat_template=template, add_generation_prompt=True, **dict(chats["variables"]))
    except Exception as error:  # a template may raise anything
        raise InvalidInputError(f"row {number}: the chat template did not render it: {error}") from error
    return str(texts[0])


def open_renderer() -> Callable[..., Any]:
    """Return the function of transformers that renders a chat template in its sandbox."""
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError as error:
        raise InvalidInputError("chat templates need the package transformers: pip install -r requirements.txt") from error
    function: Callable[..., Any] = render_jinja_template
    return function


def continued(
    run: Callable[[Inputs], np.ndarray], prompt: str, spec: dict[str, Any], count: int, seed: int, temperature: float
) -> str:
    """Return the model's continuation of a prompt: `count` tokens, each sampled from the softmax of logits / temperature.

    A model that learned conversations ends where an answer ends.
    """
    tokenizer, length = open_tokenizer(spec, here()), spec["input"]["shape"][0]
    ids = tokens_of(prompt, tokenizer)
    start, draws = len(ids), draws_of(seed)
    ends = ends_of(spec, tokenizer)
    for _ in range(count):
        found = next_token(run(window_of(ids, length))[0], min(len(ids), length), temperature, draws)
        if found in ends:
            break
        ids.append(found)
    return str(tokenizer.decode(ids[start:]))


def ends_of(spec: dict[str, Any], tokenizer: Any) -> set[int]:
    """Return the tokens at which an answer ends; none where the model did not learn conversations."""
    return {tokenizer.token_to_id(end) for end in spec.get("conversations", {}).get("ends", ())}


def tokens_of(prompt: str, tokenizer: Any) -> list[int]:
    """Return the tokens of a prompt, of which there is one at least."""
    ids = list(tokenizer.encode(prompt, add_special_tokens=False).ids)
    if not ids:
        raise InvalidInputError("the prompt is empty: the model continues a text")
    return ids


def draws_of(seed: int) -> np.random.Generator:
    """Return the generator of a continuation's draws; the same in all versions of NumPy."""
    return np.random.Generator(np.random.Philox(key=seed))


def window_of(ids: list[int], length: int) -> np.ndarray:
    """Return the last tokens as the model reads them, filled up on the right: int64 [1, length]."""
    window = ids[-length:]
    return np.array([window + [0] * (length - len(window))], dtype=np.int64)


def next_token(logits: np.ndarray, count: int, temperature: float, draws: np.random.Generator) -> int:
    """Return the token drawn behind `count` tokens, from the softmax of logits / temperature; logits [length, tokens]."""
    scaled = logits[count - 1].astype(np.float64) / temperature
    powers = np.exp(scaled - scaled.max())
    return int(np.searchsorted(np.cumsum(powers), draws.random() * powers.sum()))


# --- answering ----------------------------------------------------------------------------------


def probabilities(outputs: np.ndarray) -> np.ndarray:
    """Return the softmax of each row, or the sigmoid's two probabilities where there is one output."""
    logits = outputs.astype(np.float64).reshape(len(outputs), -1)
    if logits.shape[1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    # Less the largest: exp() of a large logit is infinite, and infinity by infinity is NaN.
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def answers(outputs: np.ndarray, spec: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield a prediction per row; plain outputs where inference.json does not describe them.

    Where it says how sure an answer must be (`conformal`), with the set of classes, the likeliest first, or the interval that
    holds the truth as often as it says there.
    """
    classes, doubt = spec.get("classes"), spec.get("conformal")
    if spec.get("output") == "targets":
        yield from answers_of_targets(outputs, spec["targets"])
        return
    if classes and spec.get("output") == "logits":
        chances = probabilities(outputs)
        open_left = plausible(chances, doubt) if doubt else None
        for nr, row in enumerate(chances):
            named = {str(name): finite(p) for name, p in zip(classes, row, strict=True)}
            answer = {"prediction": classes[int(row.argmax())], "probabilities": named}
            if open_left is not None:
                answer["set"] = [classes[place] for place in np.argsort(-row, kind="stable") if open_left[nr, place]]
            yield answer
        return
    for row in outputs.reshape(len(outputs), -1):
        values = [finite(value) for value in row]
        if spec.get("output") != "value":
            yield {"output": values}
        elif doubt:
            yield {"prediction": values[0], "interval": [finite(end) for end in interval(row[:1], doubt)[0]]}
        else:
            yield {"prediction": values[0]}


def answers_of_targets(outputs: np.ndarray, targets: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield per row the prediction of each target by its name, and the probabilities of those that are classes."""
    parts, first = [], 0
    for target in targets:
        width = len(target["classes"] or [None])
        parts.append(list(answers(outputs[:, first : first + width], target)))
        first += width
    for row in zip(*parts, strict=True):
        named = [(target["name"], answer) for target, answer in zip(targets, row, strict=True)]
        chances = {name: answer["probabilities"] for name, answer in named if "probabilities" in answer}
        yield {
            "prediction": {name: answer["prediction"] for name, answer in named},
            **({"probabilities": chances} if chances else {}),
        }


# --- how sure an answer is: conformal sets and intervals, which are measured by the same functions -----

SLACK = 1e-4  # relative, of a probability: float32 logits differ by this between runtimes, and equal ones must stay equal


def conformity(chances: np.ndarray, score: str) -> np.ndarray:
    """Return the fit of each class to each row, the larger the better.

    By `lac` it is the class's probability (Sadinle, Lei and Wasserman, 2019, Least Ambiguous Set-Valued Classifiers with Bounded
    Error Levels, JASA 114:223-234). By `aps` it is that of all less likely classes together, which is 1 less the score of Romano,
    Sesia and Candes (2020, Classification with Valid and Adaptive Coverage, NeurIPS 33), and 1 for the likeliest class: in place
    of their draws, by which the same row would have another set each time.
    """
    if score == "lac":
        return chances
    order = np.argsort(-chances, axis=1, kind="stable")
    ranked = np.take_along_axis(chances, order, axis=1)
    less = np.zeros_like(ranked)
    # Summed from the least likely class up: 1 minus the sum of the likelier ones would lose small values.
    less[:, :-1] = np.cumsum(ranked[:, :0:-1], axis=1)[:, ::-1]
    less[:, 0] = 1.0
    fits = np.zeros_like(ranked)
    np.put_along_axis(fits, order, less, axis=1)
    return fits


def plausible(chances: np.ndarray, doubt: dict[str, Any]) -> np.ndarray:
    """Return the set of each row, bool [rows, classes]; the likeliest class is in all of them."""
    # A row without numbers leaves all classes open.
    sets: np.ndarray = (conformity(chances, doubt["score"]) >= doubt["threshold"] * (1 - SLACK)) | np.isnan(chances)
    sets[np.arange(len(chances)), chances.argmax(axis=1)] = True
    return sets


def interval(values: np.ndarray, doubt: dict[str, Any]) -> np.ndarray:
    """Return the two ends of each prediction's interval, float64 [rows, 2]."""
    middle = values.astype(np.float64)
    return np.stack([middle - doubt["threshold"], middle + doubt["threshold"]], axis=1)


def finite(value: Any) -> float | None:
    """Return a number for JSON, which has none that are not finite."""
    return float(value) if math.isfinite(value) else None


def predictions(inputs: Inputs, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a prediction per row, computed some rows at a time."""
    count = len(parts_of(inputs)[0])
    if not count:
        return
    run = open_model(here())
    for start in range(0, count, BATCH):
        yield from answers(run(batch_of(inputs, start)), spec)


def answered(path: Path, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a prediction per row of a file, or per picture with its name; pictures are read some at a time."""
    given = spec.get("input")
    pictures = pictures_in(path) if isinstance(given, dict) and "picture" in given else []
    if not pictures:
        yield from predictions(read_input(path, spec), spec)
        return
    run = open_model(here())
    for low in range(0, len(pictures), BATCH):
        part = pictures[low : low + BATCH]
        for each, answer in zip(part, answers(run(read_pictures(part, spec)), spec), strict=True):
            yield {"file": each.relative_to(path).as_posix() if path.is_dir() else each.name, **answer}


def message_of(error: Exception) -> str:
    """Return the fault of an input, from the error of reading it; reworded if the library's message is unclear."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is no text: {error}"
    if "allow_pickle" in str(error) or isinstance(error, EOFError):
        return "it holds no arrays of numbers as numpy.save writes them"
    return str(getattr(error, "strerror", None) or error)


def main(arguments: list[str] | None = None) -> int:
    """Read, run, print; return the exit code."""
    parser = argparse.ArgumentParser(description="Predict with the model in this folder; prints one JSON object per row.")
    reads = "rows or texts: .csv, .json, .jsonl, texts also .txt; a picture or a folder of them; other inputs: .npy, .npz"
    parser.add_argument("input", type=Path, help=reads)
    parser.add_argument("--tokens", type=int, default=200, help="the number of tokens, for a model that continues a text")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the draws; the same seed gives the same text")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1 the likelier tokens are drawn more often")
    asked = parser.parse_args(arguments)
    try:
        spec = json.loads((here() / "inference.json").read_text("utf-8"))
        if spec.get("kind") == "text_generation":
            prompts, run = prompts_of(asked.input, spec), open_model(here())
            for prompt in prompts:
                text = continued(run, prompt, spec, asked.tokens, asked.seed, asked.temperature)
                sys.stdout.write(json.dumps({"continuation": text}) + "\n")
            return 0
        for answer in answered(asked.input, spec):
            sys.stdout.write(json.dumps(answer) + "\n")
    except (InvalidInputError, OSError, EOFError, ValueError, csv.Error) as error:
        sys.stderr.write(f"error: {message_of(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
