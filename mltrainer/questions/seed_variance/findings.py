"""What several seeds gave."""

from __future__ import annotations

from mltrainer.questions.ablation.findings import Spread
from mltrainer.questions.findings import Findings, Value
from mltrainer.records.common import MetricChoice


class Source(Findings):
    """The file of the config, why it is this one, and whether it is that of a program."""

    file: str
    why: str
    program: bool


class SeedVariance(Spread):
    """The metric of a config over seeds.

    Attributes:
        config: The config.
        metric: The metric.
        confidence: Of the mean's interval.
        seeds: The seeds.
        fewest_seeds: Of fewer there is no interval.
        deviation: Of a single run.
        luck: The difference of two runs, of one seed each, that is exceeded in one of twenty cases by luck alone, if the metric
            is about normal.
        baseline: The metric of the baseline, which has the config's own seed; None where there is none.
        page: The page's path.
    """

    config: Source
    metric: MetricChoice
    confidence: Value
    seeds: list[int]
    fewest_seeds: int
    deviation: Value | None
    luck: Value | None
    baseline: Value | None
    page: str
