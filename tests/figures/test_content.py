"""The captions of a run's figures say what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.figures.content import learning_curves


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        ({"loss": 0.5}, "Validation loss began at 0.5"),
        ({"accuracy": 0.9}, "Training loss, mean over the steps, began at 0.7"),
    ],
)
def test_the_loss_of_a_caption_is_the_one_that_was_measured(validation: dict[str, float], words: str) -> None:
    run: dict[str, Any] = {"history": [{"epoch": 1.0, "train_loss": 0.7, "validation": validation}]}
    figure = learning_curves(run)
    assert figure is not None
    assert figure.caption.startswith(words)
