"""From a source's name to its content: built-in data sets, tables, arrays and folders of images."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from mltrainer.checkpointing.inference_script import SHEETS, suffix_of, unpacked
from mltrainer.configs.project import Data, Image
from mltrainer.errors import InputError, did_you_mean
from mltrainer.records.common import FileRow
from mltrainer.tasks.array_files import arrays, label_file, read_npy, read_npz
from mltrainer.tasks.content import (
    WHOLE_FILE,
    Arrays,
    Corpus,
    Source,
    Table,
    content_sha256,
    file_row,
    listed,
    require_columns,
    target_gaps,
    without,
)
from mltrainer.tasks.images.image_folders import read_images
from mltrainer.tasks.images.pictures import list_pictures, read_pictures
from mltrainer.tasks.predefined_splits import join, join_tables, places
from mltrainer.tasks.stored.location import parquet_files
from mltrainer.tasks.tables.files import FAST_FROM, read_csv, read_json, read_jsonl, read_parquet, read_workbook, text_array
from mltrainer.tasks.tables.table_cache import LazyColumns, TableCache
from mltrainer.tasks.text.corpus import is_corpus, read_corpus, visible
from mltrainer.tasks.text.labelled_texts import is_text_folder, read_texts
from mltrainer.workspace import PROJECT_FILE, STATE_DIR, digest, machine_faults

SKLEARN = "sklearn:"
SKLEARN_TARGET = "target"
SKLEARN_TABLES = {"iris": True, "wine": True, "breast_cancer": True, "diabetes": False}  # name: whether it has classes
DELIMITED = (".csv", ".tsv", ".tab", ".psv", ".dat", ".data", ".txt")  # ".txt" where there is a column to predict
TABLE_READERS: dict[str, Callable[..., Table]] = {
    **dict.fromkeys(DELIMITED, read_csv),
    ".parquet": read_parquet,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    **dict.fromkeys(SHEETS, read_workbook),
}


_keeps_tables = ContextVar("_keeps_tables", default=True)


@contextlib.contextmanager
def tables_parsed() -> Iterator[None]:
    """Let every table be parsed from its file, however large: none is read from the state folder, and none is kept there."""
    token = _keeps_tables.set(False)
    try:
        yield
    finally:
        _keeps_tables.reset(token)


def read_source(config: Data, root: Path) -> Source:
    """Read the source of `data.source`, and the tokenizer where `data.tokens.file` names one.

    Args:
        config: The `data` part of a config; splits with separate sources follow the training split.
        root: The project's folder, to which a path is relative.

    Raises:
        InputError: There is no such source, or its content is not valid; with file and line.
        MachineError: The file may not be read, or the disk failed.
    """
    source = _read_splits(config, root) if config.held_out else _read_one(config, root)
    if config.tokens is None or config.tokens.file is None:
        return source
    path = _existing(config.tokens.file, root, "data.tokens.file")
    data, row = _bytes(path, _place(path, root))
    return dataclasses.replace(source, files=[*source.files, row], tokenizer=data)


def _read_splits(config: Data, root: Path) -> Source:
    """Return the samples of all splits; splits without a separate source are drawn later."""
    named = {"train": config.source, **config.held_out}
    patterns = {name for name, source in named.items() if parquet_files(source, root) is not None}
    if config.image is None and not config.source.startswith(SKLEARN) and not patterns:
        paths = {name: _existing(source, root, _key(name)) for name, source in named.items()}
        if all(_is_table(path, config) for path in paths.values()) and _is_large(list(paths.values()), root):
            return _kept_table(paths, config, root)
    # All are checked to exist before any is read: a missing test file must not show after minutes.
    for name, source in config.held_out.items():
        if name not in patterns:
            _existing(source, root, _key(name))
    return join({name: _read_one(config.model_copy(update={"source": source}), root) for name, source in named.items()})


def _key(split: str) -> str:
    return "data.source" if split == "train" else f"data.{split}"


def _read_one(config: Data, root: Path) -> Source:
    return _read_samples(config, root) if config.image is None else _read_pictures(config, config.image, root)


def _read_samples(config: Data, root: Path) -> Source:
    source = config.source
    if source.startswith(SKLEARN):
        return _read_sklearn(source.removeprefix(SKLEARN))
    if (parts := parquet_files(source, root)) is not None:
        return _joined([part.name for part in parts], config, root)
    path = _existing(source, root, "data.source")
    if is_corpus(path) and not _is_table(path, config):
        return Source(*read_corpus(path, _place(path, root), root))
    if not path.is_dir():
        return _read_file(path, _place(path, root), config, root)
    if (tables := _tables_in(path, config)) is not None:
        return _joined([_place(each, root) for each in tables], config, root)
    if is_text_folder(path):
        return Source(*read_texts(path, _place(path, root)))
    return Source(*read_images(path, _place(path, root)))


def _is_table(path: Path, config: Data) -> bool:
    """Return True if a file is read as a table; a text without a column to predict is none."""
    suffix = suffix_of(path)
    return path.is_file() and suffix in TABLE_READERS and (suffix != ".txt" or bool(config.all_targets))


def _tables_in(folder: Path, config: Data) -> list[Path] | None:
    """Return the tables of a folder that holds nothing else, sorted; None for another folder."""
    found = visible(folder)
    return found if found and all(_is_table(path, config) and path.suffix.lower() != ".txt" for path in found) else None


def _joined(names: list[str], config: Data, root: Path) -> Source:
    """Return the rows of several files as one table."""
    read = [_bytes(root / name, name) for name in names]
    tables = [_table(data, row.path, suffix_of(Path(row.path)), config) for data, row in read]
    table = join_tables(tables)
    return Source(table, [row for _, row in read], table.notes)


def _existing(name: str, root: Path, key: str) -> Path:
    path = root / name
    if "\0" in name or not path.exists():
        hint = f"bring it there, or change {key} in mltrainer.yaml; a path is relative to the project"
        raise InputError(f"no such file or folder: {name!r}{near(path)}", where=key, hint=hint)
    return path


def _read_pictures(config: Data, image: Image, root: Path) -> Source:
    path = _existing(config.source, root, "data.source")
    place = _place(path, root)
    table = [] if path.is_dir() else [_bytes(path, place)[1]]
    content, files, notes = read_pictures(list_pictures(path, place, image.column, config.target), image, root)
    return Source(content, [*table, *files], notes)


def _place(path: Path, root: Path) -> str:
    """Return a path as messages and records name it: relative to the project, so that it is the same on every machine."""
    return Path(os.path.relpath(path, root)).as_posix()


def near(path: Path) -> str:
    """Return, for messages, the file beside a missing path that may have been meant."""
    names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    return did_you_mean(path.name, names)


def _read_file(path: Path, place: str, config: Data, root: Path) -> Source:
    suffix = suffix_of(path)
    if suffix in TABLE_READERS and _is_large([path], root):
        return _kept_table({"train": path}, config, root)
    data, row = _bytes(path, place)
    if suffix in TABLE_READERS:
        table = _table(data, place, suffix, config)
        return Source(table, [row], table.notes)
    if suffix == ".npz":
        content, notes = read_npz(data, place)
        return Source(content, [row], notes)
    if suffix == ".npy":
        other = label_file(path)
        labels, second = _bytes(other, str(Path(place).with_name(other.name)))
        content, notes = read_npy(data, labels, place)
        return Source(content, [row, second], notes)
    known = ", ".join([*TABLE_READERS, ".npz", ".npy"])
    raise InputError(
        expected=f"a file of the kind {known}, or folders of images",
        found=repr(path.suffix),
        where=place,
        hint="convert it to one of these",
    )


def _table(data: bytes, place: str, suffix: str, config: Data) -> Table:
    try:
        data = unpacked(data)
    except OSError as error:
        raise InputError(str(error), where=place, hint=WHOLE_FILE) from error
    table = TABLE_READERS[suffix](data, place, **_reading(config, suffix, place))
    gaps = [note for name in config.all_targets for note in target_gaps(table, name, config.no_value)]
    return dataclasses.replace(without(table, config.no_value), notes=[*table.notes, *gaps])


def _reading(config: Data, suffix: str, place: str) -> dict[str, Any]:
    """Return the keys for the place of the table in a file, as arguments of the reader of its kind.

    Raises:
        InputError: Lines are skipped, or a sheet is named, where files of this kind have none.
    """
    taken = (
        {"header", "skip_lines", "sheet"} if suffix in SHEETS else {"header", "skip_lines"} if suffix in DELIMITED else {"header"}
    )
    for key in config.reading:
        if key not in taken:
            has = "sheets" if key == "sheet" else "lines above its table"
            raise InputError(f"a {suffix} file has no {has}", where=place, hint=f"take data.{key} out of mltrainer.yaml")
    return config.reading if len(taken) > 1 else {}


def _is_large(paths: list[Path], root: Path) -> bool:
    """Return True if files are large enough for their parsed content to be kept, and there is a project to keep it."""
    return _keeps_tables.get() and (root / PROJECT_FILE).is_file() and sum(path.stat().st_size for path in paths) >= FAST_FROM


def _kept_table(paths: Mapping[str, Path], config: Data, root: Path) -> Source:
    """Return a large table, from one file or one for each split, from the state folder, or read now and kept there."""
    named = {_place(path, root): path for path in paths.values()}
    place, rows = next(iter(named)), [file_row(path, place) for place, path in named.items()]
    shas = [row.sha256 for row in rows]
    how = [shas, config.reading, config.no_value, config.all_targets]
    kept = TableCache(root / STATE_DIR / "tables" / digest(how)[:16])
    read = functools.partial(_read_rows, rows, root, config)
    if kept.names is not None:
        columns: Mapping[str, Any] = LazyColumns(kept.names, lambda: read().columns)
        later = kept.later
    else:
        table = read()
        columns, later = table.columns, table.later
        kept.keep(place, list(columns), len(table), content_sha256(table), later, table.notes)
    content = Table(columns, lambda: read().rows, place, kept, later, kept.notes, config.no_value)
    return Source(content, rows, kept.notes, given=places(paths, content.sizes) if len(paths) > 1 else None)


def _read_rows(rows: list[FileRow], root: Path, config: Data) -> Table:
    """Return the joined table of several files, which must be unchanged."""
    tables = []
    for row in rows:
        data, found = _bytes(root / row.path, row.path)
        if found.sha256 != row.sha256:
            raise InputError("the file changed while it was read", where=row.path, hint="type the same command again")
        tables.append(_table(data, row.path, suffix_of(Path(row.path)), config))
    return tables[0] if len(tables) == 1 else join_tables(tables)


def _bytes(path: Path, place: str) -> tuple[bytes, FileRow]:
    with machine_faults(place):
        data = path.read_bytes()
    if not data:
        raise InputError("the file is empty", where=place, hint=WHOLE_FILE)
    # The bytes that are parsed are those that are hashed, whatever happens to the file meanwhile.
    return data, file_row(path, place, data)


# --- scikit-learn's built-in data sets ----------------------------------------------------------


def _read_sklearn(name: str) -> Source:
    """Return one of the data sets that scikit-learn ships; nothing is downloaded."""
    known = ["digits", *SKLEARN_TABLES]
    if name not in known:
        raise InputError.unknown("built-in data set", SKLEARN + name, [SKLEARN + one for one in known], where="data.source")
    if name == "digits":
        x, y = _digits()
        content, _ = arrays((x / 16).astype(np.float32).reshape(-1, 1, 8, 8), y.astype(np.int64), SKLEARN + name)
        return Source(content, [], ["grey levels were divided by 16"])
    from sklearn import datasets

    return Source(_sklearn_table(getattr(datasets, f"load_{name}")(), name), [])


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels [1797, 64] and labels, from scikit-learn's file where it exists: importing the package takes a second."""
    found = importlib.util.find_spec("sklearn")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            with gzip.open(path, "rt", encoding="ascii") as file:
                table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.data, bunch.target


