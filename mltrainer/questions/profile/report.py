"""Where a step's time goes, as text for the terminal."""

from __future__ import annotations

from mltrainer.questions.profile.findings import FoundProfile
from mltrainer.questions.texts import changed_files
from mltrainer.reports.terminal import table
from mltrainer.reports.values import microseconds, number, share


def text(found: FoundProfile) -> str:
    """Return a step's time by section, its most expensive operators, and the path of the trace."""
    sections = [[row.name, microseconds(row.us), share(row.share)] for row in found.sections]
    operators = [[r.name, number(r.calls), microseconds(r.us), share(r.share)] for r in found.operators]
    lines = [
        f"a step takes {microseconds(found.step_us)} (median of {found.steps} steps):",
        table(sections, ["section", "median", "share of all"]),
        f"operators by their own time, per step (traced, {found.traced_steps} steps):",
        table(operators, ["operator", "calls", "time", "share of all"]).rstrip("\n"),
        *_waits(found),
        f"trace: {found.trace} (open it at https://ui.perfetto.dev or chrome://tracing)",
    ]
    return "\n".join([*lines, *changed_files(found)])


def _waits(found: FoundProfile) -> list[str]:
    if found.host_waits is None:
        return []
    told = ", ".join(f"{name} {count} times" for name, count in sorted(found.host_waits.items()))
    return [f"within these steps the host waited for the device: {told or 'never'}"]
