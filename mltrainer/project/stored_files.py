"""A project's files for an object store: their list with digests, and the side that counts where two sides differ."""

from __future__ import annotations

import fnmatch
import importlib.machinery
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from mltrainer import handbook, plugins
from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.leftovers import RUN_LOCK, RUN_SCRATCH
from mltrainer.records.common import FileRow, Part
from mltrainer.records.reading import sound_record
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.reproducibility.git import tracked, tracks
from mltrainer.runs.rebuild import FOLDER as ENVIRONMENTS
from mltrainer.validation import faults_of
from mltrainer.workspace import (
    LOCK_FILE,
    RUNNING_FILE,
    SERVED_FILE,
    STATE_DIR,
    Project,
    files_of_tree,
    from_json,
    is_sealed,
    pretty_json,
    seal,
    tree_of,
    without_seal,
)

PHASES_DIR = "phases"
KNOWN_FILE = "store.json"  # in the state folder: the store's content when this project last pushed or pulled
ARRIVING, STORE_LOCK = "arriving", "store.lock"
# In the state folder: of this machine alone, made again where it is missing, or of other people.
LEFT_OUT = plugins.scratch_folders() | {
    *("cache", "tables", "tokens", "probe", "cause", "remote", ENVIRONMENTS, ARRIVING),
    *(LOCK_FILE, RUNNING_FILE, KNOWN_FILE, STORE_LOCK),
}
# Endings of what phases, runs and programs leave as evidence. Code, templates and pages come by git, where people review them.
EVIDENCE = (
    *(
        ".json",
        ".jsonl",
        ".csv",
        ".txt",
        ".md",
        ".yaml",
        ".log",
        ".html",
        ".svg",
        ".png",
        ".jpg",
        ".parquet",
        ".zip",
        ".db",
        ".sqlite",
    ),
    *(
        ".safetensors",
        ".npy",
        ".npz",
        ".f32",
        ".onnx",
        ".pt2",
        ".pt",
        ".pth",
        ".ckpt",
        ".pkl",
        ".joblib",
        ".bin",
        ".h5",
        ".keras",
    ),
    *(".gguf", ".ubj", ".pb", ".model", ".cbm"),
)
CHECKSUMS = "sha256sums"
# Files that decide what is run or built, and so are never data: endings, and names without one.
_DECIDING = (
    *(*importlib.machinery.all_suffixes(), ".pth", ".sh", ".bat", ".ps1", ".js", ".ipynb", ".j2", ".service"),
    *(".yaml", ".yml", ".toml", ".cfg", ".ini", ".mk", ".cmake"),
)
_DECIDING_NAMES = ("makefile", "gnumakefile", "dockerfile", "justfile", "snakefile", "requirements", "constraints", "cmakelists")
MOST_LISTED = 1 << 30  # bytes of a list: some five million files
Digests = Mapping[str, str]  # by path


class Listed(Part):
    """A file of the list; `modified` is in nanoseconds since 1970, for the order of runs."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]
    modified: Annotated[int, Field(ge=0, lt=1 << 63)]


class Manifest(Part):
    """The list of a store's files, by their paths from the project; `commit` is the one at which they were sent last."""

    form: Literal[1] = 1
    project: str
    commit: str | None
    files: dict[str, Listed]

    @property
    def digests(self) -> dict[str, str]:
        """The files' digests by path."""
        return {path: row.sha256 for path, row in self.files.items()}


def written(manifest: Manifest) -> bytes:
    """Return the text of a list, sealed."""
    return pretty_json(seal(manifest.model_dump()))


def read(data: bytes, where: str) -> Manifest:
    """Return the list that a text holds.

    Raises:
        InputError: It was cut off, edited, or written by another program.
    """
    hint = "push again from a machine where the files are whole"
    try:
        content = from_json(data)
    except ValueError as error:
        raise InputError(f"the list of the store's files is not readable as JSON: {error}", where=where, hint=hint) from error
    if not is_sealed(content):
        raise InputError("the list of the store's files was cut off or edited: its seal does not hold", where=where, hint=hint)
    try:
        return Manifest.model_validate(without_seal(content))
    except ValidationError as error:
        fault = faults_of(error)[0]
        message = f"this version cannot read the list of the store's files: {fault.place}: {fault.msg}"
        raise InputError(message, where=where, hint=hint) from error


# --- which files ----------------------------------------------------------------------------------


def data_rows(project: Project) -> list[FileRow] | None:
    """Return the data's files, folders and trees that planning recorded; None if there is no sound record.

    Raises:
        InputError: A file is outside the project.
    """
    record = sound_record(project, "planning")
    if record is None:
        return None
    rows: list[FileRow] = record.evidence.data.files
    if outside := [row.path for row in rows if row.path.startswith(("/", ".."))]:
        message = f"{outside[0]} is outside the project's folder, and is not copied"
        raise InputError(message, where="data.source", hint="put it into the project; .gitignore keeps it out of git")
    return rows


def is_part_of(path: str, rows: Iterable[FileRow]) -> bool:
    """Return True if a path is one of the data's files, or is in one of its folders or trees."""
    return any(path == row.path or path.startswith(f"{(tree_of(row.path) or (row.path,))[0]}/") for row in rows)


def is_evidence(path: str) -> bool:
    """Return True for files that the phases wrote: records and reports, runs and checkpoints."""
    return path.startswith((f"{PHASES_DIR}/", f"{STATE_DIR}/"))


def files_of(project: Project, rows: Iterable[FileRow]) -> list[str]:
    """Return the paths of all files to copy; files that refer to others come last.

    While a phase runs, what is read first is older: so a record never mentions a checkpoint that was not sent.
    """
    in_git = tracked(project.root)
    data = (path for row in rows for path in files_of_row(project.root, row) if path not in in_git)
    phases = _evidence_below(project.root, PHASES_DIR)
    state = sorted(_evidence_below(project.root, STATE_DIR), key=_order)
    return list(dict.fromkeys([*data, *phases, *state]))


