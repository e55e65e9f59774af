"""Which checkpoints are kept: sets computed from plain rows. Nothing is deleted here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mltrainer.checkpointing.ranking import best_row
from mltrainer.configs.project import Checkpoint, Metric

Row = Mapping[str, Any]


def roles(existing: Sequence[Row], metric: Metric, policy: Checkpoint) -> dict[int, list[str]]:
    """Return each checkpoint's roles by step: `best`, `last`, `periodic`, in this order.

    Args:
        existing: The intact checkpoints of one run. `step`; `validation`, the metrics at that step by name, empty where
            none were measured; `epoch`; and `periodic`, whether it was saved by the calendar - where that is missing, an
            epoch that `every_n_epochs` divides counts.
        metric: Which of two values is better, and what decides between equal ones.
        policy: The config's `checkpoint`.
    """
    best, last = best_step(existing, metric), max((row["step"] for row in existing), default=None)
    return {
        row["step"]: [
            name
            for name, holds in (
                ("best", policy.save_best and row["step"] == best),
                ("last", row["step"] == last),
                ("periodic", _is_periodic(row, policy)),
            )
            if holds
        ]
        for row in existing
    }


def best_step(existing: Sequence[Row], metric: Metric) -> int | None:
    """Return the step of the checkpoint by which the run is described: the best row of those that were measured."""
    best = best_row(sorted((row for row in existing if row["validation"]), key=lambda row: row["step"]), metric)
    return None if best is None else int(best["step"])


def _is_periodic(row: Row, policy: Checkpoint) -> bool:
    return bool(row.get("periodic", row["epoch"] % policy.every_n_epochs == 0))


def to_delete(existing: Sequence[Row], metric: Metric, policy: Checkpoint, protected: Collection[int]) -> set[int]:
    """Return the steps whose checkpoints may go: all but the best, the last, the newest periodic ones and protected ones.

    The last one stays even where the policy does not ask for it: a run must be able to go on.

    Args:
        existing: As for `roles`.
        metric: As for `roles`.
        policy: As for `roles`.
        protected: Steps that a record refers to.
    """
    named = roles(existing, metric, policy)
    periodic = sorted(step for step, names in named.items() if "periodic" in names)
    kept = {step for step, names in named.items() if "best" in names or "last" in names}
    kept.update(periodic[max(0, len(periodic) - policy.keep) :], protected)
    return set(named) - kept
