"""`mltrainer cost`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, group, tools
from mltrainer.cli.output import show, warn
from mltrainer.companions.questions.cost import ask
from mltrainer.companions.questions.cost.ask import text

app = group()


@app.command(epilog='Example: mltrainer cost --hours "NVIDIA H100 SXM=2.5" --deadline 48')
def cost(
    assignments: Assignments = None,
    hours: Annotated[
        list[str] | None,
        typer.Option(
            "--hours", metavar="[DEVICE=]H", help="Hours of one training, on a device or on all; may be given more than once."
        ),
    ] = None,
    per_second: Annotated[
        list[str] | None,
        typer.Option(
            "--per-second",
            metavar="[DEVICE=]N",
            help="Answers per second under load, on a device or on all; may be given more than once.",
        ),
    ] = None,
    deadline: Annotated[
        float | None, typer.Option("--deadline", metavar="HOURS", help="Name the cheapest offer that ends all phases by then.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Cost training, search, final training and answers by the pages of prices: hours and money of each offer.

    Times come from `mltrainer plan`, which this runs for devices without --hours; an unmeasured time is not known.
    Prices come from the handbook's pages, or from your own; nothing is fetched.
    """
    with tools(folder) as running:
        answer = ask.cost(running, set=assignments, hours=hours or (), per_second=per_second or (), deadline=deadline)
    for line in answer.stale:
        warn(f"old: {line}")
    return show(answer, text, as_json)
