"""The plain models that a run is compared with: measured once, and nothing rests on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import Task, TrainingConfig
from mltrainer.errors import InputError, StoppedError
from mltrainer.records.job import ReferencesJob
from mltrainer.records.partial import partial
from mltrainer.records.references import References
from mltrainer.reports.boosting import boosting_line
from mltrainer.runs.launcher import Tools
from mltrainer.runs.references import (
    boosting_ahead,
    boosting_command,
    boosting_plan,
    library,
    measure_before_training,
    measure_references,
)
from mltrainer.workspace import Project, write_json
from tests.results import run_result

BEST = {"path": "runs/best", "step": 30, "epoch": 3, "roles": ["best"], "verified": True, "files": []}
LINEAR = {"name": "linear", "metrics": {}}
FOUND = {"metric": "accuracy", "samples": 3, "train_samples": 9, "level": 0.95, "resamples": 100, "network": None}


def config(**changes: Any) -> TrainingConfig:
    values = {
        "name": "small",
        "task": {"kind": "tabular_classification"},
        "data": {"source": "sklearn:iris"},
        "model": {"name": "linear"},
        "metric": {"name": "accuracy", "mode": "max"},
    }
    return TrainingConfig.model_validate({**values, **changes})


class Launched:
    """Starts nothing: writes a result, or raises, and remembers the jobs."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.jobs = error, []

    def __call__(self, project: Project, tool: str, job: ReferencesJob, *_: Any) -> None:
        self.jobs.append(job)
        if self.error is not None:
            raise self.error
        write_json(project.root / job.folder / "result.json", {"schema": 1, **FOUND, "rows": [LINEAR]})


def measured(folder: Path, launched: Launched, given: TrainingConfig, **changes: Any) -> dict[str, Any] | None:
    result = run_result(**{"checkpoints": [BEST], **changes})
    found = measure_references(Tools(Project(folder), lambda _: None, launched), result, given)
    return found.written() if found else None


def test_they_are_measured_once_for_a_run_and_fitted_once_for_the_same_rows(tmp_path):
    launched = Launched()
    first = measured(tmp_path, launched, config())
    assert first == {**FOUND, "rows": [LINEAR], "reason": None}
    assert measured(tmp_path, launched, config()) == first
    assert len(launched.jobs) == 1
    measured(tmp_path, launched, config(epochs=3), id="b1b2c3d4e5f6")
    measured(tmp_path, launched, config(seed=7), id="c1b2c3d4e5f6")
    kept = [job.kept for job in launched.jobs]
    assert kept[0] == kept[1] != kept[2]


def test_a_tool_that_fails_is_told_and_ends_nothing_and_is_tried_again(tmp_path):
    found = measured(tmp_path, Launched(InputError("no scikit-learn here")), config())
    assert (found["reason"], found["rows"]) == ("no scikit-learn here", [])
    assert measured(tmp_path, Launched(), config()) is not None


def test_whoever_stops_it_has_stopped_the_phase(tmp_path):
    with pytest.raises(StoppedError):
        measured(tmp_path, Launched(StoppedError("interrupted", exit_code=130)), config())


@pytest.mark.parametrize("changes", [{"state": "failed"}, {"checkpoints": []}])
def test_a_run_without_a_model_has_no_comparison(tmp_path, changes):
    assert measured(tmp_path, Launched(), config(), **changes) is None


@pytest.mark.parametrize("task", [{"use": "my_task:Mine"}, {"kind": "text_generation"}])
def test_a_task_of_ones_own_and_generated_text_have_no_comparison(tmp_path, task):
    launched = Launched()
    given = config().model_copy(update={"task": Task(**task)})
    assert measured(tmp_path, launched, given) is None
    assert not launched.jobs


def beside(verdicts: dict[str, str], *, value: float = 0.9) -> References:
    """Return a comparison in which a run has 0.8 and stands so to plain models."""
    row = {"rows": 9, "seconds": 0.5, "metrics": {"accuracy": value}, "interval": None, "lead": [-0.2, -0.1], "reason": None}
    rows = [{**row, "name": name, "title": name.title(), "verdict": verdict} for name, verdict in verdicts.items()]
    return partial(
        References, {**FOUND, "network": {"metrics": {"accuracy": 0.8}, "interval": None}, "rows": rows, "reason": None}
    )


