"""Equal bits have equal digests, and any other bit another one."""

import hashlib

import pytest
import torch

from mltrainer.checkpointing.format import load, save, snapshot
from mltrainer.checkpointing.weights import bit_sums, delivered, weights_sha256
from mltrainer.errors import InputError


def test_the_documented_bytes_are_what_is_hashed():
    state = {"b": torch.tensor(1, dtype=torch.int64), "a.é": torch.tensor([[1.0, 2.0]])}
    expected = b"4:a.\xc3\xa9 float32 1,2 8\n" + b"\0\0\x80?\0\0\0@" + b"1:b int64  8\n" + b"\1" + b"\0" * 7
    assert weights_sha256(state) == hashlib.sha256(expected).hexdigest()


def test_a_model_and_its_checkpoint_have_the_same_digest(model, tmp_path):
    save(tmp_path / "step-00000001", snapshot({"model": model.state_dict()}), {})
    assert weights_sha256(load(tmp_path / "step-00000001")[0]["model"]) == weights_sha256(model.state_dict())


def test_order_strides_and_sharing_make_no_difference():
    x = torch.arange(6.0).reshape(2, 3)
    one = weights_sha256({"a": x, "b": x})
    assert weights_sha256({"b": x.clone(), "a": x.t().contiguous().t()}) == one


@pytest.mark.parametrize(
    "other",
    [
        {"b": torch.zeros(4)},
        {"a": torch.zeros(2, 2)},
        {"a": torch.zeros(4, dtype=torch.int32)},
        {"a": torch.tensor([0.0, 0.0, 0.0, -0.0])},
        {"a": torch.zeros(4), "b": torch.zeros(0)},
        {},
    ],
    ids=["name", "shape", "type", "sign of zero", "an empty one more", "nothing"],
)
def test_name_shape_type_and_every_bit_count(other):
    assert weights_sha256(other) != weights_sha256({"a": torch.zeros(4)})


def test_what_is_no_tensor_is_refused_by_name():
    with pytest.raises(InputError, match="found dict") as caught:
        weights_sha256({"_extra_state": {}})
    assert "_extra_state" in str(caught.value.where)


def test_averaged_weights_are_delivered_where_a_run_has_some_and_else_the_trained_ones():
    trained, averaged = {"x": torch.zeros(1)}, {"x": torch.ones(1)}
    assert delivered({"model": trained, "delivered": averaged}) is averaged
    assert delivered({"model": trained, "delivered": None}) is trained
    assert delivered({"model": trained}) is trained


@pytest.mark.parametrize("tensor", [torch.randn(77), torch.randn(9, 8)[1:], torch.zeros(0), torch.ones(3, dtype=torch.bool)[1:]])
def test_a_bit_that_flips_changes_a_tensors_sum(tensor):
    before = bit_sums({"a": tensor})
    assert bit_sums({"a": tensor.clone()}) == before
    if tensor.numel():
        flipped = tensor.clone()
        flipped.view(-1).view(torch.uint8)[-1] ^= 1
        assert bit_sums({"a": flipped}) != before
