"""Unshuffled data: batches of hardly more than one class, or of similar targets (page: `diagnostics/unshuffled_data.md`)."""

from __future__ import annotations

import math
import statistics

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, median, number, percent, ratio

FIGURES = ("learning_curves.svg",)
OF_NORMAL = 1.4826  # the deviation of normal numbers over the median distance from their middle


def find(run: Run, *, share: float, batches: float, spread: float) -> Finding:
    """Fire where the first batches' targets are far less mixed than all samples', in batches that have room for all."""
    entropies = finite(map(number, run.result.signals.early.labels if run.result.signals else []))
    # Not the median, which is 0 in any order for a class so rare that most batches have none of it.
    mixed = statistics.fmean(entropies) if entropies else math.nan
    classes, whole = _whole(run)
    size = number(run.result.batch_size)
    # Batches that are hardly larger than the number of classes have few of them by chance.
    if not whole > 0 or mixed != mixed or size < batches * classes:
        return _of_numbers(run, spread)
    mixture = mixed / whole
    whole_set = f"of all samples' entropy (at least {percent(share)} expected)"
    reason = f"The first batches' classes have {percent(mixture)} {whole_set}."
    return judged(mixture < share, reason, {"share": mixture, "since_step": 1}, FIGURES)


def _whole(run: Run) -> tuple[int, float]:
    """Return the number of classes and their entropy in nats, from all known counts; without them of a few samples."""
    # From training: validation may have other shares of classes. Targets without classes, or with one, are no evidence.
    trained = [count for count in run.train_counts if count]
    counts = trained if len(trained) > 1 else [count for count in run.class_counts if count]
    if len(counts) > 1:
        shares = [count / sum(counts) for count in counts]
        return len(counts), -sum(share * math.log(share) for share in shares)
    known = [target for target in (run.start and run.start.target, run.last_seen.target) if target and target.classes]
    target = max(known, key=lambda one: number(one.entropy), default=None)
    return (target.classes or 0, number(target.entropy)) if target else (0, math.nan)


def _of_numbers(run: Run, least: float) -> Finding:
    """Return the finding on targets that are numbers: in a sorted order a batch's numbers are close together."""
    known = [list(map(number, row)) for row in (run.result.signals.early.numbers if run.result.signals else [])]
    if len(known) < 2:
        return Finding("not_applicable", "No batches of numbers, or of classes that are large enough to be mixed, were observed.")
    # By medians: a single distant target would make all other batches look alike.
    middle = median(mean for mean, _ in known)
    between = median(abs(mean - middle) for mean, _ in known) * OF_NORMAL
    together = math.hypot(between, median(spread for _, spread in known))
    # The first samples of a stream do not represent the others, so validation's are used.
    whole = run.start.target if run.start and run.start_data else run.last_seen.target
    share = ratio(median(spread for _, spread in known), max(finite([together, number(whole and whole.spread)])))
    reason = f"The first batches' targets spread over {percent(share)} of the spread of all (at least {percent(least)} expected)."
    return judged(share < least, reason, {"share": share, "since_step": 1}, FIGURES)
