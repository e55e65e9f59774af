"""An ablation: a config, and variants of it, trained on the same seeds: fresh ones, or the config's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mltrainer.companions.questions.variants import Measured, MeasuredRun
from mltrainer.configs.components import COMMAND, OPTIONS, TASK_OPTIONS, Swap
from mltrainer.configs.project import Metric, TrainingConfig
from mltrainer.errors import GateError
from mltrainer.records.job import AblationJob, Variant
from mltrainer.search.runs import Runs, workers_of
from mltrainer.search.space import fresh_seeds, sown
from mltrainer.search.study import outcome
from mltrainer.search.trial import Trained
from mltrainer.tasks.user_code import check_options, import_class
from mltrainer.tools.program import Events, StopSignals
from mltrainer.workspace import write_json

WHOLE = "the whole config"


def work(job: AblationJob, root: Path, events: Events) -> int:
    """Train a config and its variants; their results go to `result.json` in the job's folder.

    Args:
        job: The study's job.
        root: The project's folder.
        events: Sink of progress events.

    Raises:
        InputError: A variant's config is not valid, or its options are none of the task's.
        GateError: A run has other samples than planning.
        StoppedError: A signal stopped it; finished runs are kept and not trained again.
    """
    stop = StopSignals(events)
    config = job.config
    sides = {WHOLE: config, **{f"swapped: {row.name}": Swap(row.name, row.changes).applied(config) for row in job.variants}}
    _require_options(job, root)
    fresh = fresh_seeds(config.seed, "ablation", job.seeds) or [config.seed]
    with workers_of(job, root, events) as pool:
        runs = Runs(job, root, pool, events, stop)
        try:
            runs_by_side = on_seeds(runs, sides, fresh, config.metric)
        except GateError as error:  # as where the samples are others
            raise GateError(error.message, where=error.where, hint=_hint(job.variants, error)) from error
    measured = Measured(seeds=fresh, sides=[[_measured(run, config.metric) for run in rows] for rows in runs_by_side.values()])
    write_json(runs.folder / "result.json", measured.written())
    return 0


def _require_options(job: AblationJob, root: Path) -> None:
    """Refuse options that the task's class does not take, before anything is trained.

    Raises:
        InputError: A variant has such an option; the message has the nearest name.
    """
    use, swaps = job.config.task.use, [Swap(row.name, row.changes) for row in job.variants]
    asked = [swap for swap in swaps if any(key.startswith(TASK_OPTIONS) for key in swap.changes)]
    if use is None or not asked:
        return
    kind = import_class(use, root)
    for swap in asked:
        check_options(kind, swap.applied(job.config).task.options, f"{COMMAND} {swap.name}, key task.options")


def on_seeds(runs: Runs, sides: Mapping[str, TrainingConfig], fresh: Sequence[int], metric: Metric) -> dict[str, list[Trained]]:
    """Train each config on each seed; runs that were trained before are used again.

    Args:
        runs: The study's runs, which train them.
        sides: The configs by name.
        fresh: The seeds.
        metric: The metric to compare.

    Returns:
        The run for each seed in order, by the config's name.
    """
    each = {name: sown(config, fresh) for name, config in sides.items()}
    asked = [(name, nr) for nr in range(len(fresh)) for name in sides]  # so that a slow phase of the machine slows all of them
    ended: list[int] = []

    def tell(nr: int, run: Trained) -> None:
        ended.append(nr)
        name, place = asked[nr]
        so_far = f"{len(ended)} of {len(asked)}"
        runs.events.send("note", text=f"  {name}, seed {fresh[place]}: {outcome(run, metric).told(metric.name)}; {so_far}")

    found = runs.all([each[name][place] for name, place in asked], tell)
    return {name: found[nr :: len(sides)] for nr, name in enumerate(sides)}


def _hint(variants: list[Variant], error: GateError) -> str | None:
    """Return the hint for a run on other samples than planning's: the variants' task options may be the cause."""
    keys = ", ".join(key for row in variants for key in row.changes if key.startswith(OPTIONS))
    return f"leave out the keys that change the samples, which no metric can compare: {keys}" if keys else error.hint


def _measured(run: Trained, metric: Metric) -> MeasuredRun:
    ended, result = outcome(run, metric), run.result
    return MeasuredRun(
        state=ended.state,
        value=ended.value,
        reason=ended.reason,
        run=run.id,
        parameters=result.parameters if result else None,
        weights_sha256=result.weights_sha256 if result else None,
        step_us=result.step_time_us.median if result and result.step_time_us else None,
        wall_s=run.wall_s,
    )
