"""Low-rank adapters: what is trained, merged and delivered, beside peft and arithmetic by hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.companions.strategies.lora import Lora, reread
from mltrainer.configs.strategies import Lora as Settings
from mltrainer.errors import InputError
from mltrainer.exporters.adapters import FILES, WEIGHTS_FILE

ROOT = Path()
INPUTS = torch.randn(6, 8, generator=torch.Generator().manual_seed(4))
PICTURES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))


def lora(**changes: Any) -> Lora:
    return Lora(Settings.model_validate({"name": "lora", "rank": 2, **changes}), "strategies.0", ROOT)


def of(model: nn.Module) -> Any:
    """Return what adapters are told of a training."""
    return SimpleNamespace(model=model, config=SimpleNamespace(device="cpu"))


def layers() -> nn.Module:
    torch.manual_seed(1)
    norm = nn.BatchNorm1d(12)
    return nn.Sequential(nn.Linear(8, 12), norm, nn.ReLU(), nn.Sequential(nn.Linear(12, 12), nn.ReLU()), nn.Linear(12, 3))


def pictures() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def adapted(strategy: Lora, make: Any = layers, new: tuple[str, ...] = (), *, trained: bool = True) -> nn.Module:
    """Return a model with adapters that are not zero any more."""
    model: nn.Module = make()
    strategy.adapt(of(model), new)
    draws = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and trained:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=draws))
    return model.eval()


def trained_names(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if p.requires_grad]


# --- what is trained --------------------------------------------------------------------------------


def test_a_new_adapter_changes_nothing_that_a_model_says():
    strategy = lora()
    model = adapted(strategy, trained=False)
    assert torch.equal(model(INPUTS), layers().eval()(INPUTS))


def test_all_but_the_adapters_and_what_is_named_or_new_is_held():
    assert {name.split(".")[-3] for name in trained_names(adapted(lora()))} == {"lora_A", "lora_B"}
    named = trained_names(adapted(lora(train=[r"^1\."]), new=("4.weight", "4.bias")))
    assert [name for name in named if "lora" not in name] == ["1.weight", "1.bias", "4.weight", "4.bias"]
    assert not [name for name in named if name.startswith("4.") and "lora" in name]


def test_a_new_layer_that_a_pattern_names_along_is_trained_whole_without_an_adapter():
    named = trained_names(adapted(lora(layers=["."]), new=("4.weight", "4.bias")))
    assert [name for name in named if name.startswith("4.")] == ["4.weight", "4.bias"]


def test_layers_are_those_of_the_pattern():
    found = {name.partition(".lora")[0] for name in trained_names(adapted(lora(layers=["^3"])))}
    assert found == {"3.0"}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.codes, self.body, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9, bias=False)
        self.head.weight = self.codes.weight


class Loose(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.body = nn.Parameter(torch.ones(())), nn.Linear(4, 4)


class Masked(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.tril())


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16)


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (layers, {"layers": ["nothing"]}, "no linear, embedding or convolution layer's name matches 'nothing'"),
        (layers, {"train": ["nothing"]}, "no parameter's name matches 'nothing'"),
        (layers, {"layers": ["^0"], "train": [r"^0\.bias"]}, "0 is trained whole in part: bias"),
        (Tied, {"layers": ["head"]}, "head shares its weight with another layer"),
        (attention, {"layers": ["out_proj"]}, "passes? its adapter by|pass its adapter by"),
        (Loose, {"train": ["scale"]}, "scale belongs to no module"),
        (nn.Flatten, {}, "no layer of the model can have an adapter"),
        (lambda: nn.Sequential(Masked(4, 4)), {"layers": ["0"]}, "0 has a custom computation"),
        (lambda: nn.Sequential(weight_norm(nn.Linear(4, 4))), {"layers": ["0"]}, "0 computes its weight in each pass"),
        (lambda: nn.Sequential(nn.LazyLinear(4)), {"layers": ["0"]}, "0 computes its weight in each pass"),
        (lambda: nn.Sequential(nn.Embedding(9, 4, max_norm=1.0)), {"layers": ["0"]}, "0 has max_norm"),
        (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), {"layers": ["0"]}, "0 has groups"),
        (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, dilation=2)), {"layers": ["0"]}, "0 has groups, dilation"),
        (
            lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding_mode="reflect")),
            {"layers": ["0"]},
            "0 has groups, dilation or a padding",
        ),
    ],
)
def test_layers_that_cannot_have_an_adapter_are_refused(make, changes, message):
    with pytest.raises(InputError, match=message):
        lora(**changes).adapt(of(make()), ())


def test_a_model_with_adapters_of_its_own_is_refused():
    model = layers()
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["0"]), model)
    with pytest.raises(InputError, match="already has adapters"):
        lora().adapt(of(model), ())


def test_layers_that_read_each_others_weights_are_left_out_where_none_are_named():
    found = {name.partition(".lora")[0] for name in trained_names(adapted(lora(), Tied))}
    assert found == {"body"}
    assert "self_attn" not in "".join(trained_names(adapted(lora(), attention)))


# --- what is delivered ------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "inputs"), [(layers, INPUTS), (pictures, PICTURES)], ids=["linear", "convolutions"])
@pytest.mark.parametrize("dora", [False, True], ids=["plain", "DoRA"])
def test_the_plain_state_says_what_the_adapted_model_says(make, inputs, dora):
    strategy = lora(dora=dora, layers=["."])
    model = adapted(strategy, make)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain = make().eval()
    plain.load_state_dict(strategy.plain(model), strict=True)
    said = model(inputs)
    assert not torch.allclose(said, make().eval()(inputs), atol=1e-2)
    torch.testing.assert_close(plain(inputs), said, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_merged_weight_is_the_sum_that_the_paper_gives():
    strategy = lora(rank=2, alpha=6)
    model = adapted(strategy)
    state = model.state_dict()
    expected = state["0.base_layer.weight"] + 6 / 2 * state["0.lora_B.default.weight"] @ state["0.lora_A.default.weight"]
    torch.testing.assert_close(strategy.plain(model)["0.weight"], expected)


def test_an_adapted_model_that_takes_a_plain_state_computes_with_it_alone_until_it_has_its_own_again():
    strategy = lora(dora=True)
    model = adapted(strategy)
    own, said = {name: tensor.clone() for name, tensor in model.state_dict().items()}, model(INPUTS)
    plain = layers().eval()
    plain.load_state_dict(strategy.plain(model))
    model.load_state_dict(strategy.plain(model), strict=True)
    assert torch.equal(model(INPUTS), plain(INPUTS))
    model.load_state_dict(own, strict=True)
    assert torch.equal(model(INPUTS), said)


@pytest.mark.parametrize("dora", [False, True], ids=["plain", "DoRA"])
@pytest.mark.parametrize(("make", "inputs"), [(layers, INPUTS), (pictures, PICTURES)], ids=["linear", "convolutions"])
def test_peft_itself_reads_the_delivered_adapter(tmp_path, make, inputs, dora):
    norms = {"train": [r"^1\."]} if make is layers else {}
    strategy = lora(dora=dora, **norms)
    model = adapted(strategy, make)
    for name, content in strategy.delivered(model).items():
        (tmp_path / name).write_bytes(content)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    theirs = peft.PeftModel.from_pretrained(make().eval(), str(tmp_path)).eval()
    torch.testing.assert_close(theirs(inputs), model(inputs))


def test_a_delivered_adapter_names_the_weights_that_it_belongs_to():
    strategy = lora(train=[r"^1\."])
    told = json.loads(strategy.delivered(adapted(strategy))["adapter_base.json"])
    base = layers().state_dict()
    assert told["tensors"] == ["0.bias", "0.weight", "3.0.bias", "3.0.weight", "4.bias", "4.weight"]
    assert told["weights_sha256"] == weights_sha256({name: base[name] for name in told["tensors"]})


@pytest.mark.parametrize("dora", [False, True], ids=["plain", "DoRA"])
def test_an_adapter_is_read_again_from_its_file_alone(dora):
    strategy = lora(dora=dora, train=[r"^1\."])
    model = adapted(strategy)
    content, again = strategy.delivered(model)[WEIGHTS_FILE], copy.deepcopy(model)
    reread(again, content)
    assert torch.equal(again(INPUTS), model(INPUTS))
    tensors = safetensors.torch.load(content)
    tensors.pop("base_model.model.0.lora_B.weight")
    reread(again, safetensors.torch.save(tensors))
    assert again(INPUTS).isnan().any()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_adapters_in_torchs_encoder_layers_are_not_passed_by_in_evaluation():
    torch.manual_seed(1)
    make = lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)  # noqa: E731 - a model
    strategy, rows = lora(layers=["linear"]), INPUTS[None]
    base = make().eval()
    model = adapted(strategy, lambda: copy.deepcopy(base))
    with torch.no_grad():
        said = model(rows)
    plain = copy.deepcopy(base)
    plain.load_state_dict(strategy.plain(model))
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(rows), said, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(base(rows), said, atol=1e-2)
    strategy.release(model)
    assert model.layers[0].activation_relu_or_gelu == base.layers[0].activation_relu_or_gelu  # type: ignore[index, union-attr]


def test_a_released_model_is_the_tasks_own_with_its_adapters_added():
    strategy = lora(dora=True)
    model = adapted(strategy)
    state, said = strategy.plain(model), model(INPUTS)
    strategy.release(model)
    assert not [module for module in model.modules() if "peft" in type(module).__module__]
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(model(INPUTS), said)
