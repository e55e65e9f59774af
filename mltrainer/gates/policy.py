"""The policy that a record is judged by: the project's own page or, without one, the one that this version ships."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer import handbook
from mltrainer.configs.pages import PhasePage, page_path, policy_digest, read_phase_page, require_items, shipped_page
from mltrainer.records.envelope import Envelope
from mltrainer.workspace import Project, plain


@dataclass(frozen=True)
class Policy:
    """The policy that a record is judged by.

    Attributes:
        page: The checklist.
        stale: Why the record was made under another policy.
        notes: The numbers that are the project's own.
    """

    page: PhasePage
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def policy_of(project: Project, record: Envelope[Any]) -> Policy:
    """Return the policy that a phase's record is judged by.

    Args:
        project: The project, whose own pages come first.
        record: The phase's record.

    Raises:
        InputError: The project's own page leaves out a part that the shipped one asks for.
    """
    phase = record.phase
    page = read_phase_page(phase, project.root)
    require_items(page, shipped_page(phase))
    rerun = f"mltrainer phase run {phase}"
    recorded = record.handbook
    # By that digest a later edit of the checklist is seen: a record without it would hold under any.
    if page_path(phase) not in recorded:
        return Policy(page, (f"the record does not name the checklist that it was made under; next: {rerun}",))
    moved = [path for path, sha256 in sorted(recorded.items()) if _now(path, project.root) != sha256]
    stale = [f"the handbook's page {path} changed what it declares; next: {rerun}" for path in moved]
    if record.policy != plain(page.model_dump()):
        stale.insert(0, f"the handbook's checklist of this phase changed; next: {rerun}")
    return Policy(page, tuple(stale), _own_numbers(record))


def _now(path: str, root: Path) -> str | None:
    """Return the digest of a page's present declarations, or None if the handbook has no such page any more."""
    return policy_digest(path, root) if handbook.exists(path, root) else None


def _own_numbers(record: Envelope[Any]) -> tuple[str, ...]:
    changed = "; ".join(record.policy_changes)
    return (f"judged by this project's own numbers: {changed}",) if changed else ()
