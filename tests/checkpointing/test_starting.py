"""Weights that a model begins with: names mapped strictly, and told."""

import json
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.starting import begin, unwrapped, weight_rows
from mltrainer.configs.loading import validate_values
from mltrainer.configs.starting import Start
from mltrainer.errors import InputError


def model(classes: int = 3) -> nn.Sequential:
    layers = OrderedDict(encoder=nn.BatchNorm1d(4), hidden=nn.Linear(4, 5), output=nn.Linear(5, classes))
    return nn.Sequential(layers)


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Tensor]:
    """The weights of another model of these layers, in other.safetensors."""
    state = {name: torch.full_like(tensor, 7) for name, tensor in model().state_dict().items()}
    safetensors.torch.save_file(state, tmp_path / "other.safetensors")
    return state


def start(**changes: Any) -> Start:
    return Start(**{"weights": "other.safetensors", **changes})


def test_all_tensors_are_loaded_and_told(tmp_path, given):
    new = model()
    told = begin(new, start(), tmp_path, is_builtin=False)
    assert all(torch.equal(tensor, given[name]) for name, tensor in new.state_dict().items())
    assert told.written() == {"weights": "other.safetensors", "loaded": list(new.state_dict()), "new": [], "unused": []}


def test_a_built_in_models_preprocessing_is_its_own_datas(tmp_path, given):
    new = model()
    told = begin(new, start(), tmp_path, is_builtin=True)
    assert new.encoder.weight.tolist() == [1, 1, 1, 1]
    expected = [name for name in given if name.startswith("encoder.")]
    assert sorted(told.new) == sorted(told.unused) == sorted(expected)


def test_a_head_for_other_classes_begins_as_a_new_one(tmp_path, given):
    new = model(classes=9)
    with pytest.raises(InputError, match=r"output.weight \(\[3, 5\] in the file, \[9, 5\] in the model\).*start.replace_head"):
        begin(new, start(), tmp_path, is_builtin=False)
    told = begin(new, start(replace_head=True), tmp_path, is_builtin=False)
    assert sorted(told.new) == sorted(told.unused) == ["output.bias", "output.weight"]
    assert torch.equal(new.hidden.weight, given["hidden.weight"])


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        (
            {"^hidden": "body"},
            "the file lacks: hidden.weight, hidden.bias .*the model lacks: body.bias, body.weight",
        ),
        ({"^(hidden|output)": "one"}, "two tensors get the name 'one.bias'"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, given, rename, message):
    new = model()
    before = {name: tensor.clone() for name, tensor in new.state_dict().items()}
    with pytest.raises(InputError, match=message):
        begin(new, start(rename=rename), tmp_path, is_builtin=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in new.state_dict().items())


def test_names_are_mapped_and_the_rest_is_named(tmp_path, given):
    state = {f"backbone.{name}": tensor for name, tensor in given.items() if not name.startswith("output")}
    torch.save({"state_dict": {**state, "decoder.weight": torch.zeros(2)}}, tmp_path / "w.ckpt")
    chosen = start(weights="w.ckpt", rename={"^backbone\\.": ""}, new=["^output\\."], unused=["^decoder\\."])
    told = begin(model(), chosen, tmp_path, is_builtin=False)
    assert (told.new, told.unused) == (["output.weight", "output.bias"], ["decoder.weight"])


def test_a_folder_gives_all_its_parts(tmp_path, given):
    (tmp_path / "final_model").mkdir()
    names = list(given)
    for number, part in enumerate((names[:3], names[3:])):
        path = tmp_path / f"final_model/model-{number}.safetensors"
        safetensors.torch.save_file({name: given[name] for name in part}, path)
    assert len(begin(model(), start(weights="final_model"), tmp_path, is_builtin=False).loaded) == len(names)
    rows = weight_rows("final_model", tmp_path)
    assert [row.path for row in rows] == ["final_model/model-0.safetensors", "final_model/model-1.safetensors"]


