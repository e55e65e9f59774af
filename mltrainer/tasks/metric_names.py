"""The names of the built-in metrics, and which way each is better."""

from __future__ import annotations

CLASSIFICATION_METRICS = (
    "loss",
    "accuracy",
    "f1_macro",
    "balanced_accuracy",
    "roc_auc",
    "average_precision",
    "log_loss",
    "calibration_error",
)
REGRESSION_METRICS = ("loss", "r2", "rmse", "mae")
SMALLER_IS_BETTER = frozenset(("loss", "log_loss", "calibration_error", "rmse", "mae", "perplexity", "bits_per_byte"))
LARGER_IS_BETTER = frozenset((*CLASSIFICATION_METRICS, *REGRESSION_METRICS)) - SMALLER_IS_BETTER

SHARES = frozenset(("accuracy", "f1_macro", "balanced_accuracy", "roc_auc", "average_precision", "calibration_error"))  # 0 to 1


def direction(name: str) -> str | None:
    """Return "max" for a metric of which larger is better, "min" for the others; None for one that is not built in."""
    return "max" if name in LARGER_IS_BETTER else "min" if name in SMALLER_IS_BETTER else None
