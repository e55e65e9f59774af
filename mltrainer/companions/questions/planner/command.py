"""`mltrainer plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.planner import ask
from mltrainer.companions.questions.planner.ask import text

app = group()


@app.command(epilog='Example: mltrainer plan --device "NVIDIA H100 SXM"')
def plan(
    assignments: Assignments = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="NAME", help="A device of the planner's page; may be given more than once."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, max=4096, metavar="N", help="Processes that train together.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Write the recommended keys into the project's own files.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Plan memory and time: a step's needs by part, the sizes that fit, and the keys to set.

    The step is traced without computing it; if it surely fits, a few real steps measure time and allocator.
    Nothing of it stays but a scratch folder, unless --apply is given.
    """
    with tools(folder) as running:
        answer = ask.plan(running, set=assignments, devices=device or (), processes=devices, apply=apply)
    return show(answer, text, as_json)
