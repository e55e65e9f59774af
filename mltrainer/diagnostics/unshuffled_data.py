"""Unshuffled data: batches of hardly more than one class (page: `diagnostics/unshuffled_data.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, median, number, percent

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, share: float, batches: float) -> Finding:
    """Fire where the first batches' classes are far less mixed than all samples', in batches that have room for all."""
    mixed = median(map(number, run.result.signals.early.labels if run.result.signals else []))
    classes, whole = _whole(run)
    size = number(run.result.batch_size)
    # Batches that are hardly larger than the number of classes have few of them by chance.
    if not whole > 0 or mixed != mixed or size < batches * classes:
        return Finding("not_applicable", "No batches of classes, or none large enough to hold all of them, were observed.")
    found = mixed / whole
    whole_set = f"of all samples' entropy (at least {percent(share)} expected)"
    reason = f"The first batches' classes have {percent(found)} {whole_set}."
    return judged(found < share, reason, {"share": found, "since_step": 1}, FIGURES)


def _whole(run: Run) -> tuple[int, float]:
    """Return the number of classes and their entropy in nats, from all known counts; the first batch's only without them."""
    counts = [count for count in run.known_counts if count]
    if counts:
        shares = [count / sum(counts) for count in counts]
        return len(counts), -sum(share * math.log(share) for share in shares)
    target = run.start and run.start.target
    return (target.classes or 0, number(target.entropy)) if target else (0, math.nan)
