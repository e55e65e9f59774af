"""A planned project's task, trained by `transformers.Trainer`; scripts from `mltrainer export-config` use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate
from transformers import Trainer

from mltrainer.configs.project import load_training
from mltrainer.errors import InputError
from mltrainer.tasks.opening import make_model, open_task
from mltrainer.trainers.native.evaluation import evaluate

PLAN = "phases/01_planning/training_config.yaml"
Place = tuple[str, int]  # a sample: its split and its position there


class TaskTrainer(Trainer):  # type: ignore[misc]  # mypy does not follow the package, which is large
    """A Trainer of a project's model on its plan's training and validation samples, with its loss and its metrics.

    Strategies and alterations of images need the project's own trainer, and are left out here.

    Args:
        folder: The project's folder.
        arguments: The `TrainingArguments`.
        plan: The path of the training config, relative to the project.
        **options: Further arguments of the Trainer, such as `callbacks`.

    Raises:
        InputError: There is no plan, or its samples come as a stream.
    """

    def __init__(self, folder: Path, arguments: Any, plan: str = PLAN, **options: Any) -> None:
        self._config = load_training(folder / plan, plan).model_copy(update={"strategies": [], "augment": None})
        self._opened = opened = open_task(self._config, folder)
        if any(opened.split(name).is_stream for name in ("train", "validation")):
            raise InputError("samples that come as a stream have no places to draw from", where="task.use", hint="train it here")
        train, validation = ([(name, place) for place in range(len(opened.split(name)))] for name in ("train", "validation"))
        given = {"train_dataset": train, "eval_dataset": validation, "data_collator": self._batch, **options}
        super().__init__(args=arguments, model_init=lambda: make_model(opened), **given)

    def _batch(self, places: list[Place]) -> dict[str, Any]:
        """Return samples in the form of a batch that the task gets."""
        samples = self._opened.split(places[0][0])
        positions = [position for _, position in places]
        if samples.tensors is not None:
            return {"batch": samples.batch([tensor[torch.tensor(positions)] for tensor in samples.tensors])}
        dataset: Any = samples.dataset
        return {"batch": (samples.collate or default_collate)([dataset[position] for position in positions])}

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any) -> Any:
        """Return the task's loss."""
        outputs, targets = self._opened.task.forward(model, inputs["batch"])
        loss: Tensor = self._opened.task.loss(outputs, targets)
        return (loss, outputs) if return_outputs else loss

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:
        """Return the task's loss and metrics over the validation samples."""
        samples = self._opened.split("validation")
        found = evaluate(self._opened.task, self.model, self._config, samples, "validation").metrics
        named = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        self.log(named)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, named)
        return named
