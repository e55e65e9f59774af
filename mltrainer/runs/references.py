"""The metrics of plain models on a run's own splits: from an earlier measurement, else measured now.

Nothing depends on it: where the tool fails, the reason takes the place of a comparison.
"""

from __future__ import annotations

import math
import shlex
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import mltrainer
from mltrainer.configs.pages import tool_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MltrainerError, StoppedError
from mltrainer.records.job import ReferencesJob
from mltrainer.records.partial import partial
from mltrainer.records.references import BoostingAhead, BoostingBeside, BoostingPlan, PlainFigure, References
from mltrainer.records.run import RunResult
from mltrainer.reports.values import as_float
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import digest, read_json

TOOL = "reference_models"
FITTED_BY = (
    "task",
    "data",
    "split",
    "seed",
    "class_weights",
)  # the config keys that plain models on the same data are a function of
COMPARED = ("_classification", "_regression")  # the kinds that plain models have an answer to
Split = Literal["validation", "test"]
PLAN = "plan"  # the name of a job that has no run
TABLES = ("tabular_classification", "tabular_regression")
BOOSTING = ("lightgbm", "boosting", "catboost")  # in the order in which `init --model boosting` would take them
SKLEARN = "sklearn:"  # begins the names of tables that scikit-learn ships
EXTRAS = ("lightgbm", "catboost")  # their models are compared with, too, where they are installed
NOTHING: dict[str, Any] = {"samples": 0, "train_samples": 0, "level": 0, "resamples": 0, "network": None, "rows": []}


def is_compared(config: TrainingConfig) -> bool:
    """Return True if plain models can answer a config's task."""
    return str(config.task.kind).endswith(COMPARED)


def measure_references(tools: Tools, result: RunResult, config: TrainingConfig, split: Split = "validation") -> References | None:
    """Return the comparison of a run with plain models.

    Args:
        tools: The project's tools.
        result: The run's result.
        config: The run's config.
        split: The split of the rows; the test rows only after they were opened for the run.

    Returns:
        None where there is nothing to compare: a custom task, generated text, a run that failed or keeps no checkpoint.

    Raises:
        StoppedError: It was asked to stop.
    """
    best = result.best_checkpoint
    if not is_compared(config) or result.state != "finished" or best is None:
        return None
    job = _job(tools, config, result.data_sha256, result.id)
    folder = tools.project.relative(tools.project.runs_dir / result.id)
    return _measured(tools, job.model_copy(update={"run_folder": folder, "checkpoint": best.path, "split": split}))


def measure_before_training(tools: Tools, config: TrainingConfig, data_sha256: str) -> BoostingPlan | None:
    """Return gradient boosting beside smooth models, which represent a network, on the validation rows of a table.

    Args:
        tools: The project's tools.
        config: The planned config.
        data_sha256: The digest of its data, from a probe.

    Returns:
        None of other tasks than those with a table and one target.

    Raises:
        StoppedError: It was asked to stop.
    """
    if config.task.kind not in TABLES:
        return None
    job = _job(tools, config, data_sha256, PLAN).model_copy(update={"boosting": library()})
    measured = _measured(tools, job)
    return None if measured is None else boosting_plan(config, measured)


def boosting_plan(config: TrainingConfig, found: References) -> BoostingPlan | None:
    """Return planning's advice on gradient boosting; None if it or all smooth models could not be fitted.

    Where it is no better than the better smooth model, a network is likely at least as good; else that is open, since a network
    finds much that smooth models do not. `tests/benchmarks/bench_public_tables.py` measures how often that is right.

    Args:
        config: The planned config.
        found: Gradient boosting beside smooth models.
    """
    metric, sign = found.metric, 1 if config.metric.mode == "max" else -1
    values = {row.name: as_float(row.metrics.get(metric)) for row in found.rows}
    rows = [row for row in found.rows if math.isfinite(values[row.name])]
    boosting = next((row for row in rows if row.name in BOOSTING), None)
    smooth = max((row for row in rows if row is not boosting), key=lambda row: sign * values[row.name], default=None)
    if boosting is None or smooth is None:
        return None
    value, other = values[boosting.name], values[smooth.name]
    return BoostingPlan(
        metric=metric,
        samples=found.samples,
        level=found.level,
        boosting=PlainFigure(title=boosting.title, value=value, seconds=boosting.seconds),
        smooth=PlainFigure(title=smooth.title, value=other, seconds=smooth.seconds),
        lead=boosting.lead,
        likely="network" if sign * (other - value) >= 0 else None,
        command=boosting_command(config),
    )


