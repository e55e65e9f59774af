"""A session that goes on from a run's checkpoints, up to a step or the first difference from the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mltrainer.checkpointing.format import Tree, load
from mltrainer.checkpointing.manifest import folder_name
from mltrainer.errors import StoppedError
from mltrainer.records.common import Divergence
from mltrainer.tools.program import EXIT_CODES
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.spikes import SpikeError
from mltrainer.trainers.native.stages import Outcome, Rewind


def state_of(step: int, saved: Path) -> Tree:
    """Return the state of a checkpoint.

    Raises:
        GateError: It is damaged.
    """
    tree: Tree = load(saved / "checkpoints" / folder_name(step))[0]
    return tree


def go_back(session: Session, step: int, saved: Path) -> None:
    """Restore the whole state of a checkpoint.

    Raises:
        GateError: It is damaged.
    """
    session.trainer.rewind(state_of(step, saved), Rewind.RESUME)


def train_until(session: Session, step: int) -> Outcome:
    """Train up to a step, or the first difference from the run, such as a spike that the run did not find.

    Raises:
        StoppedError: A signal stopped it.
    """
    trainer = session.trainer
    trainer.until = dataclasses.replace(trainer.until, last_step=step)
    trainer.outcome = Outcome()
    try:
        outcome = trainer.run()
    except SpikeError as error:
        found = Divergence(step=trainer.step, what="spike", expected="none", found=str(error))
        return dataclasses.replace(trainer.outcome, divergence=trainer.outcome.divergence or found)
    if outcome.reason == "signal":
        cause = outcome.interruptions[-1].cause
        raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], hint="type the same command again")
    return outcome
