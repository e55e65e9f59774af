"""The end of a run in its worker: by itself, with the worker's death, or lost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """A run's end in its worker.

    Attributes:
        nr: The run's number, as it was given.
        reason: The reason why it could not be trained; None where its result is in its folder.
        death: The worker's death, in words, where that ended the run; else None.
        lost: The outside cause of its loss: its machine, a preemption, the queue. The run is begun again. Else None.
    """

    nr: int
    reason: str | None = None
    death: str | None = None
    lost: str | None = None