def library() -> str:
    """Return the name of the gradient boosting that `init --model boosting` takes here: LightGBM where it is installed."""
    return next((name for name in BOOSTING if name not in EXTRAS or _version(name)), BOOSTING[-1])


def _measured(tools: Tools, job: ReferencesJob) -> References | None:
    job = _placed(tools, job)
    try:
        found = _known(tools, job) or tools.run(TOOL, job)
    # A stop is a MltrainerError, too: caught below, it would pass for a model that could not be fitted.
    except StoppedError:
        raise
    except MltrainerError as error:
        return partial(References, {"metric": job.config.metric.name, **NOTHING, "reason": error.message})
    return partial(References, {**found, "reason": None}) if found["rows"] else None


# --- gradient boosting that a run is behind ---------------------------------------------------------


def boosting_ahead(
    config: TrainingConfig, references: References | None, tested: References | None = None
) -> BoostingAhead | None:
    """Return the gradient boosting that is better than a run, on validation or on the test rows; None if none is.

    Of several it is the one that `init --model boosting` would begin with.

    Args:
        config: The run's.
        references: The run beside plain models on the validation rows.
        tested: Likewise on the test rows, once they were opened.
    """
    measured: dict[Split, References] = {}
    if references is not None and references.network is not None:
        measured["validation"] = references
    if tested is not None and tested.network is not None:
        measured["test"] = tested
    for name in BOOSTING:
        rows = [(found, row) for found in measured.values() for row in found.rows if row.name == name]
        if any(row.verdict == "behind" for _, row in rows):
            beside = [_beside(split, found, name) for split, found in measured.items()]
            found, row = rows[0]
            command = boosting_command(config)
            return BoostingAhead(
                title=row.title, metric=found.metric, level=found.level, seconds=row.seconds, beside=beside, command=command
            )
    return None


def _beside(split: Split, found: References, name: str) -> BoostingBeside:
    row = next(row for row in found.rows if row.name == name)
    assert found.network is not None
    return BoostingBeside(
        split=split,
        samples=found.samples,
        value=row.metrics.get(found.metric, math.nan),
        network=found.network.metrics.get(found.metric, math.nan),
        lead=row.lead,
        verdict=row.verdict,
    )


def boosting_command(config: TrainingConfig) -> str | None:
    """Return the command that begins a boosting project on a config's table; None if the data is no file."""
    data = config.data
    if data is None or data.target is None or data.source.startswith(SKLEARN):
        return None
    options = {"data": data.source, **data.held_out, "target": data.target, "model": "boosting"}
    words = [word for option, value in options.items() for word in (f"--{option}", value)]
    return shlex.join(["mltrainer", "init", f"../{config.name}-boosting", *words])


def _version(package: str) -> str | None:
    """Return an installed package's name and version; None where it is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None


def _known(tools: Tools, job: ReferencesJob) -> dict[str, Any] | None:
    """Return the result of an earlier measurement by the same job, or None."""
    try:
        return dict(read_json(tools.project.root / job.folder / RESULT_FILE))
    except InputError:
        return None


def _job(tools: Tools, config: TrainingConfig, data_sha256: str, run: str) -> ReferencesJob:
    project, settings = tools.project, tool_page(TOOL, tools.project.root).settings
    values = config.model_dump()
    fits = {
        "versions": [mltrainer.__version__, version("scikit-learn"), *filter(None, map(_version, EXTRAS))],
        "config": {key: values[key] for key in FITTED_BY},
        "data": data_sha256,
        "settings": settings,
    }
    kept = project.state_dir / "references" / digest(fits)[:12]
    return ReferencesJob(
        run=run,
        folder="",
        run_folder=None,
        checkpoint=None,
        config=config,
        kept=project.relative(kept),
        settings=settings,
        threads=config.threads,
    )


def _placed(tools: Tools, job: ReferencesJob) -> ReferencesJob:
    """Return a job with its folder: a result in it is of this very job."""
    return job.model_copy(update={"folder": tools.project.relative(tools.project.root / job.kept / job.name)})
