"""Label noise: classes that are learned by heart because nothing tells them apart (page: `diagnostics/label_noise.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, ratio, settled

FIGURES = ("gap.svg",)


def find(run: Run, *, neighbours: float, by_heart: float, margin: float, samples: float) -> Finding:
    """Fire where the model learns the training labels by heart that neither neighbours nor validation samples bear out."""
    data = run.start_data
    agreeing = number(data and data.neighbours)
    if data is None or agreeing != agreeing or not run.has_metric("accuracy"):
        return Finding("not_applicable", "Whether near samples share their class was not observed.")
    train, validation = (settled(run.series(split, "accuracy")) for split in ("train", "validation"))
    evidence = {"neighbours": agreeing, "train": train, "validation": validation}
    reason = (
        f"The nearest samples vote for {percent(agreeing)} of the training labels (at least {percent(neighbours)} "
        f"expected); the accuracy is {percent(train)} on training, {percent(validation)} on validation."
    )
    few = number(run.result.train_samples) < samples * number(data.features)
    if few:
        return Finding(
            "not_applicable", "Too few samples for so many features: near ones are hardly nearer than others.", evidence
        )
    # As a share of the validation errors: the gap in accuracy is small even where many labels are wrong.
    is_by_heart = ratio(train - validation, 1 - validation) > by_heart and validation < agreeing + margin
    return judged(agreeing < neighbours and is_by_heart, reason, evidence, FIGURES)
