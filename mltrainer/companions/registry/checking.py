"""What is checked before a version gets into a stage: its gates, computed again from its own records, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mltrainer import plugins
from mltrainer.companions.registry.changes import Added
from mltrainer.companions.registry.entries import FINAL, facts, final_record, require_delivered
from mltrainer.companions.registry.log import Registry
from mltrainer.companions.registry.policy import POLICY_FILE, Asked
from mltrainer.errors import GateError, InputError
from mltrainer.gates.gate import Gate, check_gates, closed
from mltrainer.gates.verdicts import read_verdict
from mltrainer.leftovers import scratch
from mltrainer.looking import looking_here
from mltrainer.records.reading import read_record
from mltrainer.reports.values import counted
from mltrainer.reproducibility.git import tracks
from mltrainer.workspace import Project, plain, write_text


def checked(registry: Registry, added: Added, asked: Asked) -> list[str]:
    """Return the checks that a version passed, in sentences; every file of it is read and compared.

    Args:
        registry: The registry that holds its files.
        added: The version.
        asked: What the stage asks for, beside gates that hold.

    Raises:
        InputError: A file is missing or damaged in the registry.
        GateError: A gate does not hold, a model's file is not the delivered one, or what the stage asks for is missing.
    """
    with scratch("registry-") as folder:
        project = Project(folder / "version")
        registry.fetch(added.files, project.root)
        return [
            *_gates(project, added),
            *(_verdict(project) if asked.verdict else ()),
            *_signed(registry, project, asked, folder / "keys"),
        ]


def gates_within_limits(project: Project) -> list[Gate]:
    """Return a project's gates as a command that only looks computes them: a stranger's records may name any file of any size."""
    with looking_here(tracks, str(project.root.resolve())):
        return check_gates(project)


def _gates(project: Project, added: Added) -> Iterator[str]:
    gates = gates_within_limits(project)
    for gate in gates:
        if not gate.holds:
            raise closed(gate, "not promoted", f"in the project: mltrainer gate check {gate.phase}, then add it again")
    require_delivered(final_record(project).evidence, added.digests)
    wrong = [name for name, value in facts(project, added.files).items() if plain(getattr(added, name)) != plain(value)]
    if wrong:
        message = f"not promoted: the log's {wrong[0]} of version {added.version} is not that of its records"
        raise GateError(message, hint="promote another version, or add the model again from its project")
    yield f"{counted(len(gates), 'gate')} computed again from the version's own records: all hold{_aside(gates)}"


def _aside(gates: list[Gate]) -> str:
    """Return in brackets the items that were waived, those that only the project's own checks judge, and changes of pages."""
    items = [item for gate in gates for item in gate.items]
    counts = {
        "waived": sum(item.verdict == "waived" for item in items),
        "by the project's own checks, not computed again": sum(not item.recomputed for item in items),
        "changed in the checklists": sum(len(gate.content.policy_changes) for gate in gates if gate.content),
    }
    listed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f" ({listed})" if listed else ""


def _verdict(project: Project) -> Iterator[str]:
    record = read_record(project, FINAL)
    verdict, faults = read_verdict(project, FINAL, record) if record is not None else (None, [])
    if verdict is None:
        found = faults[0] if faults else "it has none"
        message = f"not promoted: the stage asks for a referee's verdict on this record, and {found}"
        raise GateError(message, hint="mltrainer referee; then mltrainer verdict FILE in the project, and add it again")
    if not verdict.holds:
        wrong = [row.what for row in verdict.checked if row.outcome == "no"]
        message = f"not promoted: by the referee's verdict {wrong[0]} does not hold ({len(wrong)} in all)"
        raise GateError(message, hint="correct the project, ask for a new verdict (mltrainer referee), and add it again")
    yield f"the referee's verdict of {verdict.made} holds ({counted(len(verdict.checked), 'value')} compared)"


def _signed(registry: Registry, project: Project, asked: Asked, folder: Path) -> Iterator[str]:
    if not asked.keys:
        return
    for nr, key in enumerate(asked.keys):
        write_text(folder / f"{nr}.pub", key)
    try:
        faults = plugins.part("gate check --trust", "signatures")(project, folder)
    except InputError as error:
        place = Path(error.where or "")
        if folder not in (place, place.parent):
            raise
        key = "keys" if place == folder else f"keys.{place.stem}"
        raise InputError(error.message, where=f"{registry.address}/{POLICY_FILE}, {key}", hint=error.hint) from error
    if faults:
        message = f"not promoted: the stage asks for signatures: {faults[0]}"
        raise GateError(message, hint="mltrainer sign in the project, with a key that the stage trusts, and add it again")
    yield "signed by a key that the stage trusts"
