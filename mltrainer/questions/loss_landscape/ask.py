"""`mltrainer landscape`: the loss around a run's best checkpoint, and how sharply it curves there."""

from __future__ import annotations

from pathlib import Path

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.questions.exploration import exploring
from mltrainer.questions.loss_landscape.figure import of_landscape
from mltrainer.questions.loss_landscape.findings import Asked, FoundLandscape, Landscape
from mltrainer.questions.loss_landscape.report import markdown
from mltrainer.records.partial import partial
from mltrainer.records.run import CheckpointRow, RunResult
from mltrainer.runs.find import config_of, find_run, result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, write_text

POINTS, SAMPLES, SPAN = 21, 512, 1.0  # unless asked otherwise
FEWEST_POINTS = 5
PAGE = "landscape.md"


def landscape(
    tools: Tools, run: str | None = None, *, points: int = POINTS, samples: int = SAMPLES, span: float = SPAN
) -> FoundLandscape:
    """Return the loss along and over random directions around a run's best checkpoint, and its sharpness.

    The directions are normal numbers that the run's seed addresses, scaled filter by filter to the weights' norms (Li et al.,
    2018, arXiv 1712.09913). The page and its figures lie in the scratch folder; nothing else of the project changes.

    Args:
        tools: The project's tools.
        run: Its id, a unique prefix of it, or a phase's name; by default the newest phase's run.
        points: On each side of the plane; an odd number.
        samples: Of each split, evenly spaced.
        span: How far it goes to either side; 1: as far as the weights' own norm.

    Raises:
        InputError: The run has no verified best checkpoint here, or `points` is even or too small.
        GateError: The checkpoint or the data is not what the run recorded.
    """
    if points < FEWEST_POINTS or not points % 2:
        raise InputError(f"an odd number from {FEWEST_POINTS} on was expected; found {points}", where="--points")
    project = tools.project
    run = find_run(project, run)
    checkpoint = best_checkpoint(project, run)
    # Without what has no second derivative (compiled or checkpointed parts) or too few digits for small differences of the loss.
    values = {**config_of(project, run), "compile": False, "gradient_checkpointing": [], "precision": "fp32", "signals": False}
    with exploring(tools, "landscape", config=TrainingConfig.model_validate(values)) as exploration:
        files = {Path(row.path).name: row.sha256 for row in checkpoint.files}
        asked = Asked(points=points, samples=samples, span=span, checkpoint=checkpoint.path, files=files)
        landscape = Landscape.model_validate(exploration.ask(asked))
        found = FoundLandscape.of(
            landscape,
            run=run,
            step=checkpoint.step,
            optimizer=values["optimizer"],
            span=span,
            page=project.relative(exploration.folder / PAGE),
        )
        figures = of_landscape(found)
        for figure in figures:
            write_text(exploration.folder / figure.file, figure.content)
        write_text(exploration.folder / PAGE, markdown(found, figures))
        return exploration.kept(found)


def best_checkpoint(project: Project, run: str) -> CheckpointRow:
    """Return the row of a run's best checkpoint.

    Raises:
        InputError: It has none that was verified, or it is not here.
    """
    result = partial(RunResult, result_of(project, run) or {})
    if result.program:
        raise InputError(f"run {run} was trained by a program: only it can load what it left, and measure its loss")
    best = result.best_checkpoint
    if best is None:
        raise InputError(f"run {run} has no verified best checkpoint", hint="mltrainer run")
    if not (project.root / best.path).is_dir():
        raise InputError("the checkpoint is not here: weights stay out of git", where=best.path, hint="bring it back")
    return best
