"""Metrics of classification and regression; outputs that are NaN give NaN, never a number that looks like a result."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAX_PAIRS = 200
CALIBRATION_BINS = 15
MOST_RANKED = 100  # classes; of more, sorting the samples for each would take longer than the forward pass
MOST_NATS = 700.0  # a float can still hold the exponential of it
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def predictions(outputs: Tensor) -> Tensor:
    """Return the class of the largest logit of each row [samples, classes]."""
    return outputs.argmax(dim=1)


def confusion(outputs: Tensor, targets: Tensor, classes: int) -> Tensor:
    """Return the confusion matrix: counts by true class (row) and predicted class (column), int64."""
    cells = targets * classes + predictions(outputs)
    return torch.bincount(cells, minlength=classes * classes).reshape(classes, classes)


# --- classification -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassifierOutputs:
    """The outputs and targets of a classifier, with cached intermediate results for its metrics.

    Attributes:
        outputs: Logits [samples, classes], none of them NaN, of at least one sample.
        targets: Class numbers [samples].
        positive: The positive class, where there are two.
    """

    outputs: Tensor
    targets: Tensor
    positive: int

    @functools.cached_property
    def counts(self) -> Tensor:
        """The confusion matrix, float64."""
        return confusion(self.outputs, self.targets, self.outputs.shape[1]).double()

    @functools.cached_property
    def log_probabilities(self) -> Tensor:
        """Logarithms of the probabilities, float64."""
        return self.outputs.double().log_softmax(dim=1)

    @functools.cached_property
    def surest(self) -> Tensor:
        """The probability of each answer given, float64 [samples]."""
        return self.log_probabilities.amax(1).exp()

    @functools.cached_property
    def right(self) -> Tensor:
        """1 for each answer that is the target, else 0, float64 [samples]."""
        return (predictions(self.outputs) == self.targets).double()

    @functools.cached_property
    def bins(self) -> Tensor:
        """The bin of each answer's probability, of `CALIBRATION_BINS` of equal width, int64 [samples]."""
        # Bins are open below and closed above, as in the paper; rounding must not lead outside of the first and the last.
        return (self.surest * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1

    @functools.cached_property
    def curves(self) -> list[Curve]:
        """A curve for each class that has samples; for two classes only the positive one's."""
        labels, binary = self.targets.numpy(), self.outputs.shape[1] == 2
        scores = self._margins() if binary else self.log_probabilities
        drawn = [self.positive] if binary else range(scores.shape[1])
        return [one for nr in drawn if (one := curve(scores[:, nr].numpy(), labels == nr)).positives[-1] > 0]

    def _margins(self) -> Tensor:
        """Return the difference of each of two logits to the other, which orders samples where probabilities round to 1."""
        outputs = self.outputs.double()
        return outputs - outputs.flip(1)


@dataclass(frozen=True)
class Curve:
    """The counts of samples at or above each threshold, the highest threshold first.

    Attributes:
        thresholds: The distinct scores, falling.
        positives: Number of samples of the class with a score at or above each threshold.
        others: Number of samples of other classes with such a score.
    """

    thresholds: np.ndarray
    positives: np.ndarray
    others: np.ndarray


def curve(scores: np.ndarray, is_class: np.ndarray) -> Curve:
    """Return the curve of one class's scores [samples]; samples of equal score share a threshold."""
    order = np.argsort(-scores)
    falling = scores[order]
    ends = np.append(np.flatnonzero(np.diff(falling)), len(falling) - 1)
    positives = np.cumsum(is_class[order])[ends]
    return Curve(falling[ends], positives.astype(np.float64), (ends + 1 - positives).astype(np.float64))


def _accuracy(given: ClassifierOutputs) -> float:
    return float(given.counts.diagonal().sum() / given.counts.sum())


def _f1_macro(given: ClassifierOutputs) -> float:
    """Return the mean F1 of the classes that occur, as targets or as predictions (scikit-learn's default)."""
    counts = given.counts
    support = counts.sum(0) + counts.sum(1)
    occurs = support > 0
    return float((2 * counts.diagonal()[occurs] / support[occurs]).mean())


def _balanced_accuracy(given: ClassifierOutputs) -> float:
    """Return the mean recall of the classes that occur as targets."""
    support = given.counts.sum(1)
    return float((given.counts.diagonal()[support > 0] / support[support > 0]).mean())


def _log_loss(given: ClassifierOutputs) -> float:
    return float(-given.log_probabilities.gather(1, given.targets[:, None]).mean())


def calibration_error(given: ClassifierOutputs) -> float:
    """Return the expected calibration error over 15 bins of equal width (Guo et al., 2017, arXiv 1706.04599)."""
    gaps = torch.zeros(CALIBRATION_BINS, dtype=torch.float64).index_add_(0, given.bins, given.right - given.surest)
    return float(gaps.abs().sum() / len(given.right))


def _roc_auc(given: ClassifierOutputs) -> float | None:
    """Return the area under the ROC curve, for several classes the mean of each against the rest; equal scores count half."""
    # Against no other class there is no area: 0 / 0.
    areas = [_area(one) for one in given.curves if one.others[-1] > 0]
    return float(np.mean(areas)) if areas else None


def _area(one: Curve) -> float:
    hits, misses = np.append(0.0, one.positives), np.append(0.0, one.others)
    return float(np.sum(np.diff(misses) * (hits[1:] + hits[:-1])) / (2 * hits[-1] * misses[-1]))


def _average_precision(given: ClassifierOutputs) -> float | None:
    """Return the mean precision over the recalls, for several classes the mean of all that have samples."""
    found = [_precision(one) for one in given.curves]
    return float(np.mean(found)) if found else None


def _precision(one: Curve) -> float:
    steps = np.diff(one.positives, prepend=0.0)
    return float(np.sum(steps * one.positives / (one.positives + one.others)) / one.positives[-1])


CLASSIFICATION: dict[str, Callable[[ClassifierOutputs], float | None]] = {
    "accuracy": _accuracy,
    "f1_macro": _f1_macro,
    "balanced_accuracy": _balanced_accuracy,
    "log_loss": _log_loss,
    "calibration_error": calibration_error,
    "roc_auc": _roc_auc,
    "average_precision": _average_precision,
}
RANKED = ("roc_auc", "average_precision")  # they sort the samples once for each class


def classification_names(classes: int) -> list[str]:
    """Return the metrics for a number of classes; those that sort the samples once a class only up to `MOST_RANKED` classes."""
    return [name for name in CLASSIFICATION if name not in RANKED or classes <= MOST_RANKED]


def classification(outputs: Tensor, targets: Tensor, positive: int = 1, names: Sequence[str] | None = None) -> dict[str, float]:
    """Return metrics by name; one that does not exist for these targets, such as the ROC area of one class, is left out.

    Args:
        outputs: Logits [samples, classes].
        targets: Class numbers [samples].
        positive: The class whose average precision is measured, where there are two.
        names: The metrics' names; None for all that exist for the number of classes.
    """
    asked = classification_names(outputs.shape[1]) if names is None else names
    if len(targets) == 0 or bool(outputs.isnan().any()):
        return dict.fromkeys(asked, math.nan)
    given = ClassifierOutputs(outputs, targets, positive)
    return {name: value for name in asked if (value := CLASSIFICATION[name](given)) is not None}


# --- regression -----------------------------------------------------------------------------------


def regression(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Return `r2`, `rmse` and `mae`; r2 is NaN where all targets are equal.

    Args:
        outputs: Predicted values [samples].
        targets: True values [samples].
    """
    true, errors = targets.double(), outputs.double() - targets.double()
    if len(true) == 0:
        return {"r2": math.nan, "rmse": math.nan, "mae": math.nan}
    squares, spread = float(errors.square().sum()), float((true - true.mean()).square().sum())
    return {
        "r2": 1 - squares / spread if spread > 0 else math.nan,
        "rmse": math.sqrt(squares / len(true)),
        "mae": float(errors.abs().mean()),
    }


def perplexity(mean: float) -> float:
    """Return the perplexity of tokens whose mean cost is given in nats; infinity where a float cannot hold it, NaN for NaN."""
    return math.inf if mean > MOST_NATS else math.exp(mean)


def classification_evaluation(outputs: Tensor, targets: Tensor, labels: list[str], positive: int = 1) -> dict[str, Any]:
    """Return the confusion matrix, true classes as rows, and for two classes the best threshold; NaN outputs give neither."""
    if bool(outputs.isnan().any()):
        return {"kind": "classification", "labels": labels, "confusion": None}
    matrix = confusion(outputs, targets, len(labels)).tolist()
    threshold = best_threshold(outputs, targets, positive) if len(labels) == 2 else None
    decision = {} if threshold is None else {"threshold": {"class": labels[positive], **threshold}}
    return {"kind": "classification", "labels": labels, "confusion": matrix, **decision}


def best_threshold(outputs: Tensor, targets: Tensor, positive: int) -> dict[str, float] | None:
    """Return the threshold on the positive class's probability with the largest F1; None where no sample is of that class.

    Returns:
        `probability`, the `f1` at this threshold, and `f1_at_half`, the F1 of predicting the class of the larger logit.
    """
    given = ClassifierOutputs(outputs, targets, positive)
    if not given.curves:
        return None
    one, counts = given.curves[0], given.counts
    f1 = 2 * one.positives / (one.positives + one.others + one.positives[-1])
    best = int(f1.argmax())
    usual = 2 * counts[positive, positive] / (counts[positive].sum() + counts[:, positive].sum())
    # Beyond about 709 the exponential of a float overflows and raises.
    probability = 1 / (1 + math.exp(-max(-700.0, min(700.0, one.thresholds[best]))))
    return {"probability": probability, "f1": float(f1[best]), "f1_at_half": float(usual)}


def regression_evaluation(outputs: Tensor, targets: Tensor) -> dict[str, Any]:
    """Return at most 200 evenly spaced pairs [target, prediction], and quantiles of prediction - target."""
    places = torch.linspace(0, len(targets) - 1, min(len(targets), MAX_PAIRS)).round().long().unique()
    pairs = torch.stack([targets[places].double(), outputs[places].double()], dim=1)
    errors = outputs.double() - targets.double()
    quantiles = errors.sort().values[[round(q * (len(errors) - 1)) for q in QUANTILES]]
    return {"kind": "regression", "pairs": pairs.tolist(), "residual_quantiles": quantiles.tolist()}
