"""`mltrainer landscape`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AnyRun, AsJson, Folder, group
from mltrainer.cli.output import show
from mltrainer.project.front import Project
from mltrainer.questions.loss_landscape.ask import FEWEST_POINTS, POINTS, SAMPLES, SPAN
from mltrainer.questions.loss_landscape.report import text

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
    return show(found, text, as_json)
