"""`mltrainer lr-find`: a range test of the learning rate."""

from __future__ import annotations

from typing import Any

from mltrainer.errors import InputError
from mltrainer.questions.exploration import exploring
from mltrainer.questions.learning_rate.figure import rate_figure
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import write_text

STEPS, LOW, HIGH = 100, 1e-7, 10.0  # unless asked otherwise

Found = dict[str, Any]


def find_rate(tools: Tools, assignments: tuple[str, ...], steps: int = STEPS, low: float = LOW, high: float = HIGH) -> Found:
    """Return the range test's curve, the learning rate that it suggests, or None, and why.

    Raises:
        InputError: `low` is not below `high`.
    """
    if not low < high:
        raise InputError(f"--from {low:g} is not below --to {high:g}", mend="mltrainer lr-find --from 1e-7 --to 10")
    with exploring(tools, "lr_find", assignments) as exploration:
        answer = exploration.ask({"steps": steps, "low": low, "high": high})
        rate = answer["suggestion"]
        command = None if rate is None else exploration.command({"optimizer.lr": rate})
        found = {**answer, "present": exploration.config.optimizer.lr, "command": command}
        figure = rate_figure(found)
        write_text(exploration.folder / figure.file, figure.content)
        return exploration.kept({**found, "figure": tools.project.relative(exploration.folder / figure.file)})
