"""The digest of a file's weights, against the one that torch's tensors give."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch

from mltrainer.checkpointing.format import save, snapshot
from mltrainer.checkpointing.tensors import READ_BYTES, TYPES, checkpoint_weights_sha256, file_weights_sha256
from mltrainer.checkpointing.weights import dtype_name, weights_sha256
from mltrainer.errors import InputError

STATE = {
    "z.last": torch.arange(6, dtype=torch.float64).reshape(2, 3),
    "a.größe": torch.tensor(-0.0),
    "empty": torch.zeros(0, 4),
    "flags": torch.tensor([True, False, True]),
    "big": torch.arange(READ_BYTES // 4 + 5, dtype=torch.float32),
}


def test_a_files_weights_have_the_digest_of_the_tensors_in_memory(tmp_path):
    safetensors.torch.save_file(STATE, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert file_weights_sha256(tmp_path / "model.safetensors") == weights_sha256(STATE)


@pytest.mark.parametrize("code", TYPES)
def test_each_type_of_element_is_digested_by_torchs_name_for_it(tmp_path, code):
    tensor = torch.arange(24, dtype=torch.uint8).view(getattr(torch, TYPES[code][0])) if code != "BOOL" else torch.ones(3).bool()
    safetensors.torch.save_file({"x": tensor}, tmp_path / "x.safetensors")
    assert (dtype_name(tensor), tensor.element_size()) == TYPES[code]
    assert file_weights_sha256(tmp_path / "x.safetensors") == weights_sha256({"x": tensor})


@pytest.mark.parametrize("part", ["model", "delivered"])
def test_a_checkpoint_has_the_digest_of_what_it_would_deliver(tmp_path, part):
    averaged = {name: tensor.clone().fill_(1) for name, tensor in STATE.items()}
    tree = {"model": STATE, "other": {"x": torch.ones(3)}, **({"delivered": averaged} if part == "delivered" else {})}
    save(tmp_path / "step-00000003", snapshot(tree), {"step": 3})
    assert checkpoint_weights_sha256(tmp_path / "step-00000003") == weights_sha256(tree[part])


def test_each_changed_byte_of_the_weights_changes_the_digest(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"x": torch.arange(4.0)}, path)
    data = path.read_bytes()
    found = set()
    for place in range(len(data) - 16, len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        found.add(file_weights_sha256(path))
    assert len(found) == 16


BROKEN = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-1],
    "no header": lambda data: (2**40).to_bytes(8, "little") + data[8:],
    "not JSON": lambda data: data[:8] + b"x" + data[9:],
    "deep": lambda data: (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "another shape": lambda data: data.replace(b'"shape":[4]', b'"shape":[5]'),
    "another type": lambda data: data.replace(b'"F32"', b'"F99"'),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_whole_file_of_tensors_is_refused(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"x": torch.arange(4.0)}, path)
    path.write_bytes(BROKEN[kind](path.read_bytes()))
    with pytest.raises(InputError, match="not readable as tensors"):
        file_weights_sha256(path)
