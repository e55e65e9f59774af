"""The newest intact checkpoint is found, and what was skipped is said."""

import json
import shutil

import pytest

from mltrainer.checkpointing.format import load, save, snapshot
from mltrainer.checkpointing.manifest import MANIFEST_FILE, TREE_FILE, discard, faults, folders, newest_intact, sweep
from mltrainer.errors import GateError
from mltrainer.workspace import digest, pretty_json


def test_a_run_without_checkpoints_has_none(tmp_path):
    assert newest_intact(tmp_path / "nothing") == (None, [])
    assert folders(tmp_path / "nothing") == []
    assert sweep(tmp_path / "nothing") == []


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (100_000_000, 99_999_999, 5):
        save(tmp_path / f"step-{step:08d}", snapshot({}), {})
    assert [path.name for path in folders(tmp_path)] == ["step-00000005", "step-99999999", "step-100000000"]
    assert newest_intact(tmp_path)[0] == tmp_path / "step-100000000"


def test_a_damaged_newest_one_is_skipped_with_its_reason(saved):
    newer = saved.with_name("step-00000040")
    save(newer, snapshot({"x": 1}), {"step": 40})
    (newer / TREE_FILE).write_bytes(b"")
    found, skipped = newest_intact(saved.parent)
    assert found == saved
    assert [(s.folder, s.reason.split(":")[0]) for s in skipped] == [(newer, TREE_FILE)]
    assert "found 0 bytes" in skipped[0].reason


def test_a_file_that_the_manifest_does_not_list_is_a_fault_and_named(saved):
    assert faults(saved) == []
    (saved / "more.bin").write_bytes(b"")
    assert faults(saved) == ["more.bin: a file that the manifest does not list"]


def test_where_all_are_damaged_each_is_listed(saved):
    shutil.copytree(saved, saved.with_name("step-00000040"))
    (saved / MANIFEST_FILE).unlink()
    saved.with_name("step-00000060").write_text("a file")
    found, skipped = newest_intact(saved.parent)
    assert found is None
    assert [s.folder.name[-2:] for s in skipped] == ["60", "40", "20"]


def test_sweeping_removes_what_dead_saves_left_and_nothing_else(saved):
    (saved.parent / ".tmp-abc").mkdir()
    (saved.parent / ".tmp-abc" / TREE_FILE).write_text("{")
    shutil.copytree(saved, saved.parent / f".old-{saved.name}")
    assert sweep(saved.parent) == [f".old-{saved.name}", ".tmp-abc"]
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_checkpoint_is_deleted_with_its_name_first(saved, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_a, **_k: None)  # as if the process died here
        discard(saved)
    assert newest_intact(saved.parent) == (None, [])
    assert sweep(saved.parent) == [f".tmp-{saved.name}"]


def test_deleting_a_checkpoint_leaves_nothing(saved):
    (saved.parent / f".tmp-{saved.name}").mkdir()
    discard(saved)
    assert list(saved.parent.iterdir()) == []


@pytest.mark.parametrize("look", [newest_intact, sweep])
def test_a_replacement_that_died_between_its_renames_is_undone(look, saved):
    saved.rename(saved.parent / f".old-{saved.name}")
    assert callable(look)
    look(saved.parent)
    assert load(saved)[0]["step"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"files": []},
        {"files": [{"path": "../../x", "sha256": "0" * 64, "size": 1}] * 2},
        {"files": [{"path": "state.json", "sha256": "0", "size": 1}, {"path": "state.safetensors", "sha256": "0", "size": 1}]},
        {"files": 3},
    ],
)
def test_a_manifest_with_a_right_seal_and_wrong_content_is_refused(change, saved):
    body = {k: v for k, v in json.loads((saved / MANIFEST_FILE).read_bytes()).items() if k != "seal"} | change
    (saved / MANIFEST_FILE).write_bytes(pretty_json({**body, "seal": digest(body)}))
    with pytest.raises(GateError):
        load(saved)


def test_a_manifest_with_the_same_content_in_another_text_is_refused(saved):
    data = (saved / MANIFEST_FILE).read_bytes()
    for other in (data + b"\n", json.dumps(json.loads(data)).encode(), data.replace(b'"epoch": 1', b'"epoch":\t1')):
        assert json.loads(other) == json.loads(data)
        (saved / MANIFEST_FILE).write_bytes(other)
        with pytest.raises(GateError, match="it was changed"):
            load(saved)


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b"[" * 50_000, b" " * (17 * 2**20)])
def test_what_is_no_manifest_is_refused(text, saved):
    (saved / MANIFEST_FILE).write_bytes(text)
    with pytest.raises(GateError, match=r"manifest|at most"):
        load(saved)
