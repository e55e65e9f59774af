"""Train and eval differ: the same weights are far worse in evaluation mode (page: `diagnostics/train_eval_mismatch.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, number, text

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, times: float) -> Finding:
    """Fire where the loss of the same samples is far worse in evaluation mode at the end."""
    if not run.seen:
        return Finding("not_applicable", "The model was not observed in both modes.")
    row, signals = run.seen[-1]
    evaluating, training = signals.evaluating, signals.training
    losses = number(evaluating.loss), number(training.loss)
    lost = number(training.accuracy) - number(evaluating.accuracy)
    far = losses[0] > times * losses[1] and losses[1] > 0
    place = f"In epoch {number(row.epoch):g}, on the same training samples,"
    reason = f"{place} the loss is {text(losses[0])} in evaluation mode and {text(losses[1])} in training mode"
    reason += "" if math.isnan(lost) else f", the accuracy {text(100 * lost)} points lower"
    modes = {"evaluating": evaluating, "training": training}
    evidence = {name: shown.model_dump(exclude_unset=True) for name, shown in modes.items()}
    return judged(far, reason + ".", evidence, FIGURES)
