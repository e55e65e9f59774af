"""`init` sees which column says how rows are split, which rows belong together, and which columns only number the rows."""

import random
from pathlib import Path

import numpy as np
import pytest

from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.project import start
from mltrainer.project.start import make_project
from mltrainer.tasks.config_inference import infer_project
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.splits import SPLITS
from mltrainer.tasks.tables.config_inference import InferredConfig

N = 300
DRAWN = random.Random(7)
NUMBERS = [f"{DRAWN.random():.3f}" for _ in range(N)]
CLASSES = [DRAWN.choice("ab") for _ in range(N)]


def table(folder: Path, **columns: list[object]) -> Path:
    path = folder / "d.csv"
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines))
    return path


def inferred(folder: Path, **columns: list[object]) -> InferredConfig:
    return infer_project({"train": table(folder, **columns, x=NUMBERS, t=CLASSES)}, "t")


def repeated(ids: int, seed: int = 3) -> list[int]:
    """The number of a person of each row: each has one row, and some have a second one, in any order."""
    places = [*range(ids), *range(N - ids)]
    random.Random(seed).shuffle(places)
    return places


SPLITTING = {  # name and cells of a column, and the split of the first three rows
    "words": ("Train/Test", ["Train", "Test", "Train"], ["train", "test", "train"]),
    "three words": ("set", ["train", "valid", "holdout"], ["train", "validation", "test"]),
    "whether it trains": ("is_train", ["1", "0", "1"], ["train", "test", "train"]),
    "whether it tests": ("isTest", ["False", "True", "no"], ["train", "test", "train"]),
    "a public competition": ("Usage", ["Training", "PublicTest", "PrivateTest"], ["train", "validation", "test"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SPLITTING)
@pytest.mark.parametrize("texts", [False, True])
def test_a_column_of_splits_splits_and_is_no_feature(tmp_path, monkeypatch, case, texts):
    monkeypatch.setattr(start, "start_repository", lambda folder, written: "no git")
    name, cells, wanted = SPLITTING[case]
    first = {"text": [f"words of row {n} {NUMBERS[n]}" for n in range(N)]} if texts else {"x": NUMBERS}
    path = table(tmp_path, **{name: [cells[n % 3] for n in range(N)]}, **first, t=CLASSES)
    told = make_project(tmp_path / "p", None, path, "t")
    assert any(line.startswith(f"column {name!r} says how rows are split") for line in told)
    project = load_project(tmp_path / "p" / "mltrainer.yaml")
    assert (project.split.column, project.task.kind == "text_classification") == (name, texts)
    config = validate_values(TrainingConfig, {**baseline_template(tmp_path / "p"), **project.model_dump()}, "p")
    given = open_task(config, tmp_path / "p").task.split_constraints(config.split).given
    assert [SPLITS[place] for place in given[:3]] == wanted


def test_a_column_that_may_split_is_asked_about_and_stays_a_feature(tmp_path):
    found = inferred(tmp_path, train=[n % 4 and 1 for n in range(N)])
    assert found.warnings[0] == (
        "does column 'train' say how rows are split? split: {column: train} follows it, and takes it out of the features"
    )
    assert (found.split, found.ignored) == ({}, [])


@pytest.mark.parametrize(
    ("name", "folds", "is_taken"), [("fold", 5, True), ("cv_fold", 10, True), ("fold", 40, False), ("n", 5, False)]
)
def test_numbered_folds_are_kept_whole_and_are_no_feature(tmp_path, name, folds, is_taken):
    found = inferred(tmp_path, **{name: [n * 7 % folds + 1 for n in range(N)]})
    assert found.split == ({"group": name} if is_taken else {})


@pytest.mark.parametrize("cells", [["train", "bus", "test"], ["test", "test", "test"], ["train", "", "test"]])
def test_a_column_with_other_cells_beside_is_no_split(tmp_path, cells):
    assert inferred(tmp_path, set=[cells[n % 3] for n in range(N)]).split == {}


IDS = {
    "whole numbers": lambda n: 7000 + n * 37,
    "texts": lambda n: f"{'WVBX'[n % 4]}{n * 7919 % 100003:06}K",
}


@pytest.mark.parametrize("name", ["id", "vin", "CustomerID", "loan_nr", "customerid"])
@pytest.mark.parametrize("form", IDS)
@pytest.mark.parametrize("ids", [280, 160, 120])
def test_ids_whose_rows_agree_are_kept_in_one_split(tmp_path, name, form, ids):
    people = repeated(max(ids, 150)) if ids > 120 else [n % ids for n in range(N)]
    found = inferred(tmp_path, **{name: [IDS[form](n) for n in people]}, zip=[10_000 + n * 13 % 89 for n in people])
    assert (found.split, name in found.ignored) == ({"group": name}, True)
    assert any(
        line.startswith(f"rows with one {name!r} go to one split (split.group): 100% of") and "agree in 'zip'" in line
        for line in found.explanation
    )


def test_ids_whose_rows_agree_are_warned_of_where_a_column_names_the_splits(tmp_path):
    people = repeated(280)
    ids, zips = [7000 + n * 37 for n in people], [10_000 + n * 13 % 89 for n in people]
    found = inferred(tmp_path, vin=ids, zip=zips, split=[("train", "test")[n % 4 == 0] for n in range(N)])
    assert found.split == {"column": "split"}
    assert not any("split.group" in line for line in found.explanation)
    (line,) = [line for line in found.warnings if "may be in several splits" in line]
    assert line.startswith("rows with one 'vin' may be in several splits of 'split': 100% of")


def test_ids_that_repeat_by_chance_bind_nothing_and_are_no_feature(tmp_path):
    found = inferred(tmp_path, id=[7000 + n * 37 for n in repeated(280)], zip=[n * 13 % 89 for n in range(N)])
    assert (found.split, found.ignored) == ({}, ["id"])


@pytest.mark.parametrize("name", ["ticket", "ref"])
def test_a_column_of_another_name_whose_rows_agree_is_asked_about(tmp_path, name):
    people = repeated(200)
    found = inferred(tmp_path, **{name: [IDS["texts"](n) for n in people]}, zip=[n * 13 % 89 for n in people])
    (line,) = [line for line in found.warnings if "belong together?" in line]
    assert line.startswith(f"do rows of one {name!r} belong together? 100% of 100 pairs of its rows agree in 'zip'")
    assert f"split: {{group: {name}}}" in line


def test_equal_rows_of_several_ids_are_bound_in_place_of_the_ids(tmp_path):
    people = repeated(280)
    other = [*range(N // 2), *range(N // 2)]
    path = table(tmp_path, id=[7000 + n * 37 for n in people], zip=[n * 13 % 89 for n in other], t=[CLASSES[n] for n in other])
    assert infer_project({"train": path}, "t").split == {}


@pytest.mark.parametrize(
    ("name", "cells", "is_left_out"),
    [
        ("PassengerId", [3 * n + n % 2 for n in range(N)], True),
        ("CustomerID", [15_600_000 + n * 7919 % 300_007 for n in range(N)], True),
        ("lfd", [3 * n + n % 2 for n in range(N)], True),
        ("area", [n * n for n in range(N)], False),
        ("year", [3 * n + n % 2 for n in range(N)], False),
        ("paid", [n * 7919 % 300_007 for n in range(N)], False),
    ],
)
def test_numbers_that_only_name_the_rows_are_left_out_with_one_line(tmp_path, name, cells, is_left_out):
    found = inferred(tmp_path, **{name: cells})
    assert found.ignored == ([name] if is_left_out else [])
    assert sum(f"column {name!r} is ignored" in line for line in found.explanation) == is_left_out


@pytest.mark.parametrize("is_class", [True, False])
def test_a_running_number_along_which_the_target_changes_stays_a_feature(tmp_path, is_class):
    drift = [n / N + DRAWN.random() for n in range(N)]
    target = ["ab"[value > 1] for value in drift] if is_class else [f"{value:.3f}" for value in drift]
    path = table(tmp_path, lfd=[3 * n + n % 2 for n in range(N)], x=NUMBERS, t=target)
    assert infer_project({"train": path}, "t").ignored == []


def test_the_agreement_of_rows_is_that_of_their_pairs(tmp_path):
    people = repeated(200)
    of_one = {n: [row for row in range(N) if people[row] == n] for n in set(people)}
    rooms = np.array([DRAWN.randrange(3) for _ in range(N)])
    for pair in [rows for rows in of_one.values() if len(rows) == 2][:80]:
        rooms[pair[1]] = rooms[pair[0]]
    pairs = [rows for rows in of_one.values() if len(rows) == 2]
    share = np.mean([rooms[one] == rooms[other] for one, other in pairs])
    found = inferred(tmp_path, id=[7000 + n * 37 for n in people], rooms=rooms.tolist())
    assert any(f"{share:.0%} of 100 pairs of its rows agree in 'rooms'" in line for line in found.explanation)
