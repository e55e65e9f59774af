"""A callback of `lightning.Trainer` that reports a run's losses, samples and metrics; it does nothing unless they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback
from torch import Tensor

from mltrainer.integrations import reporting
from mltrainer.integrations.batches import Step


class TellingCallback(Callback):
    """Reports loss and samples of each optimizer step, and the metrics of each validation; the weights are the same with it.

    The loss is the one that Lightning takes gradients of: that of `training_step`, divided by `accumulate_grad_batches` and
    summed over a step's batches; under manual optimization the sum of those it returns. Samples are the batches, in the order in
    which `training_step` gets them. Metrics are those that the validation logged, under the names that the module gives them;
    what `training_step` logs is not among them. Epochs are counted in parts: 1.5 is the middle of the second.

    Examples:
        trainer = lightning.Trainer(callbacks=[TellingCallback()])
    """

    def __init__(self) -> None:
        self._reported_steps, self._epoch = 0, 0.0
        self._step = Step()
        self._before: dict[str, Any] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the earlier steps of a resumed training."""
        self._reported_steps, self._step = trainer.global_step, Step()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Record the batch."""
        self._step.see(batch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record the batch's loss, and report the step that it completes."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):
            self._step.add(loss)
        self._epoch = trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches
        if trainer.global_step > self._reported_steps:
            self._reported_steps = trainer.global_step
            self._step.tell(self._reported_steps)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the metrics that were logged before."""
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metrics of this validation: the newly logged ones, even if equal."""
        metrics = {name: value for name, value in trainer.callback_metrics.items() if value is not self._before.get(name)}
        if metrics and not trainer.sanity_checking:
            reporting.tell_metrics(trainer.global_step, self._epoch, metrics)
