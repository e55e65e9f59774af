"""A note that a program makes no step: only its user can know whether it loads, evaluates or hangs."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_S = 60.0  # without a step, until it is reported; after that each time twice as long


def stall_reporter(note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[int], None]:
    """Return a callback of a program's steps so far, which notes it where they have not grown for long.

    Args:
        note: Takes the sentence.
        clock: Returns the time in seconds.
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
