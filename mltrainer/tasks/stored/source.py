"""From `data.source` to the records that stay in their files, and to the part of each split."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mltrainer.configs.project import Data, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.tasks.splits import SPLITS, BySplit
from mltrainer.tasks.stored.arrays import ArrayRows, TokenWindows, array_slots
from mltrainer.tasks.stored.location import Location, located
from mltrainer.tasks.stored.manifest import manifest_of
from mltrainer.tasks.stored.records import Part, Records, refuse_columns
from mltrainer.tasks.stored.row_groups import RowGroups, row_group_slots
from mltrainer.tasks.stored.tar_shards import TarShards, tar_slots
from mltrainer.workspace import digest

KNOWN = (".parquet", ".tar", ".npy", ".bin")


@dataclass(frozen=True)
class StoredParts:
    """The records of a config's sources.

    Attributes:
        parts: The part of each split.
        bases: The number of the first record of each split's source.
        rows: The files' rows, for records.
        sha256: Digest of all records in their order.
    """

    parts: BySplit[Part]
    bases: BySplit[int]
    rows: list[FileRow]
    sha256: str

    def place(self, row: int) -> str:
        """Return a sample's place by its id: its file, and the place in it."""
        name = max((name for name in SPLITS if self.bases[name] <= row), key=self.bases.__getitem__)
        return self.parts[name].records.where(row - self.bases[name])


def stored_parts(config: TrainingConfig, root: Path) -> StoredParts:
    """Return the parts of the splits of a config's sources, reading only the bytes that the manifest needs.

    Raises:
        InputError: A file is not there or of no known kind, the config's split is not possible for records, or a split is empty.
    """
    assert config.data is not None
    refuse_columns(config.split)
    data = config.data
    own = {name: records_of(data.model_copy(update={"source": source}), root) for name, source in data.held_out.items()}
    wanted = tuple(name for name in SPLITS if name not in own)
    main = records_of(data, root)
    _refuse_shared({"source": main, **own})
    parts = main.parts(config.split, config.data_seed, wanted)
    parts = BySplit({name: Part.whole(own[name]) if name in own else parts[name] for name in SPLITS})
    _refuse_empty(parts, config)
    sources = [main, *own.values()]
    return StoredParts(
        parts, _bases(parts), [row for one in sources for row in one.rows], digest([one.sha256 for one in sources])
    )


def _refuse_shared(sources: dict[str, Records]) -> None:
    """Refuse records that are in two sources: a model would be tested on its training samples."""
    seen: dict[str, tuple[str, str]] = {}
    for name, records in sources.items():
        for one in records.holding_samples:
            key, path = seen.setdefault(one.sha256, (name, one.location.name))
            if key != name:
                same = "" if path == one.location.name else f", as {path}"
                what = f"{one.location.name} is also in data.{key}{same}: a model would be tested on what it was trained on"
                raise InputError(what, where=f"data.{name}", hint="give each split files of its own")


def _bases(parts: BySplit[Part]) -> BySplit[int]:
    """Return the number of the first record of each split's source: sources are numbered one after the other."""
    bases, known, end = BySplit[int](), dict[int, int](), 0
    for name, part in parts.items():
        bases[name] = known.setdefault(id(part.records), end)
        end = max(end, bases[name] + part.records.total)
    return bases


def _refuse_empty(parts: BySplit[Part], config: TrainingConfig) -> None:
    for name in SPLITS if config.split.test else SPLITS[:2]:
        if not len(parts[name]):
            sizes = ", ".join(f"{one} {len(part)}" for one, part in parts.items())
            raise InputError(f"a split is empty: {sizes}", where="split", hint="bring more data, or set larger shares")


def records_of(data: Data, root: Path) -> Records:
    """Return the records of a source.

    Raises:
        InputError: There is no such source, or it is of no known kind.
    """
    files = located(data.source, root, KNOWN)
    suffixes = {Path(one.name).suffix.lower() for one in files}
    suffix = next(iter(suffixes)) if len(suffixes) == 1 else ""
    if suffix not in KNOWN:
        files[0].mark()  # one that is not there is named as such
    if suffix == ".parquet":
        return RowGroups(manifest_of(files, root, "parquet", row_group_slots), data.ignore)
    if suffix == ".tar":
        return TarShards(manifest_of(files, root, "tar", tar_slots), root)
    if suffix in (".npy", ".bin"):
        return _arrays(data, files, root)
    found = ", ".join(sorted(suffixes)) or "files without an ending"
    what = f"{data.source!r} holds {found}; records are read from files of one kind: {', '.join(KNOWN)}"
    raise InputError(what, where="data.source", hint="name files of one kind, or write samples(self) or dataset(self, split)")


def _arrays(data: Data, files: list[Location], root: Path) -> Records:
    if len(files) > 1:
        what = f"{data.source!r} names {len(files)} arrays; one was expected"
        raise InputError(what, where="data.source", hint="join them in one")
    if data.tokens is not None:
        return TokenWindows(manifest_of(files, root, "arrays", array_slots), data.tokens.length, data.tokens.type)
    if files[0].name.endswith(".bin"):
        hint = "data: {tokens: {length: 256, type: uint16}}"
        raise InputError("a .bin file of tokens needs the number of those of a sample", where="data.tokens", hint=hint)
    return ArrayRows(manifest_of([*files, *_labels(files[0])], root, "arrays", array_slots))


def _labels(file: Location) -> list[Location]:
    """Return the file of labels beside an array of samples: `x.npy` has `y.npy`, `train_x.npy` has `train_y.npy`.

    Raises:
        InputError: The file of labels that belongs to the name is missing.
    """
    stem = Path(file.name).stem
    if re.fullmatch(r"(.*[^a-z])?x", stem, re.IGNORECASE) is None:
        return []
    other = file.beside(f"{stem[:-1]}y.npy")
    try:
        other.mark()
    except InputError as error:
        hint = f"bring {other.name}, or give the array another name, such as rows.npy"
        raise InputError(f"its labels are expected beside it: {error.message}", where=other.name, hint=hint) from error
    return [other]
