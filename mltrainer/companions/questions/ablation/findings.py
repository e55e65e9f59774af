"""What the trainings of an ablation gave, and its table."""

from __future__ import annotations

from typing import Any

from mltrainer.companions.questions.findings import Findings, Value
from mltrainer.records.common import MetricChoice


class MeasuredRun(Findings):
    """A training: its outcome by the metric, and what it cost.

    Attributes:
        state: How it ended.
        value: The metric; NaN where it failed.
        reason: Why it failed; None where it did not.
        run: Its id.
        parameters: How many numbers were trained.
        weights_sha256: The digest of its weights.
        step_us: The median step, in microseconds.
        wall_s: Its wall time.
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
    """Why the training on a seed failed."""

    seed: int
    reason: str


class Spread(Findings):
    """The metric over seeds.

    Attributes:
        values: Of each seed.
        mean: None where a run failed, as that of the survivors would be biased.
        interval: Of the mean; None where there are too few seeds.
        failed: The seeds that failed.
        runs: Their ids.
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
        name: Of the swap.
        takes_out: Whether it takes a component out.
        whole_failed: On how many seeds the whole config failed.
        differences: On each seed; nothing where a run failed.
        difference: Their mean.
        difference_interval: Its interval.
        better: On how many seeds the variant is better.
        worse: On how many it is worse.
        swap_is: "better" or "worse", by the mean.
        effect_size: The mean difference in its standard deviations.
        p: Of the exact sign-flip test, in the direction that was seen.
        pace: The median ratio of step times, where all seeds are clearly slower or faster.
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
    """A comparison with its verdict: in a word or two, with its reason; `p_corrected` is p corrected for being several."""

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
    """A key of a config that is swapped, with what it was and is then; of a group, its entries."""

    key: str
    before: Any
    after: Any


class Row(Contribution):
    """A contribution with the keys of its swap, and the command that adopts it where it is better."""

    keys: list[ChangedKey]
    command: str | None


class Source(Findings):
    """The file of the whole config, why it is this one, and its number of folds."""

    file: str
    why: str
    folds: int


class Plan(Findings):
    """What is about to be compared: the config, the metric, the level of the one-sided tests, and the number of runs."""

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
    """An ablation's table, as it lies beside its page.

    Attributes:
        mltrainer: The version that wrote it.
        project: The project's name.
        seeds: The seeds.
        whole: The whole config.
        rows: A row for each swap.
        comparisons: By how many the verdicts are corrected.
        fewest_seeds: As few could show one.
        trained_s: Seconds of training in all.
        code: The code that trained.
        command: It repeats the ablation.
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
