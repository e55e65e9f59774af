"""What of a program's run is compared bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.observe.inputs import Read
from mltrainer.programs.chains import Entry
from mltrainer.programs.subject import Subject
from mltrainer.records.job import TrainingJob
from mltrainer.trainers.script.history import Steps
from mltrainer.trainers.script.observed import Observed
from mltrainer.trainers.script.result import _chain, metrics_findings, require_left
from tests.projects import PROJECT

CONFIG = TrainingConfig.model_validate({**PROJECT, "name": "rings"})
JOB = TrainingJob(run="run", purpose="train", folder="run", config=CONFIG, contract={}, threads=1)


def head(tmp_path: Path, gradients: str = "ab", norm: float = 1.0, loss: float = 2.0) -> Any:
    (tmp_path / "run").mkdir(exist_ok=True)
    entries = (Entry(1, 0, gradients, "cd", "-"),)
    found = Observed(["python"], tmp_path, 1.0, entries, 1, (), "ef", [], [], Subject((), (), {}))
    return _chain(JOB, found, Steps(losses={1: loss}, norms={1: norm}), tmp_path)[0]


def test_what_the_observer_sums_itself_is_not_compared(tmp_path):
    assert head(tmp_path, norm=1.0) == head(tmp_path, norm=1.001)


def test_gradients_and_losses_are(tmp_path):
    assert len({head(tmp_path), head(tmp_path, gradients="ac"), head(tmp_path, loss=2.001)}) == 3


# --- what planning can tell of the end ------------------------------------------------------------


def planned(**task: Any) -> TrainingConfig:
    given = {"script": "python train.py --seed {seed}", "metrics": "out/metrics.json", **task}
    return TrainingConfig.model_validate({"name": "p", "task": given, "metric": {"name": "accuracy", "mode": "max"}})


def warned(tmp_path: Path, source: str, *words: str, **task: Any) -> list[str]:
    (tmp_path / "train.py").write_text(source)
    judged = Subject((Read("train.py", 1, "a"),), (), {})
    found = Observed(["python", "train.py", *words], tmp_path, 1.0, (), 1, (), "", [], [], judged)
    return [row["what"] for row in metrics_findings(planned(**task), found, tmp_path / "project")]


def test_metrics_that_no_source_names_are_doubted(tmp_path):
    [told] = warned(tmp_path, "open('result.json', 'w')")
    assert "metrics.json, the file of task.metrics" in told


def test_metrics_that_may_be_written_are_not_doubted(tmp_path):
    assert warned(tmp_path, "open('metrics.json', 'w')") == []
    assert warned(tmp_path, "", "--out=metrics.json") == []
    assert warned(tmp_path, "", metrics="out/all_results.json") == []
    assert warned(tmp_path, "", metrics=None) == []
    (tmp_path / "project/out").mkdir(parents=True)
    (tmp_path / "project/out/metrics.json").write_text("{}")
    assert warned(tmp_path, "") == []


@pytest.mark.parametrize(
    ("written", "outputs", "fault"),
    [
        (None, [], "the program left no metrics that can be read"),
        ('{"loss": 1}', [], "the last evaluation holds no number accuracy"),
        ('{"accuracy": 1}', ["model.pt"], "the program left no file model.pt"),
        ('{"accuracy": 1}', ["out"], "the program left a folder out"),
    ],
)
def test_what_a_whole_run_of_planning_did_not_leave_is_told(tmp_path, written, outputs, fault):
    (tmp_path / "out").mkdir()
    if written is not None:
        (tmp_path / "out/metrics.json").write_text(written)
    with pytest.raises(InputError, match=fault):
        require_left(planned(outputs=outputs), tmp_path)
