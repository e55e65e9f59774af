"""Cross-validation: a run for each fold of the training samples, and what they reach in the mean.

In: a config with `split.folds` and the run of its own fold. Out: a row for each fold, and each metric's mean and spread.
"""

from __future__ import annotations

from typing import Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.gates.statistics import over_folds
from mltrainer.phases.context import Context
from mltrainer.phases.training import train
from mltrainer.records.run import RunResult


def cross_validated(ctx: Context, config: TrainingConfig, result: RunResult) -> dict[str, Any] | None:
    """Return a config's metrics on each fold, as the baseline's record holds them; None without folds or a finished first run.

    Args:
        ctx: The phase's surroundings.
        config: The planned config, whose own fold is trained already.
        result: That run's.

    Raises:
        MltrainerError: Training was refused, or was stopped.
    """
    if not config.split.folds or result.state != "finished":
        return None
    rows = [_row(config.split.fold, result)]
    for fold in config.folds[1:]:
        ctx.note(f"fold {fold} of {config.split.folds} validates")
        rows.append(_row(fold, train(ctx, config.on_fold(fold))))
    return {"count": config.split.folds, "rows": rows, **over_folds(rows)}


def metrics_of(baseline: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics that a baseline is judged by: the mean over its folds, or those of its run."""
    folds = baseline.get("folds")
    return dict(folds["metrics"] if folds else baseline["run"]["metrics"])


def mean_of(folds: dict[str, Any] | None) -> str:
    """Return the reports' name for the samples of a baseline's metrics: validation, or the mean over the folds."""
    return f"validation, mean of {folds['count']} folds" if folds else "validation"


def _row(fold: int, result: RunResult) -> dict[str, Any]:
    keys = ("state", "metrics", "train_samples", "epochs", "wall_s")
    return {"fold": fold, "run": result.id, **{key: getattr(result, key) for key in keys}}
