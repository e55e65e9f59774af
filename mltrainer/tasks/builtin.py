"""The base classes of the built-in tasks, the place of each task, and the inputs of reference models."""

from __future__ import annotations

import copy
import functools
import importlib
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.items import DataLimits
from mltrainer.errors import InputError
from mltrainer.records.run import Errors
from mltrainer.tasks import data_findings, metrics
from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.calibration import calibration
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.segments import SegmentFeature, segments
from mltrainer.tasks.splits import SplitConstraints, SplitIds, equal_rows
from mltrainer.tasks.task import Task

if TYPE_CHECKING:
    from mltrainer.configs.models import ModelConfig
    from mltrainer.configs.project import Split, TrainingConfig
    from mltrainer.tasks.content import Source


@dataclass(frozen=True)
class Movable:
    """The sizes by which a task's inputs are moved.

    Attributes:
        scales: The unit of a move: one for all numbers of a sample, or for each column of the matrix; 0 where none is moved.
        limits: The least and the largest value of an input; None: unbounded.
        numbers: The name of each column of numbers of the matrix, None of another one; empty where there are no columns.
    """

    scales: list[float]
    limits: tuple[float, float] | None = None
    numbers: Sequence[str | None] = ()


class BuiltinTask(Task):
    """The base class of the built-in tasks: rows by id, so that only the requested rows are read.

    Attributes:
        size: Number of samples.
        labels: Class numbers of all samples, for splits; None for values to predict.
        classes: The classes' names; None for values to predict.
        given: The place in `SPLITS` of each sample, where splits have separate sources.
        tokens_per_sample: Number of tokens that a sample predicts; None where samples differ in it, or have none.
    """

    size: int
    given: np.ndarray | None = None
    labels: np.ndarray | None = None
    classes: list[str] | None = None
    tokens_per_sample: int | None = None
    _config: TrainingConfig

    def with_model(self, model: ModelConfig, train: np.ndarray) -> Self:
        """Return the task with another model.

        Args:
            model: The model.
            train: The training rows, on which the parts that depend on the model are fitted again.
        """
        other = copy.copy(self)
        other._config = self._config.model_copy(update={"model": model})
        return other

    @abstractmethod
    def fit(self, train: np.ndarray) -> None:
        """Fit the preprocessing on the training rows."""

    @abstractmethod
    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of some rows."""

    @abstractmethod
    def describe(self, ids: SplitIds) -> dict[str, Any]:
        """Return `columns`, `target` and `shape` of the facts, from the training and validation rows."""

    @abstractmethod
    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return the findings on the training and validation rows."""

    def shown(self, model: nn.Module) -> dict[str, Any]:
        """Return the reports' views of a trained model, in evaluation mode, beside `evaluation`; empty by default."""
        return {}

    def features(self, ids: np.ndarray) -> list[SegmentFeature]:
        """Return the features of some rows by which errors are grouped; empty by default."""
        return []

    def errors(self, outputs: Tensor, targets: Tensor, ids: np.ndarray) -> Errors | None:
        """Return the reports' views of a model's errors on some rows, beside `evaluation`; None by default."""
        return None

    def reference_inputs(self, ids: np.ndarray) -> ReferenceInputs | None:
        """Return the inputs of reference models for some rows, and their targets; None where there are none."""
        return None

    @abstractmethod
    def place(self, row: int) -> str:
        """Return a row's source: `file:line`, or the file of a picture."""

    def cells(self, row: int) -> dict[str, str]:
        """Return a row's cells in its source, by column; empty where its inputs show them."""
        return {}

    def metric(self, name: str, outputs: Tensor, targets: Tensor) -> float:
        """Return one metric, or the loss, and measure no other where that would take longer."""
        return float(self.loss(outputs, targets)) if name == "loss" else float(self.metrics(outputs, targets)[name])

    @abstractmethod
    def keys(self) -> np.ndarray:
        """Return a hash of each row's features, uint64: rows with equal ones are the same to a model."""

    def hashes(self, ids: np.ndarray) -> np.ndarray:
        """Return a hash of some rows' features with their targets, uint64."""
        return row_hashes([self.keys()[ids], self.all_targets()[ids]])

    def content_hashes(self, ids: np.ndarray) -> np.ndarray:
        """Return hashes, uint64, that recognize a whole split's content in another state of the data."""
        return self.hashes(ids)

    @abstractmethod
    def all_targets(self) -> np.ndarray:
        """Return the target of all rows: class numbers or values."""

    def refuse_forgetting(self) -> None:
        """Refuse to train without some rows where something was learned from them already; by default nothing was.

        Raises:
            InputError: Something was.
        """

    def split_constraints(self, split: Split) -> SplitConstraints:
        """Return the constraints of the rows on a split.

        Raises:
            InputError: The split names a column, and there are none.
        """
        named = [key for key in ("group", "time", "column") if getattr(split, key) is not None]
        if named:
            raise InputError("the task has no columns", where=f"split.{named[0]}", hint="write your own task with dataset(split)")
        return equal_rows(split, self.keys)

    @property
    def repeats_belong(self) -> bool:
        """Whether repeated samples are legitimate training data, so that splits are not searched for them."""
        return False

    def movable(self) -> Movable | None:
        """Return the sizes by which inputs are moved; None where they are tokens."""
        return None

    def binds_repeats(self) -> bool:
        """Return True if `split.repeats: together` binds equal rows; not where they must repeat by chance."""
        return True

    def lacking_classes(self, ids: np.ndarray) -> list[str]:
        """Return the classes without a sample among some rows; empty where values are predicted."""
        return [] if self.classes is None or self.labels is None else data_findings.lacking(self.classes, self.labels[ids])

    def excuse(self, ids: SplitIds, limits: DataLimits) -> str | None:
        """Return the reason that equal rows may be no leakage, or None."""
        return None


