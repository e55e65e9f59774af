"""The suggested batch size of measured sizes, and what it takes to try twice as many: pure functions of plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mltrainer.configs.project import TrainingConfig
from mltrainer.questions.batch_size.findings import Adaptation, Size
from mltrainer.questions.suggestion import Suggestion, rounded

LINEAR = ("sgd", "lars")  # their update is as large as the gradient, or held to a share of the weights


def doubled(first: int, samples: int) -> Iterator[int]:
    """Yield `first`, twice it and so on, up to the number of samples; at least one size."""
    size = min(first, samples)
    while size <= samples:
        yield size
        size *= 2


def needed_mb(rows: Sequence[Size]) -> float:
    """Return the expected peak memory in MiB of twice the last batch: the last doubling's growth, twice."""
    # Twice the last growth, as the next doubling adds twice as many samples as the last one did; the fixed part cancels out.
    peaks = [row.peak_mb for row in rows[-2:]]
    return float(peaks[-1] + 2 * max(0.0, peaks[-1] - peaks[0]))


def needed_s(rows: Sequence[Size], steps: int) -> float:
    """Return the expected seconds of some steps of twice the last batch: a step takes twice as long at most."""
    return steps * 2 * rows[-1].step_us / 1e6


def suggest_size(rows: Sequence[Size], near_best: float) -> Suggestion:
    """Return the smallest batch whose throughput is within a share of the best.

    Args:
        rows: Each size that fits, rising.
        near_best: The share.
    """
    if not rows:
        return Suggestion(None, "not one batch size fits: begin with a smaller one, with --from")
    best = max(rows, key=lambda row: row.samples_per_s)
    chosen = next(row for row in rows if row.samples_per_s >= (1 - near_best) * best.samples_per_s)
    rate = f"{chosen.samples_per_s:,.0f} samples/s"
    rate += "; smaller ones were not tried" if chosen is rows[0] else ""
    if chosen is best:
        return Suggestion(chosen.batch_size, f"the most of all, {rate}")
    more = best.samples_per_s / chosen.samples_per_s - 1
    return Suggestion(chosen.batch_size, f"{rate}; {best.batch_size} would bring only {more:.1%} more")


def adaptations(size: int, config: TrainingConfig) -> list[Adaptation]:
    """Return the ways to train with micro-batches of another size, each with what it means.

    With more samples in a step the learning rate grows: with SGD as they do (Goyal et al., 2017, arXiv 1706.02677), with
    optimizers that divide by the gradients' size as their root does (Malladi et al., 2022, arXiv 2205.10287).
    """
    samples, lr = config.batch_size * config.accumulate, config.optimizer.lr
    found: list[Adaptation] = []
    if size != config.batch_size and samples % size == 0:
        change: dict[str, float] = {"batch_size": size, "accumulate": samples // size}
        found.append(Adaptation(changes=change, why=f"{samples} samples in a step, as now: the rate fits"))
    if size != samples:
        linear = config.optimizer.name in LINEAR
        rate = rounded(lr * (size / samples if linear else math.sqrt(size / samples)))
        law = "as the samples do" if linear else "as their root does"
        change = {"batch_size": size, "accumulate": 1, "optimizer.lr": rate}
        why = f"{size} samples in a step instead of {samples}; the rate changes {law}: try it with lr-find"
        found.append(Adaptation(changes=change, why=why))
    return found
