"""What learning curves let expect, as a page and as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mltrainer.questions.data_scaling.findings import DataCurve, Fit, FoundCurves, NoFit
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import number, share

if TYPE_CHECKING:
    from mltrainer.figures.figure import Figure

WORDS = {
    "helps": "Twice as much would help",
    "hardly": "Twice as much would hardly help",
    "not shown": "Whether twice as much would help is not shown",
}
ALIKE = "Neighbouring evaluations of one run are alike, so that the interval is rather too narrow."
HEADS = ["", "expected error", "interval"]


def sentence(curve: Fit | NoFit) -> str:
    """Return a curve's predicted gain at twice the amount, in words."""
    if isinstance(curve, NoFit):
        return f"Nothing can be told: {curve.reason}."
    ends = f"{share(curve.gain_low)} to {share(curve.gain_high)}"
    return f"{WORDS[curve.verdict]}: the error would fall by {share(curve.gain)} of itself ({ends}, if the power law holds)."


def _rows(curve: Fit, unit: str) -> list[list[str]]:
    """Return the predicted error, with its interval, at the present amount, twice and four times it."""
    names = ("now", "twice", "four times")
    return [
        [f"{name}: {number(round(row.amount))} {unit}", number(row.error), f"{number(row.low)} to {number(row.high)}"]
        for name, row in zip(names, curve.predictions, strict=False)
    ]


def _caution(found: FoundCurves) -> str:
    if not found.decays:
        return ALIKE
    return (
        "The rate changes over this run, so that a longer one is another curve: take this as a hint, and train with more "
        f"epochs to know. {ALIKE}"
    )


def text(found: FoundCurves) -> str:
    """Return both answers as a person reads them at the keyboard, and where the page is."""
    parts = [
        f"run {found.run}",
        "",
        "more epochs (the run's own validation loss over its steps):",
        *_told(found.epochs, "steps"),
    ]
    parts.append(_caution(found))
    if (data := found.data) is not None:
        parts += ["", f"more data ({data.error} of trainings on parts of the samples):", *_told(data, "samples")]
    return "\n".join([*parts, "", f"page: {found.page}"])


def _told(curve: Fit | NoFit, unit: str) -> list[str]:
    rows = [] if isinstance(curve, NoFit) else [table(_rows(curve, unit), HEADS).rstrip("\n")]
    return [sentence(curve), *rows]


def markdown(found: FoundCurves, figures: Sequence[Figure]) -> str:
    """Return the page; identical numbers give identical bytes."""
    shown = {figure.file: f"![{figure.title}]({figure.file})" for figure in figures}
    about = (
        f"Of run {md.code(found.run)}. A power law with a floor, `floor + scale * amount ** -exponent`, is fitted to each "
        "curve (Hestness et al., 2017); its 90 % intervals are percentiles of laws fitted to redrawn residuals. Twice the amount "
        "helps where at least 2 % of the error would go, at the interval's lower end. No law knows what data would bring that "
        "is unlike these samples."
    )
    blocks = ["# More data, more epochs?", about, "## More epochs", *_section(found.epochs, "steps"), _caution(found)]
    blocks.append(shown.get("epochs.svg", ""))
    if (data := found.data) is not None:
        told = (
            "Each training takes as many steps as the run: a part's samples repeat until they are as many as all, so that "
            "schedule, evaluations and patience stay. Parts of one seed lie within each other. Preprocessing is fitted on all "
            "training samples."
        )
        blocks += ["## More data", *_section(data, "samples"), told, shown.get("data.svg", ""), _trainings(data)]
    return md.document(blocks)


def _section(curve: Fit | NoFit, unit: str) -> list[str]:
    told = f"**{md.text(sentence(curve))}**"
    if isinstance(curve, NoFit):
        return [told, "", ""]
    cells = [[md.text(cell) for cell in row] for row in _rows(curve, unit)]
    law = f"floor {number(curve.floor)}, exponent {number(curve.exponent)}"
    return [told, md.table(HEADS, cells, "lrr"), law]


def _trainings(data: DataCurve) -> str:
    rows = [[md.text(share(row.part)), number(row.samples), md.text(row.seed), number(row.error)] for row in data.rows]
    return md.table(["part", "samples", "seed", md.text(data.error)], rows, "rrlr")
