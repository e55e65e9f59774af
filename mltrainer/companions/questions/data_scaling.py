"""`mltrainer extrapolate`: would more data or more epochs help? Learning curves of a run as power laws."""

from __future__ import annotations

from collections.abc import Sequence

from typer import Option

from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.exploration import exploring
from mltrainer.companions.questions.findings import Explored, Findings, Value, write_page
from mltrainer.companions.questions.variants import require_one_trainer
from mltrainer.configs.loading import assign
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import line_chart
from mltrainer.records.common import MetricChoice
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import as_float, duration, finite, number, share, visible
from mltrainer.runs.find import config_of, find_run, result_of
from mltrainer.runs.launcher import Tools


class Prediction(Findings):
    """The expected error at an amount, with its interval."""

    amount: Value
    error: Value
    low: Value
    high: Value


class Fit(Findings):
    """error = floor + scale * amount ** -exponent, with its predictions.

    Attributes:
        floor: The error at an infinite amount.
        scale: Scale of the falling part.
        exponent: Exponent of the fall.
        confidence: Confidence of the intervals.
        predictions: Predictions at the present amount, twice and four times it.
        gain: Relative fall of the error after a doubling.
        gain_low: Lower end of the gain's interval.
        gain_high: Upper end of the gain's interval.
        verdict: "helps", "hardly" or "not shown".
    """

    floor: Value
    scale: Value
    exponent: Value
    confidence: Value
    predictions: list[Prediction]
    gain: Value
    gain_low: Value
    gain_high: Value
    verdict: str


class NoFit(Findings):
    """The reason why no law is fitted."""

    reason: str


class StepCurve(Findings):
    """The validation loss of a run over its steps."""

    steps: list[Value]
    losses: list[Value]

    def points(self) -> list[tuple[float, float]]:
        """Return the step and the loss of each evaluation."""
        return list(zip(self.steps, self.losses, strict=True))


class FittedSteps(StepCurve, Fit):
    """With a law."""


class UnfittedSteps(StepCurve, NoFit):
    """Without one."""


class Training(Findings):
    """A training on a part of the samples: share, number, seed, and the metrics of its best evaluation, if any."""

    part: Value
    samples: int
    seed: int
    validation: dict[str, Value] | None


class MeasuredTraining(Training):
    """A training with its error on validation."""

    error: Value


class DataCurve(Findings):
    """The error, by its name, of trainings on parts of the samples."""

    error: str
    rows: list[MeasuredTraining]

    def points(self) -> list[tuple[float, float]]:
        """Return the number of samples and the error of each training."""
        return [(float(row.samples), row.error) for row in self.rows]


class FittedData(DataCurve, Fit):
    """With a law."""


class UnfittedData(DataCurve, NoFit):
    """Without one."""


class Curves(Findings):
    """The learning curves of a run, over its steps and, where parts were trained, over the data."""

    epochs: FittedSteps | UnfittedSteps
    data: FittedData | UnfittedData | None = None


class FoundCurves(Curves, Explored):
    """Curves with the run, its metric and epochs, whether its learning rate changes, and the path of the page."""

    run: str
    metric: MetricChoice
    epochs_trained: Value
    decays: bool
    page: str


SEEDS, MOST_SEEDS = 2, 10
SIZES = 4  # parts of the data that are trained on, including all of it
PAGE = "extrapolation.md"


def extrapolate(tools: Tools, run: str | None = None, *, seeds: int = SEEDS) -> FoundCurves:
    """Return a run's learning curves over epochs and over data, with extrapolations.

    The curve over epochs is the run's history. For the one over data the run's config is trained on an eighth, a quarter, a half
    and all of its training samples, for the same number of steps each; these trainings are not kept.

    Args:
        tools: The project's tools.
        run: A run's id, a unique prefix of it, or a phase's name; by default the newest phase's run.
        seeds: Number of seeds for each part; 0: nothing is trained, and the curve over data left out.

    Raises:
        InputError: The run has no result, was not trained here, or `seeds` is out of range.
    """
    if not 0 <= seeds <= MOST_SEEDS:
        raise InputError(
            expected=f"0 to {MOST_SEEDS} seeds", found=seeds, where="seeds", hint=f"--seeds {min(max(seeds, 0), MOST_SEEDS)}"
        )
    project = tools.project
    run = find_run(project, run)
    recorded = result_of(project, run)
    if recorded is None:
        raise InputError(f"run {run} has no result", hint="mltrainer run")
    require_one_trainer(project, "extrapolation")
    result = partial(RunResult, recorded)
    # No checkpoint and no signal is needed: only the metrics of these trainings are looked at.
    changes = {"checkpoint.every_n_epochs": 10**6, "checkpoint.save_best": False, "signals": False}
    config = TrainingConfig.model_validate(assign(config_of(project, run), changes.items()))
    losses = [(row.step, row.validation.get("loss")) for row in result.history]
    history: list[list[float]] = [[step, as_float(loss)] for step, loss in losses if finite(loss)]
    if seeds:
        tools.note(f"{SIZES * seeds} trainings, each about as long as the run, {duration(as_float(result.wall_s))}")
    with exploring(tools, "extrapolate", config=config) as exploration:
        curves = exploration.ask(Curves, history=history, seeds=seeds)
        curves_found = FoundCurves.of(
            curves,
            run=run,
            metric=result.metric,
            epochs_trained=result.epochs,
            decays=config.schedule.name != "constant",
            page=project.relative(exploration.folder / PAGE),
        )
        figures = of_curves(curves_found)
        write_page(exploration.folder / PAGE, markdown(curves_found, figures), figures)
        return exploration.kept(curves_found)


