"""`mltrainer run` and `mltrainer phase run`."""

from __future__ import annotations

from pathlib import Path

import click

from mltrainer.cli.common import Progress, open_project, project_option
from mltrainer.cli.gates import PHASE, describe
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import derive, next_command
from mltrainer.runs.launcher import tools_of
from mltrainer.workspace import Project


@click.command(epilog="Example: mltrainer run --until diagnostics")
@click.option("--until", type=PHASE, default=None, help="Stop after this phase.")
@project_option
def run(until: str | None, folder: Path | None) -> int:
    """Walk the phases from wherever the project stands; stop where a person must decide."""
    from mltrainer.project.engine import walk

    project = open_project(folder)
    progress = Progress()
    try:
        gates = walk(tools_of(project, progress), until)
    finally:
        progress.close()
    for gate in gates:
        click.echo(_line(project, gate))
    if gates and not gates[-1].holds:
        click.echo(describe(gates[-1]))
    return _conclude(project, gates)


def _line(project: Project, gate: Gate) -> str:
    word = "skipped" if gate.skipped and gate.holds else "gate holds" if gate.holds else "gate does not hold"
    return f"{gate.phase}: {word}; {project.relative(project.phase_dir(gate.phase))}/"


def _conclude(project: Project, gates: list[Gate]) -> int:
    if gates and not gates[-1].holds:
        return 4
    command = next_command(derive(project))
    click.echo(
        f"next: {command}"
        if command
        else "all five gates hold: review phases/ and commit it; the model is in phases/05_finalization/final_model"
    )
    return 0


@click.group(epilog="Example: mltrainer phase run planning")
def phase() -> None:
    """Run one phase."""


@phase.command(name="run", epilog="Example: mltrainer phase run planning --set optimizer.lr=3e-4 --set model.hidden=[256,256]")
@click.argument("name", type=PHASE, metavar="PHASE")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change a config value by its dotted name.")
@project_option
def run_one(name: str, assignments: tuple[str, ...], folder: Path | None) -> int:
    """Run one phase: planning, baseline, diagnostics, optimization or finalization.

    It is refused while the gate before it does not hold. An interrupted phase goes on where it stopped.
    """
    from mltrainer.project.engine import run_phase

    project = open_project(folder)
    progress = Progress()
    try:
        gate = run_phase(tools_of(project, progress), name, assignments)
    finally:
        progress.close()
    click.echo(describe(gate))
    return _conclude(project, [gate])
