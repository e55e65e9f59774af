"""Data that comes in a file or folder per split: the paths of the splits, and all of them as one source."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.errors import InputError
from mltrainer.tasks.content import Arrays, Corpus, Source, Table, class_order
from mltrainer.tasks.splits import SPLITS, WORDS
from mltrainer.workspace import digest

if TYPE_CHECKING:
    from mltrainer.tasks.tables.columns import Cells


def own_splits(data: Path, named: Mapping[str, Path | None]) -> dict[str, Path]:
    """Return each split's path, the training split's first.

    Args:
        data: The path to the samples, or to a folder with a part for each split, such as `train/` and `test/`.
        named: The paths given for single splits; None where none was given.

    Raises:
        InputError: Several parts of the folder could be meant.
    """
    given = {name: path for name, path in named.items() if path is not None}
    found = _parts(data) if data.is_dir() else {}
    return {**(found if "train" in found and len(found) > 1 else {"train": data}), **given}


def _parts(folder: Path) -> dict[str, Path]:
    """Return the parts of a folder that are named for a split."""
    meant = {word: name for name, words in WORDS.items() for word in words}
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name = meant.get(path.stem.lower() if path.is_file() else path.name.lower())
        if name in found:
            what = f"both {found[name].name} and {path.name} could be the {name} split"
            raise InputError(
                what,
                where=str(folder),
                hint=f"mltrainer init --data {shlex.quote(str(found[name]))}, with --validation and --test",
            )
        if name is not None:
            found[name] = path
    return {name: found[name] for name in WORDS if name in found}


def join(sources: Mapping[str, Source]) -> Source:
    """Return the samples of several sources, one after the other, with the split that each belongs to.

    Args:
        sources: The sources by split, the training split's first.

    Raises:
        InputError: The sources' forms differ.
    """
    contents = {name: source.content for name, source in sources.items()}
    files = [row for source in sources.values() for row in source.files]
    notes = list(dict.fromkeys(note for source in sources.values() for note in source.notes))
    if len(corpora := {name: one for name, one in contents.items() if isinstance(one, Corpus)}) == len(contents):
        return Source(_corpora(corpora), files, notes)
    if len(tables := [one for one in contents.values() if isinstance(one, Table)]) == len(contents):
        table = join_tables(tables)
        return Source(table, files, table.notes, given=places(sources, table.sizes))
    if len(arrays := [one for one in contents.values() if isinstance(one, Arrays)]) == len(contents):
        return Source(_arrays(arrays), files, notes, given=places(sources, [len(one) for one in arrays]))
    first, *others = contents.values()
    other = next(one for one in others if type(one) is not type(first))
    what = f"{_named(other)}, but {first.place} holds {_named(first)}"
    raise InputError(what, where=other.place, hint="bring all splits in the same form")


def places(splits: Mapping[str, Any], sizes: Sequence[int]) -> np.ndarray:
    """Return the place in `SPLITS` of each sample of some splits, one after the other."""
    return np.repeat([SPLITS.index(name) for name in splits], sizes)


def _named(content: Table | Arrays | Corpus) -> str:
    return {"Table": "a table", "Arrays": "arrays or images", "Corpus": "a text"}[type(content).__name__]


def join_tables(tables: Sequence[Table]) -> Table:
    """Return the rows of several tables as one; columns that the first lacks are left out, with a note.

    Raises:
        InputError: A table lacks a column of the first, or holds text where that holds numbers.
    """
    first = tables[0]
    for other in tables[1:]:
        lacking = [name for name in first.columns if name not in other.columns]
        if lacking:
            what = f"no column {', '.join(map(repr, lacking[:5]))}, which {first.place} has"
            hint = "bring the same columns, or give the training file alone; rows without a target are for `mltrainer predict`"
            raise InputError(what, where=other.place, hint=hint)
    columns = {name: _cells(name, tables) for name in first.columns}
    begins = np.cumsum([len(table) for table in tables])[:-1].tolist()
    notes = list(dict.fromkeys([note for table in tables for note in table.notes] + _left_out(tables)))
    later = tuple((begin, table.place) for begin, table in zip(begins, tables[1:], strict=True))
    return Table(
        columns,
        lambda: np.concatenate([table.rows for table in tables]),
        first.place,
        later=later,
        notes=notes,
        missing=first.missing,
    )


def _left_out(tables: Sequence[Table]) -> list[str]:
    first, *others = tables
    more = [(table.place, [name for name in table.columns if name not in first.columns]) for table in others]
    return [
        f"columns of {place} that {first.place} has not were left out: {', '.join(map(repr, names))}"
        for place, names in more
        if names
    ]


def _cells(name: str, tables: Sequence[Table]) -> Cells:
    parts = [table.columns[name] for table in tables]
    numbers = [isinstance(part, np.ndarray) and part.dtype == np.float64 for part in parts]
    # Joined as text, the numbers would be spelt by Python in one part and by a person in the other.
    if any(numbers) != all(numbers):
        holding = {kind: tables[numbers.index(kind)].place for kind in (True, False)}
        what = f"column {name!r} holds numbers in {holding[True]}, and text here"
        raise InputError(what, where=holding[False], hint="bring it in the same form")
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    import polars

    # Small files come as arrays and large ones from polars: both may be among the parts.
    return polars.concat([polars.Series(name, part, dtype=polars.String) for part in parts])


def _arrays(parts: Sequence[Arrays]) -> Arrays:
    first = parts[0]
    for other in parts[1:]:
        if other.x.shape[1:] != first.x.shape[1:] or other.x.dtype != first.x.dtype:
            what = f"samples of shape {list(other.x.shape[1:])}, but {first.place} has {list(first.x.shape[1:])}"
            raise InputError(what, where=other.place, hint="for pictures: data: {image: {size: [64, 64], colour: rgb}}")
    x = np.concatenate([part.x for part in parts])
    if any(part.classes is None for part in parts):
        return Arrays(x, np.concatenate([part.y for part in parts]), None, first.place)
    names = sorted({name for part in parts for name in part.classes or []}, key=class_order)
    # A split may lack a class, so that its class numbers mean other classes.
    y = [np.array([names.index(name) for name in part.classes or []], dtype=np.int64)[part.y] for part in parts]
    return Arrays(x, np.concatenate(y), names, first.place, names=_files(parts))


def _files(parts: Sequence[Arrays]) -> list[str] | None:
    """Return the file of each sample; None where they have none."""
    named = [name for part in parts for name in part.names or []]
    return named if len(named) == sum(map(len, parts)) else None


def _corpora(parts: Mapping[str, Corpus]) -> Corpus:
    whole = [*parts.values()]
    return replace(
        whole[0],
        paths=[path for part in whole for path in part.paths],
        sizes=[size for part in whole for size in part.sizes],
        sha256=digest([part.sha256 for part in whole]),
        held_out={name: sum(part.sizes) for name, part in parts.items() if name != "train"},
    )
