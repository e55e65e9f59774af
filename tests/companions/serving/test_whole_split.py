"""Served answers on a whole test split, for a table, texts, pictures and a generator: `predict`'s, as right as in training."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from torch import Tensor, from_numpy
from torch.nn import functional

from mltrainer.companions.serving.admission import admitted
from mltrainer.companions.serving.serve import loaded
from mltrainer.configs.project import TrainingConfig
from mltrainer.project.text_corpora import ships_log
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.workspace import read_json
from tests.companions.serving.conftest import asking
from tests.conftest import Cli, commit
from tests.phases.test_pictures import paint
from tests.tasks.text.conftest import write_reviews

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("tools_here")]
TOLERANCE = 1e-6  # of a probability, in whatever batch; and of a metric, relative to it
MODEL = "phases/05_finalization/final_model"


def loans(path: Path) -> Path:
    """Write a table of numbers, words, dates and gaps."""
    draws = random.Random(0)
    rows = [["age", "income", "town", "joined", "member", "paid"]]
    for _ in range(600):
        age, income = draws.randint(18, 80), round(draws.gauss(40_000, 9_000), 2)
        joined = f"20{draws.randint(10, 25)}-{draws.randint(1, 12):02}-{draws.randint(1, 28):02}"
        paid = age * 500 + income + draws.gauss(0, 4_000) > 65_000
        shown = [
            age if draws.random() > 0.03 else "",
            income,
            draws.choice(["north", "south"]),
            joined,
            draws.choice(["yes", "no"]),
        ]
        rows.append([*shown, "yes" if paid else "no"])
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue())
    return path


def finished(cli: Cli, folder: Path, data: Path, *more: str, epochs: int = 6, **values: Any) -> OpenTask:
    """Train a project through all phases, and return its task with the test split open."""
    cli("init", folder, "--data", data, *more, code=0)
    file = folder / "mltrainer.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **values}, sort_keys=False))
    for path in (folder / "configs").glob("*.yaml"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(f"epochs: {epochs}\n" if line.startswith("epochs:") else line for line in lines))
    commit(folder)
    cli("run", "--project", folder, code=0)
    return opened(folder)


def opened(folder: Path) -> OpenTask:
    config = TrainingConfig.model_validate(read_json(folder / "phases/05_finalization/record.json")["evidence"]["config"])
    with contextlib.chdir(folder):
        return open_task(config, folder)


def ids_of(task: OpenTask) -> np.ndarray:
    return np.asarray(task._data.ids["test"])


def cell(text: str) -> Any:
    """Return a cell of the table as a client sends it."""
    try:
        return float(text)
    except ValueError:
        return text or None


def of_table(task: OpenTask, data: Path, given: Path) -> tuple[list[Any], Path]:
    with open(data, newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = [{name: text for name, text in rows[row].items() if name != "paid"} for row in ids_of(task)]
    given = given.with_suffix(".json")
    given.write_text(json.dumps(chosen))
    return [{name: cell(text) for name, text in row.items()} for row in chosen], given


def of_texts(task: OpenTask, _: Path, given: Path) -> tuple[list[Any], Path]:
    texts = [task.task.texts[row] for row in ids_of(task)]
    given = given.with_suffix(".txt")
    given.write_text("".join(f"{text}\n" for text in texts))
    return texts, given


def of_pictures(task: OpenTask, data: Path, given: Path) -> tuple[list[Any], Path]:
    files = [data / task.task._names[row] for row in ids_of(task)]
    given.mkdir()
    for number, file in enumerate(files):
        (given / f"{number:04}.png").write_bytes(file.read_bytes())
    return [base64.b64encode(file.read_bytes()).decode() for file in files], given


Rows = Callable[[OpenTask, Path, Path], tuple[list[Any], Path]]


def checked(cli: Cli, folder: Path, task: OpenTask, data: Path, rows_of: Rows, scratch: Path) -> float:
    """Compare served answers, whole and row by row, with `predict` and the test's metrics; return the largest difference."""
    rows, given = rows_of(task, data, scratch / "given")
    said = [json.loads(line) for line in cli("predict", given, "--project", folder).out.splitlines()]
    with asking(folder, unchecked=False) as client:
        whole = client.post("/predict", json={"rows": rows}).json()["answers"]
        single = [client.post("/predict", json={"rows": [row]}).json()["answers"][0] for row in rows]
    assert len(whole) == len(said) == len(single) == len(ids_of(task)) > 0
    chances = [np.array([list(one["probabilities"].values()) for one in answers]) for answers in (said, whole, single)]
    assert [one["prediction"] for one in whole] == [one["prediction"] for one in said]
    difference = max(float(np.abs(chances[0] - other).max()) for other in chances[1:])
    assert difference < TOLERANCE
    test = read_json(folder / "phases/05_finalization/record.json")["evidence"]["test"]
    labels = np.asarray(task.task.labels)[ids_of(task)]
    right = [one["prediction"] == str(task.task.classes[label]) for one, label in zip(whole, labels, strict=True)]
    assert np.mean(right) == pytest.approx(test["metrics"]["accuracy"], abs=1e-12)
    loss = -np.log(chances[1][np.arange(len(labels)), labels]).mean()
    assert loss == pytest.approx(test["metrics"]["log_loss"], rel=TOLERANCE)
    return difference


