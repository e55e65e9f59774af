"""A phase's record: the evidence that its report and its gate are computed from, sealed by its own digest."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.errors import GateError
from mltrainer.records.trial_table import reference_of, whole
from mltrainer.workspace import PHASES, Project, from_json, is_sealed, read_whole, sha256_bytes

SCHEMA = 1  # of a record's form
RECORD_FILE = "record.json"
GATE_FILE = "gate.json"
WAIVERS_FILE = "waivers.json"

if TYPE_CHECKING:
    from mltrainer.records.envelope import Envelope


@dataclass(frozen=True)
class Record:
    """A record as it is on disk.

    Attributes:
        data: The record's content; empty where the file cannot be read.
        sha256: The digest of the file, to which the next phase's record is bound.
        faults: The reasons not to trust it; empty for a sound record.
        typed: The content as a model; None where there are faults.
        size: The size of the text that it was read from, unpacked, in bytes.
    """

    data: dict[str, Any] = field(repr=False)
    sha256: str
    faults: tuple[str, ...] = ()
    typed: Envelope[Any] | None = field(default=None, repr=False)
    size: int = 0

    @property
    def trusted(self) -> Envelope[Any]:
        """The content as a model.

        Raises:
            GateError: The record cannot be trusted.
        """
        if self.typed is None:
            raise GateError(self.faults[0], hint="mltrainer gate check")
        return self.typed

    @property
    def evidence(self) -> dict[str, Any]:
        """The record's evidence as plain data; empty where it has none."""
        found = self.data.get("evidence")
        return found if isinstance(found, dict) else {}


def read_record(project: Project, phase: str) -> Record | None:
    """Return a phase's record, with its faults, or None where there is none."""
    path = project.phase_dir(phase) / RECORD_FILE
    try:
        raw = read_whole(path)
    except FileNotFoundError:
        return None
    reference = reference_of(raw)
    return record_of(raw, phase, project.relative(path), reference and _table(path.with_name(reference.file)))


def _table(path: Path) -> bytes | None:
    try:
        return read_whole(path)
    except FileNotFoundError:
        return None


@functools.lru_cache(maxsize=2 * len(PHASES))  # commands look at a record several times, a monitor every second
def record_of(raw: bytes, phase: str, name: str, table: bytes | None = None) -> Record:
    """Return the content of a record's file, with its faults; the same object for the same bytes, not to be changed.

    Args:
        raw: The file's bytes.
        phase: The phase whose record it should be.
        name: The file's name in messages.
        table: The bytes of the table of trials of a long search, a file beside it; None where there is none.
    """
    sha256 = sha256_bytes(raw)
    try:
        data = from_json(raw, _unique)
    except _TwiceError as error:
        return Record({}, sha256, (f"{name} was edited: it has the key {error} twice",))
    except ValueError:
        return Record({}, sha256, (f"{name} is not readable as JSON: blank, truncated or edited",))
    if not isinstance(data, dict):
        return Record({}, sha256, (f"{name} holds no record",))
    try:
        data, unpacked = whole(data, table)
    except ValueError as error:
        return Record(data, sha256, (f"{name}: {error}",))
    if faults := _faults(data, phase, name):
        return Record(data, sha256, tuple(faults))
    return replace(_validated(data, phase, sha256, name), size=len(raw) + unpacked)


class _TwiceError(ValueError):
    """A key is twice in a mapping: programs would read the last, people the first."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return found


def _validated(content: dict[str, Any], phase: str, sha256: str, name: str) -> Record:
    from mltrainer.records.envelope import parsed  # here, because many commands read no record and its models take time

    typed, holes = parsed(content, phase)
    return Record(content, sha256, tuple(f"{name} lacks what {phase} records: {hole}" for hole in holes), typed)


def sound_record(project: Project, phase: str) -> Envelope[Any] | None:
    """Return a phase's record as a model; None where there is none that can be trusted."""
    record = read_record(project, phase)
    return record.typed if record is not None else None


def sound_records(project: Project) -> list[Envelope[Any]]:
    """Return the records that can be trusted, in the order of their phases."""
    return [record for phase in PHASES if (record := sound_record(project, phase)) is not None]


def read_records(project: Project) -> dict[str, Record]:
    """Return every phase's record by its phase's name; a phase that has not run is not in it."""
    found = ((phase, read_record(project, phase)) for phase in PHASES)
    return {phase: record for phase, record in found if record is not None}


def _faults(data: dict[str, Any], phase: str, name: str) -> list[str]:
    # Alone, and before the seal: another version's record was not edited, whatever its seal may cover.
    if data.get("schema") != SCHEMA:
        return [f"{name} has schema {data.get('schema')!r}, expected {SCHEMA}: another version of mltrainer made it"]
    faults = []
    if data.get("phase") != phase:
        faults.append(f"{name} is the record of phase {data.get('phase')!r}, expected {phase!r}")
    if not is_sealed(data):
        faults.append(f"{name} was edited: its content does not match its seal")
    return faults


def run_of(record: Record) -> str | None:
    """Return the id of the run that a phase's record is about; of a search, the id of its best trial's run."""
    if record.evidence.get("run_id"):
        return str(record.evidence["run_id"])
    for key, name in (("run", "id"), ("replay", "run")):
        place = record.evidence.get(key)
        if isinstance(place, dict) and place.get(name):
            return str(place[name])
    return None
