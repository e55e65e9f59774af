"""`mltrainer profile`: the times of a step's sections and operators."""

from __future__ import annotations

from typing import Any

from mltrainer.questions.exploration import exploring
from mltrainer.runs.launcher import Tools

TRACE_FILE = "trace.json"
STEPS = 20  # unless asked otherwise

Found = dict[str, Any]


def profile(tools: Tools, assignments: tuple[str, ...], steps: int = STEPS) -> Found:
    """Return the times of a step's sections, its most expensive operators, and the path of the trace."""
    with exploring(tools, "profile", assignments) as exploration:
        answer = exploration.ask({"steps": steps})
        return exploration.kept({**answer, "trace": tools.project.relative(exploration.folder / TRACE_FILE)})
