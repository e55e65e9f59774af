"""What killed processes left is removed by the next command, and nothing that somebody still holds; files heed the umask."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mltrainer import locks
from mltrainer.checkpointing.format import save, snapshot
from mltrainer.leftovers import OWNER_FILE, new_file, new_folder, scratch, sweep, sweep_below, sweep_scratch
from mltrainer.workspace import locked, write_atomic
from tests.projects import write_rings

MAKES = """
import sys, time
from pathlib import Path
from mltrainer.leftovers import new_file, new_folder, scratch
from mltrainer.workspace import locked
here = Path(sys.argv[1])
file = new_file(here, ".npy")
run = here / ".mltrainer/runs/abc"
(run / "scratch/work").mkdir(parents=True)
with new_folder(run) as folder, scratch("wrap-") as place, locked(run / "lock", "the run"):
    (folder / "half").write_text("half")
    (place / "copy").mkdir()
    print("made", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def maker(tmp_path: Path, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has made files and folders of each kind, and lives."""
    project = write_rings(tmp_path / "rings").root
    with subprocess.Popen([sys.executable, "-c", MAKES, str(project)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "made\n"
        yield process
        process.kill()


def here(tmp_path: Path) -> list[str]:
    found = [*tmp_path.rglob(".tmp-*"), *tmp_path.glob("temporary/mltrainer-*"), *tmp_path.rglob("scratch")]
    return sorted(str(path.relative_to(tmp_path)) for path in found)


def test_the_next_command_removes_what_a_killed_process_left(tmp_path, maker, cli):
    made = here(tmp_path)
    assert len(made) == 4
    arguments = ("phase", "run", "planning", "--set", "epochs=none", "--project", tmp_path / "rings")
    cli(*arguments)
    sweep_scratch()
    assert here(tmp_path) == made, "of a process that lives"
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    cli(*arguments)
    with scratch():
        pass
    assert here(tmp_path) == []


@pytest.mark.slow
def test_the_next_wrap_removes_the_copies_of_one_that_was_killed(temporary, maker, cli):
    maker.kill()
    maker.wait()
    assert [*temporary.glob("mltrainer-wrap-*/copy")]
    cli("wrap", "--", "a-program-that-is-not-there", code=1)
    assert [*temporary.iterdir()] == []


def test_folders_that_only_have_such_a_name_stay(temporary):
    (temporary / "mltrainer-datasets").mkdir()
    (temporary / "mltrainer-link").symlink_to(temporary / "mltrainer-datasets")
    (temporary / "mltrainer-pipe").mkdir()
    os.mkfifo(temporary / "mltrainer-pipe" / OWNER_FILE)
    assert sweep_scratch() == []
    assert len([*temporary.iterdir()]) == 3


def test_a_link_that_is_named_like_a_leftover_leads_nowhere(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").write_text("x")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/.tmp-link").symlink_to(tmp_path / "mine")
    assert sweep_below(tmp_path / "state") == []
    assert (tmp_path / "mine/precious").exists()


def test_a_run_that_trains_keeps_the_copy_that_its_program_runs_in(tmp_path):
    (tmp_path / "run/scratch/work").mkdir(parents=True)
    with locked(tmp_path / "run/lock", "the run"):
        assert sweep_below(tmp_path) == []
    assert sweep_below(tmp_path) == [tmp_path / "run/scratch"]


def test_a_folder_named_scratch_of_something_else_stays(tmp_path):
    (tmp_path / "mine/scratch").mkdir(parents=True)
    assert sweep_below(tmp_path) == []


def test_a_maker_that_is_slower_than_a_sweep_begins_anew(tmp_path, monkeypatch):
    opened = os.open

    def swept_at_once(path: Path, *rest: int) -> int:
        descriptor = opened(path, *rest)
        if str(path).endswith(".npy"):
            monkeypatch.undo()
            assert sweep(tmp_path) == [path]
        return descriptor

    monkeypatch.setattr(os, "open", swept_at_once)
    descriptor, path = new_file(tmp_path, ".npy")
    assert path.exists()
    os.close(descriptor)


@pytest.mark.parametrize("before", [True, False])
def test_a_maker_of_a_folder_that_is_slower_than_a_sweep_begins_anew(tmp_path, monkeypatch, before):
    opened = os.open

    def swept_at_once(path: Path, flags: int, *rest: int) -> int:
        descriptor = None if before else opened(path, flags, *rest)
        monkeypatch.undo()
        assert sweep(tmp_path) == [path]
        return opened(path, flags, *rest) if descriptor is None else descriptor

    monkeypatch.setattr(os, "open", swept_at_once)
    with new_folder(tmp_path) as folder:
        assert folder.is_dir()
    assert [*tmp_path.iterdir()] == []


def test_a_scratch_folder_is_held_before_a_sweep_can_find_it(temporary, monkeypatch):
    flock = locks.fcntl.flock

    def swept_meanwhile(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        assert sweep_scratch() == []
        flock(descriptor, operation)

    monkeypatch.setattr(locks.fcntl, "flock", swept_meanwhile)
    with scratch() as folder:
        assert sweep_scratch() == []
        assert (folder / OWNER_FILE).exists()


def test_a_sweep_takes_what_nobody_holds_and_only_that(tmp_path):
    (tmp_path / ".tmp-old").write_text("of an earlier version")
    descriptor, path = new_file(tmp_path)
    with new_folder(tmp_path) as folder:
        assert sweep(tmp_path) == [tmp_path / ".tmp-old"]
        assert folder.is_dir()
    os.close(descriptor)
    assert sweep(tmp_path) == [path]
    assert [*tmp_path.iterdir()] == []


# --- who may read what is written -----------------------------------------------------------------


def write(folder: Path) -> list[Path]:
    write_atomic(folder / "file.json", b"{}")
    save(folder / "step-00000001", snapshot({"x": torch.ones(1)}), {})
    with locked(folder / "lock", "the project"):
        pass
    return [folder / "file.json", *(folder / "step-00000001").iterdir(), folder / "lock"]


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o027, 0o077])
def test_files_are_as_readable_as_the_umask_allows(tmp_path, mask):
    before = os.umask(mask)
    try:
        files = write(tmp_path)
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in files} == {path.name: 0o666 & ~mask for path in files}
    assert (tmp_path / "step-00000001").stat().st_mode & 0o777 == 0o777 & ~mask


def test_scratch_folders_are_private(temporary):
    with scratch("fit-") as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o077 == 0
