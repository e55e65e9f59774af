"""What changes of a config did against the findings of a run, as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from mltrainer.questions.ablation.report import swap_text
from mltrainer.questions.remediation.findings import Applied, Candidate, Training, Trial
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, duration, number


def text(found: Trial) -> str:
    """Return the table of a trial as a person reads it at the keyboard, the best first, and what to type next."""
    if not found.fired:
        said = f"run {found.run}: no diagnostic fired that a change of the config could cure; nothing was trained"
        return "\n".join([said, *_left_out(found)])
    if found.unchanged is None:
        said = f"run {found.run}: {_ids(found.fired)} fired, but no change of its config can be tried; nothing was trained"
        return "\n".join([said, *_left_out(found)])
    metric, before = found.metric, found.unchanged
    rows = [_cells(row) for row in found.rows]
    heads = ["change", "fires with it", metric.name, "fit", "time", "verdict"]
    unchanged = ["the unchanged config", _ids(before.fired), _value(before), before.fit, duration(before.wall_s), ""]
    better = "larger" if metric.mode == "max" else "smaller"
    how = f"each change on the same seed for {counted(found.epochs, 'epoch')}, measured on validation; {better} is better"
    return "\n".join(
        [
            f"run {found.run}: {_ids(found.fired)} fired; {how}",
            "",
            table([unchanged, *rows], heads).rstrip("\n"),
            "",
            *(f"{row.candidate}: {row.why}; {swap_text(row.keys)}" for row in found.rows),
            *_left_out(found),
            *_unseen(found),
            *_untold(found),
            *_best(found),
        ]
    )


def _cells(row: Candidate) -> list[str]:
    said = f"{row.verdict}: {row.because}"
    return [row.candidate, _ids(row.fired), _value(row), row.fit, duration(row.wall_s), said]


def _ids(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _value(side: Training) -> str:
    return number(side.value) if side.reason is None else f"failed: {side.reason}"


def _left_out(found: Trial) -> list[str]:
    return [f"not judged: {one.name}: {one.reason}" for one in found.left_out]


def _unseen(found: Trial) -> list[str]:
    """Return a line for the findings that the unchanged config does not reproduce, whose cure this trial cannot show."""
    unseen = [name for name in found.fired if name not in found.symptoms]
    return [f"not shown by the unchanged config in this trial, so not judged: {_ids(unseen)}"] if unseen else []


def _untold(found: Trial) -> list[str]:
    """Return a line on metrics that are not told apart: with one seed only the number of validation rows bounds chance."""
    if not any("not told apart" in row.because or row.verdict == "not told apart" for row in found.rows):
        return []
    samples = found.unchanged.samples if found.unchanged else None
    if samples is None:
        return ["not told apart: one seed shows no interval of this metric; `mltrainer ablate` compares on several"]
    rows, changes = counted(samples, "validation row"), counted(len(found.rows), "change")
    within = f"within what {rows} leave to chance at 95 % ({changes} compared)"
    return [f"not told apart: {within}; `mltrainer ablate` compares on several seeds"]


def _best(found: Trial) -> list[str]:
    best = found.best
    if best is None:
        return ["none of them helps; read the pages of what fired: mltrainer diagnose"]
    return [f"next: {best.command}"]


def applied_text(found: Applied) -> str:
    """Return the diff of an applied change, and what to type next."""
    return "\n".join([found.diff.rstrip("\n"), "", *(f"next: {line}" for line in found.next)])
