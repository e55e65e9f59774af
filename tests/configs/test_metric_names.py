"""The names that a metric may have."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mltrainer.configs.project import Metric


@pytest.mark.parametrize(
    "name", ["recall@5", "top-5", "F1 (macro)", "mAP50", "mAP@0.5:0.95", "val/acc", "hits@10", "BLEU-4", "accuracy", "R2"]
)
def test_the_names_that_people_give_their_metrics_are_taken(name):
    assert Metric(name=name, mode="max").name == name


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("5-fold", "fold"),
        ("f1|macro", "f1_macro"),
        ("`a`", "a"),
        ("<b>x", "b_x"),
        ("", "score"),
        ("acc ", "acc"),
        ("r\u00b2", "r"),
    ],
)
def test_another_name_is_refused_with_one_that_can_be_taken(name, near):
    with pytest.raises(ValidationError, match="such as") as caught:
        Metric(name=name, mode="max")
    assert f"such as {near!r}" in str(caught.value)
    assert Metric(name=near, mode="max").name == near
