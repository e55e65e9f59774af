"""Tells that a program makes no step: whether it loads, evaluates or hangs, only its user can know."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_S = 60.0  # without a step, until it is told; after that each time twice as long


def silence(note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[int], None]:
    """Return what is told now and then how many steps a program has made, and notes it where they do not grow for long.

    Args:
        note: Takes the sentence.
        clock: Tells the time in seconds.
    """
    made, since, due = 0, clock(), FIRST_S

    def see(step: int) -> None:
        nonlocal made, since, due
        now = clock()
        if step > made:
            made, since, due = step, now, FIRST_S
        elif now - since >= due:
            due *= 2
            after = f"after step {made:,}, the last that was seen" if made else "since the program began"
            note(f"no step for {(now - since) / 60:.0f} min {after}; Ctrl-C ends it")

    return see
