"""A callback of `transformers.Trainer` that reports a run's losses, samples and metrics; it does nothing unless they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from mltrainer.integrations import reporting
from mltrainer.integrations.batches import Step

EVALUATION = "eval_"
NOT_MEASURED = (
    "epoch",
    "runtime",
    "_per_second",
    "_compilation_time",
    "_preparation_time",
)  # endings of names that are no metrics


class TellingCallback(TrainerCallback):  # type: ignore[misc]  # mypy does not follow the package, which is large
    """Reports loss and samples of each optimizer step, and the metrics of each evaluation; the weights are the same with it.

    The trainer hands its callbacks neither batch nor loss, so a forward hook, PyTorch's own, sees both at the model: the inputs
    of each training call, and the loss that it returns, where gradients of it are taken; over a step's batches summed or
    averaged, as the trainer does. If its losses are not used (`compute_loss_func`, label smoothing), the losses that the trainer
    logs are reported: means over `logging_steps`. A custom `compute_loss`'s additions to the model's loss are not seen.
    Metrics lose their `eval_`; times and rates are left out. Epochs are counted in parts: 1.5 is the middle of the second.

    Examples:
        trainer = Trainer(model, arguments, callbacks=[TellingCallback()])
    """

    def __init__(self) -> None:
        self._step = Step()
        self._hook: Any = None
        self._is_mean = self._is_known = False  # about the loss of a step

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Start to observe the model's calls; a failed training may have come before."""
        self.on_train_end(args, state, control)
        self._step, self._is_known = Step(), False
        if reporting.is_heard() and args.n_gpu <= 1:  # DataParallel calls it in several threads
            self._hook = model.register_forward_hook(self._see, with_kwargs=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Stop observing them."""
        if self._hook is not None:
            self._hook.remove()

    def _see(self, model: nn.Module, given: tuple[Any, ...], named: dict[str, Any], outputs: Any) -> None:
        if not (model.training and torch.is_grad_enabled()):
            return
        self._step.see([given, named])
        self._is_mean = "num_items_in_batch" not in named  # else the model divides by the number of the whole step
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs[0]
        if isinstance(loss, Tensor) and loss.requires_grad and loss.dim() == 0:
            loss.register_hook(lambda _: self._step.add(loss))

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Report the step."""
        self._is_known |= self._step.tell(state.global_step, mean=self._is_mean)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        """Report the logged loss if each step's is unknown."""
        if "loss" in logs and not self._is_known:
            reporting.tell_loss(state.global_step, logs["loss"])

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> None:
        """Report the evaluation's metrics."""
        measured = {name.removeprefix(EVALUATION): value for name, value in metrics.items() if not name.endswith(NOT_MEASURED)}
        reporting.tell_metrics(state.global_step, state.epoch, measured)
