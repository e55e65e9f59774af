"""`mltrainer extrapolate`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AnyRun, AsJson, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.data_scaling import ask
from mltrainer.companions.questions.data_scaling.ask import text

app = group()


@app.command(epilog="Example: mltrainer extrapolate baseline --seeds 3")
def extrapolate(
    run: AnyRun = None,
    count: Annotated[
        int,
        typer.Option(
            "--seeds",
            min=0,
            max=ask.MOST_SEEDS,
            metavar="N",
            help="Number of seeds for each of four parts of the data; 0: only the run's epochs are examined.",
        ),
    ] = ask.SEEDS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Estimate whether more data or more epochs would help, by extrapolated learning curves.

    Without RUN: the newest phase's run. It trains four times for each seed, as long as the run; nothing of it stays but a scratch
    folder with a page and its figures.
    """
    with tools(folder) as running:
        answer = ask.extrapolate(running, run, seeds=count)
    return show(answer, text, as_json)
