"""`init --model boosting`: the same rows and metrics as the network's project, in a program that a person may read and change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score

from mltrainer.configs import yaml
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates
from mltrainer.project import boosting, start
from mltrainer.project.start import make_project
from mltrainer.tables import open_table, outputs_of, print_answers, read_rows
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.workspace import Project, read_json
from tests.conftest import commit
from tests.known_tables import stepped
from tests.projects import evidence_of

TARGETS = ["price", "grade"]
SPLITS: list[dict[str, Any]] = [{}, {"group": "customer"}, {"time": "day", "stratify": False}, {"seed": 7}, {"test": 0.3}]


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A table with gaps, categories and groups, of the test's `target`."""
    target = request.node.callspec.params.get("target", "price") if hasattr(request.node, "callspec") else "price"
    path = tmp_path / "table.csv"
    path.write_text(stepped(600, target))
    return path


def begun(folder: Path, table: Path, target: str, model: str = "boosting") -> Path:
    make_project(folder, None, table, target, model=model)
    return folder


def split_by(path: Path, split: dict[str, Any]) -> None:
    values = yaml.parse(path.read_text(), path.name).value
    values["split"] |= split
    path.write_text(yaml.dump(values))


def of_network(folder: Path) -> OpenTask:
    return open_task(TrainingConfig.model_validate(load_project(folder / "mltrainer.yaml").model_dump()), folder)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_rows_lie_in_the_splits_of_the_network_s_project(table, tmp_path, target, split):
    network, program = begun(tmp_path / "n", table, target, "network"), begun(tmp_path / "b", table, target)
    for path in (network / "mltrainer.yaml", program / "table.yaml"):
        split_by(path, split)
    theirs, mine = of_network(network), open_table(program / "table.yaml")
    for name, found in {"train": mine.train, "validation": mine.validation, "test": mine.open_test()}.items():
        samples = theirs.open_test() if name == "test" else theirs.split(name)
        cells, targets = theirs.task.rows(samples.ids)  # type: ignore[attr-defined]
        assert np.array_equal(found.target.astype(np.float32), targets.numpy().astype(np.float32)), name
        numbers = [place for place in range(cells.shape[1]) if place not in mine.categories]
        assert np.array_equal(found.cells[:, numbers], cells.numpy()[:, numbers], equal_nan=True), name


@pytest.mark.parametrize("of", boosting.LIBRARIES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.slow
def test_a_program_measures_what_scikit_learn_finds_on_the_same_rows(table, tmp_path, monkeypatch, target, of):
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(start, "library", lambda: of)
    folder = begun(tmp_path / "b", table, target)
    subprocess.run([sys.executable, "boosting.py"], cwd=folder, check=True, capture_output=True)
    measured, opened = read_json(folder / "metrics.json"), open_table(folder / "table.yaml")
    model = joblib.load(folder / "model.joblib")
    for prefix, rows in {"": opened.validation, "train_": opened.train}.items():
        answer = model.predict(rows.cells)
        if target == "price":
            expected = {"r2": r2_score(rows.target, answer), "mae": mean_absolute_error(rows.target, answer)}
        else:
            expected = {
                "accuracy": accuracy_score(rows.target, answer),
                "log_loss": log_loss(rows.target, model.predict_proba(rows.cells)),
            }
        for name, value in expected.items():
            assert measured[prefix + name] == pytest.approx(value, rel=1e-5), name
    assert not [name for name in measured if name.startswith("test")]
    said = subprocess.run([sys.executable, "boosting.py", "--open-test"], cwd=folder, check=True, capture_output=True, text=True)
    test = opened.open_test()
    metric = {"price": ("test_r2", r2_score), "grade": ("test_accuracy", accuracy_score)}[target]
    assert json.loads(said.stdout)[metric[0]] == pytest.approx(metric[1](test.target, model.predict(test.cells)), rel=1e-5)
    assert read_json(folder / "metrics.json") == measured


@pytest.mark.slow
def test_new_rows_are_read_as_the_training_rows_were(table, tmp_path):
    opened = open_table(begun(tmp_path / "b", table, "price") / "table.yaml")
    lines = table.read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join([*lines, lines[1].replace(",a,", ",unknown,")]) + "\n")
    found = read_rows(tmp_path / "new.csv", json.loads(json.dumps(opened.describe())))
    ids = opened._opened.split("train").ids
    assert np.array_equal(found[ids], opened.train.cells, equal_nan=True)


