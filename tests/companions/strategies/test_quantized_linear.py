"""Adapters beside weights in few bits: the numbers beside the papers' formulas, what is delivered beside other libraries."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import bitsandbytes
import peft
import pytest
import safetensors.torch
import torch
from bitsandbytes import functional as kernels
from torch import Tensor, nn

from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.companions.strategies.lora import reread
from mltrainer.companions.strategies.quantized_linear import QuantizedLinear
from mltrainer.configs.loading import without_defaults
from mltrainer.configs.strategies import Lora as Settings
from mltrainer.errors import InputError
from mltrainer.exporters.adapters import WEIGHTS_FILE
from mltrainer.tasks.strategies import Strategies
from tests.companions.strategies.test_lora import INPUTS, adapted, layers, lora, of, pictures
from tests.companions.strategies.test_runs import CASES, SETTING, prepared
from tests.refusals import refused
from tests.trainers.native.digits_runs import train
from tests.trainers.native.test_ranks import bits as bits_of

BITS = pytest.mark.parametrize("bits", [8, 4])
# NormalFloat's numbers, as the paper's appendix E gives them.
NORMAL = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip
PAGE = Path(__file__).parents[3] / "configs/strategies/lora.md"
WEIGHTS = ["0.weight", "3.0.weight", "4.weight"]


def wide() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(96, 20)


def rounded(weight: Tensor, bits: int) -> Tensor:
    """Return a weight [outputs, inputs] as it is held, by hand."""
    if bits == 8:
        step = weight.abs().amax(1, keepdim=True) / 127
        return (weight / step).round() * step
    blocks = nn.functional.pad(weight.flatten(), (0, -weight.numel() % 64)).view(-1, 64)
    largest = blocks.abs().amax(1, keepdim=True)
    nearest = (blocks[..., None] / largest[..., None] - torch.tensor(NORMAL)).abs().argmin(-1)
    return (torch.tensor(NORMAL)[nearest] * largest).flatten()[: weight.numel()].view(weight.shape)


def base(bits: int) -> dict[str, Tensor]:
    """Return the state of the layers' model with its weights as they are held."""
    return {name: rounded(t, bits) if name in WEIGHTS else t for name, t in layers().state_dict().items()}


# --- the weights ------------------------------------------------------------------------------------


@BITS
@pytest.mark.parametrize("make", [wide, lambda: nn.Linear(5, 3), lambda: nn.Linear(7, 33)], ids=["even", "small", "odd"])
def test_a_weight_in_few_bits_is_rounded_as_the_papers_round(make, bits):
    layer = make()
    torch.testing.assert_close(QuantizedLinear(layer, bits).weight, rounded(layer.weight.detach(), bits), rtol=1e-6, atol=1e-8)


@BITS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_and_gradients_are_those_of_a_linear_layer_with_the_rounded_weight(bits, dtype):
    layer = QuantizedLinear(wide().to(dtype), bits)
    plain = layer.whole()
    x, again = (torch.randn(4, 7, 96, generator=torch.Generator().manual_seed(3)).to(dtype).requires_grad_() for _ in range(2))
    found, expected = layer(x), plain(again)
    torch.testing.assert_close(found, expected)
    for outputs in (found, expected):
        outputs.float().square().sum().backward()
    torch.testing.assert_close(x.grad, again.grad)
    assert plain.weight.dtype == layer.weight.dtype == dtype


@BITS
def test_no_whole_weight_is_kept_for_the_backward_pass(bits):
    kept: list[Tensor] = []
    x = torch.randn(2, 96, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):  # type: ignore[func-returns-value]
        QuantizedLinear(wide(), bits)(x)
        assert [tensor for tensor in kept if tensor.numel() >= 96 * 20] == []
        wide().requires_grad_(False)(x)
    assert [tensor for tensor in kept if tensor.numel() >= 96 * 20]


@BITS
def test_autocast_computes_in_its_own_type(bits):
    layer = QuantizedLinear(wide(), bits)
    x, again = (torch.randn(2, 96, generator=torch.Generator().manual_seed(3)).requires_grad_() for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = layer(x), layer.whole()(again)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)
    for outputs in (found, expected):
        outputs.float().square().sum().backward()
    torch.testing.assert_close(x.grad, again.grad)


