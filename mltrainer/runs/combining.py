"""Makes one model of several (a run's checkpoints, or a run and a study's best trials), twice, each in a fresh process."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.combinations import is_better
from mltrainer.checkpointing.manifest import folder_name
from mltrainer.checkpointing.ranking import larger_is_better
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import Combine
from mltrainer.errors import GateError, InputError, MltrainerError
from mltrainer.records.common import FileRow
from mltrainer.records.finalization import Combination, LeftOut
from mltrainer.records.job import CombineJob, Ingredient
from mltrainer.records.optimization import Searched
from mltrainer.records.partial import partial
from mltrainer.records.run import CheckpointRow, RunResult
from mltrainer.runs.contract import JOB_FILE
from mltrainer.runs.exporting import MANAGER
from mltrainer.runs.find import config_of, result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, sha256_file

FOLDER = "combinations"


def refuse_impossible(asked: Combine, study: Searched | None, *, is_program: bool) -> None:
    """Refuse models that cannot be combined, before anything is trained.

    Raises:
        InputError: A program keeps no checkpoints, or there are no trials.
    """
    if is_program:
        message = "a program's run has no checkpoints that could be combined"
        raise InputError(message, where="combine", hint="set combine: null in configs/production_template.yaml")
    if asked.of == "trials" and study is None:
        hint = "take `of: checkpoints`, or search: mltrainer phase run optimization"
        raise InputError("there are no trials to combine, since there was no search", where="combine.of", hint=hint)


def combined(
    tools: Tools, asked: Combine, result: RunResult, config: TrainingConfig, study: Searched | None, folder: str = FOLDER
) -> Combination:
    """Return the combination of several models, and whether it is delivered.

    Args:
        tools: The project's tools.
        asked: The config's `combine`: the models to combine, and the method.
        result: The final run.
        config: Its config, as a tool gets it.
        study: The search whose trials are combined; None: there was none.
        folder: The folder in the state folder to write to, whose combination of the same run is replaced.

    Raises:
        InputError: The models' outputs cannot be averaged.
        GateError: A checkpoint is damaged, or the run has no verified best one.
    """
    given, left_out = _ingredients(tools.project, asked, result, config, study)
    out = tools.project.state_dir / folder / result.id
    shutil.rmtree(out, ignore_errors=True)
    job = CombineJob(
        run=result.id,
        folder=tools.project.relative(out),
        config=config,
        threads=config.threads,
        ingredients=given,
        how=asked.how,
        most=asked.most,
        out=tools.project.relative(out),
        timed=True,
    )
    first = tools.run(MANAGER, job)
    tools.note("making the combination again in a fresh process")
    again = tools.project.relative(out / "again")
    second = tools.run(MANAGER, job.model_copy(update={"folder": again, "out": again, "timed": False}))
    shutil.rmtree(tools.project.root / again / folder_name(_best(result).step), ignore_errors=True)
    known = {**first, "left_out": [*(row.written() for row in left_out), *first["left_out"]]}
    path = tools.project.relative(out / folder_name(_best(result).step))
    values = {key: known[key] for key in known if key in Combination.model_fields}
    record = {"of": asked.of, "how": asked.how, "path": path, "rebuilt_sha256": second["weights_sha256"]}
    made = Combination.model_validate({**values, **record, "delivered": False})
    return made.model_copy(update={"delivered": is_better(made, result)})


def _best(result: RunResult) -> CheckpointRow:
    if result.best_checkpoint is None:
        raise GateError(f"run {result.id} has no verified best checkpoint", hint="mltrainer checkpoints verify")
    return result.best_checkpoint


def _ingredients(
    project: Project, asked: Combine, result: RunResult, config: TrainingConfig, study: Searched | None
) -> tuple[list[Ingredient], list[LeftOut]]:
    """Return the models that may be combined, the final run's best first, and those whose checkpoints are missing."""
    first = _ingredient(result.id, _best(result))
    if asked.of == "checkpoints":
        others = [row for row in result.checkpoints if row.verified and row.step != _best(result).step]
        return [first, *(_ingredient(result.id, row) for row in others)], []
    assert study is not None  # as `refuse_impossible` has asked before the training
    ingredients: list[Ingredient] = []
    left_out: list[LeftOut] = []
    for run in _best_trials(study, asked.most - 1):
        try:
            ingredients.append(_of_trial(project, run, config))
        except MltrainerError as error:
            left_out.append(LeftOut(run=run, path="", reason=error.message))
    return [first, *(row for row in ingredients if row.run != result.id)], left_out


def _ingredient(run: str, row: CheckpointRow, config: TrainingConfig | None = None) -> Ingredient:
    more: dict[str, Any] = {} if config is None else {"config": config}
    return Ingredient(run=run, path=row.path, files=row.files, **more)


def _best_trials(study: Searched, most: int) -> list[str]:
    """Return the runs of the best finished trials, the best first."""
    done = [trial for trial in study.trials if trial.state == "finished"]
    done.sort(key=lambda trial: larger_is_better(trial.value, study.metric.mode), reverse=True)
    return [trial.run for trial in done[:most]]


def _of_trial(project: Project, run: str, config: TrainingConfig) -> Ingredient:
    """Return the best checkpoint of a trial.

    Raises:
        InputError: It is not here.
        GateError: It has none that was verified.
    """
    result = partial(RunResult, result_of(project, run) or {})
    if result.best_checkpoint is None or not (project.runs_dir / run / JOB_FILE).is_file():
        raise InputError(f"the best checkpoint of trial {run} is missing")
    row = result.best_checkpoint
    if missing := [*_missing(project, row.files)]:
        raise InputError(f"missing or changed: {', '.join(missing)}")
    own = TrainingConfig.model_validate(config_of(project, run))
    # Where it trained and read is a matter of the trial; what builds and measures it here is the final run's.
    here = {"device": config.device, "threads": config.threads, "loader": config.loader}
    return _ingredient(run, row, own.model_copy(update=here))


def _missing(project: Project, rows: Iterable[FileRow]) -> Iterator[str]:
    for row in rows:
        path = project.root / row.path
        if not path.is_file() or sha256_file(path) != row.sha256:
            yield Path(row.path).name
