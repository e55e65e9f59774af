"""How far a network is from plain models: the bootstrap over the same validation rows, drawn for all of them together.

An interval is the percentile interval of `trainers/native/intervals.py`, with the same draws; the lead is the difference
to the network on the same resample, which leaves out what both owe to the rows
(Efron and Tibshirani, 1993, An Introduction to the Bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mltrainer.reproducibility import seeds
from mltrainer.trainers.native.intervals import ends

Measure = Callable[[Tensor, Tensor], float]
LEAST_RESAMPLES = 100  # percentiles of fewer say little


@dataclass(frozen=True)
class Asked:
    """The settings of a comparison of models.

    Attributes:
        level: The share of resamples between the two ends, such as 0.95.
        resamples: Number of resamples, at most.
        draws: Number of rows drawn in all, at most, but for the least number of resamples.
        sign: 1 where a larger metric is better, -1 where a smaller one is.
        seed: The run's.
    """

    level: float
    resamples: int
    draws: int
    sign: int
    seed: int

    def resamples_of(self, rows: int) -> int:
        """Return the number of resamples for so many rows; never by the clock, so that intervals are the same everywhere."""
        return min(self.resamples, max(LEAST_RESAMPLES, self.draws // rows))


Ends = list[float] | None  # of an interval, low and high; None where a resample has no number


@dataclass(frozen=True)
class Lead:
    """The network's lead over another model, above zero where it is better, beside that model's own interval."""

    interval: Ends = None
    lead: Ends = None
    verdict: Literal["ahead", "level", "behind"] | None = None


@dataclass(frozen=True)
class Comparison:
    """The network's interval behind so many resamples, and its lead over each other model, by name."""

    resamples: int
    network: Ends
    others: dict[str, Lead]


def compare(network: Tensor, others: Mapping[str, Tensor], targets: Tensor, measure: Measure, asked: Asked) -> Comparison:
    """Return the network's interval, and each other model's with its lead over the network.

    Args:
        network: Outputs of the validation rows.
        others: Each model's, by its name.
        targets: Of the same rows.
        measure: The metric that is compared.
        asked: How.
    """
    count = asked.resamples_of(len(targets))
    draws = seeds.generator(asked.seed, "bootstrap")
    drawn: dict[str | None, list[float]] = {name: [] for name in (None, *others)}
    for _ in range(count):
        rows = torch.from_numpy(draws.integers(0, len(targets), len(targets)))
        for name in drawn:
            drawn[name].append(measure((network if name is None else others[name])[rows], targets[rows]))
    mine = np.array(drawn[None])
    leads = {name: _against(mine, np.array(drawn[name]), asked) for name in others}
    return Comparison(count, ends(drawn[None], asked.level), leads)


def _against(network: np.ndarray, other: np.ndarray, asked: Asked) -> Lead:
    leads, interval = asked.sign * (network - other), ends(other.tolist(), asked.level)
    # A resample may lack a class, without which some metrics are no number.
    if not np.isfinite(leads).all():
        return Lead(interval)
    low, high = np.quantile(leads, [(1 - asked.level) / 2, (1 + asked.level) / 2])
    return Lead(interval, [float(low), float(high)], "ahead" if low > 0 else "behind" if high < 0 else "level")
