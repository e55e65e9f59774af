"""How a run ended in its worker: by itself, with the worker's death, or lost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """A run's end in its worker.

    Attributes:
        nr: The run's number, as it was given.
        reason: Why it could not be trained; None where its result lies in its folder.
        death: The end of the worker, where it took the run with it.
        lost: What took the run away that has nothing to do with it: its machine, a preemption, the queue. It is begun again.
    """

    nr: int
    reason: str | None = None
    death: str | None = None
    lost: str | None = None
