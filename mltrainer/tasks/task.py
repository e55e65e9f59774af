"""The base class of users' tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from mltrainer.errors import InputError
from mltrainer.records.run import TargetKind
from mltrainer.tasks.structures import length, main_output
from mltrainer.tasks.updating import Length, Updates

Data = Dataset[Any] | tuple[Tensor, ...] | dict[str, Tensor]


class Task:
    """A task: samples, a model, a loss and metrics.

    Write `samples` (mltrainer splits them) or `dataset` (you do), `model`, `loss` and `metrics`. The arguments of
    `__init__` are `task.options` of `mltrainer.yaml`. Samples are tensors in memory, or a map-style data set
    whose draws come from the global generators of Python, NumPy and torch, which are seeded for each sample.
    A sample is a tuple with the targets last, or a dict in which `target_key` names them.

    Attributes:
        targets: The kind of the targets: "classes" (class numbers from 0, -1 and 1, or one-hot rows), "values" to predict, or
            "tokens" of a vocabulary. With None, one int64 number a sample beside an output for each of several classes is a
            class; checks and diagnostics that depend on the kind of other targets do not judge them.
        target_key: The key of the targets, where a batch is a dict.
        terms: The names of the losses that `losses` returns, where it is written.

    Examples:
        >>> class Doubling(Task):
        ...     targets = "values"
        ...     def samples(self):
        ...         x = torch.arange(100.0)[:, None]
        ...         return x, 2 * x
        ...     def model(self):
        ...         return nn.Linear(1, 1)
        ...     def loss(self, outputs, targets):
        ...         return nn.functional.mse_loss(outputs, targets)
        ...     def metrics(self, outputs, targets):
        ...         return {"mae": (outputs - targets).abs().mean().item()}
    """

    targets: TargetKind | None = None
    target_key: ClassVar[str] = "labels"
    terms: Sequence[str] = ()

    def samples(self) -> Data:
        """Return all samples: tensors of equal first dimension, targets last or by name, or a map-style data set."""
        raise NotImplementedError("write samples(self) or dataset(self, split)")

    def dataset(self, split: str) -> Data | None:
        """Return the samples of a split, if the data comes with splits.

        Args:
            split: "train", "validation" or "test".

        Returns:
            Samples in the form of `samples`; None for a missing split (only "test" may be missing).
        """
        raise NotImplementedError("without this method, mltrainer splits samples()")

    def sample(self, record: Any) -> Any:
        """Return the sample of a record from `data.source`, where neither `samples` nor `dataset` is written.

        It is called each time that the record is read; draws come from the global generators, which are seeded for each sample.

        Args:
            record: A row of a Parquet file as a dict by column; the files of a tar file's sample as a dict of bytes by ending,
                with its key as `__key__`; a row of an array, in a tuple with its label; tokens and the same one token later.

        Returns:
            A tuple with the targets last, or a dict in which `target_key` names them; by default the record itself.
        """
        return record

    def bound_files(self) -> Sequence[str]:
        """Return the files that the samples and the model are read from, relative to the project; none by default.

        Their digests are part of the data's, so that another file is other data; called after the samples are read.
        """
        return ()

    def prepare(self, train: Data) -> None:
        """Fit the preprocessing, such as a mean, on the training split; called once, before `model`."""

    def collate(self, rows: list[Any]) -> Any:
        """Return the samples of a data set as one batch; write it to pad sequences of unequal lengths, for example.

        Args:
            rows: The samples from the data set, in order.

        Returns:
            A tuple with the targets last, or a dict; by default as `torch.utils.data.default_collate`.
        """
        return default_collate(rows)

    def model(self) -> nn.Module:
        """Return a new model; torch's generator is seeded before the call."""
        raise NotImplementedError("write model(self)")

    def teacher(self) -> nn.Module:
        """Return a new model for the weights of a teacher, whose outputs are learned (`strategies`); by default as `model`."""
        return self.model()

    def difficulty(self) -> Sequence[float]:
        """Return a number for each sample in the order of `samples` or `dataset("train")`, larger for a more difficult one.

        It is used by the strategy curriculum where the config does not name another order.
        """
        raise NotImplementedError("write difficulty(self), or name margins in the config")

    def view(self, batch: Any) -> Any:
        """Return a batch with its samples altered by draws of torch's generator; by default unchanged.

        The strategy contrastive makes two views of each batch, and trains the model to give them near features.
        """
        return batch

    def updates(self, model: nn.Module, length: Length) -> Updates:
        """Return a new custom optimizer over the model's parameters, with schedulers; see `mltrainer.tasks.updating`.

        It is called where the config says `optimizer.name: own`, and more than once: the result must be the same each time.
        """
        raise NotImplementedError("write updates(self, model, length), or name one of mltrainer's optimizers in the config")

    def enter(self, step: int, length: Length) -> None:
        """Prepare for the next training step, from 1; called before each, for values that depend on the place in the run.

        A resumed run calls it with the step at which it resumes; no state is needed between the calls.
        """

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        """Return the model's outputs and the targets of a batch; write it where the defaults do not suit.

        A tuple's parts before the last are the model's arguments, the last is the targets. A dict's parts are keyword
        arguments, except for the one that `target_key` names. Where the model gives a tuple, a dict or a dataclass, its part
        `logits` is the output, or the first part. An override may return any structures of tensors.

        Raises:
            InputError: A dict has no part `target_key`.
        """
        if not isinstance(batch, dict):
            return main_output(model(*batch[:-1])), batch[-1]
        if self.target_key not in batch:
            hint = f'say which part holds the targets: target_key = "..." in your {type(self).__name__}, or write forward'
            raise InputError.unknown("part", self.target_key, map(str, batch), of="of a batch", hint=hint)
        inputs = {name: part for name, part in batch.items() if name != self.target_key}
        return main_output(model(**inputs)), batch[self.target_key]

    def check(self, model: nn.Module, batch: Any) -> None:
        """Refuse a model that does not suit the task, by an `InputError`; by default none is refused.

        It is called before a training, with a new model in evaluation mode and a small batch of training samples, on the CPU.
        """

    def targets_of(self, batch: Any) -> Any:
        """Return the targets of a batch by the default of `forward`; None for a batch of another form."""
        if isinstance(batch, dict):
            return batch.get(self.target_key)
        return batch[-1] if isinstance(batch, (tuple, list)) else None

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Return the mean loss, a scalar: over the samples, or over the items of `loss_items`."""
        raise NotImplementedError("write loss(self, outputs, targets)")

    def losses(self, outputs: Any, targets: Any) -> Mapping[str, Tensor]:
        """Return the mean loss of each target by the names in `terms`, scalars: the parts of `loss`.

        The strategy balancing weighs them, and the diagnostic gradient_conflict reports whether their gradients conflict.
        """
        raise NotImplementedError("write losses(self, outputs, targets) beside loss, and name what it gives: terms = (...)")

    def loss_items(self, targets: Any) -> int | Tensor:
        """Return the number of items that a batch's loss is the mean of: the samples, unless you count something else.

        A language model whose loss is the mean over tokens returns the number of tokens that count, such as
        `(targets != -100).sum()`: batches then have weights by their numbers of tokens.
        """
        return length(targets)

    def metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        """Return the metrics by name over a whole split; its outputs and targets are held for this, on the CPU.

        Where they are too many, or differ in shape from batch to batch, write `accumulate` and `compute` instead.
        """
        return {}

    def accumulate(self, state: Any, outputs: Any, targets: Any) -> Any:
        """Return the state for `compute` after one more batch of a split; with this method, no outputs are held.

        Args:
            state: The result for the previous batch, such as a dict of sums; None at first.
            outputs: The outputs of one batch, on the device.
            targets: The targets of the same batch, on the device.
        """
        raise NotImplementedError("write accumulate(self, state, outputs, targets) and compute(self, state)")

    def compute(self, state: Any) -> Mapping[str, float]:
        """Return the metrics by name from the last result of `accumulate`."""
        raise NotImplementedError("write compute(self, state) beside accumulate")

    def inference(self) -> dict[str, Any]:
        """Return the trained model's interface for its users, as plain data: columns, classes, categories."""
        return {}

    def delivered(self) -> dict[str, bytes]:
        """Return files that `inference.py` needs beside the model, by name; none by default."""
        return {}

    def evaluation(self, outputs: Any, targets: Any) -> dict[str, Any] | None:
        """Return a confusion matrix or residuals for the reports, or None; outputs and targets as in `metrics`."""
        return None
