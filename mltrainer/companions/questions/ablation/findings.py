"""The trainings of an ablation, and its table."""

from __future__ import annotations

from typing import Any

from mltrainer.companions.questions.findings import Findings, Value
from mltrainer.records.common import MetricChoice


class MeasuredRun(Findings):
    """A training: its outcome by the metric, and its cost.

    Attributes:
        state: State at the end of the run.
        value: The metric; NaN for a failed run.
        reason: Reason of the failure; None without one.
        run: The run's id.
        parameters: Number of trained parameters.
        weights_sha256: Digest of its weights.
        step_us: The median step, in microseconds.
        wall_s: Wall time in seconds.
    """

    state: str
    value: Value
    reason: str | None
    run: str
    parameters: int | None
    weights_sha256: str | None
    step_us: Value | None
    wall_s: Value | None


class Measured(Findings):
    """The runs of the whole config, then of each variant, on each of the seeds."""

    seeds: list[int]
    sides: list[list[MeasuredRun]]


class Failure(Findings):
    """A failed seed and the reason."""

    seed: int
    reason: str


class Spread(Findings):
    """The metric over seeds.

    Attributes:
        values: Metric of each seed.
        mean: Mean of the values; None if a run failed, as the survivors' mean would be biased.
        interval: Interval of the mean; None for too few seeds.
        failed: The seeds that failed.
        runs: Ids of the runs.
    """

    values: list[Value]
    mean: Value | None
    interval: list[Value] | None
    failed: list[Failure]
    runs: list[str]


class Side(Spread):
    """The metric over seeds, with the number of parameters and the median step time in microseconds."""

    parameters: int | None
    step_us: Value | None


class Comparison(Side):
    """A variant beside the whole config on the same seeds.

    Attributes:
        name: Name of the swap.
        takes_out: Whether it takes a component out.
        whole_failed: Number of seeds on which the whole config failed.
        differences: Difference on each seed; empty if a run failed.
        difference: Mean of the differences.
        difference_interval: Interval of the mean difference.
        better: Number of seeds on which the variant is better.
        worse: Number of seeds on which it is worse.
        swap_is: Direction of the mean: "better" or "worse".
        effect_size: Mean difference in standard deviations.
        p: P-value of the exact sign-flip test, in the measured direction.
        pace: Median ratio of step times; None unless all seeds are clearly slower or faster.
        never_acts: Whether every run ended in the whole config's weights, bit for bit.
    """

    name: str
    takes_out: bool
    whole_failed: int
    differences: list[Value]
    difference: Value | None
    difference_interval: list[Value] | None
    better: int
    worse: int
    swap_is: str
    effect_size: Value | None
    p: Value | None
    pace: Value | None
    never_acts: bool


class Contribution(Comparison):
    """A comparison with its verdict in a word or two and the reason; `p_corrected` is p corrected for several comparisons."""

    p_corrected: Value | None
    verdict: str
    why: str


class Contributions(Findings):
    """The whole config and each contribution; `comparisons` correct the verdicts, `fewest_seeds` could show one."""

    whole: Side
    rows: list[Contribution]
    comparisons: int
    fewest_seeds: int


class ChangedKey(Findings):
    """A key of a config that is swapped, with old and new value; for a group, its entries."""

    key: str
    before: Any
    after: Any


class Row(Contribution):
    """A contribution with the keys of its swap, and the command that adopts it where it is better."""

    keys: list[ChangedKey]
    command: str | None


class Source(Findings):
    """The file of the whole config, the reason for the choice, and its number of folds."""

    file: str
    why: str
    folds: int


class Plan(Findings):
    """A planned comparison: the config, the metric, the level of the one-sided tests, and the number of runs."""

    config: Source
    metric: MetricChoice
    level: Value
    runs: int


class PlannedSwap(Findings):
    """A swap by its name, with the keys that it changes."""

    name: str
    keys: list[ChangedKey]


class Listed(Plan):
    """A plan with its swaps, seconds of a run, runs at a time, and seconds of all."""

    swaps: list[PlannedSwap]
    seeds: int
    run_s: Value
    workers: int
    about_s: Value


class Code(Findings):
    """The commit and the digest of the project's code."""

    commit: str | None
    sha256: str


class Table(Plan):
    """An ablation's table, as in the file beside its page.

    Attributes:
        mltrainer: Version of mltrainer that wrote it.
        project: The project's name.
        seeds: The seeds.
        whole: The whole config.
        rows: A row for each swap.
        comparisons: Number of comparisons that the verdicts are corrected for.
        fewest_seeds: Fewest seeds that could show a difference.
        trained_s: Seconds of training in all.
        code: The code that trained.
        command: Command that repeats the ablation.
        page: The page's path.
    """

    mltrainer: str
    project: str
    seeds: list[int]
    whole: Side
    rows: list[Row]
    comparisons: int
    fewest_seeds: int
    trained_s: Value
    code: Code
    command: str
    page: str
