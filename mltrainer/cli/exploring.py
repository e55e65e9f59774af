"""`mltrainer lr-find`, `mltrainer batch-size` and `mltrainer profile`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mltrainer.cli.common import Progress, json_option, open_project, project_option
from mltrainer.cli.main import emit, printable
from mltrainer.runs.launcher import Tools, tools_of
from mltrainer.workspace import Project

set_option = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change a config value, for this only."
)
POSITIVE = click.FloatRange(min=1e-30, max=1e6)  # of smaller ones the ratio is no finite number


@click.command(name="lr-find", epilog="Example: mltrainer lr-find --set optimizer.name=sgd")
@set_option
@click.option("--steps", type=click.IntRange(min=10), default=100, show_default=True, help="How many; many more suggest less.")
@click.option("--from", "low", type=POSITIVE, default=1e-7, show_default=True, help="The first learning rate.")
@click.option("--to", "high", type=POSITIVE, default=10.0, show_default=True, help="The last learning rate.")
@project_option
@json_option
def lr_find(assignments: tuple[str, ...], steps: int, low: float, high: float, folder: Path | None, as_json: bool) -> int:
    """Find a learning rate: train some steps at a rate that grows, on a copy, until the loss diverges.

    Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.
    """
    from mltrainer.project.exploring import find_rate
    from mltrainer.reports.exploring import rate_text

    project = open_project(folder)
    return _show(project, lambda tools: find_rate(tools, assignments, steps, low, high), rate_text, as_json)


@click.command(name="batch-size", epilog="Example: mltrainer batch-size --from 64")
@set_option
@click.option("--from", "first", type=click.IntRange(min=1), default=8, show_default=True, help="The first batch size.")
@project_option
@json_option
def batch_size(assignments: tuple[str, ...], first: int, folder: Path | None, as_json: bool) -> int:
    """Find a batch size: double it until memory or data ends, and measure throughput and memory."""
    from mltrainer.project.exploring import find_batch_size
    from mltrainer.reports.exploring import size_text

    project = open_project(folder)
    return _show(project, lambda tools: find_batch_size(tools, assignments, first), size_text, as_json)


@click.command(epilog="Example: mltrainer profile --steps 50")
@set_option
@click.option("--steps", type=click.IntRange(min=1, max=100_000), default=20, show_default=True, help="How many steps to time.")
@project_option
@json_option
def profile(assignments: tuple[str, ...], steps: int, folder: Path | None, as_json: bool) -> int:
    """Show where a step's time goes: data, forward, backward, optimizer, other; with a trace for viewers."""
    from mltrainer.project.exploring import profile as profile_project
    from mltrainer.reports.exploring import profile_text

    project = open_project(folder)
    return _show(project, lambda tools: profile_project(tools, assignments, steps), profile_text, as_json)


def _show(
    project: Project, explore: Callable[[Tools], dict[str, Any]], text: Callable[[dict[str, Any]], str], as_json: bool
) -> int:
    progress = Progress()
    try:
        found = explore(tools_of(project, progress))
    finally:
        progress.close()
    emit(found) if as_json else click.echo(printable(text(found)))
    return 0
