"""Exploding gradients: norms that grow far beyond those before them (page: `diagnostics/exploding_gradients.md`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, median, number, ratio, text
from mltrainer.records.run import NonFinite

FIGURES = ("gradients.svg", "learning_curves.svg")


def find(run: Run, *, norm: float, times_median: float, learned_skill: float) -> Finding:
    """Fire on a gradient that is not finite, a loss that grew until it was not, a norm far above the earlier ones or the loss."""
    is_learned = run.learned(learned_skill)
    broken = _non_finite(run, times_median) or (None if is_learned else _beyond_the_loss(run, norm, times_median))
    if broken is not None:
        return broken
    if not finite(run.norms("max")):
        return Finding("not_applicable", "The run recorded no gradient norm.")
    place, top = _steepest(run, norm, is_learned)
    largest = f"{text(top.norm)} (epoch {top.epoch:g})"
    times = f"{text(top.times)} times the {top.against}, {text(top.reference)}"
    limits = f"above {text(norm)} and above {text(times_median)} times"
    reason = f"The largest gradient norm was {largest}, {times}; an explosion is {limits}."
    # Both: raw targets have healthy norms in the thousands, and tiny norms leap without harm.
    fired = top.norm > norm and top.times > times_median
    since = run.step_at(place) if fired else None
    return judged(fired, reason, top._asdict(), FIGURES, since_step=since)


# --- numbers that are not finite ---


def _non_finite(run: Run, times_median: float) -> Finding | None:
    nonfinite = run.nonfinite
    if nonfinite is None:
        # Only infinite ones, as NaN is also used for missing records.
        places = [epoch for epoch, norm in zip(run.epochs, run.norms("max"), strict=True) if math.isinf(norm)]
        return _overflow(f"epoch {places[0]:g}", epoch=places[0], what="gradient") if places else None
    if nonfinite.what == "gradient":
        place = f"step {nonfinite.step} (epoch {nonfinite.epoch})"
        return _overflow(place, step=nonfinite.step, epoch=nonfinite.epoch, what="gradient", since_step=nonfinite.step)
    return _grown(nonfinite, times_median)


def _overflow(place: str, **evidence: Any) -> Finding:
    return Finding("fired", f"The gradient norm was not finite at {place}, while the loss still was.", evidence, FIGURES)


def _grown(nonfinite: NonFinite, times_median: float) -> Finding | None:
    """Return a finding where the loss grew before it was not finite; a NaN out of nothing is a fault of data or arithmetic."""
    if nonfinite.recent is None:
        return None
    growths = [(what, _growth(nonfinite.recent.get(name, []))) for name, what in (("losses", "loss"), ("norms", "gradient norm"))]
    what, times = max(growths, key=lambda item: item[1])
    if times <= times_median:
        return None
    reason = (
        f"The {what} grew {text(times)} times within the steps before the loss was not finite at step {nonfinite.step} "
        f"(at most {text(times_median)} times allowed)."
    )
    evidence = {"step": nonfinite.step, "epoch": nonfinite.epoch, "what": what, "times": times, "since_step": nonfinite.step}
    return Finding("fired", reason, evidence, FIGURES)


def _growth(values: Sequence[Any]) -> float:
    """Return the last finite value relative to the first, 0 without two of them."""
    kept = [abs(value) for value in finite(map(number, values))]
    return ratio(kept[-1], kept[0]) if len(kept) > 1 and kept[0] > 0 else 0.0


# --- finite norms ---


def _beyond_the_loss(run: Run, norm: float, times_median: float) -> Finding | None:
    """Return a finding where nothing was learned at norms far above the first loss: all may have exploded, the median, too."""
    losses, norms = _recent(run, "losses"), [*run.norms("max"), *_recent(run, "norms")]
    first = run.first_loss if math.isfinite(run.first_loss) else next(iter(losses), 1.0)
    largest, limit = max(finite(norms), default=0.0), max(norm, times_median * max(1.0, abs(first)))
    if largest <= limit:
        return None
    reason = (
        f"The model has not learned, and its largest gradient norm was {text(largest)} with a first loss of {text(first)}; "
        f"an explosion is above {text(norm)} and {text(times_median)} times that loss."
    )
    place = next((n for n, one in enumerate(run.norms("max")) if one > limit), None)
    since = run.step_at(place) if place is not None else run.nonfinite and run.nonfinite.step
    return Finding("fired", reason, {"norm": largest, "first_loss": first, "since_step": since}, FIGURES)


def _recent(run: Run, name: str) -> list[float]:
    """Return the finite numbers of the last steps before one was not."""
    recent = (run.nonfinite and run.nonfinite.recent) or {}
    return finite(number(value) for value in recent.get(name, []))


class _Leap(NamedTuple):
    """The largest norm of an interval, and how many times the usual one it is."""

    norm: float
    epoch: float
    reference: float
    times: float
    against: str


def _steepest(run: Run, limit: float, is_learned: bool) -> tuple[int, _Leap]:
    """Return the evaluation whose largest norm is highest above its reference; of those above the limit, if there are any.

    Its place comes with it, as several evaluations may be of one epoch.
    """
    rows = [(place, _compared(run, place, is_learned)) for place, norm in enumerate(run.norms("max")) if math.isfinite(norm)]
    above = [row for row in rows if row[1].norm > limit]
    return max(above, key=lambda row: row[1].times) if above else max(rows, key=lambda row: row[1].norm)


def _compared(run: Run, place: int, is_learned: bool) -> _Leap:
    """Compare the largest norm of an interval with the run's usual one.

    Norms fall while a model converges. So where it learned, usual is the median up to the interval, never the later, small ones.
    Where it did not, no convergence explains a fall: the whole run's median counts too, and the smallest norm of the first
    interval, which may contain a whole explosion.
    """
    medians = run.norms("median")
    usual = [("median norm until then", median(medians[: place + 1]))]
    if not is_learned:
        usual.append(("median norm of the run", median(medians)))
        if place == 0:
            usual.append(("smallest norm of the first interval", run.norms("min")[0]))
    against, reference = min(usual, key=lambda item: item[1] if math.isfinite(item[1]) else math.inf)
    norm = run.norms("max")[place]
    return _Leap(norm, run.epochs[place], reference, ratio(norm, reference), against)