@pytest.mark.parametrize("kind", ["table", "texts", "pictures"])
def test_served_answers_are_those_of_predict_and_as_right_as_in_training(kind, tmp_path, cli):
    project = tmp_path / "project"
    if kind == "table":
        data, rows_of = loans(tmp_path / "loans.csv"), of_table
        task = finished(cli, project, data, "--target", "paid", acceptance={"accuracy": ">= 0.5"})
    elif kind == "texts":
        data, rows_of = tmp_path / "reviews.csv", of_texts
        write_reviews(data, 120)
        wanted = {"acceptance": {"accuracy": ">= 0.1"}, "model": {"name": "bag"}}
        task = finished(cli, project, data, "--target", "label", epochs=40, **wanted)  # until it beats a constant answer
    else:
        data, rows_of = paint(tmp_path / "pics", ("blue", "green", "red")), of_pictures
        task = finished(cli, project, data, acceptance={"accuracy": ">= 0.2"}, model={"name": "cnn", "channels": [4]})
    print(f"{kind}: largest difference of a probability {checked(cli, project, task, data, rows_of, tmp_path):.2g}")


def test_a_served_generator_continues_as_predict_does_and_knows_its_test_split_as_in_training(tmp_path, cli):
    data, project = tmp_path / "log.txt", tmp_path / "project"
    data.write_text(ships_log(200))
    model = {"name": "transformer", "width": 8, "heads": 2, "layers": 1}
    task = finished(cli, project, data, acceptance={"bits_per_byte": "<= 9"}, model=model)
    print(f"generator: relative difference of the test's loss {generated(cli, project, task, tmp_path):.2g}")


def generated(cli: Cli, folder: Path, task: OpenTask, scratch: Path) -> float:
    """Compare continuations with `predict`'s, and the loss of the served model's scores; return the loss's difference."""
    windows: Tensor
    windows, _ = task.task.rows(ids_of(task))
    prompts = [task.task.decoded(window[:12]) for window in windows]
    said = []
    for number, prompt in enumerate(prompts):
        (scratch / f"{number}.txt").write_text(prompt)
        said.append(json.loads(cli("predict", scratch / f"{number}.txt", "--project", folder).out)["continuation"])
    rows = [{"prompt": prompt} for prompt in prompts]
    with asking(folder, unchecked=False) as client:
        single = [client.post("/predict", json={"rows": [row]}).json()["answers"][0]["continuation"] for row in rows]
        whole = client.post("/predict", json={"rows": rows}).json()["answers"]
        with client.stream("POST", "/continue", json=rows[0]) as stream:
            events = [json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line]
    assert single == said
    assert [one["continuation"] for one in whole] == said
    assert events[-1]["answers"] == [{"continuation": said[0]}]
    assert len(events) == 201  # a part for each token, and the answer
    found = admitted(folder)
    scores = from_numpy(np.stack(list(loaded(found).work([window[None, :-1].numpy().astype(np.int64) for window in windows]))))
    loss = float(functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten().long()))
    test = read_json(folder / "phases/05_finalization/record.json")["evidence"]["test"]["metrics"]["loss"]
    assert loss == pytest.approx(test, rel=TOLERANCE)
    assert math.isfinite(loss)
    return abs(loss - test) / test
