"""Which policy a record is judged by: the project's own as it stands now, or the one of the version that made the record."""

from __future__ import annotations

from collections.abc import Iterator
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
        newer: What a newer version asks for beyond it, with the command that adopts that.
        notes: That, after the numbers that are the project's own.
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
    newer = tuple(_newer(own, sorted(shipped), record))
    changed = "; ".join(record.policy_changes)
    numbers = [f"judged by numbers of this project's own: {changed}"] if changed else []
    return Policy(page, tuple(stale), newer, (*numbers, *newer))


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


def _newer(own: PhasePage, moved: list[str], record: Envelope[Any]) -> Iterator[str]:
    phase = record.phase
    adopt = f"adopt it with `mltrainer phase run {phase}`"
    if moved:
        versions = f"mltrainer {record.mltrainer}; {mltrainer.__version__} ships another"
        yield f"judged by the policy of {versions} ({', '.join(moved)}): {adopt}"
    if page_path(phase) not in moved and (missing := missing_items(own, shipped_page(phase))):
        asked = ", ".join(item.id for item in missing)
        yield f"{page_path(phase)} is this project's own and lacks what mltrainer {mltrainer.__version__} asks for: {asked}"
