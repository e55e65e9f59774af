"""A checkpoint chosen by one metric or by several, against the definitions."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest
from safetensors.torch import load_file

from mltrainer.checkpointing.inventory import Listed
from mltrainer.checkpointing.selecting import choices, modes_of
from mltrainer.checkpointing.tensors import checkpoint_weights_sha256
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.configs.project import Metric
from mltrainer.errors import InputError

MODEL = "05_finalization/final_model"
ACCURACY = Metric(name="accuracy", mode="max")


def row(step: int, **metrics: float | str) -> Listed:
    return Listed("a1b2c3d4e5f6", step, f"step-{step}", None, [], [], metrics=dict(metrics))


ROWS = [row(1, accuracy=0.9, log_loss=0.3), row(2, accuracy=0.95, log_loss=0.4), row(3, accuracy=0.9, log_loss=0.5)]


def test_by_one_metric_the_best_is_selected_and_the_rest_is_ranked():
    found = choices(ROWS, modes_of([], ACCURACY, ROWS), ACCURACY)
    assert [(one.nr, one.step, one.selected, one.beaten_by) for one in found] == [
        (1, 2, True, None),
        (2, 1, False, 2),
        (3, 3, False, 2),
    ]
    assert [round(one.behind["accuracy"], 6) for one in found] == [0.0, 0.05, 0.05]
    smallest = choices(ROWS, {"log_loss": "min"}, ACCURACY)
    assert [one.step for one in smallest] == [1, 2, 3]


def test_of_equal_ones_the_smaller_loss_and_then_the_earlier_step_is_taken():
    rows = [row(step, accuracy=0.9, loss=loss) for step, loss in ((5, 0.2), (3, 0.1), (4, 0.1))]
    assert [one.step for one in choices(rows, {"accuracy": "max"}, ACCURACY)] == [3, 4, 5]


def test_by_several_the_pareto_set_is_by_its_definition_and_the_selected_one_is_in_it():
    draw = random.Random(7)
    for _ in range(50):
        rows = [row(nr, accuracy=draw.randint(0, 5), log_loss=draw.randint(0, 5), f1_macro=draw.randint(0, 5)) for nr in range(8)]
        modes = {"accuracy": "max", "log_loss": "min", "f1_macro": "max"}
        points = {one.step: (one.metrics["accuracy"], -one.metrics["log_loss"], one.metrics["f1_macro"]) for one in rows}
        beaten = {
            a
            for a, b in itertools.permutations(points, 2)
            if points[a] != points[b] and all(x <= y for x, y in zip(points[a], points[b], strict=True))
        }
        found = choices(rows, modes, ACCURACY)
        assert {one.step for one in found if one.beaten_by is not None} == beaten
        assert [one.selected for one in found] == [True] + [False] * 7
        assert found[0].step not in beaten
        pairs = [(points[one.step], points[one.beaten_by]) for one in found if one.beaten_by is not None]
        assert all(x <= y for own, theirs in pairs for x, y in zip(own, theirs, strict=True))


def test_a_value_that_is_not_finite_is_never_selected():
    rows = [row(1, accuracy="nan", log_loss="nan"), row(2, accuracy=0.1, log_loss=9.0)]
    for modes in ({"accuracy": "max"}, {"accuracy": "max", "log_loss": "min"}):
        found = choices(rows, modes, ACCURACY)
        assert [one.step for one in found] == [2, 1]
        assert math.isnan(found[1].metrics["accuracy"])


def test_checkpoints_that_were_not_measured_are_left_out():
    assert [one.step for one in choices([*ROWS, Listed("a", 9, "x", None, [], [])], {"accuracy": "max"}, ACCURACY)] == [2, 1, 3]


def test_the_direction_of_a_metric_is_given_known_or_asked_for():
    assert modes_of(["log_loss", "accuracy"], ACCURACY, ROWS) == {"log_loss": "min", "accuracy": "max"}
    own, rows = Metric(name="profit", mode="max"), [row(1, accuracy=0.9, profit=3.0, regret=0.1)]
    assert modes_of(["profit", "regret:min"], own, rows) == {"profit": "max", "regret": "min"}
    for text, told in (
        ("regret", "regret is none of the built-in metrics"),
        ("accuracy:up", "accuracy: expected max or min, found 'up'"),
    ):
        with pytest.raises(InputError, match=told):
            modes_of([text], own, rows)
    with pytest.raises(InputError, match=r"no metric 'f1' of a checkpoint; there are accuracy, log_loss"):
        modes_of(["f1"], ACCURACY, ROWS)


def test_the_command_shows_what_each_gives_up(digits, cli):
    found = cli("checkpoints", "select", "--by", "accuracy,log_loss", "--json", "--project", digits.root, code=0).json
    assert found["by"] == {"accuracy": "max", "log_loss": "min"}
    assert [one["selected"] for one in found["checkpoints"]].count(True) == 1
    said = cli("checkpoints", "select", "--by", "accuracy,log_loss", "--project", digits.root, code=0)
    assert " behind)" in said.out
    assert (
        said.out.splitlines()[-1] == f"next: mltrainer checkpoints export {found['run']} --step {found['checkpoints'][0]['step']}"
    )
    misspelled = cli("checkpoints", "select", "baseline", "--by", "x", "--project", digits.root, code=1)
    assert "no metric 'x' of a checkpoint; there are accuracy, " in misspelled.err


@pytest.mark.slow
def test_the_selected_checkpoint_is_exported_and_no_other(digits, tmp_path, cli):
    found = cli("checkpoints", "select", "--json", "--project", digits.root, code=0).json["checkpoints"]
    other = found[-1]
    words = ("--step", other["step"], "--format", "safetensors", "--to", tmp_path / "out")
    cli("checkpoints", "export", *words, "--project", digits.root, code=0)
    digest = weights_sha256(load_file(Path(tmp_path / "out/model.safetensors")))
    assert digest == checkpoint_weights_sha256(digits.root / other["path"])
    assert digest != checkpoint_weights_sha256(digits.root / found[0]["path"])
    cli("checkpoints", "export", "--step", 7, "--project", digits.root, code=1, err="with a verified checkpoint of run")


@pytest.mark.parametrize("place", ["mine", "mine/requirements.txt", *(f"project/phases/{name}" for name in ("new", MODEL))])
def test_an_export_writes_over_no_files_but_those_of_an_earlier_one(digits, tmp_path, cli, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").symlink_to(digits.root)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/requirements.txt").write_text("numpy\n")
    before = {path: path.read_bytes() for path in (digits.root / "phases").rglob("*") if path.is_file()}
    cli("checkpoints", "export", "baseline", "--to", place, "--project", digits.root, code=1, err=f"{place}: ")
    assert before == {path: path.read_bytes() for path in (digits.root / "phases").rglob("*") if path.is_file()}
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["requirements.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("export", "--format", "safetensors"), ("average",)])
def test_the_gates_of_a_finished_project_hold_after_an_export_to_another_folder(digits, tmp_path, cli, words):
    cli("checkpoints", *words, "--to", tmp_path / "out", "--project", digits.root, code=0)
    if words[0] == "export":  # again: the files are its own
        cli("checkpoints", *words, "--to", tmp_path / "out", "--project", digits.root, code=0)
    cli("gate", "check", "--project", digits.root, code=0)
