"""Exploding gradients: norms that grow far beyond those before them (page: `diagnostics/exploding_gradients.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, median, number, ratio, text
from mltrainer.records.run import NonFinite

ID = "exploding_gradients"
FIGURES = ("gradients.svg", "learning_curves.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire on a gradient that is not finite, a loss that grew until it was not, a norm far above the earlier ones or the loss."""
    broken = _non_finite(run, thresholds) or _beyond_the_loss(run, thresholds)
    if broken is not None:
        return broken
    norms = finite(run.norms("max"))
    if not norms:
        return Finding(ID, "not_applicable", "The run recorded no gradient norm.")
    evidence = _steepest(run, thresholds["norm"], thresholds["learned_skill"])
    fired = evidence["norm"] > thresholds["norm"] and evidence["times"] > thresholds["times_median"]
    largest = f"{text(evidence['norm'])} (epoch {evidence['epoch']:g})"
    times = f"{text(evidence['times'])} times the {evidence['against']}, {text(evidence['reference'])}"
    limits = f"above {text(thresholds['norm'])} and above {text(thresholds['times_median'])} times"
    reason = f"The largest gradient norm was {largest}, {times}; an explosion is {limits}."
    if fired:
        evidence["since_step"] = run.step_at(run.epochs.index(evidence["epoch"]))
    return judged(ID, fired, reason, evidence, FIGURES)


# --- numbers that are not finite ---


def _non_finite(run: Run, thresholds: Mapping[str, float]) -> Finding | None:
    found = run.nonfinite
    if found is None:
        places = [epoch for epoch, norm in zip(run.epochs, run.norms("max"), strict=True) if math.isinf(norm)]
        return _overflow({"epoch": places[0], "what": "gradient"}) if places else None
    if found.what == "gradient":
        return _overflow({"step": found.step, "epoch": found.epoch, "what": "gradient", "since_step": found.step})
    return _grown(found, thresholds)


def _overflow(evidence: dict[str, Any]) -> Finding:
    place = f"step {evidence['step']} (epoch {evidence['epoch']})" if "step" in evidence else f"epoch {evidence['epoch']:g}"
    return Finding(ID, "fired", f"The gradient norm was not finite at {place}, while the loss still was.", evidence, FIGURES)


def _grown(found: NonFinite, thresholds: Mapping[str, float]) -> Finding | None:
    """Return a finding where the loss grew before it was not finite; a NaN out of nothing is a fault of data or arithmetic."""
    if found.recent is None:
        return None
    growths = {name: _growth([number(v) for v in found.recent.get(name, [])]) for name in ("losses", "norms")}
    name, times = max(growths.items(), key=lambda item: item[1])
    if times <= thresholds["times_median"]:
        return None
    what = {"losses": "loss", "norms": "gradient norm"}[name]
    reason = (
        f"The {what} grew {text(times)} times within the steps before the loss was not finite at step {found.step} "
        f"(at most {text(thresholds['times_median'])} times allowed)."
    )
    evidence = {"step": found.step, "epoch": found.epoch, "what": what, "times": times, "since_step": found.step}
    return Finding(ID, "fired", reason, evidence, FIGURES)


def _growth(values: list[float]) -> float:
    """Return the last finite value relative to the first, 0 without two of them."""
    kept = [abs(value) for value in finite(values)]
    return ratio(kept[-1], kept[0]) if len(kept) > 1 and kept[0] > 0 else 0.0


# --- finite norms ---


def _beyond_the_loss(run: Run, thresholds: Mapping[str, float]) -> Finding | None:
    """Return a finding where nothing was learned at norms far above the first loss: all may have exploded, the median, too."""
    losses, norms = _recent(run, "losses"), [*run.norms("max"), *_recent(run, "norms")]
    first = run.first_loss if math.isfinite(run.first_loss) else next(iter(losses), 1.0)
    norm, limit = max(finite(norms), default=0.0), thresholds["times_median"] * max(1.0, abs(first))
    if run.learned(thresholds["learned_skill"]) or norm <= max(thresholds["norm"], limit):
        return None
    reason = (
        f"The model has not learned, and its largest gradient norm was {text(norm)} with a first loss of {text(first)}; "
        f"an explosion is above {text(thresholds['norm'])} and {text(thresholds['times_median'])} times that loss."
    )
    place = next((n for n, one in enumerate(run.norms("max")) if one > max(thresholds["norm"], limit)), None)
    since = run.step_at(place) if place is not None else run.nonfinite and run.nonfinite.step
    return Finding(ID, "fired", reason, {"norm": norm, "first_loss": first, "since_step": since}, FIGURES)


def _recent(run: Run, name: str) -> list[float]:
    """Return the finite numbers of the last steps before one was not."""
    recent = (run.nonfinite and run.nonfinite.recent) or {}
    return finite(number(value) for value in recent.get(name, []))


def _steepest(run: Run, limit: float, learned_skill: float) -> dict[str, Any]:
    """Return the evaluation whose largest norm stands highest above its reference; of those above the limit, if there are any."""
    learned = run.learned(learned_skill)
    rows = [_compared(run, place, learned) for place, norm in enumerate(run.norms("max")) if math.isfinite(norm)]
    above = [row for row in rows if row["norm"] > limit]
    return max(above, key=lambda row: number(row["times"])) if above else max(rows, key=lambda row: number(row["norm"]))


def _compared(run: Run, place: int, learned: bool) -> dict[str, Any]:
    """Compare the largest norm of an interval with what is usual for the run.

    Norms fall while a model converges. So where it learned, usual is the median up to the interval, never the later, small ones.
    Where it did not, no convergence explains a fall: the whole run's median counts too, and, where the loss never got
    below its first value, the smallest norm of the first interval, in which an explosion may lie whole.
    """
    medians = run.norms("median")
    usual = {"median norm until then": median(medians[: place + 1])}
    if not learned:
        usual["median norm of the run"] = median(medians)
        if place == 0 and _never_improved(run):
            usual["smallest norm of the first interval"] = run.norms("min")[0]
    against, reference = min(usual.items(), key=lambda item: item[1] if math.isfinite(item[1]) else math.inf)
    norm = run.norms("max")[place]
    return {"norm": norm, "epoch": run.epochs[place], "reference": reference, "times": ratio(norm, reference), "against": against}


def _never_improved(run: Run) -> bool:
    losses = finite(run.series("train", "loss"))
    return bool(losses) and min(losses) >= run.first_loss
