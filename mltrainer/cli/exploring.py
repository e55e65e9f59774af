"""`mltrainer lr-find`, `mltrainer batch-size` and `mltrainer profile`: no run, no gate and no file of the project changes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, group
from mltrainer.cli.output import emit, printable
from mltrainer.project.exploring import FIRST_SIZE, HIGH, LOW, RATE_STEPS, TIMED_STEPS
from mltrainer.project.front import Project
from mltrainer.reports.exploring import profile_text, rate_text, size_text

SMALLEST, LARGEST = 1e-30, 1e6  # learning rates; of smaller ones the ratio is no finite number

app = group()


@app.command(name="lr-find", epilog="Example: mltrainer lr-find --set optimizer.name=sgd")
def lr_find(
    assignments: Assignments = None,
    steps: Annotated[int, typer.Option(min=10, metavar="N", help="How many; many more suggest less.")] = RATE_STEPS,
    low: Annotated[
        float, typer.Option("--from", min=SMALLEST, max=LARGEST, metavar="RATE", help="The first learning rate.")
    ] = LOW,
    high: Annotated[
        float, typer.Option("--to", min=SMALLEST, max=LARGEST, metavar="RATE", help="The last learning rate.")
    ] = HIGH,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Find a learning rate: train some steps at a rate that grows, on a copy, until the loss diverges.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    found = Project(folder).lr_find(set=assignments, steps=steps, low=low, high=high)
    return _show(found, rate_text(found), as_json)


@app.command(name="batch-size", epilog="Example: mltrainer batch-size --from 64")
def batch_size(
    assignments: Assignments = None,
    first: Annotated[int, typer.Option("--from", min=1, metavar="N", help="The first batch size.")] = FIRST_SIZE,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, metavar="MINUTES", help="Begin no size that would go beyond; default: the explorer's page."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Find a batch size: double it until memory, data or time ends, and measure throughput and memory.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    found = Project(folder).batch_size(set=assignments, first=first, minutes=minutes)
    return _show(found, size_text(found), as_json)


@app.command(epilog="Example: mltrainer profile --steps 50")
def profile(
    assignments: Assignments = None,
    steps: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="How many steps to time.")] = TIMED_STEPS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Show where a step's time goes: data, forward, backward, optimizer, other; with a trace for viewers.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    found = Project(folder).profile(set=assignments, steps=steps)
    return _show(found, profile_text(found), as_json)


def _show(found: dict[str, Any], text: str, as_json: bool) -> int:
    emit(found) if as_json else print(printable(text))
    return 0
