"""Training does not wait for the disk, and learns of every failure."""

import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from mltrainer.checkpointing.format import load, save, snapshot
from mltrainer.checkpointing.writer import Work, Writer
from mltrainer.errors import MachineError


def folder(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def saving(root: Path, step: int) -> Work:
    return functools.partial(save, folder(root, step), snapshot({"step": step}), {})


class SlowDisk:
    """Saves nothing until it is let go."""

    def __init__(self) -> None:
        self.free, self.begun = threading.Event(), threading.Event()
        self.steps: list[int] = []

    def save(self, step: int) -> None:
        self.begun.set()
        assert self.free.wait(10)
        self.steps.append(step)


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    slow = SlowDisk()
    yield slow
    slow.free.set()


def test_what_was_submitted_is_on_the_disk_after_drain(tmp_path):
    with Writer() as writer:
        for step in (1, 2, 3):
            writer.submit(saving(tmp_path, step))
        writer.drain()
        assert load(folder(tmp_path, 3))[0] == {"step": 3}
    assert len(list(tmp_path.iterdir())) == 3


def test_two_submits_do_not_wait_and_the_third_does(disk):
    with Writer() as writer:
        writer.submit(lambda: disk.save(1))
        assert disk.begun.wait(10)
        writer.submit(lambda: disk.save(2))
        third = threading.Thread(target=writer.submit, args=(lambda: disk.save(3),))
        third.start()
        third.join(0.1)
        assert third.is_alive()
        disk.free.set()
        third.join(10)
    assert disk.steps == [1, 2, 3]


def fails() -> NoReturn:
    raise MachineError("No space left on device")


def test_a_failure_reaches_the_training_thread_at_its_next_call():
    writer = Writer()
    writer.submit(fails)
    with pytest.raises(MachineError, match="No space"):
        writer.drain()


def test_nothing_is_saved_after_a_failure_and_the_next_submit_tells_of_it_too(tmp_path):
    go = threading.Event()

    def fails_later() -> None:
        assert go.wait(10)
        fails()

    writer = Writer()
    writer.submit(fails_later)
    writer.submit(saving(tmp_path, 2))
    go.set()
    with pytest.raises(MachineError):  # waits for room, which there is once the first save has failed
        writer.submit(saving(tmp_path, 3))
    with pytest.raises(MachineError):
        writer.close()
    assert not [*tmp_path.iterdir()]


def test_a_failure_of_the_last_save_is_raised_on_closing():
    with pytest.raises(MachineError), Writer() as writer:
        writer.submit(fails)


def test_the_first_failure_is_told_first():
    def train() -> None:
        with Writer() as writer:
            writer.submit(fails)
            raise ValueError("loss")

    with pytest.raises(ValueError, match="loss") as caught:
        train()
    assert "No space" in caught.value.__notes__[0]


def test_a_closed_writer_takes_nothing(tmp_path):
    writer = Writer()
    writer.close()
    with pytest.raises(RuntimeError, match="nothing was saved"):
        writer.submit(saving(tmp_path, 1))
