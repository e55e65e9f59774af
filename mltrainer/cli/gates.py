"""`mltrainer status` and `mltrainer gate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mltrainer.cli import completion
from mltrainer.cli.common import AnyPhase, AsJson, Folder, Phase, Verbose, group, open_project, path_name
from mltrainer.cli.output import emit, output, say
from mltrainer.cli.projects import TakesProjects, check_projects
from mltrainer.errors import InputError, MachineError
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import Advice, PhaseState, advice, asked, derive
from mltrainer.gates.projects import other_faults
from mltrainer.records.reading import run_of
from mltrainer.reports.gate_items import verdict_counts
from mltrainer.reports.terminal import table
from mltrainer.workspace import Project

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
        rows = [state_row(project, state) for state in states]
        emit({"project": project.root.name, **following(advice(states), fault), "phases": rows})
    else:
        say(table([[s.name, s.state, _first(s.reasons)] for s in states], ["phase", "state", ""]))
    if fault is not None:
        raise fault
    if not as_json:
        step = advice(states)
        say(f"next: {step.why if step else f'nothing: {delivery(states, project.root)}'}")
    return 0


def following(step: Advice | None, fault: InputError | None = None) -> dict[str, str | None]:
    """Return the next command, its phase and the reason; no command if a person must first do something else."""
    if fault is not None:
        return {"next": None, "next_phase": None, "next_why": str(fault)}
    if step is None:
        return {"next": None, "next_phase": None, "next_why": None}
    return {"next": step.command, "next_phase": step.phase, "next_why": step.explained}


def delivery(states: Sequence[PhaseState], root: Path) -> str:
    """Return the place of the delivered model in words; of a clone, the sentence that its files are not here.

    Args:
        states: The states of all phases, which are done.
        root: The project's folder.
    """
    content = states[-1].gate.content
    rows = content.evidence.model_files if content else []
    missing = [row.path for row in rows if not (root / row.path).exists()]
    place = "phases/05_finalization/final_model"
    if not missing:
        return f"the model is in {place}"
    return f"the model's files are not all here, as in a clone: bring {missing[0]} and the others from where it was trained"


def _fault_of(project: Project) -> InputError | None:
    """Return the error in the project's file that stops all phases; None for a valid file."""
    from mltrainer.configs.project import load_project

    try:
        load_project(project.file)
    except InputError as error:
        return error
    return None


def _first(reasons: tuple[str, ...]) -> str:
    more = f" (+{len(reasons) - 1} more: mltrainer gate check -v)" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}" if reasons else ""


def state_row(project: Project, state: PhaseState) -> dict[str, Any]:
    """Return a phase as `status --json` shows it: its state and why, its run, and the files of its folder."""
    return {
        "name": state.name,
        "state": state.state,
        "reasons": list(state.reasons),
        "run": run_of(state.gate.record) if state.gate.record else None,
        "artifacts": artifact_rows(project, state.name),
    }


def artifact_rows(project: Project, phase: str) -> list[dict[str, str]]:
    """Return the files of a phase's folder, also in its subfolders, with their digests, without hidden files."""
    from mltrainer.workspace import sha256_file

    folder = project.phase_dir(phase)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path.relative_to(folder)))
    return [{"path": project.relative(path), "sha256": sha256_file(path)} for path in files]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


