"""`mltrainer profile`: the times of a step's sections and operators."""

from __future__ import annotations

from typer import Option

from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.exploration import exploring
from mltrainer.companions.questions.findings import Explored, Findings, Value
from mltrainer.configs.loading import Changes
from mltrainer.reports.terminal import table
from mltrainer.reports.values import microseconds, number, share
from mltrainer.runs.launcher import Tools


class Section(Findings):
    """A section of a step: its median time in microseconds, and its share of all the time."""

    name: str
    us: Value
    share: Value


class Operator(Section):
    """An operator: its own time and its number of calls, per traced step."""

    calls: Value


class Profile(Findings):
    """Where a step's time goes.

    Attributes:
        steps: Number of timed steps.
        step_us: The median step, in microseconds.
        sections: The parts of a step.
        operators: The most expensive operators.
        traced_steps: Number of traced steps.
        host_waits: Number of the host's waits for the device, by the waiting function; None on a CPU.
    """

    steps: int
    step_us: Value
    sections: list[Section]
    operators: list[Operator]
    traced_steps: int
    host_waits: dict[str, int] | None


class FoundProfile(Profile, Explored):
    """A profile with the path of its trace."""

    trace: str


TRACE_FILE = "trace.json"
STEPS = 20  # unless asked otherwise


def profile(tools: Tools, *, set: Changes | None = None, steps: int = STEPS) -> FoundProfile:
    """Return the times of a step's sections, its most expensive operators, and the path of the trace; taken on a copy.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        steps: Number of timed steps.
    """
    with exploring(tools, "profile", set) as exploration:
        measured = exploration.ask(Profile, steps=steps)
        return exploration.kept(FoundProfile.of(measured, trace=tools.project.relative(exploration.folder / TRACE_FILE)))


def text(measured: FoundProfile) -> str:
    """Return a step's time by section, its most expensive operators, and the path of the trace."""
    sections = [[row.name, microseconds(row.us), share(row.share)] for row in measured.sections]
    operators = [[r.name, number(r.calls), microseconds(r.us), share(r.share)] for r in measured.operators]
    lines = [
        f"a step takes {microseconds(measured.step_us)} (median of {measured.steps} steps):",
        table(sections, ["section", "median", "share of all"]),
        f"operators by their own time, per step (traced, {measured.traced_steps} steps):",
        table(operators, ["operator", "calls", "time", "share of all"]).rstrip("\n"),
        *_waits(measured),
        f"trace: {measured.trace} (open it at https://ui.perfetto.dev or chrome://tracing)",
    ]
    return "\n".join(lines)


def _waits(measured: FoundProfile) -> list[str]:
    if measured.host_waits is None:
        return []
    waits = ", ".join(f"{name} {count} times" for name, count in sorted(measured.host_waits.items()))
    return [f"within these steps the host waited for the device: {waits or 'never'}"]


app = command(
    profile,
    text,
    name="profile",
    help="Show where a step's time goes: data, forward, backward, optimizer, other; with a trace for viewers.\n\n"
    "Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.",
    example="mltrainer profile --steps 50",
    steps=Option(min=1, max=100_000, metavar="N", help="Number of timed steps."),
)
