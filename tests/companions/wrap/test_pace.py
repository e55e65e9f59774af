"""Forks and threads that begin late."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.observe import pace


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    before = threading.gettrace()
    yield
    threading.settrace(before)  # type: ignore[arg-type]  # as it was, None too


def begun() -> list[str]:
    """Return the names of two threads in the order in which they do something."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(threading.current_thread().name), name=name) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_every_second_thread_begins_late():
    pace.begin(SimpleNamespace(on_fork=lambda reset: None))
    assert begun() == ["b", "a"]


def test_a_thread_that_begins_late_is_traced_all_the_same():
    seen: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> None:
        seen.append(threading.current_thread().name)

    threading.settrace(trace)
    pace.begin(SimpleNamespace(on_fork=lambda reset: None))
    begun()
    assert {"a", "b"} <= set(seen)
    assert sys.gettrace() is not trace


def test_every_second_fork_begins_late(monkeypatch):
    waited: list[float] = []
    resets: list[Any] = []
    monkeypatch.setattr(pace.time, "sleep", waited.append)
    process = SimpleNamespace(on_fork=resets.append, name="program")
    pace.begin(process)
    for process.name in ("program.1", "program.2", "program.3"):
        resets[0]()
    assert waited == [pace.FORKS_S] * 2
