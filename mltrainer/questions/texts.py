"""What the texts of several questions share."""

from __future__ import annotations

from mltrainer.questions.findings import Explored


def changed_files(found: Explored) -> list[str]:
    """Return a warning where files of the project changed meanwhile: not by the explorer, so by the user or their code."""
    changed = found.state.changed if found.state else []
    return [f"these files changed meanwhile, by somebody else or by your code: {', '.join(changed)}"] if changed else []
