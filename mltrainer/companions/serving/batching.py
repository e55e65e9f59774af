"""What several callers ask for at once, worked on together by one thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


class BusyError(Exception):
    """More waits already than may wait."""


class Batches(Generic[Item, Found]):
    """Collects items and works on those that wait, together, in a thread of its own.

    A batch is what came while the one before was worked on: under load batches grow by themselves, and nobody waits for one to
    fill. An item whose work fails fails alone.

    Args:
        work: Returns for each item of a batch its result, or the exception that its caller gets.
        most: Largest batch, in the sizes that the items are given with; a larger item is a batch of its own.
        most_waiting: Largest sum of sizes that may wait.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Found | Exception]], most: int, most_waiting: int) -> None:
        self._work, self._most, self._most_waiting = work, most, most_waiting
        self._waiting: deque[tuple[Item, int, asyncio.Future[Found]]] = deque()
        self._size = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._running: asyncio.Task[None] | None = None

    async def ask(self, item: Item, size: int = 1) -> Found:
        """Return the result for an item.

        Raises:
            BusyError: Too much waits already.
            Exception: What the work gave or raised for this item.
        """
        if self._size + size > self._most_waiting and self._waiting:
            raise BusyError
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, size, future))
        self._size += size
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Finish what waits, and end the thread."""
        if self._running is not None:
            await self._running
        self._thread.shutdown()

    async def _run(self) -> None:
        while self._waiting:
            batch = self._next()
            items = [item for item, _, _ in batch]
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._found, items)
            for (_, _, future), result in zip(batch, found, strict=True):
                _settle(future, result)

    def _next(self) -> list[tuple[Item, int, asyncio.Future[Found]]]:
        """Return the next batch; who no longer waits for an answer is left out."""
        batch: list[tuple[Item, int, asyncio.Future[Found]]] = []
        taken = 0
        while self._waiting and (not batch or taken + self._waiting[0][1] <= self._most):
            entry = self._waiting.popleft()
            self._size -= entry[1]
            if not entry[2].done():
                batch.append(entry)
                taken += entry[1]
        return batch

    def _found(self, items: Sequence[Item]) -> Sequence[Found | Exception]:
        """Return the results; where the batch fails as a whole, each item's by itself."""
        if not items:
            return []
        try:
            return self._work(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            return [found for item in items for found in self._found([item])]


def _settle(future: asyncio.Future[Found], result: Found | Exception) -> None:
    if future.done():  # its caller has gone
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
