"""`mltrainer lr-find`: a range test of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

from typer import Option

from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.exploration import exploring
from mltrainer.companions.questions.findings import Explored, Findings, Value
from mltrainer.configs.loading import Changes
from mltrainer.errors import InputError
from mltrainer.figures.canvas import BLUE, Mark
from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import line_chart
from mltrainer.reports.terminal import table
from mltrainer.reports.values import number
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import write_text


class RangeTest(Findings):
    """The curve of a range test, and the learning rate that it suggests.

    Attributes:
        rates: Learning rates, rising, one per step.
        losses: Loss of each step.
        smoothed: Smoothed losses.
        stopped: Whether the loss diverged.
        suggestion: The suggested learning rate, or None.
        reason: Reason for this rate, or for none.
    """

    rates: list[Value]
    losses: list[Value]
    smoothed: list[Value]
    stopped: bool
    suggestion: Value | None
    reason: str


class FoundRate(RangeTest, Explored):
    """A range test beside the present rate, with the command that adopts the suggestion, and the path of its figure."""

    present: Value
    command: str | None
    figure: str


STEPS, LOW, HIGH = 100, 1e-7, 10.0  # unless asked otherwise


def lr_find(tools: Tools, *, set: Changes | None = None, steps: int = STEPS, low: float = LOW, high: float = HIGH) -> FoundRate:
    """Find a learning rate on a copy: return the range test's curve, the rate that it suggests, or None, and why.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        steps: Number of steps; many more make the suggestion lower.
        low: The first learning rate.
        high: The last learning rate.

    Raises:
        InputError: `low` is not below `high`.
    """
    if not low < high:
        raise InputError(f"--from {low:g} is not below --to {high:g}", hint="mltrainer lr-find --from 1e-7 --to 10")
    with exploring(tools, "lr_find", set) as exploration:
        test = exploration.ask(RangeTest, steps=steps, low=low, high=high)
        command = None if test.suggestion is None else exploration.command({"optimizer.lr": test.suggestion})
        present = exploration.config.optimizer.lr
        figure = rate_figure(test, present)
        path = exploration.folder / figure.file
        write_text(path, figure.content)
        return exploration.kept(FoundRate.of(test, present=present, command=command, figure=tools.project.relative(path)))


def rate_figure(test: RangeTest, present: float) -> Figure:
    """Return the losses over the learning rate; the axis ends a little above where the loss began, not where it diverged.

    Args:
        test: The range test.
        present: The learning rate of the config.
    """
    losses, smoothed = (list(zip(test.rates, values, strict=True)) for values in (test.losses, test.smoothed))
    # By the first losses: those of the divergence would press the rest into one line.
    top = 1.5 * max((abs(y) for _, y in smoothed[: max(3, len(smoothed) // 10)] if math.isfinite(y)), default=math.inf)
    series = [Series("loss of each step", _below(losses, top), dots=True), Series("smoothed", _below(smoothed, top))]
    marks = [Mark(present, f"now: {number(present)}", BLUE)]
    if test.suggestion is not None:
        marks.append(Mark(test.suggestion, f"suggested: {number(test.suggestion)}"))
    title, caption = "Learning-rate range test", sentence(test)
    chart = line_chart(title, caption, series, x_label="learning rate (log scale)", y_label="loss", log_x=True, marks=marks)
    return Figure("learning_rate_range.svg", title, caption, chart)


def _below(points: Sequence[tuple[float, float]], top: float) -> list[tuple[float, float]]:
    # `not >`, which keeps NaN: the chart shows it as a gap.
    return [point for point in points if not point[1] > top]


SHOWN = 12  # rows of the table that shows a curve


def text(test: FoundRate) -> str:
    """Return the curve in some rows, the suggestion with its reason, and the command that adopts it."""
    count = len(test.rates)
    places = sorted({round(nr * (count - 1) / (SHOWN - 1)) for nr in range(SHOWN)})
    rows = [[f"{test.rates[p]:.2e}", number(test.losses[p]), number(test.smoothed[p])] for p in places]
    lines = [table(rows, ["learning rate", "loss", "smoothed"]).rstrip("\n")]
    lines += [f"stopped after {count} steps: the loss diverged"] if test.stopped else []
    lines += [f"suggestion: {sentence(test)}" if test.command else sentence(test), f"figure: {test.figure}"]
    lines += [f"next: {test.command}"] if test.command else []
    return "\n".join(lines)


def sentence(test: RangeTest) -> str:
    """Return the suggested rate with its reason, or the reason why none is suggested."""
    return f"No suggestion: {test.reason}." if test.suggestion is None else f"{number(test.suggestion)}: {test.reason}."


SMALLEST, LARGEST = 1e-30, 1e6  # learning rates; of smaller ones the ratio is no finite number

app = command(
    lr_find,
    text,
    name="lr-find",
    help="Find a learning rate: train some steps at a growing rate, on a copy, until the loss diverges.\n\n"
    "Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.",
    example="mltrainer lr-find --set optimizer.name=sgd",
    steps=Option(min=10, metavar="N", help="Number of steps; many more make the suggestion lower."),
    low=Option("--from", min=SMALLEST, max=LARGEST, metavar="RATE", help="The first learning rate."),
    high=Option("--to", min=SMALLEST, max=LARGEST, metavar="RATE", help="The last learning rate."),
)
