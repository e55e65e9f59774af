"""`mltrainer landscape`, `seeds` and `extrapolate`: around a trained model, how much of it is luck, and what more would bring."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AnyRun, AsJson, Folder, group
from mltrainer.cli.output import emit, printable
from mltrainer.project import more
from mltrainer.project.ablating import MOST_SEEDS
from mltrainer.project.front import Project
from mltrainer.project.luck import FEWEST_SEEDS, SEEDS
from mltrainer.project.surroundings import FEWEST_POINTS, POINTS, SAMPLES, SPAN
from mltrainer.reports.luck import text as seeds_text
from mltrainer.reports.more import text as more_text
from mltrainer.reports.surroundings import text

app = group()


@app.command(epilog="Example: mltrainer landscape baseline --span 0.5")
def landscape(
    run: AnyRun = None,
    points: Annotated[
        int, typer.Option(min=FEWEST_POINTS, max=201, metavar="N", help="On each side of the plane; an odd number.")
    ] = POINTS,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Of each split, evenly spaced.")] = SAMPLES,
    span: Annotated[
        float, typer.Option(min=1e-6, max=100.0, metavar="X", help="How far to go; 1: as far as the weights' own norm.")
    ] = SPAN,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Measure the loss around a run's best checkpoint, along and over random directions, and its sharpness.

    Without RUN: the newest phase's run. Nothing of it stays but a scratch folder with a page and its figures.
    """
    found = Project(folder).landscape(run, points=points, samples=samples, span=span)
    emit(found) if as_json else print(printable(text(found)))
    return 0


@app.command(epilog="Example: mltrainer seeds --seeds 8")
def seeds(
    count: Annotated[int, typer.Option("--seeds", min=FEWEST_SEEDS, max=MOST_SEEDS, metavar="N", help="How many.")] = SEEDS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Train the config on several fresh seeds: how its metric spreads, and what difference between two runs is luck.

    Its runs are kept and found again, by `ablate` too; no gate and no record changes. The page lies in .mltrainer/seeds/.
    """
    found = Project(folder).seeds(count)
    emit(found) if as_json else print(printable(seeds_text(found)))
    return 0


@app.command(epilog="Example: mltrainer extrapolate baseline --seeds 3")
def extrapolate(
    run: AnyRun = None,
    count: Annotated[
        int,
        typer.Option(
            "--seeds",
            min=0,
            max=more.MOST_SEEDS,
            metavar="N",
            help="Train each of four parts of the data on so many; 0: look at the run's epochs alone.",
        ),
    ] = more.SEEDS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Tell whether more data or more epochs would help, by learning curves that are fitted to and go on.

    Without RUN: the newest phase's run. It trains four times for each seed, as long as the run; nothing of it stays but a scratch
    folder with a page and its figures.
    """
    found = Project(folder).extrapolate(run, seeds=count)
    emit(found) if as_json else print(printable(more_text(found)))
    return 0
