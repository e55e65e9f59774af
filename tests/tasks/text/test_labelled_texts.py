import numpy as np
import pytest

from mltrainer.configs.project import Data
from mltrainer.errors import InputError
from mltrainer.tasks.content import Table
from mltrainer.tasks.sources import read_source
from mltrainer.tasks.tables.files import text_array
from mltrainer.tasks.text.labelled_texts import classes_of, is_text_folder, text_cells, text_column
from tests.refusals import refused


def table(**columns):
    cells = {name: text_array(list(given)) if isinstance(given[0], str) else np.array(given) for name, given in columns.items()}
    return Table(cells, np.arange(1, 1 + len(next(iter(cells.values())))), "t.csv")


@pytest.fixture
def folder(tmp_path):
    for name, texts in {"pos": ["good\nfilm", "fine"], "neg": ["bad"]}.items():
        (tmp_path / "reviews" / name).mkdir(parents=True)
        for number, text in enumerate(texts):
            (tmp_path / "reviews" / name / f"{number}.txt").write_text(text)
    return tmp_path


def test_a_folder_of_text_files_per_class_is_read_in_sorted_order(folder):
    source = read_source(Data(source="reviews"), folder)
    assert text_cells(source.content, "text") == ["bad", "good\nfilm", "fine"]
    assert text_cells(source.content, "label") == ["neg", "pos", "pos"]
    assert [row.path for row in source.files] == ["reviews/neg/0.txt", "reviews/pos/0.txt", "reviews/pos/1.txt"]


def test_an_ending_in_capitals_is_one_and_a_hidden_file_is_none(folder):
    (folder / "reviews" / "neg" / "2.TXT").write_text("worse")
    (folder / "reviews" / "neg" / ".h.txt").write_text("hidden")
    source = read_source(Data(source="reviews"), folder)
    assert text_cells(source.content, "text") == ["bad", "worse", "good\nfilm", "fine"]


def test_a_class_without_a_text_is_named(folder):
    (folder / "reviews" / "odd").mkdir()
    with pytest.raises(InputError, match=r"no \.txt files in odd"):
        read_source(Data(source="reviews"), folder)


def test_a_folder_with_anything_else_in_it_is_none_of_texts(folder):
    assert is_text_folder(folder / "reviews")
    (folder / "reviews" / "pos" / "a.png").write_bytes(b"")
    assert not is_text_folder(folder / "reviews")


def test_an_unreadable_text_is_told_by_its_file(folder):
    (folder / "reviews" / "neg" / "0.txt").write_bytes(b"\x81")
    with refused("neither UTF-8", where="reviews/neg/0.txt:1"):
        read_source(Data(source="reviews"), folder)


def test_cells_are_text_whatever_the_column_holds():
    found = table(a=["x", ""], b=[1.0, 2.5], c=[float("nan"), 3.0])
    assert [text_cells(found, name) for name in "abc"] == [["x", ""], ["1", "2.5"], ["", "3"]]


def test_the_only_column_beside_the_target_holds_the_texts():
    assert text_column(table(id=["1"], said=["a b"], y=["0"]), None, "y", ["id"]) == "said"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (None, "more than one column beside the target"),
        ("said2", "no column 'said2'"),
        ("y", "column 'y': expected texts, found the target"),
        ("n", "column 'n': expected texts, found numbers"),
    ],
)
def test_a_column_of_texts_that_is_none_is_refused(named, message):
    with pytest.raises(InputError, match=message) as error:
        text_column(table(n=[1.0], said=["a b"], y=["0"]), named, "y", [])
    assert "said" in error.value.hint or "data: {text: COLUMN}" in error.value.hint


def test_classes_are_numbered_by_value_and_not_by_their_first_letter():
    assert classes_of(["10", "2", "10"])[1] == ["2", "10"]
    assert classes_of(["b", "a", "b"])[0].tolist() == [1, 0, 1]
