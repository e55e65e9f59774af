"""The gates of many projects, each project in a few words: whether all hold, and the first that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mltrainer import plugins
from mltrainer.errors import GateError, InputError, MltrainerError
from mltrainer.gates.gate import Gate, why_closed
from mltrainer.gates.machine import asked, derive
from mltrainer.redaction import redact
from mltrainer.workspace import PROJECT_FILE, Project, find_project

# Exit codes from the best to the worst: that no gate could be looked at says less than that one does not hold.
BY_WORTH = (0, GateError.exit_code, InputError.exit_code, 7, 3)


@dataclass(frozen=True)
class Checked:
    """A project's gates in short.

    Attributes:
        folder: The project's, as it was named.
        holding: The phases whose gates hold, in order.
        closed: The first phase whose gate does not hold, or a kind of `other_faults`; None where all hold, or none was checked.
        why: Why that gate does not hold, or why the project could not be checked; None where all hold.
        not_recomputed: Number of verdicts by checks of the project's own, which are read from its records.
        exit_code: The exit code of `mltrainer gate check` of this project alone.
    """

    folder: Path
    holding: tuple[str, ...] = ()
    closed: str | None = None
    why: str | None = None
    not_recomputed: int = 0
    exit_code: int = 0

    @property
    def holds(self) -> bool:
        """Whether every gate holds that was asked for."""
        return self.exit_code == 0


def check_project(
    folder: Path,
    phase: str | None,
    demand_files: bool,
    report: Callable[[Exception], MltrainerError],
    trust: Path | None = None,
) -> Checked:
    """Return a project's gates in short; a project that cannot be checked gets a reason, and raises nothing.

    Args:
        folder: The project's own folder: none above it is looked at.
        phase: The one whose gate is asked for; None for planning and all that have run.
        demand_files: Data and checkpoints must be here, and are hashed again whole.
        report: The function that turns any exception into the error to report.
        trust: The public keys by one of which all must be signed; None: signatures are not looked at.
    """
    try:
        return _in_short(folder, _gates(folder, phase, demand_files), other_faults(Project(folder), trust))
    except Exception as error:  # whatever is wrong with one project says nothing of the others
        reported = report(error)
        return Checked(folder, why=redact(_in_a_line(reported)), exit_code=reported.exit_code)


def _in_a_line(error: MltrainerError) -> str:
    return f"{error.placed_message}; next: {error.hint}" if error.hint else error.placed_message


def worst(checked: Iterable[Checked]) -> int:
    """Return the exit code of the worst of some projects."""
    return max((one.exit_code for one in checked), key=_badness, default=0)


def _badness(code: int) -> int:
    return BY_WORTH.index(code) if code in BY_WORTH else len(BY_WORTH)


def _gates(folder: Path, phase: str | None, demand_files: bool) -> list[Gate]:
    if not (folder / PROJECT_FILE).is_file():
        raise InputError(f"no {PROJECT_FILE} in it", hint="name folders that contain one")
    states = derive(find_project(folder), demand_files=demand_files)
    return [state.gate for state in asked(states, phase)]


def other_faults(project: Project, trust: Path | None = None) -> dict[str, list[str]]:
    """Return, by the companion's part that looks, a line for each fault beside the gates, as in the user's own text.

    Args:
        project: The project.
        trust: The public keys by one of which all must be signed; None: signatures are not looked at.
    """
    found = {name: plugins.part("gate check", name)(project) for name in plugins.parts("gate check")}
    if trust is not None:
        found["signatures"] = plugins.part("gate check --trust", "signatures")(project, trust)
    return {name: lines for name, lines in found.items() if lines}


def _in_short(folder: Path, gates: Sequence[Gate], others: Mapping[str, Sequence[str]]) -> Checked:
    holding = tuple(gate.phase for gate in gates if gate.holds)
    custom = sum(len(gate.not_recomputed) for gate in gates)
    closed = next((gate for gate in gates if not gate.holds), None)
    if closed is None and not others:
        return Checked(folder, holding, not_recomputed=custom)
    if closed is None:
        name, lines = next(iter(others.items()))
        return Checked(folder, holding, name, lines[0], custom, GateError.exit_code)
    return Checked(folder, holding, closed.phase, why_closed(closed), custom, GateError.exit_code)
