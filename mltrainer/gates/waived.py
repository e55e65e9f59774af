"""The committer of a waiver: git's knowledge of the name in it, and no more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.records.envelope import Waiver
from mltrainer.records.reading import WAIVERS_FILE
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import authors, contents, marks
from mltrainer.workspace import Project

UNCOMMITTED = "nobody yet"


def committers(project: Project, phase: str, waivers: Sequence[Waiver]) -> dict[Waiver, str | None]:
    """Return the committer of the name in each waiver; None if git cannot be asked."""
    if not waivers or marks(project.root) is None:
        return dict.fromkeys(waivers)
    path = project.relative(project.phase_dir(phase) / WAIVERS_FILE)
    try:
        # As it is committed: git's authors are those of the committed lines.
        raw = contents(project.root, "HEAD", [path])[path]
        known = _by_waiver(raw, authors(project.root, path, "by")) if raw else {}
    except GitError:
        return dict.fromkeys(waivers)
    return {waiver: known.get(waiver, UNCOMMITTED) for waiver in waivers}


def _by_waiver(raw: bytes, names: Sequence[str]) -> dict[Waiver, str]:
    """Return the author of each waiver in a file; empty if its lines are not laid out as mltrainer writes them."""
    try:
        rows = json.loads(raw)["waivers"]
        return {waiver_of(row): name for row, name in zip(rows, names, strict=True)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def waiver_of(row: Mapping[str, Any]) -> Waiver:
    """Return a row of a file of waivers; other keys that somebody wrote in it do not count.

    Raises:
        ValueError: It is none.
    """
    return Waiver.model_validate({key: row[key] for key in Waiver.model_fields if key in row})


def doubts(project: Project, phase: str, waivers: Sequence[Waiver]) -> list[str]:
    """Return, for a gate's notes, the waivers whose name differs from their committer's."""
    notes = []
    for waiver, who in committers(project, phase, waivers).items():
        name = f"{waiver.item} was waived in the name of {waiver.by}"
        if who == UNCOMMITTED:
            notes.append(f"{name}; it is not committed yet, so its author is unknown")
        elif who not in (None, waiver.by):
            notes.append(f"{name}, and committed by {who}")
    return notes
