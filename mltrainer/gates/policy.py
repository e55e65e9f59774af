"""The policy that a record is judged by: the project's own page or, without one, the shipped one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer import handbook
from mltrainer.configs.pages import (
    PhasePage,
    page_path,
    policy_digest,
    read_phase_page,
    recorded_page,
    require_items,
    shipped_page,
)
from mltrainer.gates.releases import Release, release_of
from mltrainer.records.envelope import Envelope
from mltrainer.workspace import Project


@dataclass(frozen=True)
class Policy:
    """The policy that a record is judged by.

    Attributes:
        page: The checklist.
        release: The earlier release whose policy this is; None: it is this version's.
        stale: Why the record was made under another policy.
        notes: The numbers that are the project's own, and the release.
    """

    page: PhasePage
    release: Release | None = None
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
    release = release_of(project, record.mltrainer)
    shipped = release.policies[phase] if release else shipped_page(phase)
    page = read_phase_page(phase, project.root) if handbook.locate(page_path(phase), project.root)[1] else shipped
    require_items(page, shipped)
    rerun = f"mltrainer phase run {phase}"
    recorded = record.handbook
    # By that digest a later edit of the checklist is seen: a record without it would hold under any.
    if page_path(phase) not in recorded:
        return Policy(page, release, (f"the record does not name the checklist that it was made under; next: {rerun}",))
    moved = [path for path, sha256 in sorted(recorded.items()) if _now(path, project.root, release) != sha256]
    stale = [f"the handbook's page {path} changed what it declares; next: {rerun}" for path in moved]
    if recorded_page(record.policy) != page:
        stale.insert(0, f"the handbook's checklist of this phase changed; next: {rerun}")
    return Policy(page, release, tuple(stale), (*_own_numbers(record), *_of_release(record, release)))


def _now(path: str, root: Path, release: Release | None) -> str | None:
    """Return the digest of the declarations of the project's own page, or of the shipped one; None if there is neither."""
    if release is not None and not (handbook.exists(path, root) and handbook.locate(path, root)[1]):
        return release.pages.get(path)
    return policy_digest(path, root) if handbook.exists(path, root) else None


def _own_numbers(record: Envelope[Any]) -> tuple[str, ...]:
    changed = "; ".join(record.policy_changes)
    return (f"judged by this project's own numbers: {changed}",) if changed else ()


def _of_release(record: Envelope[Any], release: Release | None) -> tuple[str, ...]:
    if release is None:
        return ()
    apart = "only that version renders its reports and makes its findings again"
    return (f"judged by the policy of mltrainer {record.mltrainer}, which finished this project; {apart}",)
