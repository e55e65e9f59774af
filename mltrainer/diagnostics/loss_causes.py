"""Causes in the loss and its inputs: scale, targets, and the metric beside it."""

from __future__ import annotations

import math
import statistics

from mltrainer.diagnostics.cause import Cause, Found, listed
from mltrainer.diagnostics.signals import BOUNDED, R2, Run, finite, number, percent, ratio, text

AS_LONG_AS_LARGE = ("sgd", "own")  # optimizers whose steps are as long as the gradients are large
SCALED = 8  # ratio to the mean over samples that is suspicious
LEARNABLE = 0.25  # least share of a constant answer's loss that fitted answers must remove
SAME_LOSS = 1e-5  # a relative difference that rounding makes
RANGES = {  # ranges of activations' outputs
    **dict.fromkeys(("ReLU", "Softplus", "ReLU6"), (0.0, math.inf)),
    **dict.fromkeys(("Sigmoid", "Softmax"), (0.0, 1.0)),
    "Tanh": (-1.0, 1.0),
}
BEYOND = 0.1  # share of the range of the loss's best answers
LITTLE = 0.1  # share of the constant answer's loss that remains for fitted answers
FITS = 0.8  # a metric whose best value is 1, for answers fitted to each sample
MOSTLY = 0.9  # share of the answers


def _scaled(run: Run) -> Found | None:
    if (run.config.get("optimizer") or {}).get("name") not in AS_LONG_AS_LARGE:
        return None
    seen = run.seen[0][1].validation if run.seen else None
    parts = finite(map(number, (seen and seen.losses) or []))
    times = ratio(number(seen.loss), statistics.fmean(parts)) if seen and parts and min(parts) > 0 else 1.0
    if times >= SCALED or 0 < times <= 1 / SCALED:
        kind = "a sum over the samples" if times > 1 else "a mean that is divided by the number of samples once more"
        return Found(f"The loss of all samples that were looked at is {text(times)} times that of a part of them: it is {kind}.")
    start = run.start
    share = ratio(number(start.loss), number(start.as_logits)) if start and start.plain else math.nan
    if not 0 < share <= 1 / SCALED:
        return None
    return Found(
        f"The loss of the untrained model is {text(number(start and start.loss))}, {text(share)} of the cross-entropy of its "
        f"outputs ({text(number(start and start.as_logits))}): it is divided by {text(1 / share)}, and so is each step."
    )


def _unlearnable(run: Run) -> Found | None:
    start = run.start
    floor, constant = run.floor, run.constant_loss
    if start is None or start.as_logits is None or not floor > max(0.0, (1 - LEARNABLE) * constant):
        return None
    if constant < LEARNABLE * number(start.loss):  # one answer is right for everything that the loss uses
        return None
    return Found(
        f"Answers that were fitted to each sample reach a loss of {text(floor)}, and one constant answer {text(constant)}: the "
        "loss hardly distinguishes a right answer from a wrong one, as with strong label smoothing or scaled outputs."
    )


def _overlooked(run: Run) -> Found | None:
    overlooked = run.start and run.start.overlooks
    if not overlooked:
        return None
    of = f", all those of class {listed(overlooked.classes)}" if overlooked.classes else ""
    one = (
        f" It looks at one answer (sample, place) in {1 / (1 - number(overlooked.share)):.0f} alone."
        if MOSTLY <= number(overlooked.share) < 1
        else ""
    )
    left = f" It looks at class {listed(overlooked.seen)} alone." if 0 < len(overlooked.seen) < len(overlooked.classes) else ""
    return Found(
        f"The loss has no gradient at {percent(number(overlooked.share))} of the answers{of}, which the metric "
        f"{listed(overlooked.metrics)} counts: it does not look there.{one}{left}"
    )


def _exclusive(run: Run) -> Found | None:
    start = run.start
    target, output = (start.target, start.output) if start else (None, None)
    if not start or not target or not output or target.classes or output.shape != target.shape or not start.by_class:
        return None
    samples = sum(start.by_class[0][::2])
    held = sum(row[0] for row in start.by_class) / samples if samples else 1.0
    shifted, loss = number(start.shifted_loss), number(start.loss)
    if abs(held - 1) < 0.05 or len(start.by_class) < 2 or not abs(shifted - loss) <= SAME_LOSS * abs(loss):
        return None
    return Found(
        f"Of {len(start.by_class)} labels a sample has {text(held)} on average, and the loss takes a softmax over them, as if "
        "one excluded the others: several labels need a sigmoid each (binary cross-entropy)."
    )


def _beyond_activation(run: Run) -> Found | None:
    plain, last = run.plain, run.start.last if run.start else ""
    low, high = RANGES.get(last, (-math.inf, math.inf))
    if plain is None or plain.wanted is None:
        return None
    lowest, highest = map(number, plain.wanted)
    below, above = low - lowest, highest - high
    if not max(below, above) > BEYOND * max(highest - lowest, 1.0):
        return None
    end = f"below {text(low)}" if below >= above else f"above {text(high)}"
    return Found(
        f"The loss is least for answers from {text(lowest)} to {text(highest)}, and the activation at the end of the model "
        f"({last}) gives none {end}."
    )


def _disagreeing(run: Run) -> Found | None:
    plain = run.plain
    name = run.metric_name
    if plain is None or plain.fitted is None or not (name in BOUNDED or name == R2) or not number(plain.fitted) < FITS:
        return None
    # Else the answers do not fit, such as answers between 0 and 1 for quantities; a loss below 0, as of a density, has no end.
    if not 0 <= run.floor <= LITTLE * run.constant_loss or (run.start and run.start.overlooks):
        return None
    return Found(
        f"Answers that fit each sample by the loss reach {name} {text(number(plain.fitted))}, and 1 was expected: the "
        "metric reads the outputs otherwise than the loss, such as a threshold of 0 where they are probabilities, or quantities "
        "where the loss expects their logarithm."
    )


LOSS_CAUSES = (
    Cause("loss_unlearnable", _unlearnable, "Take label smoothing, or what scales the outputs, out of the loss", True),
    Cause(
        "loss_overlooks",
        _overlooked,
        "Look at ignore_index, class weights and mask of the loss, and at what the metric counts",
        True,
    ),
    Cause("labels_exclusive", _exclusive, "Take binary_cross_entropy_with_logits as the loss", True),
    Cause("beyond_activation", _beyond_activation, "Take the activation at the end away, or the loss that expects it", True),
    Cause("metric_disagrees", _disagreeing, "Read the outputs in the metric as the loss does", True),
    Cause("loss_scaled", _scaled, "Return the mean over the samples from the loss", False),
)
