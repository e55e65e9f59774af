"""`mltrainer run` and `mltrainer phase run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, get_args

import typer

from mltrainer.cli.common import AsJson, Assignments, Folder, Phase, Processes, Verbose, group, one_of, open_project
from mltrainer.cli.gates import delivery, describe, following, state_row
from mltrainer.cli.output import emit, say
from mltrainer.configs.launching import EngineName
from mltrainer.follow.progress import Progress
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import Advice
from mltrainer.project.foreseen import Foreseen
from mltrainer.project.front import Project
from mltrainer.reports.terminal import table
from mltrainer.workspace import PHASES, PhaseName, phase_folder

ENGINES: tuple[str, ...] = get_args(EngineName)
DONE = "all five gates hold: review phases/ and commit it"
MOST_WARNINGS = 5
app = group()
phase = group("phase", help="Run one phase.", epilog="Example: mltrainer phase run planning")
app.add_typer(phase)


@app.command(epilog="Example: mltrainer run --until diagnostics")
def run(
    until: Annotated[
        PhaseName | None, typer.Option(parser=one_of(PHASES), metavar="PHASE", help="Stop after this phase.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run and write nothing; show which phases would run, and why.")
    ] = False,
    verbose: Verbose = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Walk the phases from the first that is not done; stop where a person must decide.

    An interrupted phase goes on where it stopped; a phase whose gate holds is not run again. With --dry-run the exit code is 0
    for every project whose mltrainer.yaml is valid.
    """
    project = Project(folder)
    if dry_run:
        return _show_foreseen(project, project.foresee(until), as_json)
    with Progress(verbose) as progress:
        gates = project.run(until, tell=progress)
    for gate in gates:
        say("\n".join([_line(gate), *warnings(gate)]))
    if gates and not gates[-1].holds:
        say(describe(gates[-1], verbose))
    return _conclude(project, gates, until, as_json)


def _show_foreseen(project: Project, found: Foreseen, as_json: bool) -> int:
    steps, stop = found.steps, found.stop
    if steps:
        say(table([[step.name, step.state, step.why] for step in steps], ["would run", "state", "why"]).rstrip("\n"))
    if stop is not None:
        say(f"would stop before {stop.phase}: {stop.why}")
    if not steps and stop is None:
        say(f"nothing would run; next: {found.advice.why}" if found.advice else f"nothing would run; {_done(project)}")
    if as_json:
        rows = [asdict(step) for step in steps]
        emit({"would_run": rows, "stop": asdict(stop) if stop else None, **following(found.advice)})
    return 0


def _line(gate: Gate) -> str:
    word = "skipped" if gate.skipped and gate.holds else "gate holds" if gate.holds else "gate does not hold"
    return f"{gate.phase}: {word}; {phase_folder(gate.phase)}/"


def warnings(gate: Gate) -> list[str]:
    """Return a line for each of planning's findings that are more than information; none for another phase."""
    data = getattr(gate.content.evidence, "data", None) if gate.content and gate.phase == PHASES[0] else None
    found = data.warnings if data else []
    more = [f"  and {len(found) - MOST_WARNINGS} more, in its report"] if len(found) > MOST_WARNINGS else []
    return [*(f"  warning: {text}" for text in found[:MOST_WARNINGS]), *more]


def _conclude(project: Project, gates: Sequence[Gate], until: str | None, as_json: bool) -> int:
    """Print what comes next, with `as_json` as an object, too; return the exit code.

    Args:
        project: The project.
        gates: The gates of the phases that ran.
        until: The phase after which no decision is asked for.
        as_json: Whether to print what ran as an object.
    """
    status = project.status()
    closed = bool(gates) and not gates[-1].holds
    waits = not closed and _waits(status.advice, until)
    if waits:
        say("stopped, because a person must decide")
    if not closed:
        say(f"next: {status.advice.why}" if status.advice else _done(project))
    code = 4 if closed or waits else 0
    if as_json:
        states, places = {state.name: state for state in status.phases}, open_project(project.folder)
        ran = [{**state_row(places, states[gate.phase]), **_judged(gate)} for gate in gates]
        emit({"exit_code": code, "waits": waits, **following(status.advice), "phases": ran})
    return code


def _done(project: Project) -> str:
    return f"{DONE}; {delivery(project.status().phases, project.folder)}"


def _waits(step: Advice | None, until: str | None) -> bool:
    """Return True if the workflow waits for a person's decision, and not only after the phase `until`."""
    return step is not None and step.asks and not step.is_after(until)


def _judged(gate: Gate) -> dict[str, Any]:
    return {"holds": gate.holds, "failed": [item.view() for item in gate.failing]}


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
    as_json: AsJson = False,
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
    say("\n".join([describe(gate, verbose), *warnings(gate)]))
    return _conclude(project, [gate], name, as_json)
