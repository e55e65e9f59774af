"""`mltrainer lr-find`, `mltrainer batch-size` and `mltrainer profile`: no run, no gate and no file of the project changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, group, open_project
from mltrainer.cli.output import emit, printable
from mltrainer.follow.progress import Progress
from mltrainer.runs.launcher import Tools, tools_of
from mltrainer.workspace import Project

SMALLEST, LARGEST = 1e-30, 1e6  # learning rates; of smaller ones the ratio is no finite number

app = group()


@app.command(name="lr-find", epilog="Example: mltrainer lr-find --set optimizer.name=sgd")
def lr_find(
    assignments: Assignments = None,
    steps: Annotated[int, typer.Option(min=10, metavar="N", help="How many; many more suggest less.")] = 100,
    low: Annotated[
        float, typer.Option("--from", min=SMALLEST, max=LARGEST, metavar="RATE", help="The first learning rate.")
    ] = 1e-7,
    high: Annotated[
        float, typer.Option("--to", min=SMALLEST, max=LARGEST, metavar="RATE", help="The last learning rate.")
    ] = 10.0,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Find a learning rate: train some steps at a rate that grows, on a copy, until the loss diverges.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    from mltrainer.project.exploring import find_rate
    from mltrainer.reports.exploring import rate_text

    project, changes = open_project(folder), tuple(assignments or ())
    return _show(project, lambda tools: find_rate(tools, changes, steps, low, high), rate_text, as_json)


@app.command(name="batch-size", epilog="Example: mltrainer batch-size --from 64")
def batch_size(
    assignments: Assignments = None,
    first: Annotated[int, typer.Option("--from", min=1, metavar="N", help="The first batch size.")] = 8,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Find a batch size: double it until memory or data ends, and measure throughput and memory.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    from mltrainer.project.exploring import find_batch_size
    from mltrainer.reports.exploring import size_text

    project, changes = open_project(folder), tuple(assignments or ())
    return _show(project, lambda tools: find_batch_size(tools, changes, first), size_text, as_json)


@app.command(epilog="Example: mltrainer profile --steps 50")
def profile(
    assignments: Assignments = None,
    steps: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="How many steps to time.")] = 20,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Show where a step's time goes: data, forward, backward, optimizer, other; with a trace for viewers.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    from mltrainer.project.exploring import profile as profile_project
    from mltrainer.reports.exploring import profile_text

    project, changes = open_project(folder), tuple(assignments or ())
    return _show(project, lambda tools: profile_project(tools, changes, steps), profile_text, as_json)


def _show(
    project: Project, explore: Callable[[Tools], dict[str, Any]], text: Callable[[dict[str, Any]], str], as_json: bool
) -> int:
    with Progress() as progress:
        found = explore(tools_of(project, progress))
    emit(found) if as_json else print(printable(text(found)))
    return 0