def _sklearn_table(bunch: Any, name: str) -> Table:
    columns = {str(n): np.ascontiguousarray(bunch.data[:, nr], dtype=np.float64) for nr, n in enumerate(bunch.feature_names)}
    target = bunch.target
    labels = text_array([str(bunch.target_names[nr]) for nr in target]) if SKLEARN_TABLES[name] else target.astype(np.float64)
    return Table({**columns, SKLEARN_TARGET: labels}, lambda: np.arange(1, len(target) + 1), SKLEARN + name)


def table_of(content: Table | Arrays | Corpus, target: str | None) -> tuple[Table, str]:
    """Return content as a table with the name of its target column; the axes of arrays become columns `x0`, `x1`, ...

    Raises:
        InputError: The target column does not exist or was not named.
    """
    if isinstance(content, Corpus):
        raise _no_table()
    if isinstance(content, Arrays):
        flat = content.x.reshape(len(content), -1).astype(np.float64)
        labels = content.y if content.classes is None else text_array([str(label) for label in content.y.tolist()])
        columns = {f"x{nr}": np.ascontiguousarray(flat[:, nr]) for nr in range(flat.shape[1])}
        return Table({**columns, "y": labels}, lambda: np.arange(len(content)), content.place), "y"
    builtin = content.place.startswith(SKLEARN)
    name = target or (SKLEARN_TARGET if builtin else None)
    if name is None:
        raise InputError(
            f"a table needs the column to predict; it has {listed([*content.columns], 12)}",
            where="data.target",
            hint="data: {target: COLUMN}",
        )
    require_columns(content, [name], "data.target")
    return content, name


def table_with(content: Table | Arrays | Corpus, targets: Sequence[str]) -> Table:
    """Return content that is a table with some target columns.

    Raises:
        InputError: The content is no table, or lacks a target.
    """
    if isinstance(content, Corpus):
        raise _no_table()
    if isinstance(content, Arrays):
        what, hint = "arrays hold one target, y; several targets are columns of a table", "bring a CSV, Parquet or JSONL file"
        raise InputError(what, where="data.source", hint=hint)
    for nr, name in enumerate(targets):
        require_columns(content, [name], f"data.targets.{nr}")
    return content


def _no_table() -> InputError:
    return InputError(expected="a table", found="a text", where="data.source", hint="task: {kind: text_generation}")