class Classification(BuiltinTask):
    """The base class of the built-in classification tasks."""

    targets = "classes"
    classes: list[str]
    labels: np.ndarray
    _weights: Tensor | None = None

    def all_targets(self) -> np.ndarray:
        """Return the class number of all rows."""
        return self.labels

    def balance(self, train: np.ndarray) -> None:
        """Weigh samples by n / (classes * samples of their class), over the training rows: 1 on average, each class alike."""
        counts = np.bincount(self.labels[train], minlength=len(self.classes))
        # At least 1 in the divisor: a class without a training sample has no weight from the counts, and gets 1 below.
        alike = len(train) / ((counts > 0).sum() * np.maximum(counts, 1))
        self._weights = torch.tensor(np.where(counts > 0, alike, 1.0), dtype=torch.float32)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy over the samples, weighted where classes are balanced."""
        if self._weights is None:
            return functional.cross_entropy(outputs, targets)
        self._weights = self._weights.to(outputs.device)
        # not torch's weighted mean, which divides by the batch's weights: batches of rare classes would count less
        return functional.cross_entropy(outputs, targets, self._weights, reduction="none").mean()

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return the metrics of `metrics.CLASSIFICATION`."""
        return metrics.classification(outputs, targets, self.positive)

    def metric(self, name: str, outputs: Tensor, targets: Tensor) -> float:
        """Return one metric, or the loss, and measure no other; NaN where it does not exist for these targets."""
        if name == "loss":
            return super().metric(name, outputs, targets)
        return metrics.classification(outputs, targets, self.positive, [name]).get(name, math.nan)

    @functools.cached_property
    def positive(self) -> int:
        """The positive class where there are two: the rarer one; the second where both are as frequent."""
        counts = np.bincount(self.labels, minlength=2)
        return int(counts[0] >= counts[1])

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return the confusion matrix."""
        return metrics.classification_evaluation(outputs, targets, self.classes, self.positive)

    def errors(self, outputs: Tensor, targets: Tensor, ids: np.ndarray) -> Errors | None:
        """Return the calibration of the probabilities, and the segments of rows with more errors."""
        wrong = (outputs.argmax(1) != targets).double().numpy()
        features = [SegmentFeature("class, the target itself", targets.numpy(), self.classes), *self.features(ids)]
        is_known = len(targets) and not bool(outputs.isnan().any())
        sure = calibration(metrics.ClassifierOutputs(outputs, targets, self.positive)) if is_known else None
        return None if sure is None else Errors(calibration=sure, segments=segments(wrong, features, "error rate"))

    def _class_findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        found = data_findings.one_class_findings(self.classes, self.labels[ids.train])
        found += data_findings.class_findings(self.classes, self.labels[ids.train], self.labels[ids.validation], limits)
        rare = data_findings.rare_classes(self.classes, np.bincount(self.labels, minlength=len(self.classes)))
        return [*found, *(Finding("warning", text) for text in rare)]


# The class of each kind: imported on first use, as each needs other libraries.
KINDS = {
    "image_classification": "mltrainer.tasks.images.task:ImageClassification",
    "tabular_classification": "mltrainer.tasks.tables.task:TabularClassification",
    "tabular_regression": "mltrainer.tasks.tables.task:TabularRegression",
    "tabular_multitask": "mltrainer.tasks.tables.multitask:TabularMultitask",
    "text_classification": "mltrainer.tasks.text.task:TextClassification",
    "text_generation": "mltrainer.tasks.text.generation:TextGeneration",
}


def builtin_task(config: TrainingConfig, source: Source) -> BuiltinTask:
    """Return the task of `task.kind` over the content of `data.source`.

    Raises:
        InputError: The data does not suit the task.
    """
    module, _, name = KINDS[str(config.task.kind)].partition(":")
    make: Callable[[TrainingConfig, Source], BuiltinTask] = getattr(importlib.import_module(module), name)
    task = make(config, source)
    if isinstance(task, Classification):
        # Once more, now that the classes are counted: metrics that sort the samples for each class are not measured of many.
        data_findings.refuse_unknown_metric(config.metric.name, ["loss", *metrics.classification_names(len(task.classes))])
    data_findings.refuse_wrong_direction(config.metric)
    data_findings.refuse_criteria_out_of_range(config.acceptance)
    return task


@dataclass(frozen=True)
class ReferenceInputs:
    """Some rows in the form for scikit-learn.

    Attributes:
        form: The kind of a row: the cells of a table's columns, the pixels of an image, or a text.
        inputs: The rows' inputs, float32 [rows, columns or pixels], NaN for a missing cell; a list for texts.
        targets: Class numbers, or values to predict.
        categories: The places of the columns whose numbers are codes of categories.
    """

    form: Literal["table", "pixels", "texts"]
    inputs: np.ndarray | list[str]
    targets: np.ndarray
    categories: tuple[int, ...] = ()
