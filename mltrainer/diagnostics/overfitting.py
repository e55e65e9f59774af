"""Overfitting: better on the training set than on the validation set (page: `diagnostics/overfitting.md`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from mltrainer.diagnostics.signals import (
    R2,
    SETTLED_ROWS,
    Finding,
    Run,
    finite,
    judged,
    number,
    percent,
    ratio,
    settled,
    share_error,
    text,
)

WEIGHTED = 0.01  # a loss that differs by more of the plain cross-entropy is another one; rounding in bf16 is below
FIGURES = ("gap.svg", "learning_curves.svg")
PLACES = {"best": "At the best evaluation", "last": f"At the end (the median of up to {SETTLED_ROWS} evaluations)"}


def find(run: Run, *, gap: float, skill: float, standard_errors: float, rise: float, wide: float) -> Finding:
    """Fire on a gap: in points of a bounded metric; in R2 or relative loss while the validation loss rises, or where it is wide.

    Regularization of a model that only memorized does not help one that is no better than a constant answer.
    """
    if run.best_row is None:
        return Finding("not_applicable", "The run recorded no evaluation of both splits, so there is no gap to judge.")
    if run.score == R2:
        finding = _by_r2(run, gap, skill, rise, wide)
    elif run.score is not None:
        finding = _by_points(run, run.score, gap, skill, standard_errors)
    else:
        finding = _by_loss(run, gap, skill, rise)
    return replace(finding, is_elsewhere=run.beats_constant is False)


# --- bounded metrics ---


class _Gap(NamedTuple):
    """A metric on both splits at one place of the run."""

    place: str
    train: float
    validation: float
    from_batches: bool = False

    @property
    def points(self) -> float:
        return self.train - self.validation


def _by_points(run: Run, name: str, gap: float, skill: float, standard_errors: float) -> Finding:
    widest = max(_gaps(run, name), key=lambda one: one.points)
    chance = run.chance if name == "accuracy" and run.chance < 1 else 0.0
    reached = (widest.train - chance) / (1 - chance)
    error = share_error(widest.validation, run.validation_samples)
    noise = standard_errors * error
    # A model that learned nothing has gaps by chance, and so has a small validation set.
    fired = widest.points > gap and reached > skill and widest.points > noise
    reason = f"{_points_text(run, name, widest)} (at most {text(100 * gap)} allowed"
    if widest.points > gap and reached <= skill:
        reason += f"; not judged, since the training skill of {text(reached)} is not above {text(skill)}"
    if gap < widest.points <= noise:
        reason += f"; not judged, since a validation set of this size errs by {text(100 * noise)} points"
    evidence = {
        "metric": name,
        "at": widest.place,
        "train": widest.train,
        "validation": widest.validation,
        "gap": widest.points,
        "train_skill": reached,
        "standard_error": error,
        "train_from": "loss of the training batches" if widest.from_batches else "training set, evaluation mode",
    }
    return judged(fired, f"{reason}).", evidence, FIGURES)


def _points_text(run: Run, name: str, gap: _Gap) -> str:
    least = "at least " if gap.from_batches else ""
    averages = gap.from_batches and finite(run.series("trained", name))
    weights = " with the trained weights, not their average" if averages else ""
    return (
        f"{PLACES[gap.place]} {name} is {least}{percent(gap.train)} on the training set and {percent(gap.validation)} on "
        f"the validation set{weights}, a gap of {text(100 * gap.points)} points"
    )


def _gaps(run: Run, name: str) -> list[_Gap]:
    train, validation = run.series("train", name), run.series("validation", name)
    assert run.best_row is not None
    gaps = [
        _Gap("best", train[run.best_row], validation[run.best_row]),
        _Gap("last", settled(train), settled(validation)),
        _Gap("last", _least_accuracy(run) if name == "accuracy" else math.nan, settled(_trained(run, name)), from_batches=True),
    ]
    return [one for one in gaps if math.isfinite(one.points)] or [_Gap("best", math.nan, math.nan)]


def _trained(run: Run, name: str) -> list[float]:
    """Return a metric on the validation set of the trained weights, which differ from an average of weights."""
    trained, measured = run.series("trained", name), run.series("validation", name)
    return [own if math.isfinite(own) else value for own, value in zip(trained, measured, strict=True)]


def _least_accuracy(run: Run) -> float:
    """Return an accuracy that the training batches reached at least, from their loss; NaN if the loss is no cross-entropy.

    A misclassified sample gives its own class at most probability 1/2, so that its cross-entropy is at least ln 2: the share
    of errors is at most loss / ln 2. It was reached on the batches as trained on (augmented, with
    batch statistics), which the training set in evaluation mode does not show. The recorded evaluations show whether
    the loss keeps that bound.
    """
    pairs = [
        (accuracy, 1 - loss / math.log(2))
        for split in ("train", "validation")
        for accuracy, loss in zip(run.series(split, "accuracy"), run.series(split, "loss"), strict=True)
        if math.isfinite(accuracy) and math.isfinite(loss)
    ]
    # The losses are float32: rounding alone may break the bound by a little.
    if any(accuracy < least - 1e-6 for accuracy, least in pairs) or _is_weighted(run):
        return math.nan
    return 1 - settled(run.train_loss) / math.log(2)


def _is_weighted(run: Run) -> bool:
    """Return True if the loss weights samples: somewhere it differs from the unweighted one measured beside it."""
    pairs = zip(run.series("validation", "loss"), run.series("validation", "log_loss"), strict=True)
    return any(abs(loss - plain) > WEIGHTED * plain for loss, plain in pairs if math.isfinite(loss) and math.isfinite(plain))


# --- regression, and tasks without a bounded metric ---


def _by_r2(run: Run, gap: float, skill: float, rise: float, wide: float) -> Finding:
    widest = max(_gaps(run, R2), key=lambda one: one.points)
    risen = _rise(run)
    # Small noisy tables have a gap of R2 in every honest run: it must be wide, or the validation loss must have risen, too.
    fired = widest.train > skill and (widest.points > wide or (widest.points > gap and risen > rise))
    reason = (
        f"{PLACES[widest.place]} R2 is {text(widest.train)} on the training set and {text(widest.validation)} on the validation "
        f"set, a gap of {text(widest.points)} (at most {text(gap)} allowed), and the validation loss ended at "
        f"{text(risen)} times its minimum (at most {text(rise)} allowed); both limits "
        f"must be exceeded, or the gap alone must be above {text(wide)}."
    )
    evidence = {
        "metric": R2,
        "at": widest.place,
        "train": widest.train,
        "validation": widest.validation,
        "gap": widest.points,
    }
    return judged(fired, reason, {**evidence, "rise": risen}, FIGURES)


def _by_loss(run: Run, gap: float, skill: float, rise: float) -> Finding:
    train, validation = settled(run.series("train", "loss")), settled(run.validation_loss)
    if not (math.isfinite(train) and math.isfinite(validation)):
        return Finding("not_applicable", "The last evaluations hold no finite loss of both splits: there is no gap to judge.")
    relative, risen = ratio(validation - train, run.size(train)), _rise(run)
    reason = (
        f"The validation loss ended at {text(validation)}, {percent(relative)} above the training loss of {text(train)} (at most "
        f"{percent(gap)} allowed), and at {text(risen)} times its minimum (at most {text(rise)} "
        "allowed); both limits must be exceeded."
    )
    # One that learned neither split underfits, however far its losses are apart.
    is_unlearned = run.beats_constant is False and not run.train_skill > skill
    if is_unlearned:
        reason += (
            f" Not judged: {run.beside_constant}, and the training skill of {text(run.train_skill)} is not above {text(skill)}."
        )
    evidence = {"metric": "loss", "train": train, "validation": validation, "relative_gap": relative, "rise": risen}
    return judged(relative > gap and risen > rise and not is_unlearned, reason, evidence, FIGURES)


def _rise(run: Run) -> float:
    """Return the ratio of the last validation loss to its minimum, as 1 plus the rise over the minimum's size."""
    losses = finite(run.validation_loss)
    if not losses:
        return number(None)
    lowest, last = min(losses), settled(run.validation_loss)
    return 1 + ratio(last - lowest, run.size(lowest)) if last != lowest else 1.0
