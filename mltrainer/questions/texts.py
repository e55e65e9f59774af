"""What the texts of several questions share."""

from __future__ import annotations

from typing import Any

from mltrainer.questions.findings import Explored
from mltrainer.reports.values import as_float, duration, number


def step_time(us: Any) -> str:
    """Return a time that was measured in microseconds, in the unit that a person would use."""
    value = as_float(us)
    if value < 1e3:
        return f"{number(value)} µs"
    return f"{number(value / 1e3)} ms" if value < 1e6 else duration(value / 1e6)


def changed_files(found: Explored) -> list[str]:
    """Return a warning where files of the project changed meanwhile: not by the explorer, so by the user or their code."""
    changed = found.state.changed if found.state else []
    return [f"these files changed meanwhile, by somebody else or by your code: {', '.join(changed)}"] if changed else []