@pytest.fixture
def sharded(tmp_path: Path, given: dict[str, Tensor]) -> Path:
    """A folder as Hugging Face's libraries save a large model: two parts, an index, a config, and a part of an older save."""
    folder, names = tmp_path / "hub", sorted(given)
    folder.mkdir()
    parts = {"model-00001-of-00002.safetensors": names[:4], "model-00002-of-00002.safetensors": names[4:]}
    for part, held in parts.items():
        safetensors.torch.save_file({name: given[name] for name in held}, folder / part, {"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": {name: part for part, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"model_type": "own"}')
    safetensors.torch.save_file({"stale": torch.zeros(1)}, folder / "model-00003-of-00003.safetensors")
    return folder


def test_of_a_sharded_model_those_parts_are_read_that_its_index_names(tmp_path, sharded, given):
    told = begin(model(), start(weights="hub"), tmp_path, is_builtin=False)
    assert (sorted(told.loaded), told.unused) == (sorted(given), [])
    parts = [row.path for row in weight_rows("hub", tmp_path)]
    assert parts == ["hub/model-00001-of-00002.safetensors", "hub/model-00002-of-00002.safetensors"]


def test_a_part_that_is_missing_or_elsewhere_is_named(tmp_path, sharded):
    (sharded / "model-00002-of-00002.safetensors").rename(tmp_path / "away.safetensors")
    with pytest.raises(InputError, match=r"model-00002-of-00002\.safetensors of the 2 parts that it names are not in its folder"):
        weight_rows("hub", tmp_path)
    (sharded / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../away.safetensors"}}')
    with pytest.raises(InputError, match="not in its folder"):
        weight_rows("hub", tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"weights": {}}', '{"weight_map": 1}', '{"weight_map": {"a": [1]}}', '{"weight_map": {"a": 5}}', "[" * 50_000],
)
def test_an_index_that_is_none_is_told(tmp_path, sharded, text):
    (sharded / "model.safetensors.index.json").write_text(text)
    with pytest.raises(InputError, match="not readable as an index"):
        weight_rows("hub", tmp_path)


def test_parts_of_torch_files_have_an_index_too(tmp_path, given):
    torch.save(given, tmp_path / "pytorch_model-00001-of-00001.bin")
    index = {"weight_map": dict.fromkeys(given, "pytorch_model-00001-of-00001.bin")}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    (tmp_path / "other.safetensors").unlink()
    assert len(begin(model(), start(weights="."), tmp_path, is_builtin=False).loaded) == len(given)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_what_a_wrapper_put_before_all_names_is_left_out(tmp_path, given, prefix):
    torch.save({f"{prefix}{name}": tensor for name, tensor in given.items()}, tmp_path / "w.pt")
    assert begin(model(), start(weights="w.pt"), tmp_path, is_builtin=False).loaded == list(model().state_dict())
    mixed = {"module.a": torch.zeros(1), "b": torch.zeros(1)}
    assert unwrapped(mixed, ["a"]) == mixed
    assert unwrapped({"module.a": mixed["b"]}, ["module.a"]) == {"module.a": mixed["b"]}


def test_weights_of_less_precision_are_loaded_as_the_models(tmp_path, given):
    state = {name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor for name, tensor in given.items()}
    safetensors.torch.save_file(state, tmp_path / "half.safetensors")
    new = model()
    begin(new, start(weights="half.safetensors"), tmp_path, is_builtin=False)
    assert new.hidden.weight.dtype == torch.float32
    assert torch.equal(new.hidden.weight, given["hidden.weight"])


def test_a_tensor_of_two_names_may_stand_once(tmp_path):
    def tied() -> nn.ModuleDict:
        layers = nn.ModuleDict({"embedding": nn.Embedding(4, 3), "output": nn.Linear(3, 4, bias=False)})
        layers["output"].weight = layers["embedding"].weight
        return layers

    safetensors.torch.save_file({"embedding.weight": torch.ones(4, 3)}, tmp_path / "other.safetensors")
    new = tied()
    begin(new, start(), tmp_path, is_builtin=False)
    assert new["output"].weight.tolist() == torch.ones(4, 3).tolist()


class Trap:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("trapped"),))


