"""The runs that may have made the first steps of a training without some samples."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from mltrainer.configs.forgotten import OF_SAMPLES, WHERE
from mltrainer.configs.project import TrainingConfig, bits_config
from mltrainer.errors import MltrainerError
from mltrainer.records.job import TrainingJob
from mltrainer.runs.contract import JOB_FILE
from mltrainer.runs.retrain import original_job
from mltrainer.workspace import Project


def earlier_runs(project: Project, contract: Mapping[str, str], config: TrainingConfig) -> list[str]:
    """Return the runs here whose contract differs in the forgotten samples alone, the latest first; none without `forget`."""
    if config.forget is None:
        return []
    found: list[tuple[float, str]] = []
    for path in project.runs_dir.glob(f"*/{JOB_FILE}"):
        # A run whose files were changed is left out.
        with contextlib.suppress(MltrainerError, OSError):
            job = original_job(project, path.parent.name)
            if job.purpose == "train" and _differs_in_samples(job, contract, config):
                found.append((path.stat().st_mtime, job.run))
    return [run for _, run in sorted(found, reverse=True)]


def _differs_in_samples(job: TrainingJob, contract: Mapping[str, str], config: TrainingConfig) -> bool:
    rest, own = ({key: value for key, value in one.items() if key not in OF_SAMPLES} for one in (job.contract, contract))
    return rest == own and job.config.forget != config.forget and _others(job.config) == _others(config)


def _others(config: TrainingConfig) -> dict[str, Any]:
    return {key: value for key, value in bits_config(config).items() if key != WHERE}
