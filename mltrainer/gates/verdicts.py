"""A referee's verdict beside a project's final record, which the model card and the report show."""

from __future__ import annotations

from typing import Any

from mltrainer.errors import GateError, InputError
from mltrainer.records.reading import Record
from mltrainer.records.verdict import VERDICT_FILE, Verdict, verdict_of
from mltrainer.workspace import Project, read_json

PHASE = "finalization"


def read_verdict(project: Project, phase: str, record: Record) -> tuple[Verdict | None, list[str]]:
    """Return the verdict on a record, and its faults; a verdict counts only for the record that it was made for."""
    path = project.phase_dir(phase) / VERDICT_FILE
    if phase != PHASE or not path.exists():
        return None, []
    name = project.relative(path)
    try:
        found = verdict_of(read_json(path), name)
    except (InputError, GateError) as error:
        return None, [f"{error.placed_message}; next: remove it, or add the referee's file with `mltrainer verdict FILE`"]
    return (found, []) if found.record == record.trusted.seal else (None, [])


def beside(verdict: Verdict | None) -> dict[str, Any]:
    """Return a verdict as reports show it, an entry beside the record's."""
    return {} if verdict is None else {"verdict": verdict.model_dump(by_alias=True)}
