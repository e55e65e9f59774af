"""A config and variants of it, trained on the same seeds: shared by ablations, seed variance and trials of remedies.

Every run of a variant is compared with that of the whole config on the same seed. Intervals and p-values are those of the exact
sign-flip test, as in the comparison of a search's winner; verdicts are corrected for being several, intervals are not.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from mltrainer.companions.questions.findings import Findings, Value
from mltrainer.configs.components import Swap
from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.loading import at
from mltrainer.configs.pages import ORCHESTRATOR, page_path, phase_page, trained_by
from mltrainer.configs.project import TrainingConfig, config_digest, load_project
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates, gates_before, why_closed
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
from mltrainer.records.run import RunResult
from mltrainer.reports.values import counted, given, number
from mltrainer.runs.contract import contract_of, planned_files
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, digest, without_none

TOOL = "ablation_study"
PHASE = "ablation"  # the phase that the runs name
FEWEST_SEEDS, MOST_SEEDS = 2, 20  # the exact test goes through 2**n sums
CLEARLY = 0.1  # smallest relative change of step time that is a reason to take a component out; chosen by us
TIMED = 5  # runs on each side: of five pairs without a difference all lie on one side once in sixteen times
WORDS = {True: {"worse": "helps", "better": "hurts"}, False: {"worse": "is worse", "better": "is better"}}
PERHAPS = {"helps": "may help", "hurts": "may hurt", "is worse": "may be worse", "is better": "may be better"}


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


Runs = Sequence[MeasuredRun]


class Measured(Findings):
    """The runs of the whole config, then of each variant, on each of the seeds."""

    seeds: list[int]
    sides: list[list[MeasuredRun]]


class Failure(Findings):
    """A failed seed and the reason."""

    seed: int
    reason: str


class Side(Findings):
    """The metric over seeds.

    Attributes:
        values: Metric of each seed.
        mean: Mean of the values; None if a run failed, as the survivors' mean would be biased.
        interval: Interval of the mean; None for too few seeds.
        failed: The seeds that failed.
        runs: Ids of the runs.
        parameters: Number of parameters.
        step_us: The median step, in microseconds.
    """

    values: list[Value]
    mean: Value | None
    interval: list[Value] | None
    failed: list[Failure]
    runs: list[str]
    parameters: int | None
    step_us: Value | None


class Contribution(Side):
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
        p_corrected: The p-value corrected for several comparisons.
        verdict: Verdict in a word or two.
        why: Reason of the verdict.
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
    p_corrected: Value | None = None
    verdict: str = ""
    why: str = ""


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


class Source(Findings):
    """The file of a config, the reason for the choice, its number of folds, and whether a program trains it."""

    file: str
    why: str
    folds: int
    program: bool


# --- the runs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """The config that is trained on several seeds.

    Attributes:
        config: The config: the one that optimization decided, else the planned one.
        is_final: Whether optimization decided it.
        file: File of the config, relative to the project.
        why: Reason for this config.
        level: Level of the one-sided tests: that of a search's winner.
        planning: Planning's record.
    """

    config: TrainingConfig
    is_final: bool
    file: str
    why: str
    level: float
    planning: Record

    @classmethod
    def of(cls, project: Project, what: str) -> Self:
        """Return the project's config.

        Raises:
            GateError: Planning's gate does not hold, which `what` needs.
        """
        planning = planning_of(project, what)
        gate = next(gate for gate in check_gates(project) if gate.phase == "optimization")
        planned = planning.trusted.evidence
        if gate.holds and gate.record is not None:
            evidence, file, why = gate.record.trusted.evidence, "final_config.yaml", "the gate of optimization holds"
        else:
            evidence, file, why = planned, "training_config.yaml", why_closed(gate)
        config = TrainingConfig.model_validate(evidence.config).with_workers(planned.loader.workers if planned.loader else 0)
        folder = project.phase_dir("optimization" if gate.holds else "planning")
        items = phase_page("optimization", project.root).items
        settings = next(item.settings for item in items if item.id == "improvement_validated")
        level = ImprovementSettings.model_validate(settings).level
        return cls(config, gate.holds, project.relative(folder / file), why, level, planning)

    @property
    def source(self) -> Source:
        """The source of the config."""
        config = self.config
        return Source(file=self.file, why=self.why, folds=config.split.folds, program=config.task.is_opaque)

    @property
    def metric(self) -> MetricChoice:
        """The metric."""
        return MetricChoice.model_validate(self.config.metric.model_dump())

    def contributions(self, swaps: Sequence[Swap], measured: Measured) -> Contributions:
        """Return the contribution of each swap."""
        return contributions(swaps, measured.sides, measured.seeds, self.config.metric.mode, self.level)


def planning_of(project: Project, what: str) -> Record:
    """Return planning's record.

    Raises:
        GateError: Planning's gate does not hold, which `what` needs.
    """
    (planning,) = gates_before(project, "baseline", what)
    assert planning.record is not None
    return planning.record


def baseline_of(project: Project) -> RunResult | None:
    """Return the result of the baseline's run; None without one."""
    record = check_gates(project)[1].record
    return record.typed.evidence.run if record is not None and record.typed is not None else None


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
        message = f"{what} trains with {ORCHESTRATOR}, and this project's baseline is trained by {trained}"
        raise InputError(message, hint=f"name tool: {ORCHESTRATOR} in your own {page_path('baseline')}")


