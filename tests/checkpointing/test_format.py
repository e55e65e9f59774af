"""A state comes back bit for bit, whole or not at all."""

import errno
import json
import math
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mltrainer.checkpointing.format import Rows, Settled, folder_name, load, newest_intact, save, save_rows, snapshot
from mltrainer.checkpointing.manifest import MANIFEST_FILE, ROWS_FILE, STATE_FILES, TENSORS_FILE, TREE_FILE, manifest_bytes
from mltrainer.errors import GateError, InputError, MachineError
from mltrainer.records.common import FileRow
from mltrainer.workspace import sha256_file
from tests.refusals import refused

STEP = "step-00000001"
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def round_trip(folder: Path, tree: Any) -> Any:
    save(folder / STEP, snapshot(tree), {})
    return load(folder / STEP)[0]


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def resign(folder: Path, **content: bytes) -> None:
    """Write files and a manifest that fits them, as somebody with bad intentions would."""
    for name, data in content.items():
        (folder / f"state.{name}").write_bytes(data)
    rows = [FileRow(path=n, sha256=sha256_file(folder / n), size=(folder / n).stat().st_size) for n in STATE_FILES]
    (folder / MANIFEST_FILE).write_bytes(manifest_bytes({"step": 20}, rows))


# --- what comes back ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_of_tensor_comes_back_bit_for_bit(dtype, tmp_path):
    noise = torch.randint(0, 256, (48,), dtype=torch.uint8)
    original = noise.bool() if dtype == torch.bool else noise.view(dtype).reshape(3, -1)
    found = round_trip(tmp_path, {"x": original})["x"]
    assert (found.dtype, found.shape, raw(found)) == (dtype, original.shape, raw(original))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_tensors_without_axes_or_elements_keep_their_shape(shape, tmp_path):
    found = round_trip(tmp_path, [torch.ones(shape, dtype=torch.bfloat16)])[0]
    assert found.shape == shape
    assert found.dtype == torch.bfloat16


