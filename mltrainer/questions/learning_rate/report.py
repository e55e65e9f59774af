"""What a range test found, as text for the terminal."""

from __future__ import annotations

from mltrainer.questions.learning_rate.findings import FoundRate, RangeTest
from mltrainer.questions.texts import changed_files
from mltrainer.reports.terminal import table
from mltrainer.reports.values import number

SHOWN = 12  # rows of a table that stands for a whole curve


def text(found: FoundRate) -> str:
    """Return the curve in some rows, the suggestion with its reason, and what to type."""
    count = len(found.rates)
    places = sorted({round(nr * (count - 1) / (SHOWN - 1)) for nr in range(SHOWN)})
    rows = [[f"{found.rates[p]:.2e}", number(found.losses[p]), number(found.smoothed[p])] for p in places]
    lines = [table(rows, ["learning rate", "loss", "smoothed"]).rstrip("\n")]
    lines += [f"stopped after {count} steps: the loss diverged"] if found.stopped else []
    lines += [f"suggestion: {sentence(found)}" if found.command else sentence(found), f"figure: {found.figure}"]
    lines += [f"next: {found.command}"] if found.command else []
    return "\n".join([*lines, *changed_files(found)])


def sentence(test: RangeTest) -> str:
    """Return the suggested rate with its reason, or the reason why none is suggested."""
    return f"No suggestion: {test.reason}." if test.suggestion is None else f"{number(test.suggestion)}: {test.reason}."
