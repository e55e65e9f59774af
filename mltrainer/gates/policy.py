"""Which policy a record is judged by: the project's own as it stands now, or the one of the version that made the record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer import handbook
from mltrainer.configs.pages import (
    PhasePage,
    missing_items,
    page_path,
    policy_digest,
    read_phase_page,
    require_items,
    shipped_page,
)
from mltrainer.gates.released import Release, release
from mltrainer.records.envelope import Envelope
from mltrainer.workspace import Project


@dataclass(frozen=True)
class Policy:
    """The policy that a record is judged by.

    Attributes:
        page: The checklist.
        stale: Why the record was made under a policy that is neither the project's own nor a released one.
        newer: The newer version's policy that it is not judged by, with the command that adopts it.
        notes: That, the numbers that are the project's own, and the items that its own checklist lacks.
    """

    page: PhasePage
    stale: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def policy_of(project: Project, record: Envelope[Any]) -> Policy:
    """Return the policy that a phase's record is judged by.

    Args:
        project: The project, whose own pages come first.
        record: The phase's record.

    Raises:
        InputError: The project's own page leaves out what the version that made the record asked for.
    """
    made, phase = release(record.mltrainer), record.phase
    own = read_phase_page(phase, project.root)
    asked = PhasePage.model_validate(made.policies[phase]) if made else shipped_page(phase)
    require_items(own, asked)
    rerun = f"mltrainer phase run {phase}"
    recorded = record.handbook
    # By that digest a later edit of the checklist is seen: a record without it would hold under any.
    if page_path(phase) not in recorded:
        return Policy(own, (f"the record does not name the checklist that it was made under; next: {rerun}",))
    moved = [path for path, sha256 in sorted(recorded.items()) if _now(path, project.root) != sha256]
    shipped = {path for path in moved if _was_shipped(path, recorded[path], made, project.root)}
    page = asked if page_path(phase) in shipped else own
    stale = [f"the handbook's page {path} changed what it declares; next: {rerun}" for path in moved if path not in shipped]
    if not _is(record.policy, page):
        stale.insert(0, f"the handbook's checklist of this phase changed; next: {rerun}")
    newer = _newer(sorted(shipped), record)
    return Policy(page, tuple(stale), newer, (*_own_numbers(record), *newer, *_lacking(own, shipped, record)))


def _now(path: str, root: Path) -> str | None:
    """Return the digest of what a page declares now, or None where the handbook has no such page any more."""
    return policy_digest(path, root) if handbook.exists(path, root) else None


def _was_shipped(path: str, sha256: str, made: Release | None, root: Path) -> bool:
    """Return True if a page is the one that the record's version shipped, and the project does not override it."""
    overridden = path in handbook.page_paths() and handbook.locate(path, root)[1]
    return made is not None and made.pages.get(path) == sha256 and not overridden


def _is(recorded: Any, page: PhasePage) -> bool:
    """Return True if a recorded checklist equals a page; fields that are newer than the record take their neutral values."""
    try:
        return PhasePage.model_validate(recorded) == page
    except ValueError:
        return False


def _own_numbers(record: Envelope[Any]) -> tuple[str, ...]:
    changed = "; ".join(record.policy_changes)
    return (f"judged by numbers of this project's own: {changed}",) if changed else ()


def _newer(moved: list[str], record: Envelope[Any]) -> tuple[str, ...]:
    if not moved:
        return ()
    versions = f"mltrainer {record.mltrainer}; {mltrainer.__version__} ships another"
    adopt = f"adopt it with `mltrainer phase run {record.phase}`"
    return (f"judged by the policy of {versions} ({', '.join(moved)}): {adopt}",)


def _lacking(own: PhasePage, moved: set[str], record: Envelope[Any]) -> tuple[str, ...]:
    path = page_path(record.phase)
    missing = [] if path in moved else missing_items(own, shipped_page(record.phase))
    asked = ", ".join(item.id for item in missing)
    note = f"{path} is this project's own and lacks what mltrainer {mltrainer.__version__} asks for: {asked}"
    return (note,) if missing else ()
