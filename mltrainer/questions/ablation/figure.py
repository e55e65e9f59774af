"""The figure of an ablation: by how much the metric changes without each component, with its interval."""

from __future__ import annotations

from mltrainer.figures.canvas import BLUE, GREY, VERMILLION
from mltrainer.figures.content import Figure
from mltrainer.figures.forest_plot import Compared, forest
from mltrainer.questions.ablation.findings import Row, Table
from mltrainer.reports.values import counted, given, number, visible

FILE = "ablation.svg"
COLOURS = {"helps": BLUE, "is worse": BLUE, "hurts": VERMILLION, "is better": VERMILLION}


def of_ablation(table: Table) -> Figure:
    """Return a row for each swap: what each seed gave, the mean and its interval; blue where the swap is shown to be worse."""
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
