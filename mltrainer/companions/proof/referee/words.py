"""A verdict in words: for the terminal, and as a document."""

from __future__ import annotations

from pathlib import Path

from mltrainer.records.verdict import Verdict
from mltrainer.reports.terminal import table
from mltrainer.reports.values import apart, counted, duration, number, share

TEMPLATE = "tools/segment_replayer/verdict.md.j2"
OUTCOMES = {"same": "the same bits", "within": "within the interval", "met": "criterion met", "no": "NOT SO"}


def document(verdict: Verdict) -> str:
    """Return a verdict as Markdown."""
    from mltrainer.reports.templates import filled, frame

    return filled(frame(TEMPLATE), {"verdict": verdict.model_dump(), "summary": summary(verdict)})


def summary(verdict: Verdict) -> str:
    """Return a verdict in a sentence."""
    counts = {words: sum(row.outcome == name for row in verdict.checked) for name, words in OUTCOMES.items()}
    shown = ", ".join(f"{words} {count}" for words, count in counts.items() if count)
    return f"{counted(len(verdict.checked), 'value')} compared: {shown}"


def text(verdict: Verdict, path: Path) -> str:
    """Return a verdict for the terminal; `path` is its file."""
    rows = [[row.what, row.recorded, row.found, _outcome(row.outcome, row.interval)] for row in verdict.checked]
    closed = (
        f"not closed off: {verdict.open}"
        if verdict.open
        else "closed off: no folder phases, environment, network, or file that you did not give"
    )
    times = f"{duration(verdict.seconds)} (the author: {duration(verdict.recorded_seconds)})"
    trained = f"trained {_part(verdict)} again in {times}, {closed}" if verdict.seconds else "the training did not end"
    lines = [
        f"run {verdict.run} of {verdict.project}: {summary(verdict)}",
        f"  {trained}",
    ]
    lines += [f"  {verdict.foreign}"] if verdict.foreign else []
    lines += [f"  {row.words}" for row in verdict.differences]
    lines += ["", table(rows, ["value", "in the record", "found", ""]), ""]
    lines += [f"not compared: {what}" for what in verdict.unchecked]
    lines += [f"written: {path} and {path.with_suffix('.md')}"]
    return "\n".join(lines)


def _part(verdict: Verdict) -> str:
    sample = verdict.sample
    if sample is None:
        return "the whole run"
    missed = f"one forged segment was missed with probability {number(sample.missed)}"
    return f"{share(sample.replayed / sample.steps)} of the steps, selected by nonce {sample.nonce} ({missed}),"


def _outcome(outcome: str, interval: list[int | float] | None) -> str:
    ends = f", {apart(interval[0], interval[1])} to {apart(interval[1], interval[0])}" if interval else ""
    return f"{OUTCOMES[outcome]}{'' if outcome == 'same' else ends}"
