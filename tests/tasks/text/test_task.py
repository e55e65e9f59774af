import json

import pytest
import torch
from tokenizers import Tokenizer

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Tokens, TrainingConfig
from mltrainer.tasks.text import tokenizing
from tests.refusals import refused


def what(opened):
    return [f"{f['severity']}: {f['what']}" for f in opened.facts(DataLimits())["findings"]]


def test_texts_are_token_ids_as_long_as_the_longest_training_text(open_texts):
    tokens, labels = open_texts().split("train").tensors
    assert tokens.dtype == labels.dtype == torch.int64
    assert tokens.shape[1] == 5
    assert bool((tokens[:, 0] == tokens[0, 0]).all())  # every review begins with the same word


def test_the_tokenizer_knows_nothing_of_what_is_held_out(open_texts, reviews):
    opened = open_texts()
    held_out = {*opened.split("validation").ids.tolist(), *opened.open_test().ids.tolist()}
    lines = (reviews / "reviews.csv").read_text().splitlines()
    lines[1:] = [line if nr not in held_out else line.replace("film", "unseen") for nr, line in enumerate(lines[1:])]
    (reviews / "reviews.csv").write_text("\n".join(lines) + "\n")
    again = open_texts()
    assert again.task.delivered() == opened.task.delivered()
    assert any("40.0% of those of the validation texts are unknown" in line for line in what(again))  # the word, and the number


def test_lengths_and_cuts_are_told(open_texts):
    cut = what(open_texts(data={"tokens": {"length": 4}}))
    assert "info: training texts have 5 tokens in the median, 5 at the 95th percentile, 5 at most" in cut
    assert "info: 100.0% of the training texts are longer than data.tokens.length 4 and cut at their end" in cut


def test_rows_without_text_or_class_are_left_out_and_told(open_texts, reviews):
    with (reviews / "reviews.csv").open("a") as file:
        file.write("60,,good\n61,nothing to say,\n62,,\n")
    opened = open_texts()
    assert opened.facts(DataLimits())["samples"] == 60
    assert "warning: 3 of 63 rows were left out: 2 rows have no 'review', 2 rows have no 'label'" in what(opened)


def test_a_tokenizer_of_ones_own_is_part_of_the_datas_identity(open_texts, reviews):
    def bring(texts):
        (reviews / "mine.json").write_bytes(tokenizing.train(texts, Tokens()).to_str().encode())
        return open_texts(data={"tokens": {"file": "mine.json"}})

    first, second = bring(["film was fine"]), bring(["film was poor"])
    assert first.data_sha256 != second.data_sha256 != open_texts().data_sha256
    assert [row["path"] for row in first.facts(DataLimits())["files"]] == ["reviews.csv", "mine.json"]
    assert first.task.inference()["tokenizer"] == "tokenizer.json"
    assert Tokenizer.from_buffer(second.task.delivered()["tokenizer.json"]).token_to_id("poor") is not None


def test_a_tokenizer_that_is_not_there_is_told_by_its_key(open_texts):
    with refused("no such file or folder", where="data.tokens.file"):
        open_texts(data={"tokens": {"file": "mine.json"}})


def test_the_facts_name_the_column_and_the_shape(open_texts):
    facts = open_texts().facts(DataLimits())
    assert facts["columns"] == [{"name": "review", "kind": "text", "missing": 0, "distinct": 54}]
    assert (facts["shape"], facts["classes"], facts["kind"]) == ([5], ["bad", "good"], "text_classification")


def test_equal_texts_across_splits_are_found(open_texts, reviews):
    rows = [f"{n},film was fine,{'good' if n % 2 else 'bad'}" for n in range(60)]
    (reviews / "reviews.csv").write_text("\n".join(["id,review,label", *rows]) + "\n")
    assert open_texts().facts(DataLimits())["duplicates_across_splits"] > 0


def test_plain_gives_the_texts_themselves(open_texts):
    opened = open_texts()
    row = int(opened.split("train").ids[3])
    rows = opened.task.reference_inputs(opened.split("train").ids[3:4])
    assert (rows.form, rows.inputs) == ("texts", [opened.task.texts[row]])


def test_a_folder_needs_no_target(open_texts, reviews):
    for label in ("bad", "good"):
        (reviews / "texts" / label).mkdir(parents=True)
        for number in range(20):
            (reviews / "texts" / label / f"{number}.txt").write_text(f"{label} film {number}\nover two lines")
    opened = open_texts(data={"source": "texts", "text": None, "target": None})
    assert opened.facts(DataLimits())["class_counts"]["train"] == {"bad": 14, "good": 14}


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("text_classification", "mlp", "model mlp reads no texts, which does not suit text_classification"),
        ("tabular_classification", "gru", "model gru reads texts, which does not suit tabular_classification"),
    ],
)
def test_models_of_texts_and_of_numbers_are_told_apart(open_texts, task, model, message):
    with pytest.raises(ValueError, match=message):
        open_texts(task={"kind": task}, model={"name": model})


def test_the_config_says_how_texts_become_numbers_and_other_tasks_are_named_as_before(config):
    texts = config(task={"kind": "text_classification"}, data={"source": "r.csv"}, model={"name": "bag"})
    assert isinstance(texts, TrainingConfig)
    assert texts.data.tokens == Tokens()
    assert config().data.tokens is None
    assert "tokens" not in json.dumps(config().model_dump(exclude_none=True))


def test_texts_with_the_same_words_across_splits_are_told(open_texts, reviews):
    assert not [line for line in what(open_texts()) if "have the words" in line]
    path = reviews / "reviews.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows, *(row.replace("film", "FILM!") for row in rows)]) + "\n")
    assert [line for line in what(open_texts()) if "validation texts have the words of a training text: are they copies?" in line]
