"""`mltrainer batch-size`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.batch_size import ask
from mltrainer.companions.questions.batch_size.ask import text

app = group()


@app.command(name="batch-size", epilog="Example: mltrainer batch-size --from 64")
def batch_size(
    assignments: Assignments = None,
    first: Annotated[int, typer.Option("--from", min=1, metavar="N", help="The first batch size.")] = ask.FIRST_SIZE,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="MINUTES", help="Time limit: no size begins that would exceed it; default: the explorer's page."
        ),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Find a batch size: double it until memory, data or time ends, and measure throughput and memory.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    with tools(folder) as running:
        answer = ask.batch_size(running, set=assignments, first=first, minutes=minutes)
    return show(answer, text, as_json)
