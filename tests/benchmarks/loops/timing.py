"""Where the parts of a training are timed: around the calls that they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Clock = Callable[[], float]


def timed(add: Callable[[float], None], call: Callable[..., Any], clock: Clock = time.perf_counter) -> Callable[..., Any]:
    """Return a call whose seconds are handed on."""

    def measured(*args: Any, **kwargs: Any) -> Any:
        begun = clock()
        try:
            return call(*args, **kwargs)
        finally:
            add(clock() - begun)

    return measured


def of_nothing(clock: Clock, times: int = 10_000) -> float:
    """Return the seconds that a clock finds for a call that does nothing: what reading it adds to each part."""
    seconds: list[float] = []
    call = timed(seconds.append, lambda: None, clock)
    for _ in range(times):
        call()
    return sum(seconds) / times
