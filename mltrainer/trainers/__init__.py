"""Trainers: native (the built-in loop), custom and script; each takes one job and fills one run folder."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from mltrainer.configs.project import ORCHESTRATOR, SCRIPT_RUNNER

if TYPE_CHECKING:
    from pathlib import Path

    from mltrainer.records.job import TrainingJob
    from mltrainer.records.run import RunResult
    from mltrainer.tools.program import Events

# The trainers whose process lives across runs; a custom trainer has its own process for each run.
MODULES = {ORCHESTRATOR: "mltrainer.trainers.native.job", SCRIPT_RUNNER: "mltrainer.trainers.script.job"}


class RunJob(Protocol):
    """A trainer's entry point within a process that the workflow started."""

    def __call__(
        self, job: TrainingJob, root: Path, events: Events, stop: Callable[[], str | None], *, is_launched: bool = False
    ) -> RunResult | None:
        """Train a job; return its result, which is also written to its folder; None in all but the first of several processes."""


def run_job_of(tool: str | None) -> RunJob:
    """Return the entry point of the named trainer; None names the training orchestrator."""
    return cast(RunJob, importlib.import_module(MODULES[tool or ORCHESTRATOR]).run_job)
