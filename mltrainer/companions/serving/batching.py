"""Items of several concurrent callers, processed together by one thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class BusyError(Exception):
    """The queue is full."""


class Batches(Generic[Item, Result]):
    """Collects items and processes those that wait, together, in a separate thread.

    A batch holds the items that came during the previous batch: under load batches grow, and no caller waits for one to
    fill. An item that fails does not affect the others.

    Args:
        work: Function that returns for each item of a batch its result, or the exception for its caller.
        most: Largest batch, as a sum of item sizes; a larger item is a batch by itself.
        most_waiting: Largest sum of the waiting items' sizes.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result | Exception]], most: int, most_waiting: int) -> None:
        self._work, self._most, self._most_waiting = work, most, most_waiting
        self._waiting: deque[tuple[Item, int, asyncio.Future[Result]]] = deque()
        self._size = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._running: asyncio.Task[None] | None = None

    async def ask(self, item: Item, size: int = 1) -> Result:
        """Return the result for an item.

        Raises:
            BusyError: The queue is full.
            Exception: The item's failure.
        """
        if self._size + size > self._most_waiting and self._waiting:
            raise BusyError
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, size, future))
        self._size += size
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Finish the waiting items, and end the thread."""
        if self._running is not None:
            await self._running
        self._thread.shutdown()

    async def _run(self) -> None:
        while self._waiting:
            batch = self._next()
            items = [item for item, _, _ in batch]
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._results, items)
            for (_, _, future), result in zip(batch, results, strict=True):
                _settle(future, result)

    def _next(self) -> list[tuple[Item, int, asyncio.Future[Result]]]:
        """Return the next batch, without items whose caller no longer waits."""
        batch: list[tuple[Item, int, asyncio.Future[Result]]] = []
        taken = 0
        while self._waiting and (not batch or taken + self._waiting[0][1] <= self._most):
            entry = self._waiting.popleft()
            self._size -= entry[1]
            if not entry[2].done():
                batch.append(entry)
                taken += entry[1]
        return batch

    def _results(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """Return the results; if the batch fails as a whole, process each item by itself."""
        if not items:
            return []
        try:
            return self._work(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            return [result for item in items for result in self._results([item])]


def _settle(future: asyncio.Future[Result], result: Result | Exception) -> None:
    if future.done():  # its caller has gone
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
