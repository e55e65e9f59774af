"""A case trained as a run of this project's own trainer, its result kept."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import baseline_template, overlay
from mltrainer.errors import InputError
from mltrainer.records.job import TrainingJob
from mltrainer.reproducibility import determinism, seeds
from mltrainer.tasks.task import Task
from mltrainer.tools.program import Events
from mltrainer.trainers.native.result import build_result
from mltrainer.trainers.native.session import Session
from mltrainer.workspace import plain
from tests.benchmarks.diagnostics.case import Case

ROOT = Path(__file__).parents[3]
DECIDES = ("mltrainer/trainers/native", "mltrainer/tasks")  # folders whose code decides a result
OWN = ("callbacks", "case", "data", "models", "tasks", "training")  # and modules beside this one
BASE: dict[str, Any] = {
    "batch_size": 64,
    "schedule": {"name": "constant"},
    "clip": None,
    "early_stopping": None,
    "checkpoint": {"every_n_epochs": 1000, "keep": 0},
}


@functools.cache
def code_sha256(cases: str) -> str:
    """Return a digest of the code by which a kept result may be out of date: trainer, tasks, and the file of the cases."""
    files = sorted(path for folder in DECIDES for path in (ROOT / folder).rglob("*.py"))
    own = [Path(__file__).with_name(f"{name}.py") for name in OWN]
    return hashlib.sha256(b"".join(path.read_bytes() for path in [*files, *own, Path(cases)])).hexdigest()


def values_of(case: Case) -> dict[str, Any]:
    """Return what the training config of a case holds beside its task, as plain values."""
    return overlay(baseline_template(None), {**BASE, **case.config})


def config_of(case: Case, seed: int, task: Any) -> TrainingConfig:
    """Return the training config of a case, complete."""
    mode = {"name": task.metric, "mode": "max"}
    use = {"use": f"{type(task).__module__}:{type(task).__name__}"}
    start = {**baseline_template(None), "name": "diagnostics", "metric": mode, "task": use}
    values = overlay(start, {**BASE, **case.config, "seed": seed})
    return validate_values(TrainingConfig, values, case.id)


def trained(case: Case, seed: int) -> dict[str, Any]:
    """Train a case and return its result, as a run's `result.json` holds it; where nothing could be trained, why."""
    task = case.task()
    try:
        return train_config(config_of(case, seed, task), task)
    except InputError as error:
        return {"refused": str(error)}


def train_config(config: TrainingConfig, task: Task, **more: Any) -> dict[str, Any]:
    """Train a config on a task and return its result; `more` are further keys of the job."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name, determinism.kept(), seeds.kept():
        folder = Path(name)
        place = {"schema": 1, "run": "diagnostics", "phase": "baseline", "purpose": "train", "folder": name}
        job = {**place, "config": config.model_dump(), "contract": {}, "threads": config.threads, **more}
        session = Session(TrainingJob.model_validate(job), folder, _Unheard(None), lambda: None, folder, task)
        session.prepare()
        result = build_result(session, session.train(), started)
        session.task.close()
    return dict(plain(result))


class _Unheard(Events):
    """Tells nobody."""

    def send(self, event: str, **values: Any) -> None:
        pass


def kept(case: Case, seed: int, folder: Path, of_any_code: bool = False) -> dict[str, Any] | None:
    """Return a kept result, or None where there is none of today's code."""
    path = _path(case, seed, folder)
    if not path.exists():
        return None
    found = json.loads(path.read_text("utf-8"))
    return found["result"] if of_any_code or found["code"] == _code(case) else None


def train_and_keep(case: Case, seed: int, folder: Path) -> float:
    """Train a case, keep its result, and return the seconds that it took."""
    torch.set_num_threads(1)
    started, code = time.perf_counter(), _code(case)
    result = trained(case, seed)
    path = _path(case, seed, folder)
    path.with_suffix(".part").write_text(json.dumps({"code": code, "result": result}), "utf-8")
    path.with_suffix(".part").replace(path)
    return time.perf_counter() - started


def _code(case: Case) -> str:
    return code_sha256(inspect.getfile(case.task))


def _path(case: Case, seed: int, folder: Path) -> Path:
    return folder / f"{case.id}-{seed}.json"
