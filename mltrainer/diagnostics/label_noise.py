"""Label noise: classes that are learned by heart because nothing tells them apart (page: `diagnostics/label_noise.md`)."""

from __future__ import annotations

from collections.abc import Mapping

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, ratio, settled

ID = "label_noise"
FIGURES = ("gap.svg",)


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where the model learns the training labels by heart that neither neighbours nor validation samples bear out."""
    data = run.start_data
    agreeing = number(data and data.neighbours)
    if data is None or agreeing != agreeing or not run.has_metric("accuracy"):
        return Finding(ID, "not_applicable", "Whether near samples share their class was not observed.")
    train, validation = (settled(run.series(split, "accuracy")) for split in ("train", "validation"))
    evidence = {"neighbours": agreeing, "train": train, "validation": validation}
    reason = (
        f"The nearest samples vote for {percent(agreeing)} of the training labels (at least {percent(thresholds['neighbours'])} "
        f"expected); the accuracy is {percent(train)} on training, {percent(validation)} on validation."
    )
    few = number(run.result.train_samples) < thresholds["samples"] * number(data.features)
    if few:
        return Finding(
            ID, "not_applicable", "Too few samples for so many features: near ones are hardly nearer than others.", evidence
        )
    by_heart = ratio(train - validation, 1 - validation) > thresholds["by_heart"] and validation < agreeing + thresholds["margin"]
    return judged(ID, agreeing < thresholds["neighbours"] and by_heart, reason, evidence, FIGURES)
