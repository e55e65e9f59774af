"""What each batch size gave, as text for the terminal."""

from __future__ import annotations

from mltrainer.questions.batch_size.findings import FoundSize
from mltrainer.questions.texts import changed_files
from mltrainer.reports.terminal import table
from mltrainer.reports.values import megabytes, microseconds, number


def text(found: FoundSize) -> str:
    """Return a row per size, why it ended there, the suggestion with its reason, and what to type."""
    rows = [
        [number(r.batch_size), number(r.samples_per_s), microseconds(r.step_us), megabytes(r.peak_mb), _note(found, r.batch_size)]
        for r in found.sizes
    ]
    lines = [table(rows, ["batch size", "samples/s", "step", "peak memory", ""]).rstrip("\n"), f"ended: {found.stopped}"]
    if found.suggestion is None:
        return "\n".join([*lines, f"No suggestion: {found.reason}.", *changed_files(found)])
    lines.append(f"suggestion: {number(found.suggestion)}: {found.reason}.")
    for change in found.changes:
        lines += [f"  {change.why}:", f"    {change.command}"]
    lines.append("A batch size is part of what names a run: another one is another run, with other bits.")
    return "\n".join([*lines, *changed_files(found)])


def _note(found: FoundSize, size: int) -> str:
    words = {"suggested": found.suggestion, "largest that fits": found.largest, "now": found.present.batch_size}
    return ", ".join(word for word, other in words.items() if other == size)
