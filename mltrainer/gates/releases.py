"""Earlier releases, whose finished projects hold: what differs from one version to the next is judged as that release did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mltrainer
from mltrainer import handbook
from mltrainer.configs.loading import Strict, validate_values
from mltrainer.configs.pages import PhasePage, policy_digest, shipped_page
from mltrainer.records.reading import read_records
from mltrainer.workspace import PHASES, Project, pretty_json, read_json, write_atomic

FOLDER = Path(__file__).parent / "released"


class Release(Strict):
    """The policy that a release shipped.

    Attributes:
        pages: The digest of each page's and template's declarations, by path in the handbook.
        policies: The phases' pages, by phase.
    """

    pages: Mapping[str, str]
    policies: Mapping[str, PhasePage]


def release_of(project: Project, made: str) -> Release | None:
    """Return the earlier release that finished a project; None if it is not finished, or this or no known release made it.

    In a project that is not finished, this version has a phase to run: it judges all phases by its own policy.

    Args:
        project: The project.
        made: The version that made one of its records.
    """
    if made == mltrainer.__version__:
        return None
    # Looked up among the files that are here: the name comes from a record, which may be a stranger's.
    path = next((path for path in FOLDER.glob("*.json") if path.stem == made), None)
    versions = [record.data.get("mltrainer") for record in read_records(project).values()]
    return None if path is None or versions != [made] * len(PHASES) else validate_values(Release, read_json(path), str(path))


def write() -> None:
    """Keep the policy of this version, as it is released."""
    pages = {path: policy_digest(path, None) for path in handbook.page_paths()}
    policies = {phase: shipped_page(phase).model_dump() for phase in PHASES}
    write_atomic(FOLDER / f"{mltrainer.__version__}.json", pretty_json({"pages": pages, "policies": policies}))