@gate.command(cls=TakesProjects, epilog="Example: mltrainer gate check baseline --json")
def check(
    phase: AnyPhase = None,
    files: Annotated[bool, typer.Option("--files", help="Demand data and checkpoints, and hash them whole.")] = False,
    custom_checks: Annotated[
        bool, typer.Option("--custom-checks", help="Run the project's own checks again, closed off, and compare.")
    ] = False,
    trust: Annotated[
        Path | None,
        typer.Option("--trust", metavar="KEYS", parser=path_name, help="Demand signatures by one of these public keys."),
    ] = None,
    folder: Folder = None,
    projects: Annotated[
        list[Path] | None,
        typer.Option("--projects", metavar="DIR...", parser=path_name, help="Check these projects, a line for each."),
    ] = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> int:
    """Recompute gates from the committed records.

    Without PHASE every phase that has run must hold, and planning must have run, and every number in a text of yours that
    `mltrainer cite` filled must be the record's. Exit 4 when one does not hold. One line tells
    each gate, and whatever does not hold; -v shows every item with its evidence.

    Nothing of the project is run or imported. The verdicts of checks of the project's own (`check:` on its page) are those that
    they gave when the phase ran: shown as not recomputed, counted in the last line, and only as good as whoever made the record.

    With --custom-checks they run again, in a process that sees no environment, no other process, no network, and no files but the
    project's and the interpreter's, read-only. Where the system has no such processes you are asked; without a terminal: exit 7.

    With --trust, a file or a folder of public keys, it refuses what is unsigned, signed by others, or not what was signed with
    `mltrainer sign`. Keys in the project's repository are refused: whoever wrote the project could have put them there. With
    --files it hashes the model's files again, too.

    With --projects, which takes all folders behind it, each project is checked as by itself, in one process. One that cannot be
    checked is a line with its reason. The exit code is the worst of all: 4 where a gate does not hold, and another one where a
    project could not be checked.
    """
    if projects:
        return _check_many(projects, phase, files, folder, custom_checks, trust, as_json)
    project = open_project(folder)
    states = derive(project, demand_files=files)
    gates = [state.gate for state in asked(states, phase)]
    if custom_checks:
        gates = _rerun(project, gates)
    faults = other_faults(project, trust)
    gates_hold = all(gate.holds for gate in gates)  # never of none: planning is always asked for
    holds = gates_hold and not faults
    if as_json:
        emit({"holds": holds, "phases": [gate_json(gate) for gate in gates], **faults})
        return 0 if holds else 4
    for gate in gates:
        say(describe(gate, verbose))
    for fault in (fault for lines in faults.values() for fault in lines):
        say(fault)
    if holds or not gates_hold:
        say(f"all gates hold{', signed by a trusted key' if trust else ''}" if holds else f"next: {_next(gates, states)}")
    if custom := not_recomputed(gates):
        say(custom)
    return 0 if holds else 4


def _check_many(
    projects: Sequence[Path],
    phase: str | None,
    files: bool,
    folder: Path | None,
    custom_checks: bool,
    trust: Path | None,
    as_json: bool,
) -> int:
    if folder is not None or custom_checks:
        other = "--project" if folder is not None else "--custom-checks"
        raise typer.BadParameter(f"{other} is about one project: leave it out.", param_hint="--projects")
    return check_projects(projects, phase, files, trust, as_json)


def _next(gates: Sequence[Gate], states: Sequence[PhaseState]) -> str:
    """Return the next step in words; if only a check that ran again disagrees, its item's hint."""
    step, is_open = advice(states), any(not state.done for state in states if state.gate.is_there)
    hints = [] if is_open else [item.mend for gate in gates for item in gate.failing if item.mend]
    return hints[0] if hints else step.why if step else "mltrainer gate check -v"


def not_recomputed(gates: Sequence[Gate]) -> str:
    """Return a sentence with the number of verdicts by custom checks; an empty text for none."""
    count = sum(len(gate.not_recomputed) for gate in gates)
    if not count:
        return ""
    verdicts = "1 verdict is" if count == 1 else f"{count} verdicts are"
    return f"{verdicts} by the project's own checks, not recomputed here: mltrainer gate check --custom-checks"


def _rerun(project: Project, gates: Sequence[Gate]) -> list[Gate]:
    """Return the gates with the project's own checks run again, as a person may have to allow.

    Raises:
        MachineError: No process can be closed off here, and nobody said to run them all the same.
    """
    from mltrainer.gates.rerun import with_custom_checks  # here, because only this option runs anything

    names = [f"{gate.phase}: {item.id}" for gate in gates for item in gate.not_recomputed]
    return with_custom_checks(project, gates, _isolated(names)) if names else list(gates)


def _isolated(names: Sequence[str]) -> bool:
    """Return True if checks run closed off; False if a person at the terminal lets them run without."""
    from mltrainer.executors.sandbox import unavailable

    reason = unavailable()
    if reason is None:
        return True
    fault = f"{', '.join(names)}: checks of the project's own cannot be closed off here ({reason})"
    if sys.stdin.isatty() and not output.is_quiet:
        print(f"{fault}.\nRun as you, they can read your files and use the network. Look at their code first.", file=sys.stderr)
        if typer.confirm("Run them?", err=True):
            return False
    hint = "use Linux with user namespaces, or a container that allows them; or trust the recorded verdicts: mltrainer gate check"
    raise MachineError(fault, hint=hint)


def gate_json(gate: Gate) -> dict[str, Any]:
    """Return a gate as `gate check --json` shows it."""
    return {
        "name": gate.phase,
        "holds": gate.holds,
        "items": [item.view() for item in gate.items],
        "stale": list(gate.stale),
        "notes": list(gate.notes),
    }


def describe(gate: Gate, verbose: bool = False) -> str:
    """Return a gate for the terminal: a line for it, and for each item that does not hold.

    Args:
        gate: The gate.
        verbose: Show every item with its evidence, too.
    """
    lines = [_verdict(gate) if verbose or not gate.stale else f"{gate.phase}: stale: {_first(gate.stale)}"]
    if verbose and gate.items:
        lines.append(table([[i.verdict, i.id, i.measured] for i in gate.items], ["verdict", "item", "evidence"]).rstrip("\n"))
    lines += [f"  stale: {reason}" for reason in gate.stale if verbose]
    lines += [f"  {item.id} is waived: {item.statement}" for item in gate.items if item.verdict == "waived"]
    unmeasured = [item.id for item in gate.failing if item.is_unmeasured]
    for item in gate.failing:
        if item.id in unmeasured:
            continue
        lines += [f"  {item.id} fails: {item.statement}", f"    measured: {item.measured or 'nothing'}"]
        lines += [f"    next: {item.mend}"] if item.mend else []
    lines += [f"  not measured, as {gate.phase} stopped before: {', '.join(unmeasured)}"] if unmeasured else []
    more = f" (and {len(gate.notes) - 1} more)" if len(gate.notes) > 1 else ""
    lines += [f"  note: {gate.notes[0]}{more}"] if gate.notes else []
    return "\n".join(lines)


def _verdict(gate: Gate) -> str:
    if gate.holds and gate.skipped:
        rules = [str(item.evidence["rule"]) for item in gate.items if "rule" in item.evidence]
        return f"{gate.phase}: skipped, {rules[0]}" if rules else f"{gate.phase}: skipped"
    word = "holds" if gate.holds else "stale" if gate.stale else "does not hold" if gate.record else "not run"
    return f"{gate.phase}: {word}" + (f" ({verdict_counts(gate.items)})" if gate.items else "")


@gate.command(epilog='Example: mltrainer gate waive baseline within_time_budget --reason "shared machine was busy"')
def waive(
    phase: Phase,
    item: Annotated[
        str, typer.Argument(metavar="ITEM", autocompletion=completion.gate_items, help="The item, as `gate check` names it.")
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why the item may pass; written into the report.")],
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Waive a failing item that the handbook allows to be waived.

    Your git identity and the reason are recorded, and shown in the phase's report.
    """
    from mltrainer.project import engine
    from mltrainer.reproducibility.repository import identity

    project = open_project(folder)
    recomputed = engine.waive(project, phase, item, reason, identity(project.root))
    say(f"waived {item} of {phase}; the report shows it. The gate {'holds' if recomputed.holds else 'does not hold yet'}.")
    if as_json:
        emit({"waived": item, **gate_json(recomputed)})
    return 0 if recomputed.holds else 4
