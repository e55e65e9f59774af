"""The figures of a model's errors: how far its answers can be trusted, and where it is wrong more often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.figures.canvas import BLUE, GREY
from mltrainer.figures.drawer import DRAWER
from mltrainer.figures.figure import Figure
from mltrainer.figures.forest_plot import Compared
from mltrainer.figures.reliability import Bin
from mltrainer.figures.series import Series
from mltrainer.reports.values import as_float, at, counted, given, number, share, visible

Run = Mapping[str, Any]
QUANTILES = ("5 %", "25 %", "median", "75 %", "95 %")


def calibration(run: Run) -> Figure | None:
    """Predicted probabilities beside how often they came true."""
    found = at(run, "errors.calibration")
    if not found:
        return None
    of = f"{visible(found['of'])}" if found["of"] is not None else "the answer given"
    bins = [Bin(*(as_float(row[key]) for key in ("probability", "frequency", "low", "high"))) for row in found["bins"]]
    caption = f"{calibration_line(found)}; {counted(len(bins), 'bin')} of {number(found['bins'][0]['samples'])} samples."
    title = "Calibration, validation split"
    chart = DRAWER.reliability(title, caption, bins, x_label=f"probability of {of}", y_label="how often it was so")
    return Figure("calibration.svg", title, caption, chart)


def calibration_line(found: Mapping[str, Any]) -> str:
    """Return a sentence on the expected calibration error beside the one by chance, and the mean probability and frequency."""
    sure, right = share(found["probability"]), share(found["frequency"])
    came = "true of" if found["of"] is not None else "right in"
    means = f"mean probability {sure}, {came} {right}"
    return f"Calibration error {number(found['error'], 3)}, by luck alone about {number(found['by_luck'], 3)}; {means}"


def along(run: Run) -> Figure | None:
    """The residuals of a regression along its predictions."""
    found = at(run, "errors.along")
    if not found:
        return None
    rows = [(as_float(row["prediction"]), row) for row in found["bins"]]
    series = [
        Series(name, [(x, as_float(row["quantiles"][nr])) for x, row in rows], dashed=nr in (0, 4))
        for nr, name in enumerate(QUANTILES)
    ]
    worst, row = min(rows, key=lambda pair: as_float(pair[1]["covered"]))
    level, half = share(found["level"]), number(found["half_width"])
    caption = (
        f"{level} of the predictions are within ± {half}; where this holds least, near a prediction of {number(worst)}, "
        f"{share(row['covered'])} of {number(row['samples'])} are."
    )
    title = "Residuals along the predictions, validation split"
    chart = DRAWER.line_chart(title, caption, series, x_label="prediction", y_label="prediction - target", include=[0.0])
    return Figure("residuals_along.svg", title, caption, chart)


def segments(run: Run) -> Figure | None:
    """The segments in which a model is wrong more often than elsewhere."""
    found = at(run, "errors.segments")
    if not found or not found["rows"]:
        return None
    rows = [Compared("all samples", [], as_float(found["overall"]), None, GREY), *map(_compared, found["rows"])]
    caption = f"{segments_line(found)}; mean and 95 % interval of each."
    title = "Where the errors are, validation split"
    return Figure("segments.svg", title, caption, DRAWER.forest(title, caption, rows, unit=found["measure"]))


def segments_line(found: Mapping[str, Any]) -> str:
    """Return in how many segments a model is worse, in words."""
    told = f"In {number(found['found']) if found['found'] else 'none'} of {counted(found['tested'], 'segment')}"
    overall, level = number(as_float(found["overall"]), 3), given(found["level"])
    return f"{told} the {found['measure']} is shown to be above that of the rest ({overall} overall, level {level}, Holm)"


def _compared(row: Mapping[str, Any]) -> Compared:
    name = f"{visible(row['column'])}: {visible(row['value'])}"
    return Compared(name, [], as_float(row["error"]), (as_float(row["low"]), as_float(row["high"])), BLUE)
