"""The residual network and the vision transformer: shapes, exports of any batch size, faults."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from mltrainer.checkpointing.export import export
from mltrainer.configs.project import ModelConfig
from mltrainer.errors import InputError
from mltrainer.tasks.models import Pixels, build

MODELS: list[dict[str, Any]] = [
    {"name": "resnet", "stages": 2, "blocks": 1, "width": 4, "dropout": 0.1},
    {"name": "resnet", "stem": 2, "stages": 2, "blocks": 1, "width": 4},
    {"name": "vit", "patch": 2, "width": 8, "depth": 2, "heads": 2, "dropout": 0.1},
]


def made(values: dict[str, Any], shape: tuple[int, ...] = (3, 8, 6)) -> nn.Sequential:
    torch.manual_seed(0)
    entry = Pixels(np.full(3, 100.0), np.full(3, 50.0))
    return build(TypeAdapter(ModelConfig).validate_python(values), entry, shape, 5).eval()


def pictures(count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 3, 8, 6), dtype=np.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("values", MODELS, ids=str)
def test_a_model_is_exported_for_any_batch_size_and_agrees(values, tmp_path):
    model, x = made(values), pictures(20)
    (row,) = export(model, (x,), ["torch_export"], tmp_path, 1e-4, (x,))
    assert (row.agrees, row.batch_sizes) == (True, [1, 7, 20]), row


@pytest.mark.parametrize("values", MODELS, ids=str)
def test_every_parameter_gets_a_gradient(values):
    model = made(values).train()
    nn.functional.cross_entropy(model(pictures(9)), torch.arange(9) % 5).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


def test_an_answer_does_not_depend_on_the_other_samples():
    model = made(MODELS[2])
    assert torch.allclose(model(pictures(9))[:2], model(pictures(9)[:2]), atol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "resnet", "stages": 4}, "8x6 pixels are too small for a stem of 1 and 4 stages"),
        ({"name": "vit", "patch": 4}, "8x6 pixels cannot be cut into patches of 4"),
    ],
)
def test_a_model_that_does_not_fit_the_pictures_says_so(values, message):
    with pytest.raises(InputError, match=message):
        made(values)


@pytest.mark.parametrize(("name", "other"), [("bag", "texts"), ("tabular_mlp", "tables")])
def test_a_model_for_something_else_is_refused(name, other):
    with pytest.raises(InputError, match=f"{name} is a model for {other}"):
        made({"name": name})


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_a_table_is_refused(name):
    with pytest.raises(InputError, match=f"{name} needs images"):
        made({"name": name}, (7,))


def test_heads_share_the_width():
    with pytest.raises(ValueError, match="width 10 is no multiple of heads 4"):
        TypeAdapter(ModelConfig).validate_python({"name": "vit", "width": 10, "heads": 4})
