"""Bad initialization: an untrained classifier that is sure and wrong (page: `diagnostics/bad_initialization.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, times: float, trained: float) -> Finding:
    """Fire where the loss of the untrained classifier is far above that of the best constant answer, or ln K for K classes."""
    start, unseen = run.start, Finding("not_applicable", "The loss of the untrained model over classes was not observed.")
    if start is None or start.target is None or not start.target.classes:
        return unseen
    outputs = start.output.shape if start.output else []
    # In training mode, too: before the first step a batch norm has running statistics of no data.
    losses = [number(known_loss) for known_loss in (start.loss, start.training_loss) if known_loss is not None]
    classes, loss = max([start.target.classes, *outputs[:1]]), min(losses, default=math.nan)
    if classes < 2 or math.isnan(loss):
        return unseen
    if number(start.trained_share) < trained:
        share = percent(number(start.trained_share))
        return Finding("not_applicable", f"Of the weights {share} are trained: the others were elsewhere, for something else.")
    # Another loss than the cross-entropy gives the cost of knowing nothing itself.
    is_known = run.constant_loss > 0
    # The larger: with uneven classes the constant answer costs less, which a fair initialization cannot know.
    knowing_nothing = max(run.constant_loss, math.log(classes)) if is_known else math.log(classes)
    excess = loss / knowing_nothing
    what = "the best constant answer" if is_known else f"knowing nothing, ln {classes}"
    reason = f"The untrained model's loss is {text(loss)}, {text(excess)} times that of {what}"
    evidence = {"loss": loss, "expected": knowing_nothing, "times": excess, "since_step": 0}
    return judged(excess > times, f"{reason} (at most {times:g} expected).", evidence, FIGURES)
