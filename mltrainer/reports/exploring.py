"""What an exploration found: tables and sentences for the terminal, and the range test's figure."""

from __future__ import annotations

import math
from typing import Any

from mltrainer.figures.canvas import BLUE, Mark, Series
from mltrainer.figures.content import Figure
from mltrainer.figures.drawer import DRAWER
from mltrainer.reports.terminal import table
from mltrainer.reports.values import as_float, duration, megabytes, number, share

Found = dict[str, Any]
SHOWN = 12  # rows of a table that stands for a whole curve


# --- learning rates -------------------------------------------------------------------------------


def rate_figure(found: Found) -> Figure:
    """Return the losses over the learning rate; the axis ends a little above where the loss began, not where it diverged."""
    losses, smoothed = (_points(found, key) for key in ("losses", "smoothed"))
    top = 1.5 * max((abs(y) for _, y in smoothed[: max(3, len(smoothed) // 10)] if math.isfinite(y)), default=math.inf)
    series = [Series("loss of each step", _below(losses, top), dots=True), Series("smoothed", _below(smoothed, top))]
    marks = [Mark(found["present"], f"now: {number(found['present'])}", BLUE)]
    if found["suggestion"] is not None:
        marks.append(Mark(found["suggestion"], f"suggested: {number(found['suggestion'])}"))
    title, caption = "Learning-rate range test", _sentence(found)
    chart = DRAWER.line_chart(
        title, caption, series, x_label="learning rate (log scale)", y_label="loss", log_x=True, marks=marks
    )
    return Figure("learning_rate_range.svg", title, caption, chart)


def _points(found: Found, key: str) -> list[tuple[float, float]]:
    return [(rate, as_float(loss)) for rate, loss in zip(found["rates"], found[key], strict=True)]


def _below(points: list[tuple[float, float]], top: float) -> list[tuple[float, float]]:
    return [point for point in points if not point[1] > top]


def _sentence(found: Found) -> str:
    reason = str(found["reason"])
    return f"No suggestion: {reason}." if found["suggestion"] is None else f"{number(found['suggestion'])}: {reason}."


def rate_text(found: Found) -> str:
    """Return the curve in some rows, the suggestion with its reason, and what to type."""
    count = len(found["rates"])
    places = sorted({round(nr * (count - 1) / (SHOWN - 1)) for nr in range(SHOWN)})
    rows = [[f"{found['rates'][p]:.2e}", number(found["losses"][p]), number(found["smoothed"][p])] for p in places]
    lines = [table(rows, ["learning rate", "loss", "smoothed"]).rstrip("\n")]
    lines += [f"stopped after {count} steps: the loss diverged"] if found["stopped"] else []
    lines += [f"suggestion: {_sentence(found)}" if found["command"] else _sentence(found), f"figure: {found['figure']}"]
    lines += [f"next: {found['command']}"] if found["command"] else []
    return "\n".join([*lines, *_trace(found)])


# --- batch sizes ----------------------------------------------------------------------------------


def size_text(found: Found) -> str:
    """Return a row per size, why it ended there, the suggestion with its reason, and what to type."""
    rows = [
        [
            number(r["batch_size"]),
            number(r["samples_per_s"]),
            _time(r["step_us"]),
            megabytes(r["peak_mb"]),
            _note(found, r),
        ]
        for r in found["sizes"]
    ]
    lines = [table(rows, ["batch size", "samples/s", "step", "peak memory", ""]).rstrip("\n"), f"ended: {found['stopped']}"]
    if found["suggestion"] is None:
        return "\n".join([*lines, f"No suggestion: {found['reason']}.", *_trace(found)])
    lines.append(f"suggestion: {number(found['suggestion'])}: {found['reason']}.")
    for change in found["changes"]:
        lines += [f"  {change['why']}:", f"    {change['command']}"]
    lines.append("A batch size is part of what names a run: another one is another run, with other bits.")
    return "\n".join([*lines, *_trace(found)])


def _time(us: Any) -> str:
    """Return a time that was measured in microseconds, in the unit that a person would use."""
    value = as_float(us)
    if value < 1e3:
        return f"{number(value)} µs"
    return f"{number(value / 1e3)} ms" if value < 1e6 else duration(value / 1e6)


def _note(found: Found, row: Found) -> str:
    words = {"suggested": found["suggestion"], "largest that fits": found["largest"], "now": found["present"]["batch_size"]}
    return ", ".join(word for word, size in words.items() if size == row["batch_size"])


# --- a step's time --------------------------------------------------------------------------------


def profile_text(found: Found) -> str:
    """Return a step's time by section, its most expensive operators, and the path of the trace."""
    sections = [[row["name"], _time(row["us"]), share(row["share"])] for row in found["sections"]]
    operators = [[r["name"], number(r["calls"]), _time(r["us"]), share(r["share"])] for r in found["operators"]]
    lines = [
        f"a step takes {_time(found['step_us'])} (median of {found['steps']} steps):",
        table(sections, ["section", "median", "share of all"]),
        f"operators by their own time, per step (traced, {found['traced_steps']} steps):",
        table(operators, ["operator", "calls", "time", "share of all"]).rstrip("\n"),
        *_waits(found),
        f"trace: {found['trace']} (open it at https://ui.perfetto.dev or chrome://tracing)",
    ]
    return "\n".join([*lines, *_trace(found)])


def _waits(found: Found) -> list[str]:
    if found["host_waits"] is None:
        return []
    told = ", ".join(f"{name} {count} times" for name, count in sorted(found["host_waits"].items()))
    return [f"within these steps the host waited for the device: {told or 'never'}"]


def _trace(found: Found) -> list[str]:
    """Return a warning where files of the project changed meanwhile: not by the explorer, so by the user or their code."""
    changed = found["state"]["changed"]
    return [f"these files changed meanwhile, by somebody else or by your code: {', '.join(changed)}"] if changed else []
