"""Records of a finished project, to be changed by a test and judged as a gate judges them."""

from __future__ import annotations

import functools
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.gates.check import Outcome
from mltrainer.gates.checks import run_check
from mltrainer.project.engine import write
from mltrainer.records.envelope import Envelope, parsed
from mltrainer.workspace import Project, pretty_json, seal
from tests.projects import recorded

Record = dict[str, Any]
TUNED = Path(__file__).parents[1] / "kept/0.9/houses.tar.gz"


@functools.cache
def _kept() -> dict[str, str]:
    with tarfile.open(TUNED) as files:
        found = [files.extractfile(member) for member in files if member.name.endswith("/record.json")]
        records = [json.loads(member.read()) for member in found if member]
    return {record["phase"]: json.dumps(record) for record in records}


def kept(phase: str, **evidence: Any) -> Record:
    """Return a record of a finished, tuned project whose evidence says what is given instead, key by key at any depth."""
    record: Record = json.loads(_kept()[phase])
    return {**record, "evidence": _with(record["evidence"], evidence)}


def _with(before: Record, changes: Record) -> Record:
    """Return a mapping with changes at any depth; an empty mapping, a list or a number replaces what was there."""
    deeper = {key for key, value in changes.items() if value and isinstance(value, dict) and isinstance(before.get(key), dict)}
    return {**before, **{key: _with(before[key], value) if key in deeper else value for key, value in changes.items()}}


def typed(record: Record) -> Envelope[Any]:
    """Return a record as a model; a test that changes it must leave it one."""
    found, holes = parsed(record, record["phase"])
    assert found is not None, holes
    return found


def forge(project: Project, change: Callable[[Record], object], phase: str = "finalization") -> None:
    """Change a record, seal it anew, and render its reports by our own code."""
    record = recorded(project, phase)
    change(record)
    write(project, phase, seal(record))


def reseal(project: Project, change: Callable[[Record], object], phase: str) -> None:
    """Change a record and seal it anew; its reports stay as they are."""
    record = recorded(project, phase)
    change(record)
    (project.phase_dir(phase) / "record.json").write_bytes(pretty_json(seal(record)))


def judged(item: str, record: Record, settings: dict[str, Any]) -> Outcome:
    """Return what an item's check says of a record."""
    return run_check(item, typed(record), settings)