@pytest.mark.slow
def test_each_row_is_answered_on_a_line_of_its_own(table, tmp_path, capsys):
    class Model:
        def predict(self, cells: np.ndarray) -> np.ndarray:
            return np.arange(len(cells))

    opened = open_table(begun(tmp_path / "b", table, "price") / "table.yaml")
    print_answers(Model(), table, opened.describe())
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answers == [{"prediction": float(row)} for row in range(600)]


def test_a_class_that_no_training_row_has_keeps_the_least_probability():
    class Model:
        classes_ = np.array([0, 2])

        def predict_proba(self, cells: np.ndarray) -> np.ndarray:
            return np.tile([0.25, 0.75], (len(cells), 1))

    found = np.exp(outputs_of(Model(), np.zeros((2, 1)), 3))
    assert found == pytest.approx(np.tile([0.25, 0.0, 0.75], (2, 1)), abs=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--data", "table.csv", "--target", "price", "--model", "bosting"], "did you mean 'boosting'?"),
        (
            ["--data", "table.csv", "--target", "price", "--model", "forest"],
            "there are network, boosting",
        ),
        (["--example", "digits", "--model", "boosting"], "boosting learns from a table with one target"),
        (["--script", "train.py", "--model", "boosting"], "boosting learns from a table with one target"),
    ],
)
def test_what_cannot_be_boosted_is_refused_before_anything_is_written(table, monkeypatch, cli, options, words):
    monkeypatch.chdir(table.parent)
    cli("init", "new", *options, code=1, err=words)
    assert not Path("new").exists()


def test_a_program_that_is_there_is_not_taken_for_the_one_that_would_be_written(table, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/boosting.py").write_text("print('mine')")
    with pytest.raises(InputError, match=r"there is a boosting\.py already"):
        begun(tmp_path / "b", table, "price")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["boosting.py"]


@pytest.mark.parametrize(("of", "target"), [("lightgbm", "price"), ("boosting", "grade")])
@pytest.mark.slow
@pytest.mark.long
def test_a_program_walks_the_five_phases_repeats_and_answers(table, tmp_path, monkeypatch, cli, of, target):
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(start, "library", lambda: of)
    folder = begun(tmp_path / "b", table, target)
    with (folder / "mltrainer.yaml").open("a") as file:
        file.write('acceptance: {r2: ">= 0.1"}\n' if target == "price" else 'acceptance: {accuracy: ">= 0.4"}\n')
    (folder / "metrics.json").write_text('{"r2": 1.0, "accuracy": 1.0}')  # what lies there counts for nothing
    commit(folder)
    cli("run", "--project", folder, code=0)
    project = Project(folder)
    assert all(gate.holds for gate in check_gates(project))
    final = evidence_of(project, "finalization")
    assert final["reproduction"]["outputs"] == dict.fromkeys(sorted(boosting.OUTPUTS), True)
    planned = evidence_of(project, "planning")
    assert [row["path"] for row in planned["data"]["files"]] == [str(table), "table.yaml"]

    cli("reproduce", final["run"]["id"], "--project", folder, code=0, out="bitwise identical in weights, metrics and outputs")

    answers = [json.loads(line) for line in cli("predict", table, "--project", folder).out.splitlines()]
    opened, model = open_table(folder / "table.yaml"), joblib.load(project.phase_dir("finalization") / "final_model/model.joblib")
    ids = opened._opened.split("validation").ids
    expected = model.predict(opened.validation.cells)
    found = [answers[row]["prediction"] for row in ids]
    assert found == ([opened.classes[value] for value in expected] if opened.classes else pytest.approx(expected, rel=1e-5))

    run = project.runs_dir / final["run"]["id"] / "result.json"
    text = run.read_text()
    value = final["run"]["best"]["validation"]["r2" if target == "price" else "accuracy"]
    assert value < 1
    run.write_text(text.replace(str(value), str(value + 0.01)))
    assert not all(gate.holds for gate in check_gates(project))
