"""Dead units: rectifiers that are zero for every sample (page: `diagnostics/dead_units.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text

UNLEARNED = "has not learned"
FIGURES = ("gradient_layers.svg",)


def find(run: Run, *, share: float, share_else: float, learned_skill: float, input_spread: float, solved: float) -> Finding:
    """Fire where most units of a layer are zero for every observed sample; a model that has learned may spare more of them."""
    module, dead = run.dead_share
    if math.isnan(dead):
        return Finding("not_applicable", "No rectified units were observed.")
    spread = number(run.start_data and run.start_data.spread)
    # Inputs that hardly differ drive every unit to the same side: they are the cause then, not the units.
    if spread < input_spread:
        reason = f"The inputs hardly differ (standard deviation {text(spread)}), and so no unit can: see input_scale."
        return Finding("not_applicable", reason, {"input_spread": spread})
    state = _state(run, learned_skill)
    # Wide layers can spare many units and learn well, and an explosion's last steps leave some dead as a side effect.
    limit = share if state == UNLEARNED else share_else
    reason = (
        f"{percent(dead)} of the units of {module} are zero for every observed sample (at most {percent(limit)} in a model "
        f"that {state}; skill {text(run.reached_skill)})."
    )
    evidence = {"module": module, "share": dead, "skill": run.reached_skill}
    # A nearly perfect model needs no more units.
    return judged(not run.skill >= solved and dead >= limit, reason, evidence, FIGURES)


def _state(run: Run, learned_skill: float) -> str:
    if run.nonfinite is not None:
        return f"exploded, to a loss of {text(number(run.last_seen.loss))}"
    return "has learned" if run.learned(learned_skill) else UNLEARNED
