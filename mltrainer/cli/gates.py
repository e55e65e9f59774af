"""`mltrainer status` and `mltrainer gate`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from mltrainer.cli import completion
from mltrainer.cli.common import AnyPhase, AsJson, Folder, Phase, group, open_project
from mltrainer.cli.output import emit
from mltrainer.errors import InputError
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import Advice, PhaseState, advice, asked, derive
from mltrainer.records.reading import run_of
from mltrainer.reports.terminal import table
from mltrainer.workspace import Project

DIGEST = re.compile("[0-9a-f]{64}")
app = group()
gate = group("gate", help="Check gates, or waive an item with a reason.", epilog="Example: mltrainer gate check")
app.add_typer(gate)


@app.command(epilog="Example: mltrainer status --json")
def status(folder: Folder = None, as_json: AsJson = False) -> int:
    """Show each phase, its gate, what is stale and why, and what comes next.

    Exit 1 when mltrainer.yaml is not valid; the phases are shown all the same.
    """
    project = open_project(folder)
    states, fault = derive(project), _fault_of(project)
    if as_json:
        rows = [_state_row(project, state) for state in states]
        emit({"project": project.root.name, **_following(advice(states), fault), "phases": rows})
    else:
        print(table([[s.name, s.state, _first(s.reasons)] for s in states], ["phase", "state", ""]))
    if fault is not None:
        raise fault
    if not as_json:
        print(f"next: {_words(advice(states))}")
    return 0


def _following(found: Advice | None, fault: InputError | None) -> dict[str, str | None]:
    """Return what comes next: a command, its phase, and why; no command where a person has something else to do first."""
    if fault is not None:
        return {"next": None, "next_phase": None, "next_why": str(fault)}
    if found is None:
        return {"next": None, "next_phase": None, "next_why": None}
    return {"next": found.command, "next_phase": found.phase, "next_why": found.explained}


def _words(found: Advice | None) -> str:
    return found.why if found else "nothing: the model in phases/05_finalization/final_model is ready"


def _fault_of(project: Project) -> InputError | None:
    """Return what is wrong with the project's file, which no phase could run with; None where nothing is."""
    from mltrainer.configs.project import load_project

    try:
        load_project(project.file)
    except InputError as error:
        return error
    return None


def _first(reasons: tuple[str, ...]) -> str:
    more = f" (+{len(reasons) - 1} more: mltrainer gate check)" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}" if reasons else ""


def _state_row(project: Project, state: PhaseState) -> dict[str, Any]:
    return {
        "name": state.name,
        "state": state.state,
        "reasons": list(state.reasons),
        "run": run_of(state.gate.record) if state.gate.record else None,
        "artifacts": artifact_rows(project, state.name),
    }


def artifact_rows(project: Project, phase: str) -> list[dict[str, str]]:
    """Return the files of a phase's folder, and of those in it, with their digests; hidden ones are none of its artifacts."""
    from mltrainer.workspace import sha256_file

    folder = project.phase_dir(phase)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path.relative_to(folder)))
    return [{"path": project.relative(path), "sha256": sha256_file(path)} for path in files]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


@gate.command(epilog="Example: mltrainer gate check baseline --json")
def check(
    phase: AnyPhase = None,
    files: Annotated[bool, typer.Option("--files", help="Demand data and checkpoints, and hash them whole.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Recompute gates from the committed records.

    Without PHASE every phase that has run must hold, and planning must have run. Exit 4 when one does not hold.
    """
    project = open_project(folder)
    states = derive(project, demand_files=files)
    shown = asked(states, phase)
    holds = bool(shown) and all(s.gate.holds for s in shown)
    if as_json:
        emit({"holds": holds, "phases": [gate_json(s.gate) for s in shown]})
    else:
        for state in shown:
            print(describe(state.gate))
        print("all gates hold" if holds else f"next: {_words(advice(states))}")
    return 0 if holds else 4


def gate_json(found: Gate) -> dict[str, Any]:
    """Return a gate as `gate check --json` shows it."""
    return {
        "name": found.phase,
        "holds": found.holds,
        "items": [item.view() for item in found.items],
        "stale": list(found.stale),
        "notes": list(found.notes),
    }


def describe(found: Gate) -> str:
    """Return a gate as a table for the terminal, with what is stale and how to mend it."""
    word = "holds" if found.holds else "stale" if found.stale else "does not hold" if found.record else "not run"
    lines = [f"{found.phase}: {word}"]
    if found.items:
        rows = [[i.verdict, i.id, ", ".join(f"{k}={_value(v)}" for k, v in i.evidence.items())[:110]] for i in found.items]
        lines.append(table(rows, ["verdict", "item", "evidence"]).rstrip("\n"))
    lines += [f"  stale: {reason}" for reason in found.stale]
    lines += [f"  {i.id} fails: {i.statement}; next: {i.mend}" for i in found.failing]
    lines += (
        [f"  note: {found.notes[0]}" + (f" (and {len(found.notes) - 1} more)" if len(found.notes) > 1 else "")]
        if found.notes
        else []
    )
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return value[:12] if isinstance(value, str) and DIGEST.fullmatch(value) else str(value)


@gate.command(epilog='Example: mltrainer gate waive baseline within_time_budget --reason "shared machine was busy"')
def waive(
    phase: Phase,
    item: Annotated[
        str, typer.Argument(metavar="ITEM", autocompletion=completion.gate_items, help="The item, as `gate check` names it.")
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why the item may pass; written into the report.")],
    folder: Folder = None,
) -> int:
    """Waive a failing item that the handbook allows to be waived.

    Your git identity and the reason are recorded, and shown in the phase's report.
    """
    from mltrainer.project import engine
    from mltrainer.reproducibility.repository import identity

    project = open_project(folder)
    found = engine.waive(project, phase, item, reason, identity(project.root))
    print(f"waived {item} of {phase}; the report shows it. The gate {'holds' if found.holds else 'does not hold yet'}.")
    return 0 if found.holds else 4
