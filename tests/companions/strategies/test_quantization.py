"""Layers that compute with rounded numbers: the steps, the models they suit, and the exports in 8 bits that they foretell."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.export import Call, export
from mltrainer.checkpointing.export import Quantization as Judge
from mltrainer.companions.strategies.quantization import Quantization, Rounding, rounded_inputs, rounded_weight, rounding
from mltrainer.configs.strategies import Quantization as Settings
from mltrainer.configs.templates import STATIC
from mltrainer.errors import InputError
from mltrainer.records.common import CalibrationRows

DRAWS = torch.Generator().manual_seed(3)


def quantization(**settings: Any) -> Quantization:
    return Quantization(Settings.model_validate({"name": "quantization", **settings}), "strategies.0", Path())


def adapted(model: nn.Module, **settings: Any) -> nn.Module:
    training: Any = SimpleNamespace(model=model)
    quantization(**settings).adapt(training, ())
    return model


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=DRAWS)


# --- numbers ----------------------------------------------------------------------------------------


def test_a_weight_has_129_steps_for_each_output():
    weight = numbers(4, 3, 5, 5) * torch.tensor([1.0, 10.0, 0.1, 1.0]).view(4, 1, 1, 1)
    steps = rounded_weight(weight) / (weight.abs().amax((1, 2, 3)) / 64).view(4, 1, 1, 1)
    assert torch.allclose(steps, steps.round(), atol=1e-4)
    assert steps.abs().amax((1, 2, 3)).round().tolist() == [64] * 4


def test_inputs_have_256_steps_and_zero_is_one():
    x = numbers(64, 32)
    found = rounded_inputs(x)
    assert len(found.unique()) <= 256
    assert float((found - x).abs().max()) <= float(x.max() - x.min()) / 255 * 0.51
    assert rounded_inputs(torch.tensor([0.0, 0.3, 1.0]))[0] == 0
    assert rounded_inputs(torch.full((3,), 7.0)).tolist() == [7.0] * 3


def test_what_is_nothing_stays_nothing_and_what_is_no_number_is_told():
    assert rounded_inputs(torch.zeros(2, 2)).tolist() == [[0.0] * 2] * 2
    assert rounded_weight(torch.zeros(2, 2)).tolist() == [[0.0] * 2] * 2
    assert rounded_weight(torch.tensor([[1.0, float("nan")]])).isnan().any()


def test_a_gradient_passes_the_rounding():
    layer = Rounding(nn.Linear(6, 3))
    x = numbers(5, 6).requires_grad_(True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, rounded_weight(layer.weight).sum(0).expand(5, 6))
    assert layer.weight.grad is not None
    assert torch.allclose(layer.weight.grad, rounded_inputs(x).sum(0).expand(3, 6), atol=1e-5)


# --- models -----------------------------------------------------------------------------------------


def test_a_model_is_its_own_but_in_training():
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), numbers(5, 6)
    plain = model.eval().requires_grad_(False)(x)
    adapted(model)
    assert torch.equal(model(x), plain)
    with rounding(model):
        rounded = model(x)
    assert torch.equal(model.train()(x), rounded)
    assert 0 < float((rounded - plain).abs().max()) < 0.1
    assert torch.equal(model.eval()(x), plain)


def test_a_delivered_model_is_measured_with_rounded_numbers_and_stays_as_it_is():
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval().requires_grad_(False), numbers(5, 6)
    trained = copy.deepcopy(model)
    adapted(trained)
    found = []
    for one in (model, trained):
        training: Any = SimpleNamespace(model=one, task=SimpleNamespace(forward=lambda given, batch: (given(batch), None)))
        found.append(quantization().views(training)["quantized"](x)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], model(x))
    assert isinstance(model[0], nn.Linear)


def test_the_layers_are_put_back_with_what_they_learned():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    names = [*model.state_dict()]
    strategy, training = quantization(), SimpleNamespace(model=model)
    strategy.adapt(training, ())  # type: ignore[arg-type]
    assert [*strategy.plain(model)] == names
    model.load_state_dict({name: torch.ones_like(tensor) for name, tensor in strategy.plain(model).items()})
    strategy.release(model)
    assert [*model.state_dict()] == names
    assert all(tensor.eq(1).all() for tensor in model.state_dict().values())


def test_layers_are_chosen_by_their_names():
    model = adapted(nn.ModuleDict({"body": nn.Linear(4, 4), "head": nn.Linear(4, 2)}), layers=["^body"])
    assert isinstance(model.get_submodule("body"), Rounding)
    assert isinstance(model.get_submodule("head"), nn.Linear)
    with pytest.raises(InputError, match=r"no linear or convolution layer's name matches 'tail'; the names are: body, head"):
        adapted(nn.ModuleDict({"body": nn.Linear(4, 4), "head": nn.Linear(4, 2)}), layers=["tail"])
    with pytest.raises(InputError, match="no linear or convolution layer"):
        adapted(nn.Sequential(nn.Embedding(4, 2)))


def test_torchs_encoder_does_not_pass_the_rounding_by():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    x = numbers(2, 3, 8)
    with torch.no_grad():
        plain = model(x)
        adapted(model)
        assert torch.allclose(model(x), plain, atol=1e-5)
        with rounding(model):
            assert not torch.allclose(model(x), plain, atol=1e-5)
    assert isinstance(model.layers[0].linear1, Rounding)
    assert not isinstance(model.layers[0].self_attn.out_proj, Rounding)  # type: ignore[union-attr]


# --- the export -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_rounded_numbers_are_those_of_the_export_in_8_bits(kind, tmp_path):
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8) if kind == "linear" else nn.Conv2d(1, 4, 3)).eval().requires_grad_(False)
    x = 4.0 * (numbers(60, 16) if kind == "linear" else numbers(60, 1, 4, 4)) + 1.0
    answers: list[Tensor] = []

    def answer(call: Call) -> dict[str, Any]:
        answers.extend(call((x,)))
        return {}

    calibration = CalibrationRows(samples=60, of=60, places_sha256="0" * 64)
    judge = Judge(lambda: ([(x,)], calibration), answer)
    export(model, (x[:3],), [STATIC], tmp_path, 1e-9, (x,), quantization=judge)
    plain = model(x)
    adapted(model)
    with rounding(model):
        rounded = model(x)
    # An export rounds biases, too, in small steps, and what a convolution gives, to 256 steps.
    nearest = 1e-3 if kind == "linear" else float(plain.max() - plain.min()) / 255
    assert float((rounded - answers[0]).abs().max()) < nearest
    assert float((plain - answers[0]).abs().max()) > nearest
