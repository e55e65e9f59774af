"""The protocols of custom callbacks: classes that watch a run, or take part in it, named by `callbacks` in the training config.

A class needs no base class; it has the methods that it needs of one of the two protocols. A callback that does both is split
into two classes. A call may draw random numbers: the generators' states are restored after it, so that no draw of the training
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


class Watcher(Protocol):
    """A callback that sees plain numbers, copied for it, and cannot alter the training.

    A watcher that changes weights in some other way, or settings of torch, ends the run with an error. Where a killed run goes
    on from its last checkpoint, the steps and evaluations since then are reported again.
    """

    def on_start(self, run: dict[str, Any]) -> None:
        """Called when a process begins to train or goes on: `run`, `phase`, `purpose`, `step`, `steps`, `epochs`, `config`."""

    def on_step(self, step: int, loss: float, grad_norm: float) -> None:
        """Called for each step in order, with a delay: numbers come from the device together, every 64 steps or earlier."""

    def on_evaluation(self, row: dict[str, Any]) -> None:
        """Called with each new row of the history: `epoch`, `step`, `lr`, `train_loss`, `train`, `validation` and more."""

    def on_checkpoint(self, step: int) -> None:
        """Called when the state after a step has been copied for a checkpoint."""

    def on_end(self, outcome: dict[str, Any]) -> None:
        """Called when training has ended or was stopped, its checkpoints written: `reason`, `step`, `nonfinite`."""


class Participant(Protocol):
    """A callback that may alter the training before each step, from a state that every checkpoint holds.

    Resuming gives the same bits only if everything that it does follows from that state and its arguments, and if it sets its
    changes beside weights and optimizer (such as a layer's mode) in every step.
    """

    def on_before_step(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        """Called before each step, without gradients, when the step's learning rates are set; they may be changed."""

    def on_evaluation(self, row: dict[str, Any]) -> None:
        """Called with each new row of the history, to remember in the state; weights are changed before a step, not here."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state: nested dicts, lists and tuples of tensors, numbers, text and None."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint; raise an exception where it does not fit."""
