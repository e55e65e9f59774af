"""`mltrainer lr-find`: a range test of the learning rate."""

from __future__ import annotations

from mltrainer.configs.loading import Changes
from mltrainer.errors import InputError
from mltrainer.questions.exploration import exploring
from mltrainer.questions.learning_rate.figure import rate_figure
from mltrainer.questions.learning_rate.findings import Asked, FoundRate, RangeTest
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import write_text

STEPS, LOW, HIGH = 100, 1e-7, 10.0  # unless asked otherwise


def lr_find(tools: Tools, *, set: Changes | None = None, steps: int = STEPS, low: float = LOW, high: float = HIGH) -> FoundRate:
    """Find a learning rate on a copy: return the range test's curve, the rate that it suggests, or None, and why.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        steps: How many; many more suggest less.
        low: The first learning rate.
        high: The last one.

    Raises:
        InputError: `low` is not below `high`.
    """
    if not low < high:
        raise InputError(f"--from {low:g} is not below --to {high:g}", hint="mltrainer lr-find --from 1e-7 --to 10")
    with exploring(tools, "lr_find", set) as exploration:
        test = RangeTest.model_validate(exploration.ask(Asked(steps=steps, low=low, high=high)))
        command = None if test.suggestion is None else exploration.command({"optimizer.lr": test.suggestion})
        present = exploration.config.optimizer.lr
        figure = rate_figure(test, present)
        path = exploration.folder / figure.file
        write_text(path, figure.content)
        return exploration.kept(FoundRate.of(test, present=present, command=command, figure=tools.project.relative(path)))
