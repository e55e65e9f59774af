"""Runs and their differences as commands and notebooks show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mltrainer.records.common import Divergence, Measured, Metrics, Number
from mltrainer.records.run import Speed
from mltrainer.reports.values import counted, finite, number, share, signed
from mltrainer.tasks.statistics import SeedNoise, seed_noise


@dataclass(frozen=True)
class RunRow:
    """A run so far; None where an entry is not known.

    Attributes:
        id: The run's id.
        phase: The phase that trained it.
        state: The run's state: `running`, `finished`, `interrupted` or `failed`.
        config_sha256: The digest of its config.
        data_sha256: The digest of its data.
        code_sha256: The digest of its code.
        environment_sha256: The digest of its environment.
        inputs_sha256: The digest of other files that planning bound; None where it bound none.
        numerics_class: The numerics class, a digest that machines share when they compute the same bits.
        weights_sha256: The digest of the weights that it ended with.
        weights_tree_sha256: The digest of these weights as a tree over chunks; None of a program and of a custom tool.
        steps: The number of its optimizer steps; None of a program of which no step was seen.
        epochs: The number of epochs that it trained.
        metrics: The metrics of its best evaluation; the names of the training set's begin with `train_`.
        step_time_us: The median and the 95th percentile of a step's time in microseconds.
        wall_s: Its wall time in seconds.
        interruptions: The steps at which processes of it ended before it did, with the causes.
        parent: The id of the run that it was forked from; None where it was not.
    """

    id: str
    phase: str | None
    state: str
    config_sha256: str | None
    data_sha256: str | None
    code_sha256: str | None
    environment_sha256: str | None
    inputs_sha256: str | None
    numerics_class: str | None
    weights_sha256: str | None
    weights_tree_sha256: str | None
    steps: int | None
    epochs: int | None
    metrics: dict[str, Any] | None
    step_time_us: dict[str, Number] | None
    wall_s: float | None
    interruptions: list[dict[str, Any]] | None
    parent: str | None

    def written(self) -> dict[str, Any]:
        """Return the run as `runs show --json` prints it."""
        return dict(vars(self))

    @property
    def validation(self) -> Metrics:
        """The metrics on validation; none where they are not known."""
        return validation_metrics(self.metrics)

    @property
    def training(self) -> dict[str, Measured | None]:
        """The same metrics on the training set, by the same names."""
        known = self.metrics if isinstance(self.metrics, dict) else {}
        return {name: known.get(f"train_{name}") for name in self.validation}


@dataclass(frozen=True)
class Difference:
    """A config key, a digest or a metric in which two runs differ, with the value of each."""

    what: str
    first: Any
    second: Any


@dataclass(frozen=True)
class MetricDifference:
    """The difference of two runs' metric, the second less the first, and the verdict on whether chance explains it.

    Attributes:
        name: The metric's name.
        mode: The metric's direction, "max" or "min".
        difference: The second run's value less the first run's.
        samples: The number of rows that each was measured on; None where the metric is no share of rows.
        interval: The 95 % interval of the difference by that number of rows; None where there is none.
        verdict: The verdict: `same`, `better`, `worse` or `no clear difference`.
        least: The least difference that the seed does not explain, by the runs of one config that differ in it alone; None where
            there are no such runs, and then nothing is better.
        tries: The number of trials of which the better run's config was chosen as the best; 1 where no search chose it.
    """

    name: str
    mode: str
    difference: float
    samples: int | None
    interval: list[float] | None
    verdict: str
    least: float | None = None
    tries: int = 1


@dataclass(frozen=True)
class SpeedDifference:
    """The speeds of two runs, and the verdict on whether chance explains their difference.

    Attributes:
        first: The first run's `samples_per_s`, `tokens_per_s`, `flops_per_s` and `utilization`, each where it is known.
        second: The second run's.
        ratio: The second run's samples in a second, divided by the first's.
        least: The least ratio, above 1, that runs of one config do not explain, by those that differ in their seed alone; None
            where there are no such runs, and then nothing is faster.
        verdict: The verdict: `same`, `faster`, `slower` or `no clear difference`.
        beside: The phase of the one run that may have trained beside others, if the other one trained alone; else None. Then
            nothing is faster.
    """

    first: dict[str, float]
    second: dict[str, float]
    ratio: float
    least: float | None
    verdict: str
    beside: str | None = None

    @classmethod
    def of(cls, first: Speed, second: Speed, noise: SeedNoise | None, beside: str | None = None) -> SpeedDifference | None:
        """Return the difference of two speeds; None unless both were measured.

        Args:
            first: The first run's speed.
            second: The second run's.
            noise: The noise of the logarithm of samples in a second; None where no config was trained twice.
            beside: The phase of the one run that may have trained beside others, if the other one trained alone.
        """
        if not first.samples_per_s or not second.samples_per_s:
            return None
        ratio = second.samples_per_s / first.samples_per_s
        verdict = "faster" if ratio > 1 else "slower"
        if ratio == 1:
            verdict = "same"
        elif beside or noise is None or abs(math.log(ratio)) < noise.least:
            verdict = "no clear difference"
        return cls(_rates(first), _rates(second), ratio, math.exp(noise.least) if noise else None, verdict, beside)


def _rates(speed: Speed) -> dict[str, float]:
    known = {name: getattr(speed, name) for name in ("samples_per_s", "tokens_per_s", "flops_per_s", "utilization")}
    return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class RunComparison:
    """The differences of two runs.

    Attributes:
        first: The first run's id.
        second: The second run's id.
        differences: The differences in config, digests and metrics.
        first_divergence: The first step at which their chains differ; None where none does.
        steps_compared: The number of entries of their chains that were compared; 0 where one of the chains is not here.
        metric: The difference in their metric; None where they have none in common.
        speed: The difference in their speed; None where it was not measured of both, and of a run and itself.
    """

    first: str
    second: str
    differences: list[Difference]
    first_divergence: Divergence | None
    steps_compared: int
    metric: MetricDifference | None
    speed: SpeedDifference | None = None

    def written(self) -> dict[str, Any]:
        """Return the comparison as `runs compare --json` prints it."""
        parted = self.first_divergence
        return {**asdict(self), "first_divergence": parted.written() if parted else None}


def noise_of_comparison(evidence: Any) -> SeedNoise | None:
    """Return the noise of seeds in the comparison of a search's winner with the baseline; None where seeds were not compared."""
    comparison = getattr(evidence, "comparison", None)
    sides = (comparison.baseline, comparison.candidate) if comparison is not None else ()
    return seed_noise([[float(value) for value in side if finite(value)] for side in sides])