def test_a_weight_in_few_bits_takes_an_eighth_or_a_quarter_of_the_bytes_and_its_scales():
    layer = wide()
    sizes = {bits: QuantizedLinear(layer, bits).quantized.nbytes for bits in (8, 4)}
    assert sizes == {8: 20 * 96 + 4 * 20, 4: 20 * 96 // 2 + 4 * 30}
    assert layer.weight.nbytes == 4 * 20 * 96


# --- the strategy -----------------------------------------------------------------------------------


@BITS
def test_linear_layers_with_an_adapter_are_held_in_few_bits_and_told_so(bits):
    strategy = lora(base_bits=bits)
    model = adapted(strategy)
    assert [name for name, one in model.named_modules() if isinstance(one, QuantizedLinear)] == [
        "0.base_layer", "3.0.base_layer", "4.base_layer"
    ]  # fmt: skip
    whole = lora()
    line, without = strategy.begin(of(model)), whole.begin(of(adapted(whole)))
    assert line.startswith(without)
    sizes = {8: 8 * 12 + 12 * 12 + 12 * 3 + 4 * (12 + 12 + 3), 4: (64 // 2 + 4) * (2 + 3 + 1)}
    assert f"3 of them hold their weights in {bits} bits: {sizes[bits]:,} bytes in place of 1,104" in line


@BITS
def test_a_models_size_is_the_same_in_few_bits(bits):
    strategy, whole = lora(base_bits=bits), lora()
    model = adapted(strategy)
    size = Strategies([whole]).size(adapted(whole))
    assert Strategies([strategy]).size(model) == size
    model.load_state_dict(strategy.plain(model))  # its weights are whole then
    assert Strategies([strategy]).size(model) == size


@BITS
@pytest.mark.parametrize("dora", [False, True], ids=["plain", "DoRA"])
def test_the_plain_state_says_what_the_adapted_model_says(bits, dora):
    strategy = lora(base_bits=bits, dora=dora)
    model = adapted(strategy)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plain = layers().eval()
    plain.load_state_dict(strategy.plain(model), strict=True)
    torch.testing.assert_close(plain(INPUTS), model(INPUTS), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@BITS
def test_a_merged_weight_is_the_rounded_one_and_the_adapters_product(bits):
    strategy = lora(rank=2, alpha=6, base_bits=bits)
    model = adapted(strategy)
    state = model.state_dict()
    expected = base(bits)["0.weight"] + 6 / 2 * state["0.lora_B.default.weight"] @ state["0.lora_A.default.weight"]
    torch.testing.assert_close(strategy.plain(model)["0.weight"], expected)


@BITS
def test_a_model_that_takes_a_plain_state_computes_with_it_alone_until_it_has_its_own_again(bits):
    strategy = lora(dora=True, base_bits=bits)
    model = adapted(strategy)
    own, said = {name: tensor.clone() for name, tensor in model.state_dict().items()}, model(INPUTS)
    plain = layers().eval()
    plain.load_state_dict(strategy.plain(model))
    for _ in range(2):
        model.load_state_dict(strategy.plain(model) if _ == 0 else plain.state_dict(), strict=True)
        assert torch.equal(model(INPUTS), plain(INPUTS))
    model.load_state_dict(own, strict=True)
    assert torch.equal(model(INPUTS), said)
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.state_dict().items())


@BITS
def test_another_model_goes_on_from_a_state_with_weights_in_few_bits(bits):
    strategy = lora(base_bits=bits)
    model, other = adapted(strategy), adapted(strategy, lambda: nn.Sequential(*copy.deepcopy(layers())).requires_grad_(True))
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.zero_()
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other(INPUTS), model(INPUTS))


@BITS
def test_a_released_model_is_the_tasks_own_with_whole_weights(bits):
    strategy = lora(base_bits=bits)
    model = adapted(strategy)
    state, said = strategy.plain(model), model(INPUTS)
    strategy.release(model)
    assert [type(one) for one in model.modules()] == [type(one) for one in layers().modules()]
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    torch.testing.assert_close(model(INPUTS), said)


def test_convolutions_with_an_adapter_stay_whole():
    model = adapted(lora(layers=["."], base_bits=4), pictures)
    assert [name for name, one in model.named_modules() if isinstance(one, QuantizedLinear)] == ["3.base_layer"]
    assert model.state_dict()["0.base_layer.weight"].dtype == torch.float32


def watched() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(lambda _layer, _args, outputs: outputs + 1)
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (pictures, {"layers": ["^0"]}, "no linear layer gets an adapter: 0 would stay whole"),
        (watched, {}, "no linear layer gets an adapter: 0 would stay whole"),
        (lambda: layers().double(), {}, "0.weight, 3.0.weight, 4.weight is float64; float32, bfloat16 or float16"),
    ],
)
def test_layers_that_cannot_lie_in_few_bits_are_refused(make, changes, message):
    with refused(message, where="strategies.0.base_bits"):
        lora(base_bits=4, **changes).adapt(of(make()), ())


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", None)
    with pytest.raises(InputError, match="bitsandbytes is not installed") as caught:
        lora(base_bits=4).adapt(of(layers()), ())
    assert (caught.value.where, caught.value.hint) == ("strategies.0", 'pip install "mltrainer[eightbit]"')
    lora().adapt(of(layers()), ())
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match="peft is not installed, which makes adapters") as caught:
        lora().adapt(of(layers()), ())
    assert (caught.value.where, caught.value.hint) == ("strategies.0", 'pip install "mltrainer[lora]"')


