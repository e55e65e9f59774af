"""Where a number that ended a run arose: the step before which the run stopped, taken again under watch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.trainers.native.signals.nonfinite import first_nonfinite, holds
from mltrainer.trainers.native.stages import Trainer


def locate(trainer: Trainer, step: int, go_back: Callable[[], None], root: Path) -> dict[str, Any] | None:
    """Return the first number of a step that was not finite, as `Located` holds it; None where the step is finite this time.

    Draws are addressed, so that the step has the same samples and random numbers again. Where its update was refused, the
    weights still stand before it. Else all is brought there again, from the newest good checkpoint on: a GPU is not waited for,
    so that its numbers come some steps later, and the forward pass itself may have spoiled running statistics. Either way the
    weights stand before that step afterwards.

    Args:
        trainer: Of the run.
        step: The step.
        go_back: Puts the trainer back to a good state before the step.
        root: The project's folder.
    """
    stands_before = trainer.refused == step and all(holds(buffer) is None for buffer in trainer.model.buffers())
    if stands_before:
        trainer.step = step - 1
    else:
        go_back()
    begun = trainer.step
    again = trainer.replay(step)
    if not stands_before:
        trainer.stepper.before_step(step)  # the callbacks' part in it, which has been done where the weights stand before it
    found = first_nonfinite(trainer.stepper, step, again, root)
    trainer.step = step
    return None if found is None else {**found, "replayed_from": begun}
