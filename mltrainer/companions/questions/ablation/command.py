"""`mltrainer ablate`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli import completion
from mltrainer.cli.common import AsJson, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.ablation import ask
from mltrainer.companions.questions.ablation.report import listed_text, text
from mltrainer.companions.questions.variants import FEWEST_SEEDS, MOST_SEEDS

app = group()


@app.command(epilog="Example: mltrainer ablate clip model.dropout=0.3 optimizer.name=sgd+optimizer.lr=0.1")
def ablate(
    swaps: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SWAP]...",
            autocompletion=completion.swaps,
            help="KEY: take that component out; KEY=VALUE: swap it, several keys of one change joined by +; "
            "default: take out each component in turn.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=FEWEST_SEEDS,
            max=MOST_SEEDS,
            metavar="N",
            help="Number of seeds; default: the fewest that can show a difference of each swap, 5 to 9.",
        ),
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="Show the planned swaps and the estimated time; train nothing.")
    ] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Train the config without each of its components, one at a time, and the whole one, on the same fresh seeds.

    The table, with intervals and verdicts, is phases/04_optimization/ablation.md. No gate and no record changes.
    """
    with tools(folder) as running:
        if only_list:
            return show(ask.components(running, *(swaps or ()), seeds=seeds), listed_text, as_json)
        table = ask.ablate(running, *(swaps or ()), seeds=seeds)
    return show(table, text, as_json)
