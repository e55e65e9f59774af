"""The figures of learning curves: what was measured, the power law, and how far it can be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.figures.canvas import Series
from mltrainer.figures.drawer import DRAWER
from mltrainer.figures.figure import Figure
from mltrainer.questions.data_scaling.report import sentence
from mltrainer.reports.values import as_float, visible

Found = Mapping[str, Any]
PLACES = 24  # at which a law is drawn


def of_curves(found: Found) -> list[Figure]:
    """Return the figures that there are the numbers for."""
    epochs, data = found["epochs"], found.get("data")
    drawn = [_drawn("epochs.svg", "Validation loss over the steps", epochs, _points(epochs), "step", "validation loss")]
    if data is not None:
        error = visible(data["error"])
        drawn.append(_drawn("data.svg", "Error over the training samples", data, _points(data), "training samples", error))
    return [figure for figure in drawn if figure is not None]


def _points(curve: Found) -> list[tuple[float, float]]:
    if "rows" in curve:
        return [(float(row["samples"]), as_float(row["error"])) for row in curve["rows"]]
    return [(float(step), as_float(loss)) for step, loss in zip(curve["steps"], curve["losses"], strict=True)]


def _drawn(
    file: str, title: str, curve: Found, points: Sequence[tuple[float, float]], x_label: str, y_label: str
) -> Figure | None:
    if "predictions" not in curve:
        return None
    caption, ends = sentence(curve), curve["predictions"]
    first, last = min(x for x, _ in points), ends[-1]["amount"]
    places = [first * (last / first) ** (nr / (PLACES - 1)) for nr in range(PLACES)]
    series = [
        Series("measured", points, dots=True),
        Series("power law", [(x, curve["floor"] + curve["scale"] * x ** -curve["exponent"]) for x in places]),
        *(
            Series(f"{which} end", [(row["amount"], as_float(row[which])) for row in ends], dashed=True)
            for which in ("low", "high")
        ),
    ]
    x_label, y_label = f"{x_label} (log scale)", f"{y_label} (log scale)"
    chart = DRAWER.line_chart(title, caption, series, x_label=x_label, y_label=y_label, log_x=True, log_y=True)
    return Figure(file, title, caption, chart)