def test_nan_payloads_and_signed_zeros_of_tensors_are_kept(tmp_path):
    original = torch.tensor([0x7FC00001, 0x7F800001, -0x80000000, 1], dtype=torch.int32).view(torch.float32)
    assert raw(round_trip(tmp_path, original)) == raw(original)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(scalars, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(trees)
def test_plain_values_of_any_nesting_come_back_with_their_types(tmp_path_factory, tree):
    assert repr(round_trip(tmp_path_factory.mktemp("tree"), tree)) == repr(tree)


def test_floats_that_are_not_finite_and_negative_zero_come_back(tmp_path):
    found = round_trip(tmp_path, [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1 + 0.2])
    assert repr(found) == "[nan, inf, -inf, -0.0, 5e-324, 0.30000000000000004]"


@pytest.mark.parametrize("key", ["$tensor", "$dict", "", "a.b", "__metadata__", "\ud800", "é\n"])
def test_odd_names_are_only_names(key, tmp_path):
    tree = {key: torch.ones(2), "a": {"b": torch.zeros(2)}}
    found = round_trip(tmp_path, tree)
    assert list(found) == list(tree)
    assert (found[key].tolist(), found["a"]["b"].tolist()) == ([1, 1], [0, 0])


def test_an_optimizer_goes_on_as_if_it_had_never_stopped(tmp_path):
    weight = nn.Parameter(torch.ones(5))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.grad = torch.arange(5.0)
    optimizer.step()
    tree = round_trip(tmp_path, {"w": weight, "optimizer": optimizer.state_dict()})
    again = nn.Parameter(tree["w"].clone())
    resumed = torch.optim.AdamW([again], lr=9.0)
    resumed.load_state_dict(tree["optimizer"])
    again.grad = weight.grad
    optimizer.step()
    resumed.step()
    assert raw(again.detach()) == raw(weight.detach())


def test_tied_weights_are_stored_once_and_come_back_as_one(tmp_path):
    weight = torch.ones(1000)
    found = round_trip(tmp_path, {"a": weight, "b": weight.view(1000), "half": weight[:500]})
    assert found["a"] is found["b"]
    assert found["half"].untyped_storage().data_ptr() != found["a"].untyped_storage().data_ptr()
    assert (tmp_path / STEP / TENSORS_FILE).stat().st_size < 6500


def test_the_tensors_file_can_be_read_by_the_safetensors_library(saved):
    with safetensors.safe_open(saved / TENSORS_FILE, framework="pt") as file:
        assert sorted(file.keys()) == ["model.0.bias", "model.0.weight"]
        assert file.get_tensor("model.0.weight").tolist() == [[0.5] * 3] * 4


def test_equal_states_give_equal_bytes(tmp_path):
    state = {"b": torch.arange(3), "a": torch.ones(2, 2).half(), "loss": 0.1}
    for name in ("one", "two"):
        save(tmp_path / name / STEP, snapshot(state), {"run": "x"})
    files = [*STATE_FILES, MANIFEST_FILE]
    assert all((tmp_path / "one" / STEP / f).read_bytes() == (tmp_path / "two" / STEP / f).read_bytes() for f in files)


def test_what_is_settled_is_written_as_any_other_dict_and_not_copied(tmp_path):
    rows = [{"loss": math.nan, "norms": [1.0, 2.0], "name": 'a "quote"'}, {"loss": 0.5}]
    for name, history in (("plain", rows), ("settled", [*map(Settled, rows)])):
        save(tmp_path / name / STEP, snapshot({"w": torch.ones(1), "history": history, "step": 3}), {})
    assert (tmp_path / "settled" / STEP / TREE_FILE).read_bytes() == (tmp_path / "plain" / STEP / TREE_FILE).read_bytes()
    row = Settled(rows[0])
    assert snapshot({"history": [row]}).tree["history"][0] is row


# --- snapshots ----------------------------------------------------------------------------------


def test_training_on_does_not_change_a_snapshot(tmp_path):
    weight, history = torch.zeros(3), [{"loss": 1.0}]
    taken = snapshot({"w": weight, "t": weight.unsqueeze(0).expand(2, 3), "history": history})
    weight += 1
    history[0]["loss"] = 2.0
    save(tmp_path / STEP, taken, {})
    found = load(tmp_path / STEP)[0]
    assert (found["w"].tolist(), found["t"].tolist(), found["history"]) == ([0] * 3, [[0] * 3] * 2, [{"loss": 1.0}])


def test_numpy_scalars_become_plain_values():
    found = snapshot({"a": np.float64(0.1), "b": np.int32(3), "c": [np.bool_(True)]}).tree
    assert [type(v) for v in (found["a"], found["b"], found["c"][0])] == [float, int, bool]


def test_keys_may_be_tuples_as_in_the_state_of_some_optimizers(tmp_path):
    tree = {"state": {(0, 1): torch.ones(2), (0, 2): "x"}}
    save(tmp_path / STEP, snapshot(tree), {})
    found = load(tmp_path / STEP)[0]
    assert list(found["state"]) == [(0, 1), (0, 2)]
    assert torch.equal(found["state"][0, 1], torch.ones(2))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.ones(2), "numpy.ndarray"),
        ({1, 2}, "builtins.set"),
        (b"bytes", "builtins.bytes"),
        ({frozenset((1, 2)): 3}, "keys"),
        (torch.ones(2).to_sparse(), "torch.sparse_coo"),
        (torch.ones(2, device="meta"), "meta"),
    ],
)
def test_what_cannot_be_held_is_refused_with_its_place(value, named):
    with refused(named, where="state.optimizer.1.odd"):
        snapshot({"optimizer": [0, {"odd": value}]})


# --- saving -------------------------------------------------------------------------------------


def test_the_manifest_records_what_was_given_and_the_files(saved):
    manifest = load(saved)[1]
    assert (manifest.step, manifest.epoch, manifest.run) == (20, 1, "a1b2c3d4e5f6")
    assert [row.path for row in manifest.files] == [TENSORS_FILE, TREE_FILE]
    assert all(row.sha256 == sha256_file(saved / row.path) for row in manifest.files)


def test_a_folder_of_another_step_is_refused(tmp_path):
    with pytest.raises(InputError, match="step 2"):
        save(tmp_path / STEP, snapshot({}), {"step": 2})


def test_a_checkpoint_of_the_same_step_is_replaced_and_nothing_is_left_over(saved):
    save(saved, snapshot({"new": 1}), {"step": 20})
    assert load(saved)[0] == {"new": 1}
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def failing_save(saved: Path, call: str, nr: int, code: int, monkeypatch: pytest.MonkeyPatch) -> MachineError | None:
    """Save while the nth call of a function of `os` fails; return the error, or None where there is no nth call."""
    real, counted = getattr(os, call), iter(range(1000))

    def failing(*arguments: Any, **named: Any) -> Any:
        if next(counted) == nr:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        try:
            save(saved, snapshot({"x": torch.ones(100)}), {"step": 20})
        except MachineError as error:
            return error
    return None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_wherever_the_disk_fails_the_old_checkpoint_stays_and_nothing_is_left_over(call, code, saved, monkeypatch):
    errors = []
    while (error := failing_save(saved, call, len(errors), code, monkeypatch)) is not None:
        errors.append(error)
        assert newest_intact(saved.parent) == (saved, [])
        assert not [path for path in saved.parent.iterdir() if path.name.startswith(".tmp-")]
    assert len(errors) >= 3
    assert "x" in load(saved)[0]


