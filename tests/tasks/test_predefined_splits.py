"""Data that comes with its own splits, in files or folders of their own."""

import json
import os

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from mltrainer.configs.items import DataLimits
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.errors import InputError
from mltrainer.project.start import make_project
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.predefined_splits import own_splits
from mltrainer.tasks.splits import SPLITS
from mltrainer.tasks.tables import files

TABLE = {"task": {"kind": "tabular_classification"}, "batch_size": 2}


def rows(start, count):
    return [f"{i}.5,{i * 7}.25,{'ab'[i % 2]}" for i in range(start, start + count)]


def write(path, lines, header="n,m,t"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *lines]))


@pytest.fixture
def table(config, tmp_path):
    write(tmp_path / "train.csv", rows(0, 60))
    write(tmp_path / "valid.csv", rows(100, 20))
    write(tmp_path / "test.csv", rows(200, 10))

    def opened(split=None, **data):
        data = {"source": "train.csv", "target": "t", **data}
        return open_task(config(**TABLE, data=data, split={"validation": 0.2, "test": 0.1, **(split or {})}), tmp_path)

    return opened


def ids_of(task):
    task.open_test()
    return {name: task.split(name).ids.tolist() for name in SPLITS}


def test_each_file_is_its_split(table):
    task = table(validation="valid.csv", test="test.csv")
    assert ids_of(task) == {"train": [*range(60)], "validation": [*range(60, 80)], "test": [*range(80, 90)]}
    facts = task.facts(DataLimits())
    assert [file["path"] for file in facts["files"]] == ["train.csv", "valid.csv", "test.csv"]
    told = "splits come as they were given: validation from 'valid.csv', test from 'test.csv'"
    assert any(finding["what"] == told for finding in facts["findings"])


@pytest.mark.parametrize(("given", "sizes"), [({"test": "test.csv"}, (48, 12, 10)), ({"validation": "valid.csv"}, (54, 20, 6))])
def test_what_has_no_file_is_drawn_from_the_training_file(table, given, sizes):
    found = ids_of(table(**given))
    assert tuple(len(found[name]) for name in SPLITS) == sizes
    drawn = "validation" if "test" in given else "test"
    assert max(found[drawn]) < 60
    assert sorted(i for ids in found.values() for i in ids) == [*range(sum(sizes))]


