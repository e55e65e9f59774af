"""Which checkpoints are kept: sets computed from plain rows. Nothing is deleted here."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from mltrainer.configs.project import Checkpoint

Row = Mapping[str, Any]
Mode = Literal["max", "min"]


def roles(existing: Sequence[Row], best_mode: Mode, policy: Checkpoint) -> dict[int, list[str]]:
    """Return each checkpoint's roles by step: `best`, `last`, `periodic`, in this order.

    Args:
        existing: The intact checkpoints of one run. `step`; `metric`, the validation metric at that step or None where
            it was not measured; `epoch`; and `periodic`, whether it was saved by the calendar - where that is missing, an
            epoch that `every_n_epochs` divides counts.
        best_mode: Whether a larger or a smaller metric is better.
        policy: The config's `checkpoint`.
    """
    best, last = best_step(existing, best_mode), max((row["step"] for row in existing), default=None)
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


def best_step(existing: Sequence[Row], best_mode: Mode) -> int | None:
    """Return the step with the best metric; the earlier of equals; a metric that is NaN is worse than any number."""
    measured = sorted((row for row in existing if row["metric"] is not None), key=lambda row: row["step"])
    best = max(measured, key=lambda row: _goodness(float(row["metric"]), best_mode), default=None)
    return None if best is None else int(best["step"])


def _goodness(metric: float, mode: Mode) -> tuple[bool, float]:
    if math.isnan(metric):
        return (False, 0.0)
    return (True, metric if mode == "max" else -metric)


def _is_periodic(row: Row, policy: Checkpoint) -> bool:
    return bool(row.get("periodic", row["epoch"] % policy.every_n_epochs == 0))


def to_delete(existing: Sequence[Row], best_mode: Mode, policy: Checkpoint, protected: Collection[int]) -> set[int]:
    """Return the steps whose checkpoints may go: all but the best, the last, the newest periodic ones and protected ones.

    The last one stays even where the policy does not ask for it: a run must be able to go on.

    Args:
        existing: As for `roles`.
        best_mode: As for `roles`.
        policy: As for `roles`.
        protected: Steps that a record refers to.
    """
    named = roles(existing, best_mode, policy)
    periodic = sorted(step for step, names in named.items() if "periodic" in names)
    kept = {step for step, names in named.items() if "best" in names or "last" in names}
    kept.update(periodic[max(0, len(periodic) - policy.keep) :], protected)
    return set(named) - kept
