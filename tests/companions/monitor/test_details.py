"""What a page asks for when a view is opened, from files that may hold anything."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mltrainer.companions.monitor.details import MOST_CLASSES, MOST_TIMES, Configs, classes_of, layers_of, search_of
from mltrainer.companions.monitor.scene import Scene
from mltrainer.companions.monitor.shown import MetricShown
from mltrainer.records.optimization import Searched
from mltrainer.records.partial import partial
from mltrainer.workspace import Project
from tests.companions.monitor.invented import SPACE, Training, empty_project, histograms, searched
from tests.companions.monitor.test_server import below, serving


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in which nothing has been trained."""
    return empty_project(tmp_path)


def test_histograms_of_layers_are_told_by_time_without_what_the_run_took_back(project):
    training = Training(project)
    training.log("observed", layers=["first.weight"], train_samples=1000, start={"model": histograms()["validation"]})
    for shift in (0.5, 1.0):
        training.steps(*[0.5] * 20)
        training.evaluate(0.5, signals=histograms(shift))
    training.log("resume", step=20)
    found = layers_of(project, training.run)
    assert found.times == [(0.0, 0), (1, 20)]
    assert found.weights == {"first.weight": [[0, -1, 1, [1, 4, 2, 0]], [1, -0.5, 1.5, [1, 4, 2, 0]]]}
    assert list(found.activations) == ["first"]


def test_of_many_times_the_first_the_last_and_even_ones_between_are_told(project):
    training = Training(project)
    for step in range(1, 101):
        training.step = step
        training.evaluate(0.5, signals=histograms(step))
    found = layers_of(project, training.run)
    assert (len(found.times), found.times[0][1], found.times[-1][1]) == (MOST_TIMES, 1, 100)


@pytest.mark.parametrize("signals", [{"validation": 3}, {"validation": {"distributions": {"weights": {"a": {"low": 1}}}}}, {}])
def test_a_run_without_whole_histograms_has_no_layers_over_time(project, signals):
    training = Training(project)
    training.evaluate(0.5, signals=signals)
    assert layers_of(project, training.run).weights == {}


def test_each_class_is_counted_from_the_matrix(project):
    training = Training(project)
    assert classes_of(project, training.run) == []
    training.end(evaluation={"kind": "classification", "labels": ["cat", 7], "confusion": [[3, 1], [2, 4]]})
    (found,) = classes_of(project, training.run)
    assert found.rows == [("cat", 4, 5, 3), ("7", 6, 5, 4)]
    assert found.matrix == [[3, 1], [2, 4]]


def test_each_of_several_targets_has_its_classes_and_a_large_matrix_is_left_out(project):
    training, size = Training(project), MOST_CLASSES + 1
    large = {"labels": [str(nr) for nr in range(size)], "confusion": [[int(x == y) for x in range(size)] for y in range(size)]}
    small = {"labels": ["a", "b"], "confusion": [[1, 0], [0, 1]]}
    training.end(evaluation={"kind": "targets", "targets": [{"name": "one", **large}, {"name": "two", **small}]})
    first, second = classes_of(project, training.run)
    assert (first.name, first.matrix, len(first.rows)) == ("one", None, size)
    assert (second.name, second.matrix) == ("two", [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    "evaluation",
    [None, 3, {"kind": "regression"}, {"labels": ["a", "b"], "confusion": [[1, 0], [0]]}, {"labels": ["a"], "confusion": "x"}],
)
def test_what_is_no_matrix_gives_no_classes(project, evaluation):
    training = Training(project)
    training.end(evaluation=evaluation)
    assert classes_of(project, training.run) == []


def test_the_trials_of_a_search_without_a_record_are_the_runs_that_differ_in_searched_keys_alone(project):
    assert search_of(project, Scene(project).runs(), Configs(project), is_running=False) is None
    trials = searched(project)
    found = search_of(project, Scene(project).runs(), Configs(project), is_running=True)
    assert found.metric == MetricShown("accuracy", "max")
    assert [(trial.nr, trial.run, trial.value) for trial in found.trials] == [
        (nr + 1, trial.run, value) for nr, (trial, value) in enumerate(zip(trials, (0.5, 0.25, 0.75), strict=True))
    ]
    assert found.trials[0].values == {"optimizer.lr": 0.01, "model.name": "mlp"}
    assert found.space == [("model.name", "choice", ["cnn", "mlp"]), ("optimizer.lr", "log_uniform", [0.001, 0.1])]


def test_a_finished_search_is_told_as_its_record_has_it(project, monkeypatch):
    row = {"nr": 4, "run": "a" * 12, "state": "pruned", "value": 0.5, "values": {"optimizer.lr": 0.01}}
    told = {"metric": {"name": "loss", "mode": "min", "ties": "first"}, "space": SPACE, "trials": [row]}
    record = SimpleNamespace(evidence=partial(Searched, told))
    monkeypatch.setattr(
        "mltrainer.companions.monitor.details.sound_records", lambda project: [SimpleNamespace(evidence=None), record]
    )
    searched(project)
    found = search_of(project, Scene(project).runs(), Configs(project), is_running=False)
    assert [vars(trial) for trial in found.trials] == [row]
    assert found.metric == MetricShown("loss", "min")


def test_settings_are_the_keys_in_which_runs_differ(project):
    for run, rate in (("a" * 12, 0.1), ("b" * 12, 0.2)):
        Training(project, run, optimizer={"lr": rate})
    configs = Configs(project)
    assert configs.differing() == {"a" * 12: {"optimizer.lr": 0.1}, "b" * 12: {"optimizer.lr": 0.2}}
    Training(project, "c" * 12, optimizer={"lr": 0.1}, epochs=20)  # of a run that begins later, too
    assert configs.differing()["c" * 12] == {"epochs": 20, "optimizer.lr": 0.1}


def test_a_page_gets_them_from_the_server_and_not_of_what_is_no_run(project):
    training = Training(project)
    training.evaluate(0.5, signals=histograms())
    with serving(project) as server:
        assert json.loads(below(server, f"layers?run={training.run}")[2])["times"] == [[0, 0]]
        assert json.loads(below(server, f"classes?run={training.run}")[2]) == []
        assert json.loads(below(server, "search")[2]) is None
        assert json.loads(below(server, "settings")[2]) == {training.run: {}}
        for path in ("layers?run=../../etc", "classes?run=nothing", "layers"):
            assert below(server, path)[0] == 404
