"""`mltrainer checkpoints average`: one model of a run's checkpoints, measured on validation, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import Combine
from mltrainer.errors import GateError
from mltrainer.records.finalization import Combination
from mltrainer.records.run import RunResult, read_result
from mltrainer.reports.runs import MetricDifference, difference_text
from mltrainer.reports.terminal import table
from mltrainer.reports.values import number
from mltrainer.runs.combining import combined, refuse_impossible
from mltrainer.runs.contract import RESULT_FILE
from mltrainer.runs.exporting import run_manager
from mltrainer.runs.exports import settings_of
from mltrainer.runs.find import config_of, noise_of_seeds
from mltrainer.runs.launcher import Tools
from mltrainer.tasks.statistics import metric_verdict
from mltrainer.workspace import locked_project, require_new

FOLDER = "averages"


def average(tools: Tools, run: str, out: Path, how: str = "greedy", most: int = 5) -> tuple[RunResult, Combination]:
    """Average the weights of a run's checkpoints, and write the model as safetensors with its manifest.

    Args:
        tools: The project's tools.
        run: The run's id.
        out: The folder to write.
        how: `uniform`: the mean of all; `greedy`: of those that make it no worse on validation.
        most: The most checkpoints, the best on validation.

    Raises:
        InputError: There is no such finished run here, or it is a program's; or the folder exists.
        GateError: It has fewer than two checkpoints, or one is damaged.
    """
    project = tools.project
    result = read_result(project.runs_dir / run / RESULT_FILE, RunResult)
    config = TrainingConfig.model_validate(config_of(project, run))
    asked = Combine.model_validate({"of": "checkpoints", "how": how, "most": most})
    refuse_impossible(asked, None, is_program=config.task.is_opaque)
    if sum(row.verified for row in result.checkpoints) < 2:
        hint = "checkpoint: {keep: 5} in mltrainer.yaml keeps more"
        raise GateError(f"run {run} keeps fewer than two verified checkpoints, and there is nothing to average", hint=hint)
    with locked_project(project):
        require_new(out, str(out))
        made = combined(tools, asked, result, config, None, FOLDER)
        settings = settings_of(project, ("safetensors",))
        run_manager(tools, result, config, out, settings, None, made)
    return result, made


def in_words(tools: Tools, result: RunResult, made: Combination, out: Path) -> str:
    """Return an average for a person: its members, and its metric beside the best single checkpoint's."""
    name, mode = result.metric.name, result.metric.mode
    used = {True: "in the mean", False: "left out"}
    rows = [[str(row.step), number(row.metrics.get(name)), used[row.used], row.path] for row in made.members]
    before, after = float(result.metrics[name]), float(made.metrics[name])
    count = result.measured_samples.get("validation")
    verdict = metric_verdict(name, mode, before, after, count, noise_of_seeds(tools.project, result))
    shown = difference_text(MetricDifference(name, mode, **verdict, tries=1))
    return "\n".join(
        [
            table(rows, ["step", name, "", "checkpoint"]).rstrip(),
            f"the best checkpoint {number(before)}, the mean {number(after)}",
            shown.replace("the second is", "the mean is"),
            f"wrote {out}",
        ]
    )