@BITS
def test_a_device_without_kernels_is_refused_by_name(monkeypatch, bits):
    def none(*_: Any) -> Tensor:
        raise NotImplementedError("Could not run 'bitsandbytes::dequantize' with arguments from the 'XYZ' backend.")

    monkeypatch.setattr(kernels, "dequantize_4bit" if bits == 4 else "int8_vectorwise_dequant", none)
    model = layers()
    with refused(f"no kernels of {bits} bits for the device cpu: Could not run 'bitsandbytes", where="strategies.0.base_bits"):
        lora(base_bits=bits).adapt(of(model), ())
    assert model.state_dict().keys() == layers().state_dict().keys()


def test_a_config_without_the_key_has_the_digest_that_it_had():
    assert "base_bits" not in without_defaults(Settings.model_validate({"name": "lora"}))
    assert without_defaults(Settings.model_validate({"name": "lora", "base_bits": 4}))["base_bits"] == 4
    with pytest.raises(ValueError, match="base_bits"):
        lora(base_bits=2)


# --- what is delivered ------------------------------------------------------------------------------


@BITS
def test_a_delivered_adapter_names_the_rounded_weights_and_those_they_were_made_of(bits):
    strategy = lora(base_bits=bits, train=[r"^1\."])
    found = json.loads(strategy.delivered(adapted(strategy))["adapter_base.json"])
    whole = layers().state_dict()
    held = {name: whole[name] for name in ("0.bias", "3.0.bias", "4.bias")} | {
        name: QuantizedLinear(layers().get_submodule(name.removesuffix(".weight")), bits).weight
        for name in WEIGHTS  # type: ignore[arg-type]
    }
    assert found == {
        "tensors": sorted(held),
        "weights_sha256": weights_sha256(held),
        "bits": bits,
        "rounded": WEIGHTS,
        "rounded_from_sha256": weights_sha256({name: whole[name] for name in WEIGHTS}),
    }


@BITS
@pytest.mark.parametrize("dora", [False, True], ids=["plain", "DoRA"])
def test_peft_reads_the_delivered_adapter_over_rounded_weights(tmp_path, bits, dora):
    strategy = lora(base_bits=bits, dora=dora)
    model = adapted(strategy)
    files = strategy.delivered(model)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert not [name for name in safetensors.torch.load(files[WEIGHTS_FILE]) if "lora" not in name]
    under = layers().eval()
    under.load_state_dict(base(bits))
    theirs = peft.PeftModel.from_pretrained(under, str(tmp_path)).eval()
    torch.testing.assert_close(theirs(INPUTS), model(INPUTS), rtol=1e-4, atol=1e-5)


def test_the_base_is_made_as_the_page_tells():
    strategy = lora(base_bits=4)
    found = json.loads(strategy.delivered(adapted(strategy))["adapter_base.json"])
    (code,) = (part for part in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S) if "quantize_4bit" in part)
    state = layers().state_dict()
    assert weights_sha256({name: state[name] for name in found["rounded"]}) == found["rounded_from_sha256"]
    exec(code, {"torch": torch, "rounded": found["rounded"], "state": state})
    assert weights_sha256({name: state[name] for name in found["tensors"]}) == found["weights_sha256"]


def test_bitsandbytes_own_layers_are_the_base_of_a_delivered_adapter(tmp_path):
    def make() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    strategy = lora(base_bits=4)
    model = adapted(strategy, make)
    for name, content in strategy.delivered(model).items():
        (tmp_path / name).write_bytes(content)
    under = make()
    for name in ("0", "2"):
        one: Any = under.get_submodule(name)
        theirs = bitsandbytes.nn.Linear4bit(one.in_features, one.out_features, quant_type="nf4", compress_statistics=False)
        theirs.load_state_dict(one.state_dict())
        under.set_submodule(name, theirs.to("cpu"))
    read = peft.PeftModel.from_pretrained(under, str(tmp_path)).train()  # in evaluation theirs may compute in bfloat16
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(read(x), model(x), rtol=1e-4, atol=1e-5)


@BITS
def test_an_adapter_is_read_again_from_its_file_alone(bits):
    strategy = lora(base_bits=bits)
    model = adapted(strategy)
    again = copy.deepcopy(model)
    reread(again, strategy.delivered(model)[WEIGHTS_FILE])
    assert torch.equal(again(INPUTS), model(INPUTS))


# --- runs -------------------------------------------------------------------------------------------


@pytest.mark.slow
@BITS
def test_a_run_repeats_and_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path, bits):
    setting = {**SETTING, **CASES[f"lora and {bits} bits"], "epochs": 1}
    roots = [prepared(tmp_path / name) for name in ("one", "again")]
    found = train(roots[0], **setting), train(roots[1], stops=(3,), **setting)
    assert bits_of(found[0], roots[0]) == bits_of(found[1], roots[1])
    whole = train(prepared(tmp_path / "whole"), **{**setting, "strategies": [{**setting["strategies"][0], "base_bits": None}]})
    assert whole["weights_sha256"] != found[0]["weights_sha256"]
    assert whole["parameters"] == found[0]["parameters"]
