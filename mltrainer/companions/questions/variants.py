"""A config and variants of it, trained on the same seeds: shared by ablations, seed variance and trials of remedies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mltrainer.companions.questions.findings import Findings, Value
from mltrainer.configs.components import Swap
from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.loading import at
from mltrainer.configs.pages import ORCHESTRATOR, phase_page, trained_by
from mltrainer.configs.project import TrainingConfig, config_digest, load_project
from mltrainer.errors import InputError
from mltrainer.gates.gate import Gate, check_gates, why_closed
from mltrainer.gates.statistics import (
    MAX_NEEDED,
    effect_size,
    fewest_pairs,
    holm,
    improvements,
    interval,
    seeds_needed,
    sign_flip_p_value,
)
from mltrainer.records.common import MetricChoice
from mltrainer.records.job import AblationJob, Variant
from mltrainer.records.reading import Record
from mltrainer.reports.values import counted, number
from mltrainer.runs.contract import contract_of, planned_files
from mltrainer.workspace import Project, digest

TOOL = "ablation_study"
PHASE = "ablation"  # the phase that the runs name
FEWEST_SEEDS, MOST_SEEDS = 2, 20  # the exact test goes through 2**n sums


def whole_config(project: Project, planning: Gate) -> tuple[TrainingConfig, bool, str, str]:
    """Return the ablated config, whether optimization decided it, its file, and the reason for the choice."""
    assert planning.record is not None
    gate = next(gate for gate in check_gates(project) if gate.phase == "optimization")
    planned = planning.record.trusted.evidence
    if gate.holds and gate.record is not None:
        evidence, file, why = gate.record.trusted.evidence, "final_config.yaml", "the gate of optimization holds"
    else:
        evidence, file, why = planned, "training_config.yaml", why_closed(gate)
    config = TrainingConfig.model_validate(evidence.config)
    workers = planned.loader.workers if planned.loader else 0
    folder = project.phase_dir("optimization" if gate.holds else "planning")
    return config.with_workers(workers), gate.holds, project.relative(folder / file), why


def level_of(project: Project) -> float:
    """Return the level of the comparison of a search's winner, by which components are judged, too."""
    items = phase_page("optimization", project.root).items
    settings = next(item.settings for item in items if item.id == "improvement_validated")
    return ImprovementSettings.model_validate(settings).level


def require_one_trainer(project: Project, what: str) -> None:
    """Refuse a comparison if the phases train with another tool than the shipped trainer.

    Raises:
        InputError: The comparison, `what`, works with the shipped trainer only.
    """
    task = load_project(project.file).task
    trained = trained_by("baseline", project.root, task.trainer).tool
    if trained == task.trainer and task.is_opaque:
        hint = "vary its arguments (mltrainer phase run optimization), or write it as a custom task (task.use)"
        raise InputError(f"{what} changes and trains a model of mltrainer's, and this project's task is a program", hint=hint)
    if trained != task.trainer:
        raise InputError(f"{what} trains with {ORCHESTRATOR}, and this project's baseline is trained by {trained}")


def job_of(root: Path, planning: Record, config: TrainingConfig, swaps: Sequence[Swap], seeds: int, phase: str) -> AblationJob:
    """Return the tool's job; periodic checkpoints are not kept, which renames no run.

    Args:
        root: The project's folder.
        planning: Planning's record.
        config: The whole config.
        swaps: Changes that are trained beside it.
        seeds: Number of fresh seeds; 0: the config's seed.
        phase: The phase that its runs name.
    """
    # Checkpoints for resumption alone would fill the disk: there is a run for each variant and seed.
    if not config.task.is_opaque:
        config = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"keep": 0})})
    contract = {key: value for key, value in contract_of(planning, config, root).items() if key != "config_sha256"}
    variants = [{"name": swap.name, "changes": swap.changes} for swap in swaps]
    # Only inputs that decide bits name the study, so that the same question reuses its runs.
    run = digest({**contract, "config": config_digest(config), "variants": variants, "seeds": seeds})[:12]
    return AblationJob(
        run=run,
        phase=phase,
        folder=f".mltrainer/ablations/{run}",
        config=config,
        variants=[Variant.model_validate(row) for row in variants],
        seeds=seeds,
        contract=contract,
        code_files=planning.trusted.source.files,
        gate=planning.sha256,
        parent=None,
        threads=config.threads,
        **planned_files(planning.trusted.evidence),
    )


def changed_keys(config: TrainingConfig, swap: Swap) -> list[ChangedKey]:
    """Return the keys that a swap changes, each with old and new value; unchanged keys are left out."""
    values = config.model_dump()
    rows = [ChangedKey(key=key, before=_held(values, key), after=value) for key, value in swap.changes.items()]
    return [row for row in rows if row.before != row.after]


def _held(values: Any, key: str) -> Any:
    """Return the value at a dotted key; for a group, its entries that are not None."""
    held = at(values, key)
    return {name: item for name, item in held.items() if item is not None} if isinstance(held, dict) else held


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


Runs = Sequence[MeasuredRun]
CLEARLY = 0.1  # smallest relative change of step time that is a reason to take a component out; chosen by us
TIMED = 5  # runs on each side: of five pairs without a difference all lie on one side once in sixteen times
WORDS = {True: {"worse": "helps", "better": "hurts"}, False: {"worse": "is worse", "better": "is better"}}
PERHAPS = {"helps": "may help", "hurts": "may hurt", "is worse": "may be worse", "is better": "may be better"}


