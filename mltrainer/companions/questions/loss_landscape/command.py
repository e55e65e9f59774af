"""`mltrainer landscape`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AnyRun, AsJson, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.loss_landscape import ask
from mltrainer.companions.questions.loss_landscape.ask import text

app = group()


@app.command(epilog="Example: mltrainer landscape baseline --span 0.5")
def landscape(
    run: AnyRun = None,
    points: Annotated[
        int, typer.Option(min=ask.FEWEST_POINTS, max=201, metavar="N", help="Points on each side of the plane; an odd number.")
    ] = ask.POINTS,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Samples of each split, evenly spaced.")] = ask.SAMPLES,
    span: Annotated[
        float, typer.Option(min=1e-6, max=100.0, metavar="X", help="Distance to either side; 1: the weights' norm.")
    ] = ask.SPAN,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Measure the loss around a run's best checkpoint, along and over random directions, and its sharpness.

    Without RUN: the newest phase's run. Nothing of it stays but a scratch folder with a page and its figures.
    """
    with tools(folder) as running:
        answer = ask.landscape(running, run, points=points, samples=samples, span=span)
    return show(answer, text, as_json)
