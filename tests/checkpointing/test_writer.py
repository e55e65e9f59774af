"""Training does not wait for the disk, and learns of every failure."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.checkpointing import writer as module
from mltrainer.checkpointing.format import Snapshot, load, newest_intact, snapshot
from mltrainer.checkpointing.manifest import folders
from mltrainer.checkpointing.writer import Writer
from mltrainer.errors import MachineError


def folder(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


class SlowDisk:
    """Saves nothing until it is let go."""

    def __init__(self) -> None:
        self.free, self.begun = threading.Event(), threading.Event()
        self.steps: list[str] = []

    def __call__(self, target: Path, _snapshot: Snapshot, _manifest: Any) -> dict[str, Any]:
        self.begun.set()
        assert self.free.wait(10)
        self.steps.append(target.name)
        return {}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    slow = SlowDisk()
    monkeypatch.setattr(module, "save", slow)
    yield slow
    slow.free.set()


def test_what_was_submitted_is_on_the_disk_after_drain(tmp_path: Path) -> None:
    with Writer() as writer:
        for step in (1, 2, 3):
            writer.submit(folder(tmp_path, step), snapshot({"step": step}), {})
        writer.drain()
        assert load(folder(tmp_path, 3))[0] == {"step": 3}
    assert len(list(tmp_path.iterdir())) == 3


def test_two_submits_do_not_wait_and_the_third_does(disk: SlowDisk, tmp_path: Path) -> None:
    with Writer() as writer:
        writer.submit(folder(tmp_path, 1), snapshot({}), {})
        assert disk.begun.wait(10)
        writer.submit(folder(tmp_path, 2), snapshot({}), {})
        third = threading.Thread(target=writer.submit, args=(folder(tmp_path, 3), snapshot({}), {}))
        third.start()
        third.join(0.1)
        assert third.is_alive()
        disk.free.set()
        third.join(10)
    assert disk.steps == ["step-00000001", "step-00000002", "step-00000003"]


def fails(*_arguments: Any) -> dict[str, Any]:
    raise MachineError("No space left on device")


def test_a_failure_reaches_the_training_thread_at_its_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer()
    with monkeypatch.context() as patch:
        patch.setattr(module, "save", fails)
        writer.submit(folder(tmp_path, 1), snapshot({}), {})
        with pytest.raises(MachineError, match="No space"):
            writer.drain()
    writer.submit(folder(tmp_path, 2), snapshot({}), {})
    writer.close()
    assert newest_intact(tmp_path)[0] == folder(tmp_path, 2)


def test_the_next_submit_tells_of_a_failure_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(module, "save", lambda *_: fails() if go.wait(10) else {})
    writer = Writer()
    writer.submit(folder(tmp_path, 1), snapshot({}), {})
    writer.submit(folder(tmp_path, 2), snapshot({}), {})
    go.set()
    with pytest.raises(MachineError):  # waits for room, which there is once the first save has failed
        writer.submit(folder(tmp_path, 3), snapshot({}), {})
    with contextlib.suppress(MachineError):  # the second one's failure
        writer.close()


def test_a_failure_of_the_last_save_is_raised_on_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "save", fails)
    with pytest.raises(MachineError), Writer() as writer:
        writer.submit(folder(tmp_path, 1), snapshot({}), {})


def test_the_first_failure_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "save", fails)

    def train() -> None:
        with Writer() as writer:
            writer.submit(folder(tmp_path, 1), snapshot({}), {})
            raise ValueError("loss")

    with pytest.raises(ValueError, match="loss") as caught:
        train()
    assert "No space" in caught.value.__notes__[0]


def test_what_follows_a_save_is_called_and_may_fail(tmp_path: Path) -> None:
    seen: list[int] = []
    with Writer() as writer:
        writer.submit(folder(tmp_path, 1), snapshot({}), {}, then=lambda: seen.append(len(folders(tmp_path))))
        writer.drain()
        writer.submit(folder(tmp_path, 2), snapshot({}), {}, then=lambda: fails())
        with pytest.raises(MachineError):
            writer.drain()
    assert seen == [1]


def test_what_comes_before_a_save_is_called_and_where_it_fails_nothing_is_saved(tmp_path: Path) -> None:
    seen: list[int] = []
    with Writer() as writer:
        writer.submit(folder(tmp_path, 1), snapshot({}), {}, first=lambda: seen.append(len(folders(tmp_path))))
        writer.drain()
        writer.submit(folder(tmp_path, 2), snapshot({}), {}, first=lambda: fails())
        with pytest.raises(MachineError):
            writer.drain()
    assert (seen, folders(tmp_path)) == ([0], [folder(tmp_path, 1)])


def test_a_closed_writer_takes_nothing(tmp_path: Path) -> None:
    writer = Writer()
    writer.close()
    with pytest.raises(RuntimeError, match="step-00000001"):
        writer.submit(folder(tmp_path, 1), snapshot({}), {})
