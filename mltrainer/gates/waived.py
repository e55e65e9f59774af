"""Who committed a waiver: what git can say about the name that stands in it, and no more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mltrainer.records.reading import WAIVERS_FILE
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import authors, contents, marks
from mltrainer.workspace import Project

Row = dict[str, Any]
UNCOMMITTED = "nobody yet"


def with_authors(project: Project, phase: str, waivers: Sequence[Row]) -> list[Row]:
    """Return waivers with `committed_by`: who committed the name in it, or None where git cannot be asked."""
    if not waivers or marks(project.root) is None:
        return [{**row, "committed_by": None} for row in waivers]
    path = project.relative(project.phase_dir(phase) / WAIVERS_FILE)
    try:
        raw = contents(project.root, "HEAD", [path])[path]
        known = _by_row(raw, authors(project.root, path, "by")) if raw else {}
    except GitError:
        return [{**row, "committed_by": None} for row in waivers]
    return [{**row, "committed_by": known.get(_key(row), UNCOMMITTED)} for row in waivers]


def _by_row(raw: bytes, names: Sequence[str]) -> dict[str, str]:
    """Return the author of each waiver in a file; empty if its lines are not laid out as mltrainer writes them."""
    try:
        rows = json.loads(raw)["waivers"]
        return {_key(row): name for row, name in zip(rows, names, strict=True)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _key(row: Row) -> str:
    return json.dumps({key: row.get(key) for key in ("item", "reason", "by", "when", "record")}, sort_keys=True)


def doubts(project: Project, phase: str, waivers: Sequence[Row]) -> list[str]:
    """Return, for a gate's notes, the waivers whose name is not that of whoever committed them."""
    told = []
    for row in with_authors(project, phase, waivers):
        who = row["committed_by"]
        if who == UNCOMMITTED:
            told.append(
                f"{row['item']} was waived in the name of {row['by']}; that is not committed yet, so that nobody can tell who did"
            )
        elif who is not None and who != row["by"]:
            told.append(f"{row['item']} was waived in the name of {row['by']}, and committed by {who}")
    return told
