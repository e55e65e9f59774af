"""The digest of weights as a tree over chunks: one value for the same bits, by whoever and however many they are hashed."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from mltrainer.checkpointing import weights
from mltrainer.checkpointing.format import save, snapshot
from mltrainer.checkpointing.tensors import checkpoint_weights_tree_sha256, file_weights_tree_sha256
from mltrainer.checkpointing.weights import weights_sha256, weights_tree_sha256
from mltrainer.checkpointing.weights_tree import CHUNK_BYTES, Layout, root, share
from mltrainer.errors import InputError

PER_CHUNK = CHUNK_BYTES // 4
STATE = {
    "z.last": torch.arange(6, dtype=torch.float64).reshape(2, 3),
    "a.größe": torch.tensor(-0.0),
    "empty": torch.zeros(0, 4),
    "exact": torch.arange(2 * PER_CHUNK, dtype=torch.int32).reshape(2, -1),
    "long": torch.arange(3 * PER_CHUNK + 5, dtype=torch.float32),
    "flags": torch.tensor([True, False, True]),
}


def reference(arrays: dict[str, np.ndarray]) -> str:
    """Return the digest by what `weights_tree` says in its text, with nothing of this library."""
    total = hashlib.sha256(b"\1weights tree, chunks of 4194304 bytes\n")
    for name in sorted(arrays):
        data, shape = arrays[name].tobytes(), ",".join(map(str, arrays[name].shape))
        encoded = name.encode()
        total.update(f"{len(encoded)}:{name} {arrays[name].dtype.name} {shape} {len(data)}\n".encode())
        for begin in range(0, len(data), 4194304):
            total.update(hashlib.sha256(b"\0" + data[begin : begin + 4194304]).digest())
    return total.hexdigest()


def test_the_digest_is_what_the_documented_bytes_give_with_hashlib_and_numpy_alone():
    assert weights_tree_sha256(STATE) == reference({name: tensor.numpy() for name, tensor in STATE.items()})


def test_the_lines_of_the_page_compute_it_from_a_file(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs/TRUST.md").read_text("utf-8")
    safetensors.torch.save_file(STATE, tmp_path / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.chdir(tmp_path)
    exec(page.partition("```python\n")[2].partition("```")[0], {})
    assert capsys.readouterr().out == f"{weights_tree_sha256(STATE)}\n"


def test_it_is_another_digest_than_that_of_all_bytes():
    assert weights_tree_sha256({"a": torch.zeros(4)}) != weights_sha256({"a": torch.zeros(4)})


class Processes:
    """Threads in the place of processes, which hand each other their leaves."""

    def __init__(self, size: int) -> None:
        self.size, self.values, self.barrier = size, [b""] * size, threading.Barrier(size)

    def digests(self, state: dict[str, torch.Tensor], threads: int = 1) -> list[str]:
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(lambda rank: weights_tree_sha256(state, One(self, rank), threads), range(self.size)))


class One:
    def __init__(self, all_of_them: Processes, rank: int) -> None:
        self.all, self.rank, self.size = all_of_them, rank, all_of_them.size

    def gather(self, value: bytes) -> list[bytes]:
        self.all.values[self.rank] = value
        self.all.barrier.wait()
        return list(self.all.values)


@pytest.mark.parametrize("size", [2, 3, 4, 64])
def test_any_number_of_processes_has_the_root_of_one(size):
    assert set(Processes(size).digests(STATE)) == {weights_tree_sha256(STATE)}


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_any_number_of_threads_has_the_root_of_one(threads, monkeypatch):
    expected = weights_tree_sha256(STATE)
    monkeypatch.setattr(weights, "THREADED_BYTES", 1)
    assert weights_tree_sha256(STATE, threads=threads) == expected
    assert set(Processes(2).digests(STATE, threads)) == {expected}


def test_a_process_that_holds_other_weights_changes_the_root_of_all():
    other = {**STATE, "long": STATE["long"].clone()}
    other["long"][-1] += 1
    processes = Processes(2)
    with ThreadPoolExecutor(2) as pool:
        found = set(pool.map(weights_tree_sha256, (STATE, other), (One(processes, 0), One(processes, 1))))
    assert len(found) == 1
    assert found != {weights_tree_sha256(STATE)}


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_shares_hold_each_chunk_once_in_order_and_about_as_many_bytes(of):
    layouts = [
        Layout(str(number), "uint8", (size,), size) for number, size in enumerate((5, 9 * CHUNK_BYTES + 1, 0, 7, 5 * CHUNK_BYTES))
    ]
    shares = [list(share(layouts, number, of)) for number in range(of)]
    places = [(chunk.tensor, chunk.begin) for one in shares for chunk in one]
    assert places == sorted(set(places))
    sizes = [sum(chunk.end - chunk.begin for chunk in one) for one in shares]
    assert sum(sizes) == sum(layout.size for layout in layouts)
    assert max(sizes) - min(sizes) <= 2 * CHUNK_BYTES


def test_order_strides_and_sharing_make_no_difference():
    x = torch.arange(6.0).reshape(2, 3)
    one = weights_tree_sha256({"a": x, "b": x})
    assert weights_tree_sha256({"b": x.clone(), "a": x.t().contiguous().t()}) == one


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
    assert weights_tree_sha256(other) != weights_tree_sha256({"a": torch.zeros(4)})


def test_each_chunk_counts():
    found = {weights_tree_sha256(STATE)}
    for place in range(0, len(STATE["long"]), PER_CHUNK):
        changed = STATE["long"].clone()
        changed[place] = -1
        found.add(weights_tree_sha256({**STATE, "long": changed}))
    assert len(found) == 5


def test_a_leaf_is_neither_a_chunk_nor_a_root():
    layout = Layout("a", "uint8", (1,), 1)
    whole = b"\1weights tree, chunks of 4194304 bytes\n" + layout.header
    assert root([], []) == hashlib.sha256(b"\1weights tree, chunks of 4194304 bytes\n").hexdigest()
    assert (
        root([layout], [hashlib.sha256(b"\0x").digest()]) == hashlib.sha256(whole + hashlib.sha256(b"\0x").digest()).hexdigest()
    )
    assert weights_tree_sha256({"a": torch.tensor([120], dtype=torch.uint8)}) == root([layout], [hashlib.sha256(b"\0x").digest()])


def test_leaves_that_are_missing_or_too_many_are_refused():
    with pytest.raises(ValueError, match="expected 32 bytes of leaves, found 0"):
        root([Layout("a", "uint8", (1,), 1)], [])
    with pytest.raises(ValueError, match="expected 0 bytes of leaves"):
        root([], [b"0" * 32])


def test_what_is_no_tensor_is_refused_by_name():
    with pytest.raises(InputError, match="found dict") as caught:
        weights_tree_sha256({"_extra_state": {}})
    assert "_extra_state" in str(caught.value.where)


# --- of files, without torch ----------------------------------------------------------------------


def test_a_files_weights_have_the_digest_of_the_tensors_in_memory(tmp_path):
    safetensors.torch.save_file(STATE, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert file_weights_tree_sha256(tmp_path / "model.safetensors") == weights_tree_sha256(STATE)


def test_a_checkpoint_has_the_digests_of_its_trained_weights_and_of_what_it_would_deliver(tmp_path):
    averaged = {name: tensor.clone().fill_(1) for name, tensor in STATE.items()}
    save(tmp_path / "step-00000003", snapshot({"model": STATE, "delivered": averaged}), {"step": 3})
    assert checkpoint_weights_tree_sha256(tmp_path / "step-00000003") == weights_tree_sha256(averaged)
    assert checkpoint_weights_tree_sha256(tmp_path / "step-00000003", trained=True) == weights_tree_sha256(STATE)


def test_what_is_no_whole_file_of_tensors_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"x": torch.arange(4.0)}, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="not readable as tensors"):
        file_weights_tree_sha256(path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_weights_on_a_gpu_have_the_same_digest():
    assert weights_tree_sha256({name: tensor.cuda() for name, tensor in STATE.items()}, threads=2) == weights_tree_sha256(STATE)