@pytest.mark.parametrize("what", [Trap(), {"a": 1}, "torn"], ids=["code", "no tensors", "torn"])
def test_a_file_of_something_else_is_refused_and_never_run(tmp_path, what, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(what, tmp_path / "w.pt") if what != "torn" else (tmp_path / "w.pt").write_bytes(b"torn")
    with pytest.raises(InputError, match=r"w\.pt: (not readable as weights|no tensors by name)"):
        begin(model(), start(weights="w.pt"), tmp_path, is_builtin=False)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (lambda own: (own * 10).to(torch.int8), "is of int8 in the file, and of float32 in the model"),
        (lambda own: own > 0, "is of bool in the file, and of float32 in the model"),
        (lambda own: own.to(torch.complex64), "is of complex64 in the file"),
        (lambda own: own.to(torch.float8_e4m3fn), "is of float8_e4m3fn in the file"),
        (lambda own: own * torch.nan, "hidden.weight holds numbers that are not finite in float32"),
        (lambda own: own.double() * 1e300, "hidden.weight holds numbers that are not finite in float32"),
        (lambda own: own.to_sparse(), "hidden.weight: sparse, quantized, nested or without data"),
        (lambda own: own.to("meta"), "hidden.weight: sparse, quantized, nested or without data"),
    ],
)
def test_what_would_be_other_numbers_in_the_model_is_not_loaded(tmp_path, given, weight, message):
    torch.save({**given, "hidden.weight": weight(given["hidden.weight"])}, tmp_path / "w.pt")
    new = model()
    before = new.state_dict()["hidden.weight"].clone()
    with pytest.raises(InputError, match=message):
        begin(new, start(weights="w.pt"), tmp_path, is_builtin=False)
    assert torch.equal(new.state_dict()["hidden.weight"], before)


def test_two_names_of_one_tensor_cannot_hold_two_values(tmp_path):
    tied = nn.ModuleDict({"embedding": nn.Embedding(4, 3), "output": nn.Linear(3, 4, bias=False)})
    tied["output"].weight = tied["embedding"].weight
    safetensors.torch.save_file(
        {"embedding.weight": torch.ones(4, 3), "output.weight": torch.zeros(4, 3)}, tmp_path / "w.safetensors"
    )
    with pytest.raises(
        InputError, match=r"embedding\.weight and output\.weight are one tensor in the model, and differ in the file"
    ):
        begin(tied, start(weights="w.safetensors"), tmp_path, is_builtin=False)


def test_of_two_models_in_a_folder_none_is_taken(tmp_path, given):
    (tmp_path / "hub").mkdir()
    for name, value in (("best", 1.0), ("last", 2.0)):
        safetensors.torch.save_file(
            {key: torch.full_like(one, value) for key, one in given.items()}, tmp_path / f"hub/{name}.safetensors"
        )
    with pytest.raises(InputError, match=r"last\.safetensors: another file of this folder holds encoder\.bias"):
        begin(model(), start(weights="hub"), tmp_path, is_builtin=False)


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.find(torch.full((4,), 7.0).numpy().tobytes()) + 3] ^= 1
    path.write_bytes(data)


def _compressed(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_flipped, "Bad CRC-32"),
        (_compressed, "is compressed"),
        (lambda path: path.write_bytes(path.read_bytes()[:-300]), "not readable as weights"),
    ],
)
def test_a_damaged_archive_is_named(tmp_path, given, spoil, message):
    torch.save(given, tmp_path / "w.pt")
    begin(model(), start(weights="w.pt"), tmp_path, is_builtin=False)
    spoil(tmp_path / "w.pt")
    with pytest.raises(InputError, match=message):
        begin(model(), start(weights="w.pt"), tmp_path, is_builtin=False)


def test_an_archive_that_torch_wrote_without_checksums_is_read(tmp_path, given):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(given, tmp_path / "w.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert len(begin(model(), start(weights="w.pt"), tmp_path, is_builtin=False).loaded) == len(given)


def test_weights_that_are_not_there_are_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"start\.weights: no weights at 'nowhere'"):
        weight_rows("nowhere", tmp_path)


def test_thawing_needs_freezing():
    with pytest.raises(InputError, match="unfreeze needs freeze"):
        validate_values(Start, {"weights": "w", "unfreeze": [{"epoch": 2, "match": "a"}]}, "start")


def test_nobody_is_advised_to_run_a_file_that_holds_more_than_tensors(tmp_path):
    torch.save({"model": nn.Linear(2, 2)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="holds more than tensors, which are never executed") as caught:
        begin(nn.Linear(2, 2), Start(weights="w.pt"), tmp_path, is_builtin=False)
    assert "weights_only" not in str(caught.value)
