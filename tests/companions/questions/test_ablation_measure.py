"""The ablation's tool: the same seeds for all, folds in turn, and what it says where a swap makes other samples."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.companions.questions.measurements import ablation as measure
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError, InputError
from mltrainer.records.job import AblationJob
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.search.space import fresh_seeds, sown
from mltrainer.search.trial import Trained
from mltrainer.tools.program import Events
from mltrainer.workspace import read_json
from tests.projects import PROJECT

CONFIG = TrainingConfig.model_validate({**PROJECT, "epochs": 2})


class Rings:
    """The options of a task, without its samples."""

    def __init__(self, n: int = 300, dropout: float = 0.0) -> None:
        self.n, self.dropout = n, dropout


def job(**changes: Any) -> AblationJob:
    common = {"schema": 1, "run": "a", "phase": "ablation", "folder": "a", "threads": 1, "contract": {}}
    asked = {**common, "config": CONFIG.model_dump(), "seeds": 2, "variants": [{"name": "a swap", "changes": changes}]}
    return AblationJob.model_validate(asked)


def test_more_seeds_are_those_of_before_and_some_new_ones():
    assert fresh_seeds(42, "ablation", 7)[:5] == fresh_seeds(42, "ablation", 5)
    assert len(set(fresh_seeds(42, "ablation", 20)) | set(fresh_seeds(42, "comparison", 20))) == 40


def test_each_seed_draws_anew_on_the_same_samples_and_the_next_fold():
    found = sown(TrainingConfig.model_validate({**PROJECT, "split": {"folds": 3, "fold": 1}}), [7, 8, 9, 10])
    assert [(one.seed, one.data_seed, one.split.fold) for one in found] == [(7, 42, 1), (8, 42, 2), (9, 42, 0), (10, 42, 1)]


def test_on_its_own_seed_a_config_is_trained_as_it_stands():
    assert sown(CONFIG, [42]) == [CONFIG]


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"task.options.n": 50}, "leave out the keys that change the samples, which no metric can compare: task.options.n"),
        ({"clip": None}, "bring the data back"),
    ],
)
def test_a_swap_that_makes_other_samples_is_named(changes, hint, monkeypatch, tmp_path):
    def refuse(*_: Any) -> None:
        raise GateError("the data is not what planning recorded", hint="bring the data back")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "on_seeds", refuse)
    monkeypatch.setattr(measure, "import_class", lambda use, root: Rings)
    with pytest.raises(GateError) as refused:
        measure.work(job(**changes), tmp_path, Events(None))
    assert refused.value.hint == hint


def test_a_misspelled_option_of_the_task_is_refused_before_anything_is_trained(monkeypatch, tmp_path):
    trained: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "on_seeds", lambda *given: trained.append(given))
    monkeypatch.setattr(measure, "import_class", lambda use, root: Rings)
    with pytest.raises(InputError) as refused:
        measure.work(job(**{"task.options.dropuot": 0.0}), tmp_path, Events(None))
    assert refused.value.where == "mltrainer ablate a swap, key task.options"
    assert refused.value.message == "there is no option 'dropuot' of Rings; did you mean 'dropout'?"
    assert trained == []


def test_an_ablation_trains_on_seeds_of_its_own_and_tells_of_each_run_what_the_table_is_made_from(monkeypatch, tmp_path):
    asked: list[Any] = []
    result = partial(RunResult, {"parameters": 7, "weights_sha256": "w", "step_time_us": {"median": 3.0, "p95": 9.0}})
    one = Trained("r", metrics={CONFIG.metric.name: 0.5}, wall_s=1.5, result=result)

    def trained(runs: Any, sides: Any, fresh: Any, metric: Any) -> dict[str, list[Trained]]:
        asked.extend(fresh)
        return {name: [one] * len(fresh) for name in sides}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "on_seeds", trained)
    measure.work(job(clip=None), tmp_path, Events(None))
    assert not set(asked) & set(fresh_seeds(CONFIG.seed, "comparison", 20))
    found = read_json(tmp_path / "a/result.json")
    told = {"state": "finished", "value": 0.5, "reason": None, "run": "r", "parameters": 7, "weights_sha256": "w"}
    assert found == {"seeds": asked, "sides": [[{**told, "step_us": 3.0, "wall_s": 1.5}] * 2] * 2}