def test_equal_rows_of_the_training_file_are_drawn_together(table, tmp_path):
    write(tmp_path / "train.csv", [row for row in rows(0, 30) for _ in range(3)])
    found = ids_of(table({"repeats": "together"}, test="test.csv"))
    assert not {i // 3 for i in found["train"]} & {i // 3 for i in found["validation"]}


def test_the_split_of_each_row_is_part_of_the_datas_identity(table):
    one, other = table(validation="valid.csv", test="test.csv"), table(validation="test.csv", test="valid.csv")
    assert one.data_sha256 != other.data_sha256


def test_a_row_that_is_in_two_files_is_leakage(table, tmp_path):
    write(tmp_path / "valid.csv", rows(0, 20))
    found = table(validation="valid.csv", test="test.csv").facts(DataLimits())["findings"]
    assert any(finding["severity"] == "error" and "leakage: 20 of 20 validation rows" in finding["what"] for finding in found)


def test_columns_may_stand_in_another_order(table, tmp_path):
    task = table(test="test.csv")
    write(tmp_path / "test.csv", [",".join(reversed(row.split(","))) for row in rows(200, 10)], "t,m,n")
    assert table(test="test.csv").data_sha256 == task.data_sha256


def test_a_missing_column_is_told_with_its_file(table, tmp_path):
    write(tmp_path / "test.csv", [row.rsplit(",", 1)[0] for row in rows(200, 10)], "n,m")
    with pytest.raises(InputError, match=r"test\.csv: no column 't', which train\.csv has") as refused:
        table(test="test.csv")
    assert "mltrainer predict" in refused.value.hint


def test_a_column_that_the_training_file_has_not_is_left_out_and_told(table, tmp_path):
    write(tmp_path / "test.csv", [f"{row},9" for row in rows(200, 10)], "n,m,t,late")
    told = [finding["what"] for finding in table(test="test.csv").facts(DataLimits())["findings"]]
    assert "columns of test.csv that train.csv has not were left out: 'late'" in told


def test_one_file_cannot_be_two_splits(table):
    for same in ({"test": "./train.csv"}, {"validation": "test.csv", "test": "test.csv"}):
        with pytest.raises(ValidationError, match=r"must be different files"):
            table(**same)


def test_splits_of_two_forms_are_told(table, tmp_path):
    np.savez(tmp_path / "test.npz", x=np.zeros((4, 2), dtype=np.float32), y=np.arange(4) % 2)
    with pytest.raises(InputError, match=r"test\.npz: arrays or images, but train\.csv holds a table"):
        table(test="test.npz")


def test_a_wrong_cell_is_told_with_its_file_and_line(table, tmp_path):
    write(tmp_path / "test.csv", [*rows(200, 9), "oops,1.5,a"])
    with pytest.raises(
        InputError, match=r"test\.csv:11: column 'n', 1 cell in line test\.csv:11: expected numbers, found 'oops'"
    ):
        table(test="test.csv")


def test_rows_without_a_target_leave_the_others_where_they_are(table, tmp_path):
    write(tmp_path / "train.csv", [*rows(0, 59), "1.5,2.5,"])
    found = ids_of(table(validation="valid.csv", test="test.csv"))
    assert [len(found[name]) for name in SPLITS] == [59, 20, 10]


def test_a_missing_file_is_told_with_its_key(table):
    with pytest.raises(InputError, match=r"data\.test: no such file or folder: 'tset\.csv'; did you mean 'test\.csv'"):
        table(test="tset.csv")


def test_a_split_column_and_files_are_too_much(table):
    with pytest.raises(ValidationError, match=r"either split\.column, or data\.validation and data\.test"):
        table({"column": "m"}, test="test.csv")


def test_large_files_are_kept_together(table, tmp_path, monkeypatch):
    monkeypatch.setattr("mltrainer.tasks.sources.FAST_FROM", 1)
    (tmp_path / "mltrainer.yaml").write_text("")
    given = {"validation": "valid.csv", "test": "test.csv"}
    first, ids = table(**given), ids_of(table(**given))
    monkeypatch.setattr(files, "read_csv", None)  # it is not read again
    monkeypatch.setattr("mltrainer.tasks.sources.read_csv", None)
    assert table(**given).data_sha256 == first.data_sha256
    assert ids_of(table(**given)) == ids
    monkeypatch.undo()
    assert table(**given).data_sha256 == first.data_sha256, "as without a copy"


def test_fast_and_careful_readers_join(config, tmp_path, monkeypatch):
    write(tmp_path / "train.csv", rows(0, 60))
    write(tmp_path / "test.csv", rows(200, 10))
    described = config(**TABLE, data={"source": "train.csv", "test": "test.csv", "target": "t"})
    careful = open_task(described, tmp_path).data_sha256
    monkeypatch.setattr(files, "FAST_FROM", os.path.getsize(tmp_path / "train.csv"))
    assert open_task(described, tmp_path).data_sha256 == careful


def test_pictures_in_folders_for_each_split(config, tmp_path):
    for number, (split, count) in enumerate({"train": 6, "val": 4, "test": 2}.items()):
        for label in ("cat", "dog") if split != "test" else ("dog", "ox"):
            (tmp_path / "pics" / split / label).mkdir(parents=True)
            for i in range(count):
                pixels = np.full((8, 8), 60 * number + 10 * i + len(label), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "pics" / split / label / f"{i}.png")
    make_project(tmp_path / "p", None, tmp_path / "pics", None)
    text = (tmp_path / "p" / "mltrainer.yaml").read_text()
    assert "source: ../pics/train" in text
    assert "validation: ../pics/val\n" in text
    task = open_task(
        config(
            task={"kind": "image_classification"},
            model={"name": "cnn", "channels": [4]},
            data={
                "source": "../pics/train",
                "validation": "../pics/val",
                "test": "../pics/test",
                "image": {"size": [8, 8], "colour": "grey"},
            },
            batch_size=4,
        ),
        tmp_path / "p",
    )
    assert [len(ids) for ids in ids_of(task).values()] == [12, 8, 4]
    assert task.split("test").tensors[1].tolist() == [1, 1, 2, 2]


def test_texts_in_files_for_each_split(config, tmp_path):
    for name, lines in {"train": 200, "valid": 40, "test": 30}.items():
        (tmp_path / f"{name}.txt").write_text(
            "".join(f"line {i} of {name}{' valid test' * (name == 'train')}\n" for i in range(lines))
        )

    def opened(**given):
        data = {"source": "train.txt", **given, "tokens": {"kind": "char", "vocabulary": 300, "length": 16, "file": None}}
        model = {"name": "transformer", "width": 8, "heads": 1, "layers": 1}
        metric = {"name": "bits_per_byte", "mode": "min"}
        return open_task(config(task={"kind": "text_generation"}, data=data, model=model, metric=metric, batch_size=2), tmp_path)

    both = opened(validation="valid.txt", test="test.txt")
    assert text_of(both, "validation").startswith("line 0 of valid\n")
    both.open_test()
    assert text_of(both, "test").startswith("line 0 of test\n")
    assert len(both.split("train")) == (tmp_path / "train.txt").stat().st_size // 16
    only = opened(test="test.txt")
    only.open_test()
    assert text_of(only, "test").startswith("line 0 of test\n")
    assert " of train" in text_of(only, "validation")


def text_of(task, split):
    knows = json.loads(task.task.delivered()["tokenizer.json"])["model"]["vocab"]
    letters = {number: letter for letter, number in knows.items()}
    windows = task.split(split).tensors[0]
    return "".join(letters[number] for number in windows[:, :-1].flatten().tolist())


def test_a_folder_with_two_candidates_asks(tmp_path):
    for name in ("train.csv", "val.csv", "valid.csv"):
        write(tmp_path / name, rows(0, 3))
    with pytest.raises(InputError, match=r"both val\.csv and valid\.csv could be the validation split"):
        own_splits(tmp_path, {})


def test_a_folder_of_files_is_taken_apart_and_names_win(tmp_path):
    for name in ("train.csv", "test.csv", "README.md"):
        write(tmp_path / name, rows(0, 3))
    assert {name: path.name for name, path in own_splits(tmp_path, {}).items()} == {"train": "train.csv", "test": "test.csv"}
    other = own_splits(tmp_path, {"test": tmp_path / "later.csv", "validation": None})
    assert other["test"].name == "later.csv"
    assert own_splits(tmp_path / "train.csv", {}) == {"train": tmp_path / "train.csv"}


# --- labels that no training row has ---


@pytest.fixture
def income(tmp_path):
    """Begin a project with a training and a test file, and return what `init` said, and planning's findings."""

    def make(train, test):
        for name, labels in {"train": train, "test": test}.items():
            lines = [f"{number},{number * 7 % 13}.5,{label}" for number, label in enumerate(labels)]
            write(tmp_path / f"{name}.csv", lines)
        told = make_project(tmp_path / "p", None, tmp_path / "train.csv", "t", {"test": tmp_path / "test.csv"})
        values = {**baseline_template(tmp_path / "p"), **load_project(tmp_path / "p" / "mltrainer.yaml").model_dump()}
        opened = open_task(validate_values(TrainingConfig, values, "test"), tmp_path / "p")
        found = {row["severity"]: row["what"] for row in opened.facts(DataLimits())["findings"] if "labels of" in row["what"]}
        return [line for line in told if "labels of" in line], found

    return make


def test_labels_with_a_stop_behind_them_are_an_error_that_names_the_nearest(income):
    told, found = income(["<=50K", ">50K"] * 60, ["<=50K.", ">50K."] * 15)
    what = "that no training row has: '<=50K.' (15 rows, near '<=50K'), '>50K.' (15 rows, near '>50K')"
    assert found == {"error": f"labels of the test split {what}; write them as the training rows do"}
    assert told == [f"warning: labels of 'test.csv' {what}; write them as the training rows do; planning stops there"]


def test_a_class_that_only_few_test_rows_have_is_a_warning(income):
    told, found = income(["red", "green"] * 60, [*["red", "green"] * 9, "blue"])
    assert found == {"warning": "labels of the test split that no training row has: 'blue' (1 rows); no model can predict them"}
    assert len(told) == 1


@pytest.mark.parametrize(("strange", "severity"), [(10, "error"), (9, "warning")])
def test_half_a_split_of_strange_labels_is_an_error(income, strange, severity):
    _, found = income(["red", "green"] * 60, ["blue"] * strange + ["red"] * (20 - strange))
    assert list(found) == [severity]


def test_labels_that_are_known_are_not_told(income):
    assert income(["red", "green"] * 60, ["red", "green"] * 9) == ([], {})


def test_a_validation_file_from_elsewhere_is_told(table, tmp_path):
    draw = np.random.default_rng(0)

    def drawn(count, offset):
        first, second = draw.normal(offset, 1, count), draw.normal(0, 1, count)
        return [f"{one:.6f},{other:.6f},{int(other > 0)}" for one, other in zip(first, second, strict=True)]

    def told(task):
        return [row["what"] for row in task.facts(DataLimits())["findings"] if "distribution shift" in row["what"]]

    write(tmp_path / "train.csv", drawn(300, 0))
    write(tmp_path / "valid.csv", drawn(100, 1.5))
    (found,) = told(table(validation="valid.csv"))
    assert "1 of 2 columns of numbers, most of all 'n' (median" in found
    write(tmp_path / "valid.csv", drawn(100, 0))
    assert told(table(validation="valid.csv")) == []
