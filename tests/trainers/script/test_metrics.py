"""What a program wrote of its metrics, in each form that is read; what is none of them is told by file and line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mltrainer.errors import InputError
from mltrainer.trainers.script.metrics import ReportedEvaluation, ended_by, read_metrics

ROW = '{"accuracy": 0.9, "train_accuracy": 0.95, "epoch": 2, "model": "mlp", "done": true}'
TOLD = ReportedEvaluation(None, 2.0, {"accuracy": 0.9}, {"accuracy": 0.95})


def read(folder: Path, text: str) -> list[ReportedEvaluation]:
    (folder / "metrics.json").write_text(text)
    return read_metrics(folder / "metrics.json", "metrics.json", "accuracy")


@pytest.mark.parametrize("text", [ROW, f"[{ROW}]", f"{ROW}\n\n"], ids=["a mapping", "a list", "a line"])
def test_a_mapping_a_list_or_lines_are_read(tmp_path, text):
    assert read(tmp_path, text) == [TOLD]


def test_each_line_is_an_evaluation_and_says_when_it_was(tmp_path):
    found = read(tmp_path, '{"step": 10, "loss": 1.5}\n{"step": 20, "loss": 0.5, "accuracy": 0.7}\n')
    assert [(row.step, row.validation) for row in found] == [(10, {"loss": 1.5}), (20, {"loss": 0.5, "accuracy": 0.7})]


def test_a_number_that_is_none_stays_none(tmp_path):
    (row,) = read(tmp_path, '{"accuracy": NaN}')
    assert math.isnan(row.validation["accuracy"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"accuracy": 0.5}\n{"accuracy": ', "metrics.json:2: no JSON"),
        ('{"accuracy": 0.5}\n[1, 2]\n', "metrics.json:2: expected a mapping of metrics by name, found list"),
        ('"good"', "metrics.json:1: expected a mapping of metrics by name, found str"),
        ('{"loss": 0.5}', "the last evaluation holds no number accuracy; it holds loss"),
        ('{"accuracy": "high"}', "it holds accuracy (a str)"),
        ('{"eval": {"accuracy": 1}}', "it holds eval (a dict)"),
        ("", "it holds nothing"),
    ],
)
def test_what_is_no_metrics_is_told_by_file_and_line(tmp_path, text, told):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert told in str(caught.value)


def test_transformers_names_are_those_of_its_callback(tmp_path):
    (row,) = read(tmp_path, '{"eval_accuracy": 0.9, "eval_loss": 0.2, "train_loss": 0.1}')
    assert (row.validation, row.train) == ({"accuracy": 0.9, "loss": 0.2}, {"loss": 0.1})


def test_what_a_callback_told_of_the_end_stands_beside_what_the_program_wrote():
    told = [ReportedEvaluation(10, 1.0, {"accuracy": 0.5}, {}), ReportedEvaluation(20, 2.0, {"accuracy": 0.6, "loss": 0.9}, {})]
    end = ReportedEvaluation(None, None, {"accuracy": 0.7}, {"accuracy": 0.8})
    assert ended_by(told, end, 20) == [told[0], ReportedEvaluation(20, 2.0, {"accuracy": 0.7, "loss": 0.9}, {"accuracy": 0.8})]
    assert ended_by(told, end, 30) == [*told, end]
    assert ended_by([], end, 30) == [end]


def test_how_long_something_took_is_no_metric(tmp_path):
    (row,) = read(tmp_path, '{"accuracy": 0.9, "eval_runtime": 1.5, "samples_per_second": 9.0, "train_time": 3, "timely": 1}')
    assert (row.validation, row.train) == ({"accuracy": 0.9, "timely": 1.0}, {})


def test_a_file_that_was_not_written_is_told(tmp_path):
    with pytest.raises(InputError, match="left no metrics that can be read"):
        read_metrics(tmp_path / "metrics.json", "metrics.json", "accuracy")
