"""`mltrainer lr-find`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, group, tools
from mltrainer.cli.output import show
from mltrainer.companions.questions.learning_rate.ask import HIGH, LOW, STEPS, text
from mltrainer.companions.questions.learning_rate.ask import lr_find as ask

SMALLEST, LARGEST = 1e-30, 1e6  # learning rates; of smaller ones the ratio is no finite number

app = group()


@app.command(name="lr-find", epilog="Example: mltrainer lr-find --set optimizer.name=sgd")
def lr_find(
    assignments: Assignments = None,
    steps: Annotated[
        int, typer.Option(min=10, metavar="N", help="Number of steps; many more make the suggestion lower.")
    ] = STEPS,
    low: Annotated[
        float, typer.Option("--from", min=SMALLEST, max=LARGEST, metavar="RATE", help="The first learning rate.")
    ] = LOW,
    high: Annotated[
        float, typer.Option("--to", min=SMALLEST, max=LARGEST, metavar="RATE", help="The last learning rate.")
    ] = HIGH,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Find a learning rate: train some steps at a growing rate, on a copy, until the loss diverges.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    with tools(folder) as running:
        answer = ask(running, set=assignments, steps=steps, low=low, high=high)
    return show(answer, text, as_json)
