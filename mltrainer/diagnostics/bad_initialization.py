"""Bad initialization: an untrained classifier that is sure and wrong (page: `diagnostics/bad_initialization.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, number, text

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, times: float) -> Finding:
    """Fire where the loss of the untrained classifier is far above that of knowing nothing, ln K for K classes."""
    start, unseen = run.start, Finding("not_applicable", "The loss of the untrained model over classes was not observed.")
    if start is None or start.target is None or not start.target.classes:
        return unseen
    outputs = start.output.shape if start.output else []
    # In training mode, too: before the first step a batch norm's running statistics are those of no data.
    losses = [number(found) for found in (start.loss, start.training_loss) if found is not None]
    classes, loss = max([start.target.classes, *outputs[:1]]), min(losses, default=math.nan)
    if classes < 2 or math.isnan(loss):
        return unseen
    knowing_nothing = math.log(classes)
    excess = loss / knowing_nothing
    reason = f"The untrained model's loss is {text(loss)}, {text(excess)} times that of knowing nothing, ln {classes}"
    evidence = {"loss": loss, "expected": knowing_nothing, "times": excess, "since_step": 0}
    return judged(excess > times, f"{reason} (at most {times:g} expected).", evidence, FIGURES)