CASES: dict[str, tuple[dict[str, str], dict[str, str] | None, str | None]] = {
    "ahead of both": ({"boosting": "ahead", "lightgbm": "ahead"}, None, None),
    "behind a linear model alone": ({"linear": "behind", "boosting": "level"}, None, None),
    "behind one": ({"boosting": "behind", "lightgbm": "level"}, None, "Boosting"),
    "behind both: that which init takes": ({"boosting": "behind", "lightgbm": "behind"}, None, "Lightgbm"),
    "behind on test rows alone": ({"boosting": "level"}, {"boosting": "behind"}, "Boosting"),
    "behind on validation, level on test rows": ({"boosting": "behind"}, {"boosting": "level"}, "Boosting"),
}


@pytest.mark.parametrize("case", CASES)
def test_boosting_is_named_where_a_run_is_behind_it_on_either_split(case):
    validation, test, title = CASES[case]
    found = boosting_ahead(config(), beside(validation), None if test is None else beside(test))
    assert (found and found.title) == title
    if found is not None:
        assert [row.split for row in found.beside] == ["validation"] + ["test"] * (test is not None)
        assert {(row.network, row.value) for row in found.beside} == {(0.8, 0.9)}


def test_what_was_not_measured_is_behind_nothing():
    assert boosting_ahead(config(), None) is None
    assert boosting_ahead(config(), partial(References, {**FOUND, "rows": [], "reason": "no scikit-learn here"})) is None


@pytest.mark.parametrize(
    ("data", "command"),
    [
        ({"source": "sklearn:iris"}, None),
        (
            {"source": "../my table.csv", "target": "y"},
            "mltrainer init ../small-boosting --data '../my table.csv' --target y --model boosting",
        ),
        (
            {"source": "a.csv", "test": "b.csv", "target": "y"},
            "mltrainer init ../small-boosting --data a.csv --test b.csv --target y --model boosting",
        ),
    ],
)
def test_the_command_begins_boosting_on_the_run_s_own_table(data, command):
    assert boosting_command(config(data=data)) == command


@pytest.mark.parametrize(
    ("mode", "boosting", "smooth", "likely"),
    [
        ("max", 0.94, 0.90, None),
        ("max", 0.90, 0.90, "network"),
        ("max", 0.80, 0.90, "network"),
        ("min", 0.60, 1.00, None),
        ("min", 1.20, 1.00, "network"),
    ],
)
def test_planning_says_a_network_where_boosting_finds_no_more_than_smooth_models(mode, boosting, smooth, likely):
    row = {"rows": 9, "seconds": 0.5, "interval": None, "lead": None, "verdict": None, "reason": None, "title": "x"}
    values = {"linear": smooth - 0.1 if mode == "max" else smooth + 0.1, "smooth": smooth, "lightgbm": boosting}
    rows = [{**row, "name": name, "metrics": {"accuracy": value}} for name, value in values.items()]
    given = config(metric={"name": "accuracy", "mode": mode}, data={"source": "a.csv", "target": "y"})
    found = boosting_plan(given, partial(References, {**FOUND, "rows": rows, "reason": None}))
    assert (found.likely, found.boosting.value, found.smooth.value) == (likely, boosting, smooth)
    assert (str(found.command) in boosting_line(found)) == (likely != "network")


@pytest.mark.parametrize(("lead", "said"), [([-0.3, -0.01], "ahead of"), ([-0.3, 0.0], "level with"), (None, "ahead of")])
def test_boosting_is_said_to_be_ahead_only_where_chance_does_not_explain_it(lead, said):
    values = {"linear": 0.90, "lightgbm": 0.91}
    row = {"rows": 9, "seconds": 0.5, "interval": None, "verdict": None, "reason": None, "title": "x"}
    rows = [{**row, "name": name, "metrics": {"accuracy": value}, "lead": lead} for name, value in values.items()]
    given = config(metric={"name": "accuracy", "mode": "max"}, data={"source": "a.csv", "target": "y"})
    found = boosting_plan(given, partial(References, {**FOUND, "rows": rows, "reason": None}))
    assert f"Gradient boosting is {said} smooth models" in boosting_line(found)


def test_planning_says_nothing_where_boosting_or_all_that_it_is_compared_with_failed():
    assert boosting_plan(config(), beside({"linear": "level"})) is None
    assert boosting_plan(config(), beside({"lightgbm": "level"})) is None


def test_planning_measures_tables_alone_once(tmp_path):
    launched = Launched()
    tools = Tools(Project(tmp_path), lambda _: None, launched)
    assert measure_before_training(tools, config(task={"kind": "image_classification"}), "d" * 64) is None
    assert not launched.jobs
    for _ in range(2):
        measure_before_training(tools, config(), "d" * 64)
    (job,) = launched.jobs
    assert (job.checkpoint, job.boosting) == (None, library())
