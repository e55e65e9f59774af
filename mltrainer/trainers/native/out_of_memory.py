"""An out-of-memory error of a training: the step and the part of it in which memory ran out, and the command that avoids it."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from torch import Tensor

from mltrainer.configs.less_memory import OTHERS, less_memory
from mltrainer.errors import OutOfMemoryError, is_out_of_memory, out_of_memory
from mltrainer.follow.splits import write_splits
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import Split
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.stages import Trainer
from mltrainer.trainers.native.stepping import Stepper

FINER, OTHER = True, False  # whether fewer samples at a time need less there; an evaluation's batches have a size of their own
# By the innermost of these calls that the error came out of: SAM's second backward pass is a part of an update.
PLACES: dict[CodeType, tuple[str, bool]] = {
    Objective.loss.__code__: ("in step {step}, in the forward pass", FINER),
    Tensor.backward.__code__: ("in step {step}, in the backward pass", FINER),
    Stepper._step.__code__: ("in step {step}, in the optimizer's update", FINER),
    Stepper._sharp_step.__code__: ("in step {step}, in the optimizer's update", FINER),
    Stepper.take.__code__: ("in step {step}", FINER),
    Trainer._train_step.__code__: ("beside step {step}", FINER),  # its samples, or what observes it
    Trainer._evaluate.__code__: ("after step {step}, in the evaluation", OTHER),
    Trainer._checkpoint.__code__: ("after step {step}, in the checkpoint", OTHER),
}


@contextlib.contextmanager
def memory_watched(trainer: Trainer, job: TrainingJob, folder: Path) -> Iterator[None]:
    """Raise the out-of-memory errors of a block with their place.

    Raises:
        OutOfMemoryError: Memory ran out.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        place, is_finer = _place(error)
        if place.startswith("in ") and job.purpose == "train" and job.config.on_out_of_memory == "split":
            _split(trainer, place.partition(", in ")[2] or "the step", folder)
        hint = less_memory(job.config, job.phase, job.purpose) if is_finer else OTHERS
        raise out_of_memory(error, f" {place.format(step=trainer.step)}", hint) from error


def _split(trainer: Trainer, place: str, folder: Path) -> None:
    """Note in the run's folder that the present step has twice the micro-batches, unless a micro-batch has no half.

    What the step has changed is lost with this process: another one goes on from the newest checkpoint.
    """
    plan = trainer.plan_at(trainer.step)
    if plan.batch_size % 2 == 0:
        split = Split(step=trainer.step, place=place, accumulate=2 * plan.accumulate)
        write_splits(folder, [*trainer.splits, split])


def _place(error: Exception) -> tuple[str, bool]:
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((PLACES[code] for code in reversed(codes) if code in PLACES), ("after step {step}", OTHER))
