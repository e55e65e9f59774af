"""Files that appear whole or not at all, digests, and the project's lock."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer import workspace
from mltrainer.errors import InputError, InUseError, MachineError
from mltrainer.workspace import (
    PHASES,
    Project,
    append_json_lines,
    canonical,
    digest,
    find_project,
    folder_sha256,
    is_locked,
    is_of_machine,
    is_sealed,
    locked,
    locked_project,
    pretty_json,
    read_json,
    seal,
    sha256_bytes,
    sha256_file,
    tree_sha256,
    write_atomic,
    write_json,
)
from tests.refusals import refused
from tests.waiting import until

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    (tmp_path / "mltrainer.yaml").touch()
    return Project(tmp_path.resolve())


def test_who_takes_the_project_removes_what_killed_commands_left_unfinished(project):
    left = [
        project.root / ".tmp-1",
        project.state_dir / "runs/a/checkpoints/.tmp-2",
        project.root / "phases/04_optimization/.tmp-3",
        project.root / "forgotten/.tmp-5",
        project.root / "weights/.tmp-6",
        project.state_dir / "running.json",
    ]
    kept = project.root / "phases/04_optimization/notes.tmp-4"
    for path in (*left, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    with locked_project(project):
        assert [path for path in left if path.exists()] == []
    assert kept.exists()


@given(JSON)
def test_a_digest_does_not_depend_on_the_order_of_keys(value):
    again = json.loads(json.dumps(value))
    turned = dict(reversed(again.items())) if isinstance(again, dict) else again
    assert digest(turned) == digest(value)


@given(JSON)
def test_canonical_and_pretty_json_hold_the_same_value(value):
    assert json.loads(canonical(value)) == json.loads(pretty_json(value)) == value


def test_numbers_that_are_not_finite_are_written_as_words():
    assert canonical([float("nan"), float("inf"), -float("inf")]) == b'["nan","inf","-inf"]'


def test_equal_numbers_of_other_types_have_other_digests():
    assert len({digest(1), digest(1.0), digest(True), digest("1")}) == 4


def test_a_files_digest_is_that_of_its_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_file(tmp_path / "a") == sha256_bytes(b"abc")


def test_a_large_files_digest_is_that_of_all_its_bytes(tmp_path):
    large = os.urandom(workspace.READ_AT_ONCE - 1), os.urandom(workspace.READ_AT_ONCE + 1)
    for data in large:
        (tmp_path / "a").write_bytes(data)
        assert sha256_file(tmp_path / "a") == hashlib.sha256(data).hexdigest()


def test_a_folders_digest_is_that_of_names_and_digests(tmp_path):
    files = {"a.png": b"1", "b/c.png": b"2", "b/c.txt.png": b"3"}
    for name in (*files, ".hidden/a.png", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(files.get(name, b"-"))
    rows = ",".join(f'["{name}","{hashlib.sha256(data).hexdigest()}"]' for name, data in files.items())
    expected = hashlib.sha256(f"[{rows}]".encode()).hexdigest()
    assert folder_sha256(tmp_path) == tree_sha256(tmp_path, ".png") == expected


def test_of_many_bytes_names_and_sizes_stand_for_what_the_files_hold(tmp_path, monkeypatch):
    for name, data in {"a.npy": b"12", "b.npy": b"3"}.items():
        (tmp_path / name).write_bytes(data)
    whole = hashlib.sha256(b'[["a.npy",2],["b.npy",1]]').hexdigest()
    monkeypatch.setattr(workspace, "MOST_OF_TREE", 3)
    assert tree_sha256(tmp_path, ".npy") != whole
    monkeypatch.setattr(workspace, "MOST_OF_TREE", 2)
    assert tree_sha256(tmp_path, ".npy") == whole


@pytest.mark.parametrize("edit", [{"a": 2}, {"b": None}, {"seal": "0" * 64}])
def test_an_edit_of_what_was_sealed_is_noticed(edit):
    sealed = seal({"a": 1, "seal": "an older one"})
    assert is_sealed(sealed)
    assert not is_sealed({**sealed, **edit})


def test_a_file_is_written_with_its_folders(tmp_path):
    write_json(tmp_path / "a/b/c.json", {"x": 1})
    assert read_json(tmp_path / "a/b/c.json") == {"x": 1}
    assert os.listdir(tmp_path / "a/b") == ["c.json"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workspace.os, call, full)
    with pytest.raises(MachineError, match="No space left") as caught:
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    assert "free some space" in str(caught.value.hint)


def test_an_interruption_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(workspace.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_a_file_in_place_of_a_folder_is_no_fault_of_the_machine(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises((FileExistsError, NotADirectoryError)):
        write_atomic(tmp_path / "a/b", b"")


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"[" * 100_000])
def test_blank_or_torn_json_is_refused_by_name(tmp_path, text):
    (tmp_path / "record.json").write_bytes(text)
    with refused("not readable as JSON", where=str(tmp_path / "record.json"), hint="bring this file back as it was"):
        read_json(tmp_path / "record.json")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_json(tmp_path / "none.json")


def test_the_project_is_found_from_a_folder_below(project):
    below = project.root / "src/deep"
    below.mkdir(parents=True)
    assert find_project(below) == project


def test_outside_a_project_the_way_in_is_said(tmp_path):
    with refused(r"no mltrainer\.yaml", hint="mltrainer init"):
        find_project(tmp_path)


def test_each_phase_has_a_numbered_folder(project):
    folders = [project.relative(project.phase_dir(phase)) for phase in PHASES]
    assert folders[0] == "phases/01_planning"
    assert folders[-1] == "phases/05_finalization"


def test_a_path_outside_the_project_stays_absolute(project):
    assert project.relative(project.root / "a" / "b") == "a/b"
    assert project.relative(Path("/elsewhere/x")) == "/elsewhere/x"


def test_a_lock_is_held_for_the_length_of_a_block(tmp_path):
    path = tmp_path / "state" / "lock"
    assert not is_locked(path)
    with locked(path, "the project"):
        assert is_locked(path)
    assert not is_locked(path)


def test_a_second_process_is_told_who_holds_the_lock(tmp_path):
    with locked(tmp_path / "lock", "the project"), pytest.raises(InUseError) as caught, locked(tmp_path / "lock", "the project"):
        pytest.fail("the lock was given twice")
    assert caught.value.exit_code == 6
    assert f"process {os.getpid()}" in caught.value.message


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = "import sys, time\nfrom pathlib import Path\nfrom mltrainer.workspace import locked\n"
    code += "with locked(Path(sys.argv[1]), 'it'):\n    print('held', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert is_locked(tmp_path / "lock")
        process.kill()
    until(lambda: not is_locked(tmp_path / "lock"))
    with locked(tmp_path / "lock", "the project"):
        assert is_locked(tmp_path / "lock")


def test_a_forked_process_that_unwinds_closes_no_file_of_its_own(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from mltrainer.workspace import locked\n"
        "with locked(Path(sys.argv[1]), 'it'):\n"
        "    pid = os.fork()\n"
        "    own = open(sys.argv[2], 'w') if pid == 0 else None\n"
        "if own:\n"
        "    own.write('whole'); own.close(); os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock"), str(tmp_path / "own")], check=True, timeout=60)
    assert (tmp_path / "own").read_text() == "whole"


def test_a_lock_in_a_place_that_cannot_be_written_is_the_machines_fault(tmp_path, monkeypatch):
    def denied(*_arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(workspace.os, "open", denied)
    with pytest.raises(MachineError, match="Permission denied"), locked(tmp_path / "lock", "the project"):
        pytest.fail("the lock was given")


def test_a_forked_process_does_not_keep_a_lock_that_its_parent_took(tmp_path):
    program = (
        "import os, sys, time; from pathlib import Path; from mltrainer.workspace import locked\n"
        "with locked(Path(sys.argv[1]), 'it'):\n"
        "    if os.fork() == 0:\n"
        "        print('forked', flush=True); os.closerange(1, 3); time.sleep(20); os._exit(0)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], capture_output=True, timeout=60)
    assert done.returncode == -9
    with locked(tmp_path / "lock", "it"):
        pass


def test_a_line_is_not_joined_to_one_that_a_killed_process_left_half(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"whole": 1}\n{"ha')
    append_json_lines(path, [{"next": 2}])
    append_json_lines(path, [{"last": 3}])
    assert path.read_text() == '{"whole": 1}\n{"ha\n{"next": 2}\n{"last": 3}\n'


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (PermissionError(errno.EACCES, "no"), True),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (OSError(errno.ENAMETOOLONG, "long"), False),
        (ValueError("full"), False),
    ],
)
def test_an_error_of_the_machine_is_one_of_space_permission_or_disk(error, expected):
    assert is_of_machine(error) is expected
