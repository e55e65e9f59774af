"""Inputs that grow by stages: their sizes, what is cut with them, and models that take one size alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.companions.strategies.progressive import Progressive, resized, share_of
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.strategies import Progressive as Settings
from mltrainer.errors import InputError
from mltrainer.tasks.opening import OpenTask, make_model, open_task
from mltrainer.tasks.strategies import Strategies
from mltrainer.tasks.strategy import Strategy, Training
from mltrainer.trainers.native.data.addresses import Step, altered, plan_for, training_steps
from tests.trainers.native.digits_runs import config

IDS = np.arange(4)
DRAWS = torch.Generator().manual_seed(3)
STRATEGY = {"name": "progressive", "shares": [0.5, 0.75], "epochs": 3}


def settings(**changes: Any) -> Settings:
    return Settings.model_validate({**STRATEGY, **changes})


class Own(mltrainer.Task):
    """Whatever a test calls its batch."""

    def __init__(self, batch: Any = None, side: int | None = None) -> None:
        self.batch, self.side = batch, side

    def model(self) -> nn.Module:
        last = nn.LazyLinear(3) if self.side else nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 3))
        return nn.Sequential(nn.Flatten(), last) if self.side else last

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)


def progressive(task: mltrainer.Task, **changes: Any) -> Progressive:
    strategy = Progressive(settings(**changes), "strategies.0", Path())
    strategy._task = task
    return strategy


def begun(task: Own, model: nn.Module | None = None, epochs: int = 9, **changes: Any) -> str:
    strategy = Progressive(settings(**changes), "strategies.0", Path())
    model = task.model() if model is None else model
    training = Training(task, model, config({"epochs": epochs}), Path(), lambda _: task.model(), lambda _: task.batch)
    return strategy.begin(training)


# --- sizes ------------------------------------------------------------------------------------------


def test_stages_share_their_epochs_and_the_full_size_follows():
    assert [share_of(settings(), epoch) for epoch in range(6)] == [0.5, 0.5, 0.75, 1, 1, 1]
    assert [share_of(settings(shares=[0.2], epochs=2), epoch) for epoch in range(3)] == [0.2, 0.2, 1]


def test_images_shrink_as_pillow_shrinks_them():
    x = torch.rand(1, 1, 24, 16, generator=DRAWS)
    theirs = Image.fromarray(x[0, 0].numpy()).resize((12, 18), Image.Resampling.BILINEAR)
    assert torch.allclose(resized(x, 0.75)[0, 0], torch.tensor(np.asarray(theirs)), atol=1e-6)
    assert resized(x, 0.01).shape == (1, 1, 1, 1)


def test_pictures_of_whole_levels_keep_their_mean():
    x = torch.randint(0, 256, (4, 3, 8, 8), generator=DRAWS, dtype=torch.uint8)
    small = progressive(Own()).alter((x, IDS), IDS, 0)[0]
    assert small.shape == (4, 3, 4, 4)
    assert small.dtype == torch.float32
    assert float(small.mean()) == pytest.approx(float(x.float().mean()), rel=0.02)


def test_a_batch_of_the_full_size_is_left_alone():
    batch = (torch.rand(4, 1, 8, 8), IDS)
    assert progressive(Own()).alter(batch, IDS, 3) is batch


def test_what_lies_beside_tokens_is_cut_with_them_and_other_parts_are_not():
    tokens = torch.arange(32).view(4, 8)
    batch = {"input_ids": tokens, "attention_mask": tokens > 3, "scores": torch.rand(4, 8), "labels": tokens + 1}
    small = progressive(Own()).alter(batch, IDS, 2)
    assert {name: part.shape[1] for name, part in small.items()} == {
        "input_ids": 6,
        "attention_mask": 6,
        "scores": 8,
        "labels": 6,
    }
    assert torch.equal(small["input_ids"], tokens[:, :6])
    assert batch["input_ids"] is tokens


# --- models -----------------------------------------------------------------------------------------


def test_the_sizes_are_told_that_a_model_takes():
    said = begun(Own((torch.rand(2, 1, 8, 12), torch.tensor([0, 1]))))
    assert said == "learns from inputs of 4x6 pixels, 6x9 pixels; of the full size from epoch 4 on"


class Follows(Strategy[None]):
    """Follows a model of one size."""

    name = "distillation"

    def begin(self, training: Training) -> str:
        self.followed = Own(training.batch(2), side=8).model()
        self.followed(training.batch(2)[0])
        return "follows"

    def teacher(self) -> tuple[str, nn.Module]:
        return "of one size", self.followed


def test_a_teacher_of_one_size_is_told_as_the_teacher():
    images = (torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))
    student = Own(images)
    training = Training(student, student.model(), config({"epochs": 9}), Path(), lambda _: student.model(), lambda _: images)
    both = Strategies([Progressive(settings(), "strategies.0", Path()), Follows(None, "strategies.1", Path())])
    with pytest.raises(InputError, match="inputs of 4x4 pixels do not go through the teacher and its loss"):
        both.begin(training)


def test_a_model_of_one_size_and_a_loss_of_one_size_are_refused():
    task = Own((torch.rand(2, 1, 8, 8), torch.tensor([0, 1])), side=8)
    model = task.model()
    model(task.batch[0])
    with pytest.raises(InputError, match=r"inputs of 4x4 pixels do not go through the model and its loss.*Linear"):
        begun(task, model)
    dense = Own((torch.rand(2, 1, 8, 8), torch.zeros(2, 8, 8, dtype=torch.int64)))
    with pytest.raises(InputError, match="inputs of 4x4 pixels do not go through"):
        begun(dense, nn.Conv2d(1, 3, 1))


@pytest.mark.parametrize("x", [torch.rand(2, 8), torch.rand(2, 8, 8), "words"])
def test_inputs_without_a_size_are_refused(x):
    with pytest.raises(InputError, match="a batch begins with"):
        begun(Own((x, torch.tensor([0, 1]))))


def test_settings_that_make_no_stages_are_refused():
    with pytest.raises(ValueError, match="must ascend"):
        settings(shares=[0.75, 0.5])
    with pytest.raises(ValueError, match="fewer than the 2 stages"):
        settings(epochs=1)
    with pytest.raises(InputError, match="leave none of 3 to inputs of the full size"):
        begun(Own((torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))), epochs=3)
    table = {"kind": "tabular_classification"}
    with pytest.raises(ValueError, match="tabular_classification has rows of one size"):
        config({"task": table, "data": {"source": "x.csv"}, "model": {"name": "mlp"}, "strategies": [STRATEGY]})


# --- built-in tasks ---------------------------------------------------------------------------------


def opened(root: Path, kind: str, source: str, model: dict[str, Any], **data: Any) -> OpenTask:
    values = {
        "name": "growing",
        "task": {"kind": kind},
        "data": {"source": source, **data},
        "model": model,
        "metric": {"name": "loss", "mode": "min"},
        "batch_size": 32,
        "epochs": 4,
        "strategies": [STRATEGY],
    }
    return open_task(TrainingConfig.model_validate(values), root)


def steps(task: OpenTask) -> list[Step]:
    """Return the first step of each epoch, as it is learned from."""
    plan = plan_for(task.config, task.split("train"))
    found = altered(training_steps(task.split("train"), plan, task.config, 0), plan, 0, task.alterations)
    return list(itertools.islice(found, 0, plan.steps, plan.steps_per_epoch))


def test_digits_grow_and_a_model_without_pooling_is_refused(tmp_path):
    task = opened(tmp_path, "image_classification", "sklearn:digits", {"name": "resnet", "stages": 2, "width": 4, "stem": 1})
    (said,) = task.strategies.begin(task.training(make_model(task)))
    assert said.startswith("learns from inputs of 4x4 pixels, 6x6 pixels")
    assert [step.micro_batches[0][0].shape[-1] for step in steps(task)] == [4, 4, 6, 8]
    other = opened(tmp_path, "image_classification", "sklearn:digits", {"name": "mlp"})
    with pytest.raises(InputError, match="take a model that reads inputs of several sizes") as raised:
        other.strategies.begin(other.training(make_model(other)))
    assert raised.value.where == "strategies.0"


def texts(root: Path) -> None:
    words = ["good", "fine", "bad", "poor", "film", "book", "plot", "end"]
    rows = [f"{' '.join(words[(n * k) % 8] for k in range(1, 13))} {n},{n % 2}" for n in range(60)]
    (root / "texts.csv").write_text("\n".join(["text,label", *rows]))


@pytest.mark.parametrize("model", ["transformer", "gru", "text_cnn", "bag"])
def test_texts_are_cut_to_lengths_that_grow(tmp_path, model):
    texts(tmp_path)
    task = opened(tmp_path, "text_classification", "texts.csv", {"name": model}, target="label")
    task.strategies.begin(task.training(make_model(task)))
    whole = task.split("train").tensors
    width = whole[0].shape[1]
    assert [step.micro_batches[0][0].shape[1] for step in steps(task)] == [
        *[round(width / 2)] * 2,
        round(0.75 * width),
        width,
    ]


@pytest.mark.parametrize("model", ["transformer", "gru"])
def test_a_shorter_window_of_text_has_the_mean_loss_of_its_tokens(tmp_path, model):
    (tmp_path / "story.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
    task = opened(tmp_path, "text_generation", "story.txt", {"name": model}, tokens={"kind": "char", "length": 16})
    made = make_model(task).eval()
    task.strategies.begin(task.training(made))
    found = steps(task)
    assert [step.micro_batches[0][0].shape[1] for step in found] == [9, 9, 13, 17]
    tokens, size = found[0].micro_batches[0]
    outputs, targets = task.task.forward(made, (tokens, size))
    ids = tokens.long()
    expected = functional.cross_entropy(made(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert task.task.loss(outputs, targets).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_shorter_text_says_the_same_alone_and_filled_up(tmp_path):
    texts(tmp_path)
    task = opened(tmp_path, "text_classification", "texts.csv", {"name": "transformer"}, target="label")
    model = make_model(task).eval()
    (tokens, _) = task.task.rows(np.arange(5))  # type: ignore[attr-defined]  # of a built-in task
    short = tokens.clone()
    short[:, 6:] = task.task._padding  # type: ignore[attr-defined]
    assert torch.allclose(model(short), model(short[:, :6]), atol=1e-6)
