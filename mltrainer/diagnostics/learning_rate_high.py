"""Learning rate too high: the first steps throw the weights about (page: `diagnostics/learning_rate_high.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mltrainer.diagnostics.signals import NAN, Finding, Run, judged, median, number, ratio, text

ID = "learning_rate_high"
FIGURES = ("update_layers.svg", "learning_curves.svg")
FIRST = 4  # measured steps (1, 2, 4, 8): weights that were thrown far away make later updates look small


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where the first updates were large beside the weights, and the model did not learn."""
    first = run.first_updates[:FIRST] or run.updates[:1]
    update = sum(first) / len(first) if first else NAN
    if math.isnan(update):
        return Finding(ID, "not_applicable", "The run recorded no size of its updates.")
    leap = ratio(run.train_loss[0], run.first_loss) if run.history else NAN
    if math.isnan(leap) and math.isnan(run.reached_skill) and run.result.program:
        return Finding(ID, "not_applicable", "Whether the program's model learned was not seen.")
    evidence = {"update_ratio": update, "leap": leap, "spread": _spread(run), "skill": run.reached_skill}
    sentence = (
        f"The first updates changed the weights by {text(update)} of their size (at most {text(thresholds['update'])} expected), "
        f"and the mean loss until the first evaluation was {text(leap)} of the first"
    )
    if evidence["spread"] < thresholds["weights"]:
        reason = f"{sentence}, but the weights began at {text(evidence['spread'])} of their usual size: nothing to measure by."
        return Finding(ID, "clear", reason, evidence)
    leapt = update > thresholds["update_of_leap"] and leap > thresholds["leap"]
    fired = (update > thresholds["update"] or leapt) and not run.learned(thresholds["learned_skill"])
    if fired:
        evidence["since_step"] = 1
    return judged(ID, fired, f"{sentence}; the skill is {text(run.reached_skill)}.", evidence, FIGURES)


def _spread(run: Run) -> float:
    """Return the usual spread of the untrained weights times the root of their inputs, NaN where it was not recorded."""
    return median(map(number, run.start.weights.values())) if run.start else math.nan