def _order(path: str) -> int:
    name, inside = path.rpartition("/")[2], "/checkpoints/" in path
    return 0 if name == RESULT_FILE and not inside else 1 if inside else 2


def files_of_row(root: Path, row: FileRow) -> Iterator[str]:
    """Yield the paths of the files that a row of the data names, if they are here."""
    if (tree := tree_of(row.path)) is not None:
        yield from (f"{tree[0]}/{name}" for name in files_of_tree(root / tree[0], tree[1]))
    elif (root / row.path).is_dir():
        yield from sorted(path for path in _below(root, row.path) if not _is_hidden(path))
    elif (root / row.path).is_file():
        yield row.path


def _evidence_below(root: Path, folder: str) -> list[str]:
    return sorted(path for path in _below(root, folder) if _is_sent(path) and not (root / path).is_symlink())


def _below(root: Path, folder: str) -> Iterator[str]:
    for place, _, names in os.walk(root / folder):
        inside = Path(place).relative_to(root).as_posix()
        yield from (f"{inside}/{name}" for name in names if (root / inside / name).is_file())


def _is_sent(path: str) -> bool:
    """Return False for files of this machine alone or in transit: locks, caches, a server's answers, scratch folders."""
    first, *inner = path.split("/")
    if first == STATE_DIR and (inner[0] in LEFT_OUT or inner[0].startswith(SERVED_FILE)):
        return False
    is_lock = inner[-1] == RUN_LOCK or inner[-1].endswith(".lock")
    return not is_lock and not _is_hidden(path) and not {RUN_SCRATCH, "__pycache__"} & set(inner) and _is_left_by_phases(path)


def _is_left_by_phases(path: str) -> bool:
    """Return True for a file that phases, runs or programs leave, False for a page, a template, code or anything else."""
    name = _folded(path)
    return (name.suffix in EVIDENCE or name.name == CHECKSUMS) and str(name) not in handbook.page_paths()


def _folded(path: str) -> PurePosixPath:
    """Return a path as case-insensitive file systems see it."""
    return PurePosixPath(unicodedata.normalize("NFKC", path).casefold())


def _is_hidden(path: str) -> bool:
    """Return True for a path with a hidden part, such as a file in transit; the state folder itself is not hidden."""
    return any(part.startswith(".") for part in path.removeprefix(f"{STATE_DIR}/").split("/"))


# --- what a list may name -------------------------------------------------------------------------


def refusal(path: str, in_git: Collection[str], declared: Callable[[str], bool] = lambda _: True) -> str | None:
    """Return the reason that a list must not name a path, or None.

    Args:
        path: The path, relative to the project.
        in_git: The paths that git tracks.
        declared: Whether a path is one of the project's data.
    """
    pure = PurePosixPath(path)
    if "\0" in path or str(pure) != path or pure.is_absolute() or not pure.parts or ".." in pure.parts:
        return "the path leads out of the project's folder"
    if _is_hidden(path):
        return "the path is hidden, and phases do not write it"
    if is_evidence(path):
        return None if _is_sent(path) else "the file belongs to one machine, or is no evidence: code and pages come by git"
    name = _folded(path)
    if name.parts[0] in handbook.FOLDERS or name.suffix in _DECIDING or name.stem in _DECIDING_NAMES:
        return "the file could decide what runs here, which data must not"
    if path in in_git:
        return "git has this file"
    return None if declared(path) else "neither the plan nor data.source names it"


def is_declared(project: Project, rows: Iterable[FileRow]) -> Callable[[str], bool]:
    """Return the function that returns True for a path of the project's data: by the plan here, or by data.source."""
    known, data = list(rows), load_project(project.file).data
    sources = [source for source in (data.source, data.validation, data.test) if source] if data else []
    patterns = [re.sub(r"\{[^}]*\}", "*", source) for source in sources]

    def is_named(path: str) -> bool:
        return any(fnmatch.fnmatchcase(path, pattern) or path.startswith(f"{pattern}/") for pattern in patterns)

    return lambda path: is_part_of(path, known) or is_named(path)


def link_on_the_way(project: Project, path: str) -> str | None:
    """Return the link, or the file in place of a folder, on the way to a path; None if there is none."""
    place = project.root
    parts = PurePosixPath(path).parts
    for number, part in enumerate(parts, 1):
        place = place / part
        # The state folder may be on another disk; a clone never brings it along.
        is_own = number == 1 and part == STATE_DIR and not tracks(str(project.root), STATE_DIR)
        is_wrong = place.is_file() if number < len(parts) else place.is_dir()
        if (place.is_symlink() and not is_own) or is_wrong:
            return project.relative(place)
    return None


# --- what counts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merged:
    """The paths in which a folder and a store differ, by the side that counts.

    Attributes:
        here: Changed or removed here alone since both were the same.
        there: Changed or removed there alone.
        both: Changed on both sides.
    """

    here: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    both: list[str] = field(default_factory=list)


def merged(known: Digests, here: Digests, there: Digests) -> Merged:
    """Return the paths in which two sides differ, by the side that changed since both were the same.

    Args:
        known: The digests when both were the same.
        here: The digests in the folder.
        there: The digests in the store.
    """
    differing = Merged()
    for path in dict.fromkeys([*here, *there]):
        before, ours, theirs = (side.get(path) for side in (known, here, there))
        if ours != theirs:
            (differing.here if theirs == before else differing.there if ours == before else differing.both).append(path)
    return differing
