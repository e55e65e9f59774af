"""Label noise: classes that are learned by heart because nothing tells them apart (page: `diagnostics/label_noise.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import R2, Finding, Run, judged, number, percent, ratio, settled, text

FIGURES = ("gap.svg",)


def find(
    run: Run,
    *,
    neighbours: float,
    by_heart: float,
    margin: float,
    samples: float,
    neighbour_r2: float,
    by_heart_r2: float,
    worse: float,
) -> Finding:
    """Fire where the model learns the training labels by heart that neither neighbours nor validation samples bear out."""
    data = run.start_data
    is_number = data is not None and data.neighbours is None
    agreeing, metric = number(data and (data.neighbour_r2 if is_number else data.neighbours)), R2 if is_number else "accuracy"
    if data is None or agreeing != agreeing or not run.has_metric(metric):
        return Finding("not_applicable", "Whether near samples share their class was not observed.")
    train, validation = (settled(run.series(split, metric)) for split in ("train", "validation"))
    evidence = {"neighbours": agreeing, "train": train, "validation": validation}
    least, most = (neighbour_r2, by_heart_r2) if is_number else (neighbours, by_heart)
    reason = (
        f"The nearest samples' targets explain {percent(agreeing)} of the training targets' variance (at least {percent(least)} "
        f"expected); R2 is {text(train)} on training, {text(validation)} on validation."
        if is_number
        else f"The nearest samples vote for {percent(agreeing)} of the training labels (at least {percent(least)} "
        f"expected); the accuracy is {percent(train)} on training, {percent(validation)} on validation."
    )
    few = number(run.result.train_samples) < samples * number(data.features)
    if few:
        return Finding(
            "not_applicable", "Too few samples for so many features: near ones are hardly nearer than others.", evidence
        )
    # As a share of the validation errors: the gap in accuracy is small even where many labels are wrong.
    is_by_heart = ratio(train - validation, 1 - validation) > most and validation < agreeing + margin
    # Where training labels alone are wrong, the model is right about more of the validation samples than of those.
    is_worse = validation - train > worse
    return judged(agreeing < least and (is_by_heart or is_worse), reason, evidence, FIGURES)