def contributions(swaps: Sequence[Swap], sides: Sequence[Runs], seeds: Sequence[int], mode: str, level: float) -> Contributions:
    """Return the contribution of each swap of an ablation.

    Args:
        swaps: The swaps.
        sides: Runs on each seed, for the whole config and then for each swap.
        seeds: The seeds.
        mode: Better direction of the metric: "max" or "min".
        level: Level of the one-sided tests; intervals have the confidence 1 - 2 * level.
    """
    whole = sides[0]
    rows = [_compared(swap, runs, whole, seeds, mode, level) for swap, runs in zip(swaps, sides[1:], strict=True)]
    # Only tested swaps count as comparisons: a failed one had no chance of a false positive.
    tested = [row.p for row in rows if row.p is not None]
    corrected = iter(holm(tested))
    judged = [
        _judged(row, next(corrected) if row.p is not None else None, comparisons=len(tested), seeds=len(seeds), level=level)
        for row in rows
    ]
    fewest = fewest_pairs(level, max(1, len(tested)))
    return Contributions(whole=_side(whole, seeds, level), rows=judged, comparisons=len(tested), fewest_seeds=fewest)


def _side(runs: Runs, seeds: Sequence[int], level: float) -> Side:
    """Return the metric statistics of some runs; with a failed run there is no mean, as that of the survivors would be biased."""
    values = [float(run.value) for run in runs]
    failed = [Failure(seed=seed, reason=run.reason) for seed, run in zip(seeds, runs, strict=True) if run.reason]
    ends = None if failed else interval(values, level)
    paces = [run.step_us for run in runs if run.step_us is not None]
    return Side(
        values=[run.value for run in runs],
        mean=None if failed else math.fsum(values) / len(values),
        interval=list(ends) if ends else None,
        failed=failed,
        runs=[run.run for run in runs],
        parameters=next((run.parameters for run in runs if run.parameters is not None), None),
        step_us=statistics.median(paces) if paces else None,
    )


def _compared(swap: Swap, runs: Runs, whole: Runs, seeds: Sequence[int], mode: str, level: float) -> Comparison:
    gains = improvements([run.value for run in runs], [run.value for run in whole], mode)
    sign = 1 if mode == "max" else -1
    ends, effect = interval([sign * gain for gain in gains], level), effect_size(gains)
    return Comparison.of(
        _side(runs, seeds, level),
        name=swap.name,
        takes_out=swap.takes_out,
        whole_failed=sum(run.reason is not None for run in whole),
        differences=[sign * gain for gain in gains],
        difference=sign * math.fsum(gains) / len(gains) if gains else None,
        difference_interval=list(ends) if ends else None,
        better=sum(gain > 0 for gain in gains),
        worse=sum(gain < 0 for gain in gains),
        swap_is="better" if math.fsum(gains) > 0 else "worse",
        effect_size=effect,
        p=min(sign_flip_p_value(gains), sign_flip_p_value([-gain for gain in gains])) if gains else None,
        pace=_pace(runs, whole),
        never_acts=_never_acts(runs, whole),
    )


def _pace(runs: Runs, whole: Runs) -> float | None:
    """Return the median ratio of step times to the whole config's; None unless all seeds are clearly slower, or all faster."""
    pairs = [(run.step_us, other.step_us) for run, other in zip(runs, whole, strict=True)]
    ratios = [float(mine / other) for mine, other in pairs if mine and other]
    if len(ratios) < TIMED or not (min(ratios) > 1 + CLEARLY or max(ratios) < 1 - CLEARLY):
        return None
    return statistics.median(ratios)


def _never_acts(runs: Runs, whole: Runs) -> bool:
    """Return True if every run ended in the same weights, bit for bit, as the whole config's."""
    digests = [(run.weights_sha256, other.weights_sha256) for run, other in zip(runs, whole, strict=True)]
    return all(mine is not None and mine == other for mine, other in digests)


# --- verdicts -------------------------------------------------------------------------------------


def _judged(row: Comparison, p_corrected: float | None, *, comparisons: int, seeds: int, level: float) -> Contribution:
    verdict, why = _verdict(row, p_corrected, comparisons, seeds, level)
    return Contribution.of(row, p_corrected=p_corrected, verdict=verdict, why=why)


def _verdict(row: Comparison, p_corrected: float | None, comparisons: int, seeds: int, level: float) -> tuple[str, str]:
    """Return a row's verdict in a word or two, and its reason in a sentence."""
    if row.whole_failed:
        return "not known", f"the whole config failed on {counted(row.whole_failed, 'seed')}, so nothing is compared"
    if row.failed or row.p is None or p_corrected is None:
        share = f"{len(row.failed)} of {counted(seeds, 'training')} failed"
        return "fails", f"{share}: {row.failed[0].reason}"
    word = WORDS[row.takes_out][row.swap_is]
    if p_corrected <= level:
        return word, ""
    needed = _needed(row, comparisons, seeds, level)
    if row.p <= level:
        return PERHAPS[word], f"shown alone, but not among {counted(comparisons, 'comparison')}; {needed}"
    if not any(row.differences):
        return "no difference", f"the same {'weights' if row.never_acts else 'metric'} on every seed"
    return "no difference shown", f"at {counted(seeds, 'seed')}; {needed}"


def _needed(row: Comparison, comparisons: int, seeds: int, level: float) -> str:
    """Return in words the number of seeds that would show a difference of the measured size."""
    fewest = fewest_pairs(level, comparisons)
    if seeds < fewest:
        return f"{fewest} seeds are the fewest that could"
    needed = seeds_needed(abs(row.effect_size), level / comparisons) if row.effect_size else None
    # At least one more than now: an estimate from few seeds may be too small, and these seeds have shown nothing.
    return f"more than {number(MAX_NEEDED)} would" if needed is None else f"about {number(max(needed, seeds + 1))} would"
