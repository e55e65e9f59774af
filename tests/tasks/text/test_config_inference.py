import pytest

from mltrainer.configs.project import Data
from mltrainer.tasks.config_inference import infer_project, plain_columns
from mltrainer.tasks.sources import read_source
from mltrainer.tasks.text.config_inference import infer_texts
from tests.tasks.text.conftest import write_reviews


def test_reviews_with_an_id_ask_for_text_classification(tmp_path):
    write_reviews(tmp_path / "r.csv")
    found = infer_project({"train": tmp_path / "r.csv"}, "label")
    assert (found.kind, found.text, found.ignored, found.metric) == ("text_classification", "review", ["id"], "accuracy")
    assert found.explanation == [
        "column 'review' holds the texts: 5 words in the mean, nearly all of 60 distinct",
        "column 'label' holds the classes, 2 of them: text_classification",
        "column 'id' is ignored: every row has a whole number of its own, an id",
    ]


def test_a_folder_of_texts_needs_no_target(tmp_path):
    for label in ("bad", "good"):
        (tmp_path / "texts" / label).mkdir(parents=True)
        for number in range(20):
            (tmp_path / "texts" / label / f"{number}.txt").write_text(f"{label} film number {number}")
    assert infer_project({"train": tmp_path / "texts"}, None).kind == "text_classification"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("size,note,label", "{n},some words about number {n},{c}"),  # another feature stands beside the texts
        ("code,label", "red {m},{c}"),  # a category of two words
        ("note,label", "some words about number {n},{n}.5"),  # a quantity, no class
    ],
)
def test_other_tables_are_none_of_texts(tmp_path, header, row):
    lines = [row.format(n=n if "size" not in header else n * n % 37, m=n % 4, c="ab"[n % 2]) for n in range(60)]
    (tmp_path / "t.csv").write_text("\n".join([header, *lines]) + "\n")
    table = read_source(Data(source="t.csv"), tmp_path).content
    assert infer_texts(table, header.rpartition(",")[2], plain_columns(table)) is None


def test_rare_classes_ask_for_another_metric(tmp_path):
    lines = [f"some words about number {n},{'rare' if n % 12 == 0 else 'common'}" for n in range(120)]
    (tmp_path / "t.csv").write_text("\n".join(["note,label", *lines]) + "\n")
    found = infer_project({"train": tmp_path / "t.csv"}, "label")
    assert found.metric == "average_precision"
    assert found.warnings[0].startswith("classes are imbalanced: common has 110 rows, rare 10; average_precision is that of rare")
