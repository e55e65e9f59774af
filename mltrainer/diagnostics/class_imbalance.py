"""Class imbalance: classes so rare that the loss hardly counts them (page: `diagnostics/class_imbalance.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, judged, percent, ratio, text


def find(run: Run, *, times: float, recall: float) -> Finding:
    """Fire where one class has far more samples than another, unless every class is found nevertheless."""
    counts = [count for count in run.train_counts if count]
    if len(counts) < 2:
        return Finding("not_applicable", "The training samples' classes were not counted.")
    ratio_found, worst = ratio(max(counts), min(counts)), _worst_recall(run)
    evidence = {"times": ratio_found, "largest": max(counts), "smallest": min(counts), "worst_recall": worst, "since_step": 0}
    # False of NaN: without a confusion matrix nothing excuses the imbalance.
    found = worst >= recall
    reason = f"The largest class has {text(ratio_found)} times the samples of the smallest (at most {times:g} expected)"
    reason += f"; of the class that is found least, {percent(worst)} are" if worst == worst else ""
    return judged(ratio_found > times and not found, reason + ".", evidence)


def _worst_recall(run: Run) -> float:
    """Return the recall of the class that is found least, NaN without a confusion matrix."""
    recalls = [ratio(row[place], sum(row)) for place, row in enumerate(run.confusion) if sum(row)]
    return min(recalls, default=float("nan"))
