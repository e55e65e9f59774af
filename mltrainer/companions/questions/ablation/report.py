"""An ablation as a page and as text for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mltrainer.companions.questions.ablation.findings import ChangedKey, Listed, Row, Table
from mltrainer.figures.canvas import BLUE, GREY, VERMILLION
from mltrainer.figures.content import Figure
from mltrainer.figures.forest_plot import Compared, forest
from mltrainer.handbook import ABLATION
from mltrainer.reports.terminal import table as text_table
from mltrainer.reports.values import counted, duration, given, number, signed, visible

SURE = ("helps", "hurts", "is worse", "is better")


@dataclass(frozen=True)
class Words:
    """Words about a whole table.

    Attributes:
        better: Better direction of the metric: "larger" or "smaller".
        folds: Note that each seed is measured on one fold, or nothing.
        confidence: Confidence of the intervals.
        by_luck: Probability of a shown difference without a real one.
        parameters_change: Whether a swap changes the number of parameters.
        pace_changes: Whether a swap changes the time of a step.
    """

    better: str
    folds: str
    confidence: str
    by_luck: str
    parameters_change: bool
    pace_changes: bool


def markdown(table: Table, figure: Figure) -> str:
    """Return the page; identical tables give identical bytes."""
    from mltrainer.reports import templates

    rows = [{**row.written(), "swap": swap_text(row.keys)} for row in table.rows]
    of_rows = list(zip(rows, table.rows, strict=True))
    names = {
        "table": table.written(),
        "figure": figure,
        "rows": rows,
        "shown": [row for row, of in of_rows if of.verdict in SURE],
        "failed": [row for row, of in of_rows if of.failed],
    }
    return templates.filled(templates.frame(ABLATION), {**names, **asdict(_words(table))})


def _words(table: Table) -> Words:
    return Words(
        better="larger" if table.metric.mode == "max" else "smaller",
        folds=f", each on one of {table.config.folds} folds in turn" if table.config.folds else "",
        confidence=f"{number(100 * (1 - 2 * table.level), 2)} %",
        by_luck=f"{number(100 * 2 * table.level, 2)} %",
        parameters_change=any(row.parameters not in (None, table.whole.parameters) for row in table.rows),
        pace_changes=any(row.pace is not None for row in table.rows),
    )


def said(row: Row) -> str:
    """Return a row's verdict with its reason."""
    return f"{row.verdict}: {row.why}" if row.why else row.verdict


def swap_text(keys: Sequence[ChangedKey]) -> str:
    """Return the swapped keys, each with old and new value."""
    return "; ".join(f"{row.key}: {_value(row.before)} → {_value(row.after)}" for row in keys)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items()) or "none"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else given(value)


# --- the terminal ---------------------------------------------------------------------------------


def text(table: Table) -> str:
    """Return the table as text for the terminal, with notes on reading it."""
    metric, whole, count = table.metric.name, table.whole, len(table.seeds)
    words = _words(table)
    mean = f"{metric} {number(whole.mean)}{_interval(whole.interval)}"
    where = f"{table.config.file} ({table.config.why})"
    change = f"mean difference to the whole config on the same seeds, and its {words.confidence} interval"
    lines = [
        f"{where}: {mean} on validation, mean of {counted(count, 'fresh seed')}{words.folds}; {words.better} is better",
        "",
        text_table([_cells(row, words) for row in table.rows], _heads(metric, words)).rstrip("\n"),
        "",
        f"change: {change}, not corrected for being several",
        _corrected(table, words),
        f"wrote {table.page}, with its figure and its numbers",
        *(f"next, {_with(row)}: {row.command}" for row in table.rows if row.command),
    ]
    return "\n".join(lines)


def _with(row: Row) -> str:
    return f"without {row.name}" if row.takes_out else f"with {row.name}"


def _corrected(table: Table, words: Words) -> str:
    if not table.comparisons:
        return "verdict: nothing could be compared"
    several = f"{counted(table.comparisons, 'comparison')} (Holm)"
    return (
        f"verdict: exact sign-flip test, corrected for {several}: if no swap made a difference, one would be shown with a "
        f"probability of at most {words.by_luck}"
    )


def _heads(metric: str, words: Words) -> list[str]:
    extra = ["parameters"] * words.parameters_change + ["step time"] * words.pace_changes
    return ["component", "swap", metric, "change", "worse", "better", *extra, "verdict"]


def _cells(row: Row, words: Words) -> list[str]:
    change = f"{signed(row.difference)}{_interval(row.difference_interval)}" if row.difference is not None else "-"
    counts = [str(row.worse), str(row.better)] if row.difference is not None else ["-", "-"]
    extra = [number(row.parameters)] * words.parameters_change + [_pace(row.pace)] * words.pace_changes
    mean = "-" if row.mean is None else number(row.mean)
    return [row.name, swap_text(row.keys), mean, change, *counts, *extra, said(row)]


def _pace(pace: float | None) -> str:
    return "" if pace is None else f"x {number(pace)}"


def _interval(ends: Sequence[float] | None) -> str:
    return f" [{number(ends[0])}, {number(ends[1])}]" if ends else ""


def listed_text(listed: Listed) -> str:
    """Return the planned swaps as a table, and the estimated time of all runs."""
    rows = [[row.name, swap_text(row.keys)] for row in listed.swaps]
    about = f"about {duration(listed.about_s)}, {counted(listed.workers, 'run')} at a time, each {duration(listed.run_s)}"
    many = f"the whole config and {counted(len(rows), 'swap')} on {counted(listed.seeds, 'seed')}"
    return "\n".join(
        [
            f"{listed.config.file} ({listed.config.why})",
            "",
            text_table(rows, ["component", "swap"]).rstrip("\n"),
            "",
            f"{counted(listed.runs, 'run')}: {many}; {about}",
        ]
    )


FILE = "ablation.svg"
COLOURS = {"helps": BLUE, "is worse": BLUE, "hurts": VERMILLION, "is better": VERMILLION}


def of_ablation(table: Table) -> Figure:
    """Return a figure with a row for each swap: each seed's value, the mean and its interval; blue marks a worse swap."""
    name, rows = visible(table.metric.name), table.rows
    shown = sum(row.verdict in COLOURS for row in rows)
    confidence = number((1 - 2 * table.level) * 100, 2)
    better = "larger" if table.metric.mode == "max" else "smaller"
    caption = (
        f"Change of {name} by {counted(len(rows), 'swap')}, {better} is better: "
        f"a dot for each of {given(len(table.seeds))} seeds, the mean, and its {confidence} % interval where there is one. "
        f"A difference is shown for {given(shown) if shown else 'none'}."
    )
    title = "Ablation"
    chart = forest(title, caption, [_compared(row) for row in rows], unit=f"change of {name} by the swap")
    return Figure(FILE, title, caption, chart)


def _compared(row: Row) -> Compared:
    colour = COLOURS.get(row.verdict, GREY)
    if row.difference is None:
        return Compared(row.name, [], None, None, colour, f"{row.verdict}: {row.why}")
    ends = row.difference_interval
    return Compared(row.name, row.differences, row.difference, (ends[0], ends[1]) if ends else None, colour)
