"""Cross-validation: a run for each fold of the training samples, and the mean of their metrics.

In: a config with `split.folds` and the run of its own fold. Out: a row for each fold, and each metric's mean and spread.
"""

from __future__ import annotations

from mltrainer.configs.project import TrainingConfig
from mltrainer.gates.statistics import over_folds
from mltrainer.phases.context import Context
from mltrainer.phases.training import train
from mltrainer.records.baseline import FoldRow, Folds
from mltrainer.records.run import RunResult


def cross_validated(ctx: Context, config: TrainingConfig, result: RunResult) -> Folds | None:
    """Return a config's metrics on each fold; None without folds or a finished first run.

    Args:
        ctx: The phase's context.
        config: The planned config, whose own fold is trained already.
        result: The result of that run.

    Raises:
        MltrainerError: Training was refused, or was stopped.
    """
    if not config.split.folds or result.state != "finished":
        return None
    rows = [_row(config.split.fold, result)]
    for fold in config.folds[1:]:
        ctx.note(f"fold {fold} of {config.split.folds} validates")
        rows.append(_row(fold, train(ctx, config.on_fold(fold))))
    metrics, spread = over_folds(rows)
    return Folds(count=config.split.folds, rows=rows, metrics=metrics, spread=spread)


def mean_of(folds: Folds | None) -> str:
    """Return the reports' name for the samples of a baseline's metrics: validation, or the mean over the folds."""
    return f"validation, mean of {folds.count} folds" if folds else "validation"


def _row(fold: int, result: RunResult) -> FoldRow:
    keys = ("state", "metrics", "train_samples", "epochs", "wall_s")
    return FoldRow(fold=fold, run=result.id, **{key: getattr(result, key) for key in keys})