def test_a_full_disk_is_told_with_the_bytes_needed_and_free(saved, monkeypatch):
    error = failing_save(saved, "write", 0, errno.ENOSPC, monkeypatch)
    assert error.exit_code == 7
    assert "the checkpoint needs 421 bytes" in error.message
    assert "are free; older checkpoints are untouched" in error.message


def test_a_read_only_folder_is_the_machines_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "mkdir", lambda *_a, **_k: (_ for _ in ()).throw(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(MachineError, match="Permission denied"):
        save(tmp_path / "new" / STEP, snapshot({}), {})


def test_writes_that_are_cut_short_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    save(tmp_path / STEP, snapshot({"x": torch.arange(10)}), {})
    assert load(tmp_path / STEP)[0]["x"].tolist() == list(range(10))


def test_files_and_folders_are_synced_before_the_name_appears(tmp_path, monkeypatch):
    order: list[str] = []
    sync, rename = os.fsync, Path.rename

    def noting_sync(descriptor: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def noting_rename(self: Path, target: Path) -> Path:
        order.append(f"rename {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(Path, "rename", noting_rename)
    save(tmp_path / STEP, snapshot({"x": torch.ones(1)}), {})
    temporary = order[3]
    assert order == [TENSORS_FILE, TREE_FILE, MANIFEST_FILE, temporary, f"rename {STEP}", tmp_path.name]
    assert temporary.startswith(".tmp-")


@pytest.mark.parametrize("name", [TENSORS_FILE, MANIFEST_FILE])
def test_a_file_that_the_disk_does_not_give_is_the_machines_fault_and_an_earlier_checkpoint_is_taken(name, saved, monkeypatch):
    save(saved.parent / "step-00000040", snapshot({"x": torch.ones(100)}), {"step": 40})
    real = os.open

    def failing(path: Any, *arguments: Any, **named: Any) -> int:
        if str(path).endswith(f"step-00000040/{name}"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(MachineError, match="Input/output error"):
        load(saved.parent / "step-00000040")
    assert newest_intact(saved.parent)[0] == saved


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STATE_FILES, MANIFEST_FILE])
def test_every_flipped_bit_is_found_and_its_file_named(name, saved):
    data = (saved / name).read_bytes()
    for nr in range(200):
        place = nr * len(data) // 200
        damaged = bytearray(data)
        damaged[place] ^= 1 << nr % 8
        (saved / name).write_bytes(damaged)
        with pytest.raises(GateError) as caught:
            load(saved)
        assert caught.value.where == str(saved / name)
        assert newest_intact(saved.parent)[0] is None


@pytest.mark.parametrize("name", [*STATE_FILES, MANIFEST_FILE])
def test_every_truncation_is_found(name, saved):
    data = (saved / name).read_bytes()
    for nr in range(50):
        (saved / name).write_bytes(data[: nr * len(data) // 50])
        with pytest.raises(GateError, match=r"sha256|manifest"):
            load(saved)


def test_an_error_names_the_expected_and_the_found_digest(saved):
    path = saved / TENSORS_FILE
    expected = sha256_file(path)
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(GateError) as caught:
        load(saved)
    assert expected in caught.value.message
    assert sha256_file(path) in caught.value.message


@pytest.mark.parametrize("name", [*STATE_FILES, MANIFEST_FILE])
def test_a_missing_file_and_a_link_in_its_place_are_refused(name, saved, tmp_path):
    (saved / name).rename(tmp_path / name)
    with pytest.raises(GateError, match="found no"):
        load(saved)
    (saved / name).symlink_to(tmp_path / name)
    with pytest.raises(GateError, match="found no"):
        load(saved)


def test_a_pipe_in_place_of_a_file_does_not_hang(saved):
    (saved / TREE_FILE).unlink()
    os.mkfifo(saved / TREE_FILE)
    with pytest.raises(GateError, match="no readable file"):
        load(saved)


def test_files_of_two_checkpoints_that_were_swapped_are_found(saved):
    other = saved.with_name("step-00000040")
    save(other, snapshot({"x": torch.ones(3)}), {"step": 40})
    shutil.copy(other / TENSORS_FILE, saved / TENSORS_FILE)
    with pytest.raises(GateError, match="sha256"):
        load(saved)


def save_shared(folder: Path, step: int, processes: int = 3) -> Path:
    """Save a checkpoint of which each of several processes has some rows, and return its folder."""

    def rows(rank: int) -> dict[str, Any]:
        return {"moment": Rows(torch.full((2, 3), float(step + rank)))}

    paths = [folder / f"rows/{ROWS_FILE.format(number=rank)}" for rank in range(1, processes)]
    others = [(path, save_rows(path, snapshot(rows(rank)))) for rank, path in enumerate(paths, 1)]
    save(folder / folder_name(step), snapshot({"step": step, **rows(0)}), {}, lambda: others)
    return folder / folder_name(step)


def flip(path: Path, _: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def swap(path: Path, _: Path) -> None:
    other = path.with_name(ROWS_FILE.format(number=2))
    held = path.read_bytes()
    shutil.copy(other, path)
    other.write_bytes(held)


DAMAGE: dict[str, Callable[[Path, Path], Any]] = {
    "a flipped bit": flip,
    "missing": lambda path, _: path.unlink(),
    "of another process": lambda path, _: shutil.copy(path.with_name(ROWS_FILE.format(number=0)), path),
    "swapped": swap,
    "of another checkpoint": lambda path, other: shutil.copy(other / path.name, path),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_rows_that_are_not_those_of_their_process_and_checkpoint_are_found(tmp_path, damage):
    older, newer = save_shared(tmp_path, 10), save_shared(tmp_path, 20)
    assert load(newer)[0]["moment"][:, 0].tolist() == [20, 20, 21, 21, 22, 22]
    path = newer / ROWS_FILE.format(number=1)
    damage(path, older)
    with pytest.raises(GateError, match=r"expected .*sha256") as caught:
        load(newer)
    assert caught.value.where == str(path)
    found, skipped = newest_intact(tmp_path)
    assert (found, [one.folder for one in skipped]) == (older, [newer])


def test_rows_of_a_process_more_are_no_part_of_a_checkpoint(tmp_path):
    two, four = save_shared(tmp_path, 10, 2), save_shared(tmp_path, 20, 4)
    shutil.copy(four / ROWS_FILE.format(number=3), two / ROWS_FILE.format(number=2))
    with pytest.raises(GateError, match=r"rows-0002\.safetensors: a file that the manifest does not list"):
        load(two)


def test_an_older_checkpoint_under_a_newer_name_is_found(saved):
    newer = saved.with_name("step-00000040")
    shutil.copytree(saved, newer)
    with pytest.raises(GateError, match="of step 40, found that of step 20"):
        load(newer)
    assert newest_intact(saved.parent)[0] == saved


def test_a_file_that_the_manifest_does_not_list_is_found(saved):
    (saved / "extra.pt").write_bytes(b"")
    with pytest.raises(GateError, match=r"extra\.pt"):
        load(saved)
    assert newest_intact(saved.parent)[0] is None


def test_a_checkpoint_other_than_the_recorded_one_is_refused(saved):
    recorded = {MANIFEST_FILE: sha256_file(saved / MANIFEST_FILE)}
    assert load(saved, recorded)[0]["step"] == 1
    save(saved, snapshot({"other": 1}), {"step": 20})
    with pytest.raises(GateError, match=f"expected sha256 {recorded[MANIFEST_FILE]}, found "):
        load(saved, recorded)


# --- bad intentions: every digest is right ------------------------------------------------------


class _Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", ["safetensors", "json"])
def test_a_pickle_under_another_name_is_never_executed(name, saved, tmp_path):
    canary = tmp_path / "canary"
    torch.save(_Canary(canary), tmp_path / "bad.pt")
    for data in (pickle.dumps(_Canary(canary)), (tmp_path / "bad.pt").read_bytes()):
        resign(saved, **{name: data})
        with pytest.raises(GateError, match="digest is right"):
            load(saved)
    assert not canary.exists()


def crafted(entries: dict[str, Any], data: bytes = b"\0" * 16) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2**27) + b"{}",
        b"",
        b"\0" * 8,
        crafted({"a": entry(0, 16, [4]), "b": entry(0, 16, [4])}),
        crafted({"a": entry(4, 16, [3])}),
        crafted({"a": entry(0, 16, [2**62])}),
        crafted({"a": entry(0, 8, [2])}),
        crafted({"a": entry(0, 16, [4], "F99")}),
        crafted({"unnamed": entry(0, 16, [4])}),
    ],
    ids=["2^63", "2^27", "empty", "no header", "overlap", "hole", "huge shape", "rest", "type", "unused tensor"],
)
def test_a_crafted_tensors_file_is_refused(data, saved):
    resign(saved, safetensors=data, json=b"[]")
    with pytest.raises(GateError, match="digest is right"):
        load(saved)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"$tensor": "nothing"}',
        b'{"$tensor": ["x"]}',
        b'{"$call": "os.system"}',
        b'{"$float": "1"}',
        b'{"$tuple": 3}',
        b'{"$dict": [[[], 1]]}',
        b'{"$float": "nan", "x": 1}',
        b"\xff",
    ],
)
def test_a_crafted_tree_is_refused(text, saved):
    resign(saved, json=text)
    with pytest.raises(GateError, match="digest is right"):
        load(saved)
