"""Label noise: training labels that are memorized because the inputs do not predict them (page: `diagnostics/label_noise.md`)."""

from __future__ import annotations

import math
from dataclasses import replace

from mltrainer.diagnostics.signals import R2, Finding, Run, judged, median, number, percent, ratio, settled, text

FIGURES = ("gap.svg",)
GONE = "share of a constant answer's loss that is gone"  # in place of R2, which it is for squared errors alone
TOGETHER = 3  # evaluations in a row that must show the same


def find(
    run: Run,
    *,
    neighbours: float,
    by_heart: float,
    margin: float,
    samples: float,
    rows: float,
    neighbour_r2: float,
    by_heart_r2: float,
    worse: float,
) -> Finding:
    """Fire where the model memorizes training labels that neither neighbours nor validation samples support."""
    data = run.start_data
    is_number = data is not None and data.neighbours is None
    agreeing, metric = number(data and (data.neighbour_r2 if is_number else data.neighbours)), R2 if is_number else "accuracy"
    curves = _curves(run, metric)
    if data is None or agreeing != agreeing or not curves:
        return run.without_classes("Whether near samples share their class was not observed.")
    # A run is observed a few times, and its curve has no level before the last.
    train, validation = (settled(values) for values in zip(*(curves if run.has_metric(metric) else curves[-1:]), strict=True))
    learned = metric if metric != R2 or run.has_metric(R2) else GONE
    evidence = {"neighbours": agreeing, "metric": learned, "train": train, "validation": validation}
    least, most = (neighbour_r2, by_heart_r2) if is_number else (neighbours, by_heart)
    near = (
        f"The nearest samples' targets explain {percent(agreeing)} of the training targets' variance"
        if is_number
        else f"The nearest samples vote for {percent(agreeing)} of the training labels"
    )
    reason = f"{near} (at least {percent(least)} expected); {_level(learned, train, validation)}."
    count = number(run.result.train_samples)
    if count < rows or count < samples * number(data.features):
        few = "Too few samples for this number of features: near ones are hardly nearer than others."
        return Finding("not_applicable", few, evidence)
    at_chance = 0.0 if is_number else run.chance
    if run.nonfinite is not None or max(train, validation) <= at_chance + worse:
        return Finding("not_applicable", f"Nothing was memorized: {reason}", evidence)
    # As a share of the validation errors: the gap in accuracy is small even where many labels are wrong.
    is_by_heart = ratio(train - validation, 1 - validation) > most and validation < agreeing + margin
    # Where training labels alone are wrong, the model is better on validation until it has memorized them.
    # R2 knows no end below, and leaps where a run is unstable.
    is_worse = (validation - train if is_number else _ahead(curves)) > worse
    finding = judged(agreeing < least and (is_by_heart or is_worse), reason, evidence, FIGURES)
    return replace(finding, targets="quantities" if is_number else "classes")


def _level(metric: str, train: float, validation: float) -> str:
    """Return the metric on both splits in words; the loss beside a constant answer's in place of R2."""
    if metric == R2:
        return f"R2 is {text(train)} on training, {text(validation)} on validation"
    if metric == GONE:
        whole = "that of the best constant answer to the validation samples"
        return f"the loss on training is {percent(1 - train)} of {whole}, the loss on validation {percent(1 - validation)}"
    return f"the accuracy is {percent(train)} on training, {percent(validation)} on validation"


def _curves(run: Run, metric: str) -> list[tuple[float, float]]:
    """Return a metric on training and validation samples at each evaluation; for tasks without it, at the observations.

    In place of R2 that is the share by which the loss is below that of the best constant answer to the validation samples.
    """
    if run.has_metric(metric):
        return list(zip(run.series("train", metric), run.series("validation", metric), strict=True))
    if metric == R2:
        pairs = (
            [(number(row.evaluating.loss), number(row.validation.loss)) for _, row in run.seen] if run.constant_loss > 0 else []
        )
        pairs = [(1 - train / run.constant_loss, 1 - validation / run.constant_loss) for train, validation in pairs]
    else:
        pairs = [(number(row.evaluating.accuracy), number(row.validation.accuracy)) for _, row in run.seen]
    return [pair for pair in pairs if all(map(math.isfinite, pair))]


def _ahead(curves: list[tuple[float, float]]) -> float:
    """Return the most by which validation was ahead of training, the median over some evaluations in a row."""
    gaps = [validation - train for train, validation in curves]
    return max(median(gaps[place : place + TOGETHER]) for place in range(max(1, len(gaps) - TOGETHER + 1)))
