"""Learning rate too high: the first steps throw the weights about (page: `diagnostics/learning_rate_high.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import NAN, Finding, Run, judged, median, number, ratio, text

FIGURES = ("update_layers.svg", "learning_curves.svg")
FIRST = 4  # measured steps (1, 2, 4, 8): weights that were thrown far away make later updates look small


def find(run: Run, *, update: float, update_of_leap: float, leap: float, weights: float, learned_skill: float) -> Finding:
    """Fire where the first updates were large beside the weights, and the model did not learn."""
    # If the first steps were not recorded, the last step before the first evaluation represents them.
    first = run.first_updates[:FIRST] or run.updates[:1]
    mean = sum(first) / len(first) if first else NAN
    if math.isnan(mean):
        return Finding("not_applicable", "The run recorded no size of its updates.")
    rise = ratio(run.train_loss[0], run.first_loss) if run.history and not run.has_no_scale else NAN
    if math.isnan(rise) and math.isnan(run.reached_skill) and run.result.program:
        return Finding("not_applicable", "Whether the program's model learned was not seen.")
    spread = _spread(run)
    evidence = {"update_ratio": mean, "leap": rise, "spread": spread, "skill": run.reached_skill}
    sentence = (
        f"The first updates changed the weights by {text(mean)} of their size (at most {text(update)} expected), "
        f"and the mean loss until the first evaluation was {text(rise)} of the first"
    )
    # Every update is large beside weights that begin near zero.
    if spread < weights:
        reason = f"{sentence}, but the weights began at {text(spread)} of their usual size: nothing to measure by."
        return Finding("clear", reason, evidence)
    leapt = mean > update_of_leap and rise > leap
    # Beside steps that throw the weights about, plain answers to a custom task are a low bar.
    has_learned = run.learned(learned_skill) if run.compared else run.reached_skill >= learned_skill
    fired = (mean > update or leapt) and not has_learned
    return judged(fired, f"{sentence}; the skill is {text(run.reached_skill)}.", evidence, FIGURES, since_step=1)


def _spread(run: Run) -> float:
    """Return the usual spread of the untrained weights times the root of their inputs, NaN where it was not recorded."""
    return median(map(number, run.start.weights.values())) if run.start else math.nan
