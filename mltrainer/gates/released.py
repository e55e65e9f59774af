"""What each released version shipped as policy, so that a record made under it is judged by it for ever."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer import handbook
from mltrainer.configs.pages import phase_page, policy_digest
from mltrainer.errors import InputError
from mltrainer.workspace import PHASES, pretty_json, write_atomic

FOLDER = Path(__file__).parent / "released"  # one file for each version; a file that a release wrote never changes


@dataclass(frozen=True)
class Release:
    """The policy of one released version.

    Attributes:
        version: Such as `0.1.0`.
        pages: For each page and template, the digest of what it declared.
        policies: For each phase, its checklist as records hold it.
    """

    version: str
    pages: dict[str, str]
    policies: dict[str, dict[str, Any]]


@functools.cache
def release(version: str) -> Release | None:
    """Return a version's policy as it was shipped, or None if that version was never released."""
    known = {path.stem: path for path in FOLDER.glob("*.json")}
    return Release(**json.loads(known[version].read_bytes())) if version in known else None


def keep() -> Path:
    """Write down what this version ships, which is done once, when it is released.

    Raises:
        InputError: It was released before with another policy.
    """
    pages = {path: policy_digest(path, None) for path in handbook.page_paths()}
    policies = {phase: phase_page(phase, None).model_dump() for phase in PHASES}
    content = pretty_json({"version": mltrainer.__version__, "pages": pages, "policies": policies})
    path = FOLDER / f"{mltrainer.__version__}.json"
    if path.exists() and path.read_bytes() != content:
        raise InputError("this version was released with another policy", where=str(path), mend="raise the version first")
    write_atomic(path, content)
    return path
