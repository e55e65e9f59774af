"""`mltrainer landscape`: the loss around a run's best checkpoint, and how sharply it curves there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from typer import Option

from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.exploration import exploring
from mltrainer.companions.questions.findings import Explored, Findings, Value, write_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.figures.axes import log_suits
from mltrainer.figures.canvas import Mark
from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import heat_map, line_chart
from mltrainer.records.common import digests_by_name
from mltrainer.records.partial import partial
from mltrainer.records.run import CheckpointRow, RunResult
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, number, signed
from mltrainer.runs.find import config_of, find_run, result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project


class Line(Findings):
    """The losses of both splits along a direction, at places from -span to span."""

    places: list[Value]
    train: list[Value]
    validation: list[Value]


class Plane(Findings):
    """The training losses over two directions, a row for each place along the second."""

    places: list[Value]
    losses: list[list[Value]]


class Rise(Findings):
    """Rise of the loss after a step of length `rho` towards the worst point nearby."""

    rho: Value
    rise: Value


class Spectrum(Findings):
    """The ends of the Hessian's spectrum.

    Attributes:
        largest: The largest eigenvalue.
        smallest: The smallest one.
        residual: Bound of the error of both eigenvalues.
        iterations: Iterations of Lanczos' method.
    """

    largest: Value
    smallest: Value
    residual: Value
    iterations: int


class Sharpness(Spectrum):
    """The spectrum, how its products were computed, the gradient's norm, and the rise by SAM and its adaptive form."""

    method: str
    gradient_norm: Value
    sam: Rise
    adaptive: Rise


class OfSplits(Findings):
    """A number of each of the two splits."""

    train: Value
    validation: Value


class Landscape(Findings):
    """The loss around a checkpoint; `samples` and the loss at the `center` are by split."""

    parameters: int
    samples: OfSplits
    center: OfSplits
    line: Line
    plane: Plane
    sharpness: Sharpness


class FoundLandscape(Landscape, Explored):
    """A landscape with the run and the step of its checkpoint, the run's optimizer, the span, and the path of the page."""

    run: str
    step: int
    optimizer: dict[str, Any]
    span: Value
    page: str


POINTS, SAMPLES, SPAN = 21, 512, 1.0  # unless asked otherwise
FEWEST_POINTS = 5
PAGE = "landscape.md"


def landscape(
    tools: Tools, run: str | None = None, *, points: int = POINTS, samples: int = SAMPLES, span: float = SPAN
) -> FoundLandscape:
    """Return the loss along and over random directions around a run's best checkpoint, and its sharpness.

    The directions are normal numbers that the run's seed addresses, scaled filter by filter to the weights' norms (Li et al.,
    2018, arXiv 1712.09913). The page and its figures are in the scratch folder; nothing else of the project changes.

    Args:
        tools: The project's tools.
        run: A run's id, a unique prefix of it, or a phase's name; by default the newest phase's run.
        points: Points on each side of the plane; an odd number.
        samples: Number of samples of each split, evenly spaced.
        span: Distance to either side; 1: the weights' norm.

    Raises:
        InputError: The run has no verified best checkpoint here, or `points` is even or too small.
        GateError: The checkpoint or the data differs from the run's record.
    """
    if points < FEWEST_POINTS or not points % 2:
        hint = f"--points {max(points + 1, FEWEST_POINTS)}"
        raise InputError(expected=f"an odd number from {FEWEST_POINTS} on", found=points, where="--points", hint=hint)
    project = tools.project
    run = find_run(project, run)
    checkpoint = best_checkpoint(project, run)
    # Without parts that have no second derivative (compiled, checkpointed) or too few digits for small differences of the loss.
    values = {**config_of(project, run), "compile": False, "gradient_checkpointing": [], "precision": "fp32", "signals": False}
    with exploring(tools, "landscape", config=TrainingConfig.model_validate(values)) as exploration:
        files = digests_by_name(checkpoint.files)
        landscape = exploration.ask(Landscape, points=points, samples=samples, span=span, checkpoint=checkpoint.path, files=files)
        answer = FoundLandscape.of(
            landscape,
            run=run,
            step=checkpoint.step,
            optimizer=values["optimizer"],
            span=span,
            page=project.relative(exploration.folder / PAGE),
        )
        figures = of_landscape(answer)
        write_page(exploration.folder / PAGE, markdown(answer, figures), figures)
        return exploration.kept(answer)


def best_checkpoint(project: Project, run: str) -> CheckpointRow:
    """Return the row of a run's best checkpoint.

    Raises:
        InputError: The run has no verified best checkpoint, or its files are missing.
    """
    result = partial(RunResult, result_of(project, run) or {})
    if result.program:
        message = f"run {run} was trained by a program: only the program can load its model and measure its loss"
        raise InputError(message, hint="name a run that mltrainer trained: mltrainer runs list")
    best = result.best_checkpoint
    if best is None:
        raise InputError(f"run {run} has no verified best checkpoint", hint="mltrainer run")
    if not (project.root / best.path).is_dir():
        raise InputError(
            "the checkpoint's files are missing: weights stay out of git", where=best.path, hint="copy the folder back"
        )
    return best


BESIDE = "distance along the direction (1: the weights' own norm)"


def of_landscape(measured: Landscape) -> list[Figure]:
    """Return both figures."""
    return [_line(measured.line), _plane(measured.plane)]


def _line(line: Line) -> Figure:
    curves = {"training": line.train, "validation": line.validation}
    series = [Series(name, list(zip(line.places, losses, strict=True))) for name, losses in curves.items()]
    losses, middle = line.train, len(line.places) // 2
    caption = (
        f"Training loss {number(losses[middle])} at the checkpoint, {number(losses[0])} and {number(losses[-1])} at the ends "
        "of a random direction."
    )
    log = log_suits(y for one in series for _, y in one.points)
    axis = "loss (log scale)" if log else "loss"
    title = "Loss along a random direction"
    chart = line_chart(title, caption, series, x_label=BESIDE, y_label=axis, log_y=log, marks=[Mark(0.0, "the checkpoint")])
    return Figure("line.svg", title, caption, chart)


