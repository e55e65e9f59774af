"""`mltrainer seeds`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.seed_variance import ask
from mltrainer.companions.questions.seed_variance.ask import text
from mltrainer.companions.questions.variants import MOST_SEEDS

app = group()


@app.command(epilog="Example: mltrainer seeds --seeds 8")
def seeds(
    count: Annotated[
        int, typer.Option("--seeds", min=ask.FEWEST_SEEDS, max=MOST_SEEDS, metavar="N", help="Number of seeds.")
    ] = ask.SEEDS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Train the config on several fresh seeds: the spread of its metric, and the difference of two runs that is luck.

    Its runs are kept and reused, by `ablate` too; no gate and no record changes. The page is in .mltrainer/seeds/.
    """
    with tools(folder) as running:
        answer = ask.seeds(running, count)
    return show(answer, text, as_json)
