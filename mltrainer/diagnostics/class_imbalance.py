"""Class imbalance: classes so rare that the loss hardly counts them (page: `diagnostics/class_imbalance.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import NAN, Finding, Run, judged, percent, ratio, text


def find(run: Run, *, times: float, recall: float, answers: float, named: float) -> Finding:
    """Fire where one class has far more samples than another, unless every class is found nevertheless."""
    counts = [count for count in run.train_counts if count]
    if len(counts) < 2:
        return _of_answers(run, times, answers, named)
    ratio_found, worst = ratio(max(counts), min(counts)), _worst_recall(run, answers)
    evidence = {"times": ratio_found, "largest": max(counts), "smallest": min(counts), "worst_recall": worst, "since_step": 0}
    # False for NaN: an unknown recall excuses nothing.
    is_found = worst >= recall
    reason = f"The largest class has {text(ratio_found)} times the samples of the smallest (at most {times:g} expected)"
    reason += f"; of the class that is found least, {percent(worst)} are" if worst == worst else ""
    return judged(ratio_found > times and not is_found, reason + ".", evidence)


def _worst_recall(run: Run, answers: float) -> float:
    """Return the lowest recall of a class, by the confusion matrix or by the observations; NaN without both."""
    recalls = [ratio(row[place], sum(row)) for place, row in enumerate(run.confusion) if sum(row)]
    rows = [row for row in run.last_seen.by_class or [] if row[0]]
    if not recalls and min((row[0] for row in rows), default=0) >= answers:
        recalls = [ratio(right, count) for count, right, _ in rows]
    return min(recalls, default=NAN)


def _of_answers(run: Run, times: float, answers: float, named: float) -> Finding:
    """Return the finding on classes of places, and on labels that hold or do not: many are rare by nature, and named at times."""
    rows = [row for row in run.last_seen.by_class or [] if row[0] >= answers]
    if not rows or run.shows_no_signal:  # without any signal no class can be found
        return run.without_classes("The training samples' classes were not counted.")
    # By Zipf's law the commonest of N words has N times the answers of the rarest one.
    expected = max(times, len(run.last_seen.by_class or []))
    rare = [(ratio(right, count), ratio(others, count)) for count, right, others in rows if ratio(others, count) > expected]
    worst, ratio_found = min(rare, default=(NAN, max(ratio(others, count) for count, _, others in rows)))
    reason = f"A class has {text(ratio_found)} times the answers of another (at most {expected:g} expected)"
    reason += f"; of the rare one that is found least, {percent(worst)} are" if rare else ""
    return judged(worst < named, reason + ".", {"times": ratio_found, "worst_recall": worst, "since_step": 0})