def _plane(plane: Plane) -> Figure:
    places, rows = plane.places, plane.losses
    center = rows[len(rows) // 2][len(places) // 2]
    every = [loss for row in rows for loss in row if math.isfinite(loss)] or [math.nan]
    near = sum(loss <= 2 * center for loss in every) / (len(places) * len(rows))
    caption = (
        f"Training loss {number(center)} at the checkpoint in the middle, {number(min(every))} to {number(max(every))} over the "
        f"plane; {number(100 * near)} % of it is within twice the checkpoint's."
    )
    title = "Loss over two random directions"
    named = [(f"{y:.3g}", row) for y, row in zip(places, rows, strict=True)]
    beside = "distance along the first direction (across) and the second (up)"
    # Turned around, as rows are drawn from the top and the second direction points up.
    chart = heat_map(title, caption, named[::-1], places, x_label=beside, scale_label="loss", terrain=True)
    return Figure("plane.svg", title, caption, chart)


def rows(measured: FoundLandscape) -> list[tuple[str, str]]:
    """Return the measurements of the loss landscape as pairs of label and value, in words."""
    sharp, line = measured.sharpness, measured.line.train
    return [
        ("training loss at the checkpoint", _measured(measured.center.train, measured.samples.train)),
        (
            "validation loss at the checkpoint",
            _measured(measured.center.validation, measured.samples.validation),
        ),
        ("training loss in the middle of the figures", number(line[len(line) // 2])),
        ("training loss at the ends of the line", f"{number(line[0])} and {number(line[-1])}"),
        ("largest eigenvalue of the Hessian", f"{number(sharp.largest)} ± {number(sharp.residual, 2)}"),
        ("smallest eigenvalue", f"{number(sharp.smallest)} ± {number(sharp.residual, 2)}"),
        (f"rise of the loss within {sharp.sam.rho} (SAM)", signed(sharp.sam.rise)),
        (f"the same, relative to the weights, {sharp.adaptive.rho} (ASAM)", signed(sharp.adaptive.rise)),
        ("norm of the gradient", number(sharp.gradient_norm)),
        *_edge(measured),
    ]


def _measured(loss: float, samples: float) -> str:
    return f"{number(loss)} ({counted(int(samples), 'sample')})"


def _edge(measured: FoundLandscape) -> list[tuple[str, str]]:
    """Return the sharpness that a plain gradient step can follow (Cohen et al., 2021, arXiv 2103.00065)."""
    optimizer = measured.optimizer
    if optimizer["name"] != "sgd":
        return []
    momentum = float(optimizer.get("momentum") or 0.0)
    return [("largest that the peak rate can follow, (2 + 2 momentum) / lr", number((2 + 2 * momentum) / optimizer["lr"]))]


def text(measured: FoundLandscape) -> str:
    """Return the values as text for the terminal, with the path of the page."""
    head = f"around the best checkpoint of run {measured.run} (step {number(measured.step)})"
    sharp = measured.sharpness
    how = f"eigenvalues by {counted(sharp.iterations, 'iteration')} of Lanczos' method, products by {sharp.method}"
    values = table([list(row) for row in rows(measured)], ["what", "measured"]).rstrip("\n")
    return "\n".join([head, "", values, "", how, f"page: {measured.page}, with its figures"])


def markdown(measured: FoundLandscape, figures: Sequence[Figure]) -> str:
    """Return the page; identical numbers give identical bytes."""
    sharp = measured.sharpness
    shown = [f"![{figure.title}]({figure.file})\n\n*{md.text(figure.caption)}*" for figure in figures]
    about = (
        f"Around the best checkpoint of run {md.code(measured.run)}, step {number(measured.step)}, with "
        f"{counted(measured.parameters, 'trained number')}. The directions are random, addressed by the run's seed, and scaled "
        "filter by filter to the weights' norms, so that figures of different runs can be compared (Li et al., 2018); biases and "
        "scales stay, and the statistics of batch normalization are measured again at each point. A plane of two directions out "
        "of thousands shows valleys, and hides most of the landscape."
    )
    curved = (
        f"The eigenvalues were found by {counted(sharp.iterations, 'iteration')} of Lanczos' method with products of the "
        f"Hessian by {sharp.method}, at the statistics of the checkpoint. SAM: the loss after one step up the gradient (Foret "
        "et al., 2021); ASAM: with steps in proportion to the weights (Kwon et al., 2021). The sharpness of a minimum by "
        "itself says little about its generalization: layers can be rescaled without changing the function (Dinh et al., 2017)."
    )
    values = md.table(["measured", "value"], [[md.text(name), md.text(value)] for name, value in rows(measured)])
    return md.document(["# Loss landscape", about, *shown, "## Sharpness", values, curved])


app = command(
    landscape,
    text,
    name="landscape",
    help="Measure the loss around a run's best checkpoint, along and over random directions, and its sharpness.\n\n"
    "Without RUN: the newest phase's run. Nothing of it stays but a scratch folder with a page and its figures.",
    example="mltrainer landscape baseline --span 0.5",
    points=Option(min=FEWEST_POINTS, max=201, metavar="N", help="Points on each side of the plane; an odd number."),
    samples=Option(min=1, metavar="N", help="Samples of each split, evenly spaced."),
    span=Option(min=1e-6, max=100.0, metavar="X", help="Distance to either side; 1: the weights' norm."),
)
