"""`mltrainer ablate`: a config without each of its components, one at a time, over several seeds, beside the whole config.

An ablation reads the records and changes none: it needs only planning's gate, no gate takes it for evidence, and nothing
becomes stale by it. It measures on validation data alone. Its runs are ordinary runs, which are reused and continued.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mltrainer
from mltrainer.companions.questions.ablation.contributions import contributions
from mltrainer.companions.questions.ablation.findings import (
    Code,
    Contribution,
    Listed,
    Measured,
    Plan,
    PlannedSwap,
    Row,
    Source,
    Table,
)
from mltrainer.companions.questions.ablation.report import markdown, of_ablation
from mltrainer.companions.questions.variants import (
    FEWEST_SEEDS,
    MOST_SEEDS,
    PHASE,
    TOOL,
    changed_keys,
    job_of,
    level_of,
    require_one_trainer,
    whole_config,
)
from mltrainer.configs.components import Swap, swaps_of
from mltrainer.configs.loading import as_assignments, as_typed
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates, gates_before
from mltrainer.gates.statistics import fewest_pairs
from mltrainer.phases.present_config import require_no_secret
from mltrainer.records.common import MetricChoice
from mltrainer.records.reading import Record
from mltrainer.runs.launcher import Tools
from mltrainer.search.pool import places
from mltrainer.workspace import LOCK_FILE, Project, locked, write_json, write_text

FOLDER = "optimization"  # the phase whose folder has the page
PAGE, DATA = "ablation.md", "ablation.json"

Asked = Sequence[str | Mapping[str, Any]]


@dataclass(frozen=True)
class Ablation:
    """A prepared comparison.

    Attributes:
        config: The whole config.
        is_final: Whether optimization decided the config; else it is the planned one.
        file: File of the config, relative to the project.
        why: Reason for this config.
        swaps: The swaps.
        seeds: Number of fresh seeds.
        level: Level of the one-sided tests.
        root: The project's folder.
        planning: Planning's record.
        asked: The swaps as they were typed.
    """

    config: TrainingConfig
    is_final: bool
    file: str
    why: str
    swaps: list[Swap]
    seeds: int
    level: float
    planning: Record
    asked: tuple[str, ...]

    def plan(self) -> Plan:
        """Return config, metric, level and number of runs."""
        return Plan(
            config=Source(file=self.file, why=self.why, folds=self.config.split.folds),
            metric=MetricChoice.model_validate(self.config.metric.model_dump()),
            level=self.level,
            runs=self.seeds * (1 + len(self.swaps)),
        )


def components(tools: Tools, *swaps: str | Mapping[str, Any], seeds: int | None = None) -> Listed:
    """Return the swaps of `ablate`, the number of its runs, and its estimated time; nothing is trained.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: A requested swap is not possible.
    """
    ablation = _prepared(tools.project, swaps, seeds)
    each, workers = _seconds_of_a_run(tools.project, ablation), _workers(ablation.config)
    plan = ablation.plan()
    planned = [PlannedSwap(name=swap.name, keys=changed_keys(ablation.config, swap)) for swap in ablation.swaps]
    about = each * plan.runs / workers
    return Listed.of(plan, swaps=planned, seeds=ablation.seeds, run_s=each, workers=workers, about_s=about)


def ablate(tools: Tools, *swaps: str | Mapping[str, Any], seeds: int | None = None) -> Table:
    """Compare the config with each swapped one on the same fresh seeds, and write the table as a page with its figure.

    The page is `phases/04_optimization/ablation.md`. No gate and no record changes; earlier runs are reused.

    Args:
        tools: The project's tools.
        *swaps: Swaps, each a component's key, to take it out; `KEY=VALUE`, several of one change joined by `+`; or values by
            dotted key. By default each component of the config is taken out, one at a time.
        seeds: Number of seeds; by default the fewest that can show a difference of each swap: 5 for one, 8 for up to twelve.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: A swap makes the config invalid, or changes nothing.
        StoppedError: A signal stopped it; the same call continues.

    Examples:
        >>> table = project.ablate("clip", {"model.dropout": 0.3})
        >>> [(row["name"], row["verdict"]) for row in table["rows"]]
        [('gradient clipping', 'no difference shown'), ('model.dropout=0.3', 'is better')]
    """
    project = tools.project
    with locked(project.state_dir / LOCK_FILE, f"the project {project.root.name}"):
        ablation = _prepared(project, swaps, seeds)
        tools.note(f"{ablation.file}: {ablation.why}")
        job = job_of(project.root, ablation.planning, ablation.config, ablation.swaps, ablation.seeds, PHASE)
        table = _table(project, ablation, Measured.model_validate(tools.run(TOOL, job)))
        _write(project, table)
        return table


# --- what is compared -----------------------------------------------------------------------------


def _prepared(project: Project, asked: Asked, seeds: int | None) -> Ablation:
    (planning,) = gates_before(project, "baseline", "an ablation")
    assert planning.record is not None
    require_one_trainer(project, "an ablation")
    config, is_final, file, why = whole_config(project, planning)
    swaps = swaps_of(config, asked)
    require_no_secret([swap.changes for swap in swaps])
    level = level_of(project)
    count = fewest_pairs(level, len(swaps)) if seeds is None else _counted(seeds)
    typed = tuple(text for one in asked for text in ([one] if isinstance(one, str) else ["+".join(as_assignments(one))]))
    return Ablation(config, is_final, file, why, swaps, count, level, planning.record, typed)


def _counted(seeds: int) -> int:
    """Return the number of seeds, checked against the limits.

    Raises:
        InputError: There is nothing to compare, or more than the exact test takes.
    """
    if not FEWEST_SEEDS <= seeds <= MOST_SEEDS:
        raise InputError(f"{FEWEST_SEEDS} to {MOST_SEEDS} seeds expected, found {seeds}", where="seeds")
    return seeds


def _seconds_of_a_run(project: Project, ablation: Ablation) -> float:
    """Return the estimated seconds of a run, by the baseline's time per epoch, or by planning's estimate."""
    baseline = check_gates(project)[1].record
    run = baseline.typed.evidence.run if baseline and baseline.typed else None
    if run is not None and run.epochs and run.wall_s:
        return float(run.wall_s) / int(run.epochs) * ablation.config.epochs
    return 60 * float(ablation.planning.trusted.evidence.estimate.minutes)


def _workers(config: TrainingConfig) -> int:
    """Return the number of runs trained at a time; 1 on GPUs without CUDA_VISIBLE_DEVICES, for counting them takes torch."""
    is_counted = config.device == "cpu" or "CUDA_VISIBLE_DEVICES" in os.environ
    return len(places(None, config.device, config.threads)) if is_counted else 1


# --- its table ------------------------------------------------------------------------------------


def _table(project: Project, ablation: Ablation, measured: Measured) -> Table:
    judged = contributions(ablation.swaps, measured.sides, measured.seeds, ablation.config.metric.mode, ablation.level)
    source = ablation.planning.trusted.source
    return Table.of(
        ablation.plan(),
        mltrainer=mltrainer.__version__,
        project=ablation.config.name,
        seeds=measured.seeds,
        whole=judged.whole,
        rows=[_row(ablation, row, swap) for row, swap in zip(judged.rows, ablation.swaps, strict=True)],
        comparisons=judged.comparisons,
        fewest_seeds=judged.fewest_seeds,
        trained_s=sum(run.wall_s or 0.0 for runs in measured.sides for run in runs),
        code=Code(commit=source.commit, sha256=source.sha256),
        command=shlex.join(["mltrainer", "ablate", *ablation.asked, "--seeds", str(ablation.seeds)]),
        page=project.relative(project.phase_dir(FOLDER) / PAGE),
    )


def _row(ablation: Ablation, row: Contribution, swap: Swap) -> Row:
    return Row.of(row, keys=changed_keys(ablation.config, swap), command=_command(ablation, swap, row.verdict))


def _command(ablation: Ablation, swap: Swap, verdict: str) -> str | None:
    """Return the command that adopts a swap with a better metric; None for any other verdict."""
    phase = "finalization" if ablation.is_final else "planning"
    return f"mltrainer phase run {phase} {as_typed(swap.changes)}" if verdict in ("hurts", "is better") else None


def _write(project: Project, table: Table) -> None:
    """Write a table as data, as a figure and as a page that shows both; the page comes last."""
    folder, figure = project.phase_dir(FOLDER), of_ablation(table)
    write_json(folder / DATA, table.written())
    write_text(folder / figure.file, figure.content)
    write_text(folder / PAGE, markdown(table, replace(figure, content="")))
