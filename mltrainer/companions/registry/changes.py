"""A model's log: each change as a sealed entry, and the versions, stages and aliases that they lead to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from mltrainer.errors import GateError, InputError
from mltrainer.project.stored_files import Listed
from mltrainer.records.common import Metrics, Part
from mltrainer.records.faults import fault_lines
from mltrainer.workspace import from_json, is_sealed, pretty_json, seal, sha256_bytes

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
ENTRY = r"\d{6}\.json"
Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Version = Annotated[int, Field(ge=1)]
MEND = "bring this object back from a copy of the registry: no entry of the log is ever written again"


def is_inside(path: str) -> bool:
    """Return True for the path of a file in a project that is not hidden."""
    parts = PurePosixPath(path).parts
    is_plain = "\0" not in path and str(PurePosixPath(path)) == path
    return is_plain and bool(parts) and not any(part.startswith((".", "/")) for part in parts)


def _inside(path: str) -> str:
    if not is_inside(path):
        raise ValueError(f"{path!r} is no path of a project's file")
    return path


def _apart(files: dict[str, Listed]) -> dict[str, Listed]:
    inside = (path for path in files if any(str(parent) in files for parent in PurePosixPath(path).parents))
    if (path := next(inside, None)) is not None:
        raise ValueError(f"{path!r} is inside of another file")
    return files


class Added(Part):
    """A version: the files of a finished project, which never change.

    Attributes:
        version: Its number, from 1.
        project: The project's name.
        run: The run that trained it; `contract`: the digests that decide the run's bits.
        record: The SHA-256 of the finalization record.
        commit: The commit of the code that trained it; None without git.
        weights_sha256: The digest of the weights; None of a program's files.
        metric: The name of the metric that its project chooses by.
        metrics: Its metrics on validation; `tested`: on the test split, empty where that was not opened.
        files: The files by their path in the project, the delivered model's among them.
        note: A sentence of whoever added it; None where none was given.
    """

    kind: Literal["add"]
    version: Version
    project: str
    run: str
    contract: dict[str, str]
    record: str
    commit: str | None
    weights_sha256: str | None
    metric: str
    metrics: Metrics
    tested: Metrics
    files: Annotated[dict[Annotated[str, AfterValidator(_inside)], Listed], AfterValidator(_apart)]
    note: str | None

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each file by its path."""
        return {path: row.sha256 for path, row in self.files.items()}


class Moved(Part):
    """A stage or an alias that names another version from now on.

    Attributes:
        kind: The command: `promote` and `rollback` move a stage, `alias` an alias.
        name: The stage or alias.
        version: The version that it names now; None: the alias was removed.
        before: The version that it named before; None: none.
        checked: What was checked before, in sentences.
        note: A sentence of whoever moved it; None where none was given.
    """

    kind: Literal["promote", "rollback", "alias"]
    name: Name
    version: Version | None
    before: Version | None
    checked: list[str]
    note: str | None


Change = Added | Moved


class Entry(Part):
    """An entry of a model's log.

    Attributes:
        model: The model's name.
        number: The entry's number, from 1.
        before: The SHA-256 of the entry before; None of the first.
        when: The time, in UTC.
        by: Who made the change, as git names them.
        change: The change.
        seal: The digest of everything else.
    """

    form: Literal[1] = 1
    model: Name
    number: int
    before: str | None
    when: str
    by: str
    change: Annotated[Change, Field(discriminator="kind")]
    seal: str


@dataclass
class Model:
    """A registered model, as its log leads to it.

    Attributes:
        name: Its name.
        entries: The log.
        end: The SHA-256 of the log's last entry; None without any.
        versions: The versions by number.
        aliases: The version that each alias names.
        held: The versions that each stage named one after the other; a rollback takes the last one away.
    """

    name: str
    entries: list[Entry] = field(default_factory=list)
    end: str | None = None
    versions: dict[int, Added] = field(default_factory=dict)
    aliases: dict[str, int] = field(default_factory=dict)
    held: dict[str, list[int]] = field(default_factory=dict)

    @property
    def stages(self) -> dict[str, int]:
        """The version that each stage names."""
        return {stage: versions[-1] for stage, versions in self.held.items()}

    def named(self, version: int) -> dict[str, list[str]]:
        """Return the stages and the aliases that name a version."""
        pairs = {"stages": self.stages, "aliases": self.aliases}
        return {kind: sorted(name for name, named in found.items() if named == version) for kind, found in pairs.items()}

    def twin(self, files: Mapping[str, str]) -> int | None:
        """Return the version with the very same files; None where there is none."""
        return next((nr for nr, added in self.versions.items() if added.digests == files), None)


def written(model: Model, change: Change, when: str, by: str) -> bytes:
    """Return the text of the entry that adds a change to a model's log."""
    entry = {"form": 1, "model": model.name, "number": len(model.entries) + 1, "before": model.end, "when": when, "by": by}
    return pretty_json(seal({**entry, "change": change.model_dump()}))


def replayed(name: str, texts: Sequence[tuple[str, bytes]]) -> Model:
    """Return the model that a log leads to.

    Args:
        name: The model's name.
        texts: The places of the log's entries, for messages, with their texts, in order.

    Raises:
        GateError: An entry was cut off, edited, removed or put in; the message names it.
    """
    model = Model(name)
    for number, (where, text) in enumerate(texts, 1):
        entry = _entry(text, where)
        expected = (name, number, model.end)
        if (found := (entry.model, entry.number, entry.before)) != expected:
            message = f"the log is broken: expected entry {expected}, found {found} (model, number, digest of the entry before)"
            raise GateError(message, where=where, hint=MEND)
        if fault := _fault(model, entry.change):
            raise GateError(f"the log contradicts itself: {fault}", where=where, hint=MEND)
        _apply(model, entry.change)
        model.entries.append(entry)
        model.end = sha256_bytes(text)
    return model


def _entry(text: bytes, where: str) -> Entry:
    try:
        content = from_json(text)
    except ValueError as error:
        raise GateError(f"the entry was cut off or edited: not readable as JSON: {error}", where=where, hint=MEND) from error
    if not is_sealed(content):
        raise GateError("the entry was cut off or edited: its seal does not hold", where=where, hint=MEND)
    try:
        return Entry.model_validate(content)
    except ValidationError as error:
        message = f"this version cannot read the entry: {'; '.join(fault_lines(error)[:3])}"
        raise InputError(message, where=where, hint="pip install --upgrade mltrainer") from error


def _fault(model: Model, change: Change) -> str | None:
    """Return why a change cannot follow a model's log; None where it can."""
    if isinstance(change, Added):
        expected = len(model.versions) + 1
        return None if change.version == expected else f"version {change.version}, expected {expected}"
    now = (model.aliases if change.kind == "alias" else model.stages).get(change.name)
    if change.before != now:
        return f"{change.name} is said to have named {change.before}, and named {now}"
    if change.kind == "rollback" and [change.version] != model.held[change.name][-2:-1]:
        return f"{change.name} goes back to {change.version}, which it did not name before"
    if change.version is None:
        return None if change.kind == "alias" else f"{change.name} names no version"
    return None if change.version in model.versions else f"{change.name} names version {change.version}, which was not added"


def _apply(model: Model, change: Change) -> None:
    if isinstance(change, Added):
        model.versions[change.version] = change
    elif change.kind == "rollback":
        model.held[change.name].pop()
    elif change.kind == "promote" and change.version is not None:
        model.held.setdefault(change.name, []).append(change.version)
    elif change.version is None:
        model.aliases.pop(change.name, None)
    else:
        model.aliases[change.name] = change.version