PLACES = 24  # points at which a law is drawn


def of_curves(curves: Curves) -> list[Figure]:
    """Return the figures of the fitted curves."""
    epochs, data = curves.epochs, curves.data
    figures = []
    if isinstance(epochs, Fit):
        figures.append(_drawn("epochs.svg", "Validation loss over the steps", epochs, epochs.points(), "step", "validation loss"))
    if isinstance(data, Fit):
        title, error = "Error over the training samples", visible(data.error)
        figures.append(_drawn("data.svg", title, data, data.points(), "training samples", error))
    return figures


def _drawn(file: str, title: str, curve: Fit, points: Sequence[tuple[float, float]], x_label: str, y_label: str) -> Figure:
    caption, ends = sentence(curve), curve.predictions
    first, last = min(x for x, _ in points), ends[-1].amount
    # Evenly spaced on the logarithmic axis.
    places = [first * (last / first) ** (nr / (PLACES - 1)) for nr in range(PLACES)]
    series = [
        Series("measured", points, dots=True),
        Series("power law", [(x, curve.floor + curve.scale * x**-curve.exponent) for x in places]),
        Series("low end", [(row.amount, row.low) for row in ends], dashed=True),
        Series("high end", [(row.amount, row.high) for row in ends], dashed=True),
    ]
    x_label, y_label = f"{x_label} (log scale)", f"{y_label} (log scale)"
    chart = line_chart(title, caption, series, x_label=x_label, y_label=y_label, log_x=True, log_y=True)
    return Figure(file, title, caption, chart)


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
        return f"No estimate: {curve.reason}."
    ends = f"{share(curve.gain_low)} to {share(curve.gain_high)}"
    return f"{WORDS[curve.verdict]}: the error would fall by {share(curve.gain)} of itself ({ends}, if the power law holds)."


def _rows(curve: Fit, unit: str) -> list[list[str]]:
    """Return the predicted error, with its interval, at the present amount, twice and four times it."""
    names = ("now", "twice", "four times")
    return [
        [f"{name}: {number(round(row.amount))} {unit}", number(row.error), f"{number(row.low)} to {number(row.high)}"]
        for name, row in zip(names, curve.predictions, strict=False)
    ]


def _caution(curves: FoundCurves) -> str:
    if not curves.decays:
        return ALIKE
    return (
        "The rate changes over this run, so that a longer one is another curve: take this as a hint, and train with more "
        f"epochs to know. {ALIKE}"
    )


def text(curves: FoundCurves) -> str:
    """Return both answers as text for the terminal, with the path of the page."""
    parts = [
        f"run {curves.run}",
        "",
        "more epochs (the run's own validation loss over its steps):",
        *_summary(curves.epochs, "steps"),
    ]
    parts.append(_caution(curves))
    if (data := curves.data) is not None:
        parts += ["", f"more data ({data.error} of trainings on parts of the samples):", *_summary(data, "samples")]
    return "\n".join([*parts, "", f"page: {curves.page}"])


def _summary(curve: Fit | NoFit, unit: str) -> list[str]:
    rows = [] if isinstance(curve, NoFit) else [table(_rows(curve, unit), HEADS).rstrip("\n")]
    return [sentence(curve), *rows]


def markdown(curves: FoundCurves, figures: Sequence[Figure]) -> str:
    """Return the page; identical numbers give identical bytes."""
    shown = {figure.file: f"![{figure.title}]({figure.file})" for figure in figures}
    about = (
        f"Of run {md.code(curves.run)}. A power law with a floor, `floor + scale * amount ** -exponent`, is fitted to each "
        "curve (Hestness et al., 2017); its 90 % intervals are percentiles of laws fitted to redrawn residuals. Twice the amount "
        "helps where at least 2 % of the error would go, at the interval's lower end. No law knows what data would bring that "
        "is unlike these samples."
    )
    blocks = ["# More data, more epochs?", about, "## More epochs", *_section(curves.epochs, "steps"), _caution(curves)]
    blocks.append(shown.get("epochs.svg", ""))
    if (data := curves.data) is not None:
        note = (
            "Each training takes as many steps as the run: a part's samples repeat until their number is that of all, so that "
            "schedule, evaluations and patience stay. Parts of one seed are nested. Preprocessing is fitted on all "
            "training samples."
        )
        blocks += ["## More data", *_section(data, "samples"), note, shown.get("data.svg", ""), _trainings(data)]
    return md.document(blocks)


def _section(curve: Fit | NoFit, unit: str) -> list[str]:
    summary = f"**{md.text(sentence(curve))}**"
    if isinstance(curve, NoFit):
        return [summary, "", ""]
    cells = [[md.text(cell) for cell in row] for row in _rows(curve, unit)]
    law = f"floor {number(curve.floor)}, exponent {number(curve.exponent)}"
    return [summary, md.table(HEADS, cells, "lrr"), law]


def _trainings(data: DataCurve) -> str:
    rows = [[md.text(share(row.part)), number(row.samples), md.text(row.seed), number(row.error)] for row in data.rows]
    return md.table(["part", "samples", "seed", md.text(data.error)], rows, "rrlr")


app = command(
    extrapolate,
    text,
    name="extrapolate",
    help="Estimate whether more data or more epochs would help, by extrapolated learning curves.\n\n"
    "Without RUN: the newest phase's run. It trains four times for each seed, as long as the run; nothing of it stays but a "
    "scratch folder with a page and its figures.",
    example="mltrainer extrapolate baseline --seeds 3",
    seeds=Option(
        min=0,
        max=MOST_SEEDS,
        metavar="N",
        help="Number of seeds for each of four parts of the data; 0: only the run's epochs are examined.",
    ),
)
