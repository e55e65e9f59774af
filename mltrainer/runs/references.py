"""What plain models reach on a run's own splits: found where it was measured before, else measured now.

Nothing depends on it: where the tool fails, the reason takes the place of a comparison.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mltrainer
from mltrainer.configs.pages import tool_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MltrainerError, StoppedError
from mltrainer.records.baseline import References
from mltrainer.records.job import ReferencesJob
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
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
EXTRAS = ("lightgbm", "catboost")  # their models are compared with, too, where they are installed
NOTHING: dict[str, Any] = {"samples": 0, "train_samples": 0, "level": 0, "resamples": 0, "network": None, "rows": []}


def is_compared(config: TrainingConfig) -> bool:
    """Return True if plain models have an answer to a config's task."""
    return str(config.task.kind).endswith(COMPARED)


def measure_references(tools: Tools, result: RunResult, config: TrainingConfig) -> References | None:
    """Return the comparison of a run with plain models.

    Args:
        tools: The project's tools.
        result: The run's result.
        config: The run's config.

    Returns:
        None where there is nothing to compare: a custom task, generated text, a run that failed or keeps no checkpoint.

    Raises:
        StoppedError: It was asked to stop.
    """
    best = result.best_checkpoint
    if not is_compared(config) or result.state != "finished" or best is None:
        return None
    job = _job(tools, result, config, best.path)
    try:
        found = _known(tools, job) or tools.run(TOOL, job)
    # A stop is a MltrainerError, too: caught below, it would pass for a model that could not be fitted.
    except StoppedError:
        raise
    except MltrainerError as error:
        return partial(References, {"metric": config.metric.name, **NOTHING, "reason": error.message})
    return partial(References, {**found, "reason": None}) if found["rows"] else None


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


def _job(tools: Tools, result: RunResult, config: TrainingConfig, checkpoint: str) -> ReferencesJob:
    project, settings = tools.project, tool_page(TOOL, tools.project.root).settings
    values = config.model_dump()
    fits = {
        "versions": [mltrainer.__version__, version("scikit-learn"), *filter(None, map(_version, EXTRAS))],
        "config": {key: values[key] for key in FITTED_BY},
        "data": result.data_sha256,
        "settings": settings,
    }
    kept = project.state_dir / "references" / digest(fits)[:12]
    job = ReferencesJob(
        run=result.id,
        folder="",
        run_folder=project.relative(project.runs_dir / result.id),
        checkpoint=checkpoint,
        config=config,
        kept=project.relative(kept),
        settings=settings,
        threads=config.threads,
    )
    return job.model_copy(update={"folder": project.relative(kept / job.name)})  # a result there is of this very job
