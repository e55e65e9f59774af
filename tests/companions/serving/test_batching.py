"""Batches of what waits: each caller gets its own result, a fault is its sender's alone, and only so much may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from mltrainer.companions.serving.batching import Batches, BusyError


class Held:
    """Work that doubles numbers, and waits before the first batch until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.free = threading.Event()

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        self.batches.append(list(items))
        if len(self.batches) == 1:
            self.free.wait(10)
        return [ValueError(f"{item} is no number") if isinstance(item, str) else 2 * item for item in items]


async def begun(batches: Batches[Any, Any], items: Sequence[Any], size: int = 1) -> list[asyncio.Task[Any]]:
    """Ask for the first item, and for the others once that is worked on."""
    first = asyncio.create_task(batches.ask(items[0], size))
    await asyncio.sleep(0.02)
    others = [asyncio.create_task(batches.ask(item, size)) for item in items[1:]]
    await asyncio.sleep(0.02)
    return [first, *others]


async def gathered(batches: Batches[Any, Any], held: Held, items: Sequence[Any], size: int = 1) -> list[Any]:
    asked = await begun(batches, items, size)
    held.free.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    await batches.close()
    return found


def test_what_came_while_a_batch_was_worked_on_is_the_next_one_and_each_caller_gets_its_own():
    held = Held()
    found = asyncio.run(gathered(Batches(held, 5, 100), held, range(9)))
    assert found == [2 * number for number in range(9)]
    assert held.batches == [[0], [1, 2, 3, 4, 5], [6, 7, 8]]


def test_a_fault_is_its_senders_alone():
    held = Held()
    found = asyncio.run(gathered(Batches(held, 5, 100), held, [1, 2, "x", 3]))
    assert found[:2] + found[3:] == [2, 4, 6]
    assert str(found[2]) == "x is no number"


def test_where_a_whole_batch_fails_each_item_is_tried_by_itself():
    held = Held()

    def work(items: Sequence[Any]) -> list[Any]:
        return [one / two for one, two in zip(held(items), items, strict=True)]

    found = asyncio.run(gathered(Batches(work, 5, 100), held, [1, 2, 0, 3]))
    assert found[:2] + found[3:] == [2, 2, 2]
    assert isinstance(found[2], ZeroDivisionError)


def test_more_than_may_wait_is_refused_and_a_large_item_alone_is_not():
    held = Held()
    found = asyncio.run(gathered(Batches(held, 5, 20), held, range(5), size=9))
    assert [isinstance(one, BusyError) for one in found] == [False, False, False, True, True]
    held = Held()
    assert asyncio.run(gathered(Batches(held, 5, 20), held, [1], size=90)) == [2]


def test_nothing_is_computed_for_who_no_longer_waits():
    held = Held()

    async def left() -> None:
        batches = Batches[Any, Any](held, 5, 100)
        tasks = await begun(batches, range(4))
        tasks[2].cancel()
        await asyncio.sleep(0)
        held.free.set()
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]
        assert [await tasks[number] for number in (0, 1, 3)] == [0, 2, 6]
        await batches.close()

    asyncio.run(left())
    assert held.batches == [[0], [1, 3]]
