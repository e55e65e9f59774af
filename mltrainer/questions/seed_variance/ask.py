"""`mltrainer seeds`: one config on several fresh seeds, which tells how much of a difference between two runs is luck.

Like an ablation it reads the records and touches none; its runs are runs like any other, found again by the next `ablate`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates, gates_before
from mltrainer.questions.ablation.contributions import contributions
from mltrainer.questions.ablation.findings import Measured, Spread
from mltrainer.questions.seed_variance.figure import of_seeds
from mltrainer.questions.seed_variance.findings import SeedVariance, Source
from mltrainer.questions.seed_variance.report import markdown
from mltrainer.questions.variants import MOST_SEEDS, PHASE, TOOL, job_of, level_of, require_one_trainer, whole_config
from mltrainer.records.common import MetricChoice
from mltrainer.reports.values import finite
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import LOCK_FILE, Project, locked, write_json, write_text

SEEDS = 5  # unless asked otherwise
FEWEST_SEEDS = 3  # of fewer a spread tells nothing
FOLDER, PAGE, DATA = "seeds", "seeds.md", "result.json"


def seeds(tools: Tools, count: int = SEEDS) -> SeedVariance:
    """Train the config on fresh seeds, and return how its metric spreads; the page lies in `.mltrainer/seeds/`.

    Args:
        tools: The project's tools.
        count: How many.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: Too few or too many seeds.
        StoppedError: A signal stopped it; the same call goes on.
    """
    if not FEWEST_SEEDS <= count <= MOST_SEEDS:
        raise InputError(f"{FEWEST_SEEDS} to {MOST_SEEDS} seeds were expected; found {count}", where="seeds")
    project = tools.project
    with locked(project.state_dir / LOCK_FILE, f"the project {project.root.name}"):
        (planning,) = gates_before(project, "baseline", "training on several seeds")
        assert planning.record is not None
        config, _, file, why = whole_config(project, planning)
        _require_seeded(project, config)
        tools.note(f"{file}: {why}; {count} seeds")
        job = job_of(project.root, planning.record, config, [], count, PHASE)
        measured = Measured.model_validate(tools.run(TOOL, job))
        level, folder = level_of(project), project.state_dir / FOLDER
        table = contributions([], measured.sides, measured.seeds, config.metric.mode, level)
        deviation = deviation_of(table.whole.values)
        found = SeedVariance(
            **{key: getattr(table.whole, key) for key in Spread.model_fields},
            config=Source(file=file, why=why, program=config.task.is_opaque),
            metric=MetricChoice.model_validate(config.metric.model_dump()),
            confidence=1 - 2 * level,
            seeds=measured.seeds,
            fewest_seeds=table.fewest_seeds,
            deviation=deviation,
            # 95 % of a normal distribution lie within so many deviations; that of a difference is larger by the root of two.
            luck=None if deviation is None else 1.959964 * math.sqrt(2) * deviation,
            baseline=_baseline(project),
            page=project.relative(folder / PAGE),
        )
        figure = of_seeds(found)
        write_text(folder / figure.file, figure.content)
        write_text(folder / PAGE, markdown(found, figure))
        write_json(folder / DATA, found.written())
        return found


def _require_seeded(project: Project, config: TrainingConfig) -> None:
    """Refuse what cannot be trained on another seed.

    Raises:
        InputError: The task is a program that is given no seed, or a tool of the project's own trains.
    """
    if not config.task.is_opaque:
        require_one_trainer(project, "training on several seeds")
    elif not config.task.is_seeded:
        told = "the program is given no seed, and would do the same each time"
        raise InputError(told, where="task.script", hint='give it one, as in "python train.py --seed {seed}", then mltrainer run')


def deviation_of(values: Sequence[float]) -> float | None:
    """Return the standard deviation of single runs, without those that failed; None of fewer than two."""
    finite_ones = [float(value) for value in values if math.isfinite(value)]
    return statistics.stdev(finite_ones) if len(finite_ones) > 1 else None


def _baseline(project: Project) -> float | None:
    """Return the metric of the baseline, which is of the config's own seed; None where there is none."""
    record = check_gates(project)[1].record
    run = record.typed.evidence.run if record is not None and record.typed is not None else None
    value = run.metrics.get(run.metric.name) if run else None
    return value if finite(value) else None
