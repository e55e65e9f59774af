"""`mltrainer run` and `mltrainer phase run`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import Assignments, Folder, Phase, group, one_of, open_project
from mltrainer.cli.gates import describe
from mltrainer.follow.progress import Progress
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import derive, next_command
from mltrainer.runs.launcher import tools_of
from mltrainer.workspace import PHASES, PhaseName, Project

app = group()
phase = group("phase", help="Run one phase.", epilog="Example: mltrainer phase run planning")
app.add_typer(phase)


@app.command(epilog="Example: mltrainer run --until diagnostics")
def run(
    until: Annotated[
        PhaseName | None, typer.Option(parser=one_of(PHASES), metavar="PHASE", help="Stop after this phase.")
    ] = None,
    folder: Folder = None,
) -> int:
    """Walk the phases from wherever the project stands; stop where a person must decide.

    An interrupted phase goes on where it stopped; a phase whose gate holds is not run again.
    """
    from mltrainer.project.engine import walk

    project = open_project(folder)
    with Progress() as progress:
        gates = walk(tools_of(project, progress), until)
    for gate in gates:
        print(_line(project, gate))
    if gates and not gates[-1].holds:
        print(describe(gates[-1]))
    return _conclude(project, gates)


def _line(project: Project, gate: Gate) -> str:
    word = "skipped" if gate.skipped and gate.holds else "gate holds" if gate.holds else "gate does not hold"
    return f"{gate.phase}: {word}; {project.relative(project.phase_dir(gate.phase))}/"


def _conclude(project: Project, gates: list[Gate]) -> int:
    if gates and not gates[-1].holds:
        return 4
    command = next_command(derive(project))
    done = "all five gates hold: review phases/ and commit it; the model is in phases/05_finalization/final_model"
    print(f"next: {command}" if command else done)
    return 0


@phase.command(name="run", epilog="Example: mltrainer phase run planning --set optimizer.lr=3e-4 --set model.hidden=[256,256]")
def run_one(name: Phase, assignments: Assignments = None, folder: Folder = None) -> int:
    """Run one phase: planning, baseline, diagnostics, optimization or finalization.

    It is refused while the gate before it does not hold. An interrupted phase goes on where it stopped.
    """
    from mltrainer.project.engine import run_phase

    project = open_project(folder)
    with Progress() as progress:
        gate = run_phase(tools_of(project, progress), name, tuple(assignments or ()))
    print(describe(gate))
    return _conclude(project, [gate])
