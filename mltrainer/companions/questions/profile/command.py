"""`mltrainer profile`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.profile import ask
from mltrainer.companions.questions.profile.ask import text

app = group()


@app.command(epilog="Example: mltrainer profile --steps 50")
def profile(
    assignments: Assignments = None,
    steps: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Number of timed steps.")] = ask.STEPS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Show where a step's time goes: data, forward, backward, optimizer, other; with a trace for viewers.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    with tools(folder) as running:
        answer = ask.profile(running, set=assignments, steps=steps)
    return show(answer, text, as_json)
