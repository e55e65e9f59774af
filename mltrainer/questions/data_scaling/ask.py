"""`mltrainer extrapolate`: would more data or more epochs help? Learning curves of a run as power laws."""

from __future__ import annotations

from mltrainer.configs.loading import assign
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.questions.data_scaling.figure import of_curves
from mltrainer.questions.data_scaling.findings import Asked, Curves, FoundCurves
from mltrainer.questions.data_scaling.report import markdown
from mltrainer.questions.exploration import exploring
from mltrainer.questions.variants import require_one_trainer
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.reports.values import as_float, duration, finite
from mltrainer.runs.find import config_of, find_run, result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import write_text

SEEDS, MOST_SEEDS = 2, 10
SIZES = 4  # parts of the data that are trained on, all of it among them
PAGE = "extrapolation.md"


def extrapolate(tools: Tools, run: str | None = None, *, seeds: int = SEEDS) -> FoundCurves:
    """Return a run's learning curves over epochs and over data, with what they let expect.

    The curve over epochs is the run's own history. For that over data the run's config is trained on an eighth, a quarter, a half
    and all of its training samples, for as many steps each; nothing of these trainings stays.

    Args:
        tools: The project's tools.
        run: Its id, a unique prefix of it, or a phase's name; by default the newest phase's run.
        seeds: On how many seeds each part is trained; 0: nothing is trained, and the curve over data left out.

    Raises:
        InputError: The run has no result, was not trained here, or `seeds` is out of range.
    """
    if not 0 <= seeds <= MOST_SEEDS:
        raise InputError(f"0 to {MOST_SEEDS} seeds were expected; found {seeds}", where="seeds")
    project = tools.project
    run = find_run(project, run)
    found = result_of(project, run)
    if found is None:
        raise InputError(f"run {run} has no result", hint="mltrainer run")
    require_one_trainer(project, "extrapolation")
    result = partial(RunResult, found)
    # No checkpoint and no signal is needed: only the metrics of these trainings are looked at.
    changes = {"checkpoint.every_n_epochs": 10**6, "checkpoint.save_best": False, "signals": False}
    config = TrainingConfig.model_validate(assign(config_of(project, run), changes.items()))
    losses = [(row.step, row.validation.get("loss")) for row in result.history]
    history: list[list[float]] = [[step, as_float(loss)] for step, loss in losses if finite(loss)]
    if seeds:
        tools.note(f"{SIZES * seeds} trainings, each about as long as the run, {duration(as_float(result.wall_s))}")
    with exploring(tools, "extrapolate", config=config) as exploration:
        curves = Curves.model_validate(exploration.ask(Asked(history=history, seeds=seeds)))
        told = FoundCurves.of(
            curves,
            run=run,
            metric=result.metric,
            epochs_trained=result.epochs,
            decays=config.schedule.name != "constant",
            page=project.relative(exploration.folder / PAGE),
        )
        figures = of_curves(told)
        for figure in figures:
            write_text(exploration.folder / figure.file, figure.content)
        write_text(exploration.folder / PAGE, markdown(told, figures))
        return exploration.kept(told)
