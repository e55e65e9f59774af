"""The origin of a number that ended a run: the step where the run stopped, taken again under watch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.trainers.native.signals.nonfinite import first_nonfinite, holds
from mltrainer.trainers.native.stages import Trainer


def locate(trainer: Trainer, step: int, go_back: Callable[[], None], root: Path) -> dict[str, Any] | None:
    """Return the first number of a step that was not finite, as `Located` holds it; None if the step is finite this time.

    Random draws are addressed, so that the step has the same samples and random numbers again. If its update was refused, the
    weights are still those before the step. Otherwise the trainer goes back to the newest good checkpoint and replays the steps
    up to it: a GPU's numbers arrive some steps later, and the forward pass itself may have spoiled running statistics. In both
    cases the weights are those before the step afterwards.

    Args:
        trainer: The run's trainer.
        step: The step.
        go_back: A function that puts the trainer back to a good state before the step.
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
        trainer.stepper.before_step(step)  # the callbacks' part of the step, already done if the weights are those before it
    found = first_nonfinite(trainer.stepper, step, again, root)
    trainer.step = step
    return None if found is None else {**found, "replayed_from": begun}
