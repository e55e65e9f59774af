"""`mltrainer diagnose --try` and `--apply`."""

from __future__ import annotations

from pathlib import Path

from mltrainer.cli.common import tools
from mltrainer.cli.output import emit, show
from mltrainer.companions.questions.remediation.ask import Applied, Trial, applied_text, apply_fix, text, try_fixes
from mltrainer.errors import InputError


def remedy(folder: Path | None, run: str, is_try: bool, epochs: int | None, is_apply: bool, as_json: bool) -> int:
    """Try changes that may cure a run's findings, or write one into the config files, or both."""
    tried = applied = None
    if is_try:
        with tools(folder) as running:
            tried = try_fixes(running, run, epochs=epochs)
        if not as_json:
            show(tried, text, as_json=False)
    if is_apply:
        applied = _applied(folder, run, tried)
        if not as_json:
            show(applied, applied_text, as_json=False)
    if as_json:
        outcomes = {"tried": tried, "applied": applied}
        emit({name: one.written() for name, one in outcomes.items() if one is not None})
    return 0


def _applied(folder: Path | None, run: str, tried: Trial | None) -> Applied:
    """Write the change of the best candidate; if none were tried, the first suggested one.

    Raises:
        InputError: No candidate helps.
    """
    if tried is not None and tried.best is None:
        raise InputError("nothing to apply: no change was found that cures or helps; nothing was written")
    with tools(folder) as running:
        return apply_fix(running, tried.best.changes if tried and tried.best else None, run=run)