def validation_metrics(metrics: Any) -> Metrics:
    """Return the metrics on validation alone; none where a run has no metrics yet."""
    known = metrics if isinstance(metrics, dict) else {}
    return {name: value for name, value in known.items() if not name.startswith("train_")}


def metrics_text(metrics: Mapping[str, Any], only: Collection[str] = ()) -> str:
    """Return metrics on one line of a terminal: those of `only` where there are any, else all."""
    chosen = {name: value for name, value in metrics.items() if name in only} or metrics
    return ", ".join(f"{name} {number(value)}" for name, value in chosen.items())


def difference_text(row: MetricDifference | None) -> str:
    """Return the difference of two runs' metric and its verdict; empty where they have no metric in common."""
    if row is None:
        return ""
    if row.verdict == "same":
        return f"{row.name} on validation: the same"
    shown = [_of_rows(row), of_seeds(row.least), f"the better one is the best of {row.tries} trials" if row.tries > 1 else ""]
    verdict = row.verdict if row.verdict == "no clear difference" else f"the second is {row.verdict}"
    return f"{row.name} on validation: {signed(row.difference)} ({'; '.join(filter(None, shown))}): {verdict}"


SPEEDS: dict[str, tuple[str, Callable[[float], str]]] = {
    "samples_per_s": ("samples/s", number),
    "tokens_per_s": ("tokens/s", number),
    "flops_per_s": ("TFLOPS", lambda rate: number(rate / 1e12)),
    "utilization": ("MFU", share),
}


def speed_rows(found: SpeedDifference) -> list[list[str]]:
    """Return a row for each rate that is known of a run: its unit, and both runs' numbers."""
    known = {name: [side.get(name) for side in (found.first, found.second)] for name in SPEEDS}
    return [
        [SPEEDS[name][0], *("-" if value is None else SPEEDS[name][1](value) for value in values)]
        for name, values in known.items()
        if any(value is not None for value in values)
    ]


def speeds_apart(found: SpeedDifference) -> str:
    """Return the verdict on two runs' speeds in words."""
    least = "how far two runs of one config differ is unknown: mltrainer seeds"
    if found.beside is not None:
        least = f"one trained in {found.beside}, where several runs can train at the same time; the other one trained alone"
    elif found.least is not None:
        least = f"two runs of one config differ by up to {number(found.least)} times"
    verdict = f"the second is {found.verdict}" if found.verdict in ("faster", "slower") else found.verdict
    return f"speed: {number(found.ratio)} times as many samples in a second ({least}): {verdict}"


def _of_rows(row: MetricDifference) -> str:
    if row.interval is None:
        return ""
    low, high = (signed(end) for end in row.interval)
    return f"95 % interval {low} to {high} from {counted(row.samples, 'row')}"


def of_seeds(least: float | None) -> str:
    """Return the difference that seeds alone make, in words."""
    if least is None:
        return "seed variation is unknown: mltrainer seeds"
    return f"seeds alone change up to {number(least)}"


def parting(found: RunComparison) -> str:
    """Return the first divergent step of two runs in words; without both hash chains the steps are not comparable."""
    if not found.steps_compared:
        return "their steps were not compared: the chain of one of them is not here, or holds no step"
    step = found.first_divergence
    if step is None:
        return f"the same bits in all {found.steps_compared} steps that both made"
    return f"first different step: {step.step} ({step.what})"
