"""`mltrainer run` and `mltrainer phase run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, get_args

import typer

from mltrainer.cli.common import Assignments, Folder, Phase, Processes, Verbose, group, one_of
from mltrainer.cli.gates import describe
from mltrainer.cli.output import say
from mltrainer.configs.launching import EngineName
from mltrainer.follow.progress import Progress
from mltrainer.gates.gate import Gate
from mltrainer.project.front import Project
from mltrainer.workspace import PHASES, PhaseName, phase_folder

ENGINES: tuple[str, ...] = get_args(EngineName)
app = group()
phase = group("phase", help="Run one phase.", epilog="Example: mltrainer phase run planning")
app.add_typer(phase)


@app.command(epilog="Example: mltrainer run --until diagnostics")
def run(
    until: Annotated[
        PhaseName | None, typer.Option(parser=one_of(PHASES), metavar="PHASE", help="Stop after this phase.")
    ] = None,
    verbose: Verbose = False,
    folder: Folder = None,
) -> int:
    """Walk the phases from the first that is not done; stop where a person must decide.

    An interrupted phase goes on where it stopped; a phase whose gate holds is not run again.
    """
    project = Project(folder)
    with Progress(verbose) as progress:
        gates = project.run(until, tell=progress)
    for gate in gates:
        say(_line(gate))
    if gates and not gates[-1].holds:
        say(describe(gates[-1], verbose))
        return 4
    return _print_decision(project, until) or _conclude(project, gates)


def _print_decision(project: Project, until: str | None) -> int:
    """Print the decision that the workflow waits for and return 4; return 0 if there is none, or if it comes after `until`."""
    step = project.status().advice
    if step is None or not step.asks or (until is not None and PHASES.index(step.phase) > PHASES.index(until)):
        return 0
    say(f"stopped, because a person must decide\nnext: {step.why}")
    return 4


def _line(gate: Gate) -> str:
    word = "skipped" if gate.skipped and gate.holds else "gate holds" if gate.holds else "gate does not hold"
    return f"{gate.phase}: {word}; {phase_folder(gate.phase)}/"


def _conclude(project: Project, gates: Sequence[Gate]) -> int:
    if gates and not gates[-1].holds:
        return 4
    step = project.status().advice
    done = "all five gates hold: review phases/ and commit it; the model is in phases/05_finalization/final_model"
    say(f"next: {step.why}" if step else done)
    return 0


@phase.command(name="run", epilog="Example: mltrainer phase run planning --set optimizer.lr=3e-4 --set model.hidden=[256,256]")
def run_one(
    name: Phase,
    assignments: Assignments = None,
    template: Annotated[
        str | None,
        typer.Option(metavar="PATH-OR-NAME", help="Plan from this template, and keep to it, in place of the baseline's."),
    ] = None,
    processes: Processes = None,
    launch: Annotated[
        EngineName | None,
        typer.Option(
            parser=one_of(ENGINES),
            metavar="ENGINE",
            help="Train the trials of optimization here, or as jobs of a cluster: local, slurm, ray.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The number of trials of optimization that train at a time.")
    ] = None,
    verbose: Verbose = False,
    folder: Folder = None,
) -> int:
    """Run one phase: planning, baseline, diagnostics, optimization or finalization.

    It is refused while the gate before it does not hold. An interrupted phase goes on where it stopped. With --set the
    baseline's config changes too, which is planning's: planning then runs again first.
    """
    project = Project(folder)
    with Progress(verbose) as progress:
        gate = project.phase(
            name, set=assignments, template=template, processes=processes, launch=launch, workers=workers, tell=progress
        )
    say(describe(gate, verbose))
    return _conclude(project, [gate])
