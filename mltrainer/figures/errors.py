"""The figures of a model's errors: the calibration of its answers, its residuals, and segments with more errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltrainer.figures.axes import linear
from mltrainer.figures.canvas import BLUE, GREY, VERMILLION, WIDTH, Box, dot_path, grid, label, line, picture
from mltrainer.figures.figure import Figure
from mltrainer.figures.forest_plot import Compared, forest
from mltrainer.figures.series import Series
from mltrainer.figures.svg import line_chart
from mltrainer.records.run import Calibration, Segment, Segments, TrainingResult
from mltrainer.reports.values import as_float, counted, given, number, share, visible


@dataclass(frozen=True)
class Bin:
    """Samples of about one probability: the frequency of correct answers, and the ends of its interval."""

    probability: float
    frequency: float
    low: float
    high: float


def reliability(title: str, description: str, bins: Sequence[Bin], *, x_label: str, y_label: str) -> str:
    """Return a chart of each bin's frequency over its probability, with its interval, beside the diagonal.

    Args:
        title: The chart's subject.
        description: The chart's content in words, for readers who cannot see it.
        bins: The bins, at least one.
        x_label: The name of the probability.
        y_label: The name of the frequency.
    """
    scale = linear([0.0, 1.0])
    box = Box(82, 70, min(WIDTH - 22, 82 + 400), 410, scale, scale)
    key = [
        line(20, 44, 42, 44, VERMILLION, ' stroke-width="1.5" stroke-dasharray="6 4"'),
        label(48, 48, "as often as predicted"),
        dot_path([(205, 44)], BLUE, 7),
        label(215, 48, "a bin of probabilities, and its 95 % interval"),
    ]
    diagonal = line(*box.at(0, 0), *box.at(1, 1), VERMILLION, ' stroke-width="1.5" stroke-dasharray="6 4"')
    whiskers = [line(*box.at(one.probability, one.low), *box.at(one.probability, one.high), BLUE) for one in bins]
    dots = dot_path([box.at(one.probability, one.frequency) for one in bins], BLUE, 8)
    sides = [
        label(box.left + 10, box.top + 16, "predicted too low", fill=GREY),
        label(box.right - 10, box.bottom - 10, "predicted too high", anchor="end", fill=GREY),
    ]
    return picture(title, description, 462, [*key, *grid(box, x_label, y_label), *sides, diagonal, *whiskers, dots])


QUANTILES = ("5 %", "25 %", "median", "75 %", "95 %")


def calibration(run: TrainingResult) -> Figure | None:
    """Predicted probabilities beside the frequency of correct answers."""
    found = run.errors and run.errors.calibration
    if not found:
        return None
    bins = [Bin(*map(as_float, (row.probability, row.frequency, row.low, row.high))) for row in found.bins]
    caption = f"{calibration_line(found)}; {counted(len(bins), 'bin')} hold samples."
    title = "Calibration, validation split"
    chart = reliability(title, caption, bins, x_label="probability of the answer given", y_label="how often it was right")
    return Figure("calibration.svg", title, caption, chart)


def calibration_line(found: Calibration) -> str:
    """Return a sentence on the expected calibration error beside the one by chance, and the mean probability and frequency."""
    means = f"mean probability {share(found.probability)}, right in {share(found.frequency)}"
    error = f"Expected calibration error (15 bins of equal width; Guo et al., 2017) {number(found.error)}"
    return f"{error}, by luck alone about {number(found.by_luck)}; {means}"


def along(run: TrainingResult) -> Figure | None:
    """The residuals of a regression along its predictions."""
    found = run.errors and run.errors.along
    if not found:
        return None
    series = [
        Series(name, [(as_float(row.prediction), as_float(row.quantiles[nr])) for row in found.bins], dashed=nr in (0, 4))
        for nr, name in enumerate(QUANTILES)
    ]
    worst = min(found.bins, key=lambda row: as_float(row.covered))
    caption = (
        f"{share(found.level)} of the predictions are within ± {number(found.half_width)}; where this holds least, near a "
        f"prediction of {number(as_float(worst.prediction))}, {share(worst.covered)} of {number(worst.samples)} are."
    )
    title = "Residuals along the predictions, validation split"
    chart = line_chart(title, caption, series, x_label="prediction", y_label="prediction - target", include=[0.0])
    return Figure("residuals_along.svg", title, caption, chart)


def segments(run: TrainingResult) -> Figure | None:
    """The segments with larger errors of a model than elsewhere."""
    found = run.errors and run.errors.segments
    if not found or not found.rows:
        return None
    rows = [Compared("all samples", [], as_float(found.overall), None, GREY), *map(_compared, found.rows)]
    caption = f"{segments_line(found)}; mean and 95 % interval of each."
    title = "Where the errors are, validation split"
    return Figure("segments.svg", title, caption, forest(title, caption, rows, unit=found.measure))


def segments_line(found: Segments) -> str:
    """Return a sentence on the number of segments in which a model is worse."""
    start = f"In {number(found.found) if found.found else 'none'} of {counted(found.tested, 'segment')}"
    overall = number(as_float(found.overall))
    return (
        f"{start} the {found.measure} is shown to be above that of the rest ({overall} overall, level {given(found.level)}, Holm)"
    )


def _compared(row: Segment) -> Compared:
    name = f"{visible(row.column)}: {visible(row.value)}"
    return Compared(name, [], as_float(row.error), (as_float(row.low), as_float(row.high)), BLUE)