def counted_seeds(count: int, fewest: int) -> int:
    """Return a number of seeds.

    Raises:
        InputError: They are too few to show anything, or more than the exact test takes.
    """
    if not fewest <= count <= MOST_SEEDS:
        hint = f"--seeds {min(max(count, fewest), MOST_SEEDS)}"
        raise InputError(expected=f"{fewest} to {MOST_SEEDS} seeds", found=count, where="seeds", hint=hint)
    return count


def trained(
    tools: Tools, planning: Record, config: TrainingConfig, swaps: Sequence[Swap], seeds: int, phase: str = PHASE
) -> Measured:
    """Return the runs of a config and of variants of it; periodic checkpoints are not kept, which renames no run.

    Args:
        tools: The project's tools.
        planning: Planning's record.
        config: The whole config.
        swaps: Changes that are trained beside it.
        seeds: Number of fresh seeds; 0: the config's seed.
        phase: The phase that its runs name.
    """
    root = tools.project.root
    # Checkpoints for resumption alone would fill the disk: there is a run for each variant and seed.
    if not config.task.is_opaque:
        config = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"keep": 0})})
    contract = {key: value for key, value in contract_of(planning, config, root).items() if key != "config_sha256"}
    variants = [{"name": swap.name, "changes": swap.changes} for swap in swaps]
    # Only inputs that decide bits name the study, so that the same question reuses its runs.
    run = digest({**contract, "config": config_digest(config), "variants": variants, "seeds": seeds})[:12]
    job = AblationJob(
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
    return Measured.model_validate(tools.run(TOOL, job))


def changed_keys(config: TrainingConfig, swap: Swap) -> list[ChangedKey]:
    """Return the keys that a swap changes, each with old and new value; unchanged keys are left out."""
    values = config.model_dump()
    rows = [ChangedKey(key=key, before=_held(values, key), after=value) for key, value in swap.changes.items()]
    return [row for row in rows if row.before != row.after]


def _held(values: Any, key: str) -> Any:
    """Return the value at a dotted key; for a group, its entries that are not None."""
    held = at(values, key)
    return without_none(**held) if isinstance(held, dict) else held


def swap_text(keys: Sequence[ChangedKey]) -> str:
    """Return the swapped keys, each with old and new value."""
    return "; ".join(f"{row.key}: {value_text(row.before)} → {value_text(row.after)}" for row in keys)


def value_text(value: Any) -> str:
    """Return a value of a config in words."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {value_text(item)}" for key, item in value.items()) or "none"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else given(value)


# --- contributions --------------------------------------------------------------------------------


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
    judged = [_judged(row, None if row.p is None else next(corrected), len(tested), level) for row in rows]
    fewest = fewest_pairs(level, max(1, len(tested)))
    return Contributions(whole=_side(whole, seeds, level), rows=judged, comparisons=len(tested), fewest_seeds=fewest)


def _side(runs: Runs, seeds: Sequence[int], level: float) -> Side:
    """Return the metric statistics of some runs; with a failed run there is no mean, as that of the survivors would be biased."""
    values = [float(run.value) for run in runs]
    failed = [Failure(seed=seed, reason=run.reason) for seed, run in zip(seeds, runs, strict=True) if run.reason]
    paces = [run.step_us for run in runs if run.step_us is not None]
    return Side(
        values=[run.value for run in runs],
        mean=None if failed else math.fsum(values) / len(values),
        interval=None if failed else _listed(interval(values, level)),
        failed=failed,
        runs=[run.run for run in runs],
        parameters=next((run.parameters for run in runs if run.parameters is not None), None),
        step_us=statistics.median(paces) if paces else None,
    )


def _listed(ends: tuple[float, float] | None) -> list[float] | None:
    return list(ends) if ends else None


def _compared(swap: Swap, runs: Runs, whole: Runs, seeds: Sequence[int], mode: str, level: float) -> Contribution:
    gains = improvements([run.value for run in runs], [run.value for run in whole], mode)
    differences = [gain if mode == "max" else -gain for gain in gains]
    pairs = list(zip(runs, whole, strict=True))
    return Contribution.of(
        _side(runs, seeds, level),
        name=swap.name,
        takes_out=swap.takes_out,
        whole_failed=sum(run.reason is not None for run in whole),
        differences=differences,
        difference=math.fsum(differences) / len(gains) if gains else None,
        difference_interval=_listed(interval(differences, level)),
        better=sum(gain > 0 for gain in gains),
        worse=sum(gain < 0 for gain in gains),
        swap_is="better" if math.fsum(gains) > 0 else "worse",
        effect_size=effect_size(gains),
        p=min(sign_flip_p_value(gains), sign_flip_p_value([-gain for gain in gains])) if gains else None,
        pace=_pace([run.step_us / other.step_us for run, other in pairs if run.step_us and other.step_us]),
        never_acts=all(run.weights_sha256 is not None and run.weights_sha256 == other.weights_sha256 for run, other in pairs),
    )


def _pace(ratios: Sequence[float]) -> float | None:
    """Return the median ratio of step times to the whole config's; None unless all seeds are clearly slower, or all faster."""
    if len(ratios) < TIMED or not (min(ratios) > 1 + CLEARLY or max(ratios) < 1 - CLEARLY):
        return None
    return statistics.median(ratios)


def _judged(row: Contribution, p_corrected: float | None, comparisons: int, level: float) -> Contribution:
    verdict, why = _verdict(row, p_corrected, comparisons, level)
    return row.model_copy(update={"p_corrected": p_corrected, "verdict": verdict, "why": why})


def _verdict(row: Contribution, p_corrected: float | None, comparisons: int, level: float) -> tuple[str, str]:
    """Return a row's verdict in a word or two, and its reason in a sentence."""
    seeds = len(row.values)
    if row.whole_failed:
        return "not known", f"the whole config failed on {counted(row.whole_failed, 'seed')}, so nothing is compared"
    if row.failed or row.p is None or p_corrected is None:
        share = f"{len(row.failed)} of {counted(seeds, 'training')} failed"
        return "fails", f"{share}: {row.failed[0].reason}"
    word = WORDS[row.takes_out][row.swap_is]
    if p_corrected <= level:
        return word, ""
    needed = _needed(row, comparisons, level)
    if row.p <= level:
        return PERHAPS[word], f"shown alone, but not among {counted(comparisons, 'comparison')}; {needed}"
    if not any(row.differences):
        return "no difference", f"the same {'weights' if row.never_acts else 'metric'} on every seed"
    return "no difference shown", f"at {counted(seeds, 'seed')}; {needed}"


def _needed(row: Contribution, comparisons: int, level: float) -> str:
    """Return in words the number of seeds that would show a difference of the measured size."""
    fewest, seeds = fewest_pairs(level, comparisons), len(row.values)
    if seeds < fewest:
        return f"{fewest} seeds are the fewest that could"
    needed = seeds_needed(abs(row.effect_size), level / comparisons) if row.effect_size else None
    # At least one more than now: an estimate from few seeds may be too small, and these seeds have shown nothing.
    return f"more than {number(MAX_NEEDED)} would" if needed is None else f"about {number(max(needed, seeds + 1))} would"
