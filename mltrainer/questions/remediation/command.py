"""What `mltrainer diagnose --try` and `--apply` do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltrainer.cli.output import emit, show
from mltrainer.errors import InputError
from mltrainer.project.front import Project
from mltrainer.questions.remediation.report import applied_text, text


def remedy(folder: Path | None, run: str, is_try: bool, epochs: int | None, is_apply: bool, as_json: bool) -> int:
    """Try changes that may cure a run's findings, or write one into the config files, or both."""
    project, found = Project(folder), dict[str, Any]()
    if is_try:
        found["tried"] = project.try_fixes(run, epochs=epochs)
        if not as_json:
            show(found["tried"], text, as_json=False)
    if is_apply:
        found["applied"] = project.apply_fix(_chosen(found.get("tried")), run=run)
        if not as_json:
            show(found["applied"], applied_text, as_json=False)
    if as_json:
        emit(found)
    return 0


def _chosen(tried: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the changes of the best candidate; None where none were tried.

    Raises:
        InputError: None of them helps.
    """
    if tried is None:
        return None
    if tried["best"] is None:
        raise InputError("nothing to apply: no change was found that cures or helps; nothing was written")
    return dict(tried["best"]["changes"])
