"""Several targets of one table, learned together: one network with a head for each of them (Caruana, 1997, Multitask Learning).

The outputs of all heads are side by side, [rows, units]: the logits of a target's classes, or a quantity in its units.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Data, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks import data_findings, metrics
from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.content import Source, Table
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.metric_names import REGRESSION_METRICS
from mltrainer.tasks.sources import table_with
from mltrainer.tasks.splits import SplitIds
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.config_inference import task_of
from mltrainer.tasks.tables.encoder import DestandardizeEach
from mltrainer.tasks.tables.leakage import Target
from mltrainer.tasks.tables.models import each_member
from mltrainer.tasks.tables.schema import Schema, labels_of
from mltrainer.tasks.tables.task import Tabular, refuse_constant

QUANTITIES = ("number", "formatted", "decimal_comma")  # kinds of data.columns that make a target a quantity
NO_TARGETS = ("text", "hashed")  # kinds of columns that are read as features alone


@dataclass(frozen=True, kw_only=True)
class Head(Target):
    """A target and its part of the outputs.

    Attributes:
        word: The suffix of its metrics' names.
        sentence: A sentence on its kind of prediction.
        first: The place of the first of its outputs.
        share: The weight of its loss in the total, from 0 to 1.
    """

    word: str
    sentence: str
    first: int
    share: float

    @property
    def width(self) -> int:
        """The number of its outputs."""
        return max(1, self.classes)

    @property
    def positive(self) -> int:
        """The positive class where there are two, as in a classification: the rarer one."""
        counts = np.bincount(self.labels if self.labels is not None else [], minlength=2)
        return int(counts[0] >= counts[1])

    @property
    def measured(self) -> list[str]:
        """The names of its metrics, among those of a task with one target."""
        if self.labels is None:
            return [*REGRESSION_METRICS]
        return ["loss", *metrics.classification_names(self.classes)]

    def outputs(self, outputs: Tensor) -> Tensor:
        """Return its part of the outputs [rows, units]: logits [rows, classes], or values [rows]."""
        if self.labels is None:
            return outputs[:, self.first]
        return outputs[:, self.first : self.first + self.width]


class TabularMultitask(Tabular):
    """Predicts several columns of a table's row with one network; the loss is the weighted mean over the targets.

    The loss of a target is the mean cross-entropy, or the mean squared error in deviations of the training split.
    """

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        super().__init__(config, source)
        self._targets = heads_of(self._schema, config)
        # By the first target that has classes: the shares of those of all would leave hardly two rows of one kind.
        self.labels = next((head.labels for head in self._targets if head.labels is not None), None)
        self.terms = [f"loss_{head.word}" for head in self._targets]
        self._matrix = np.stack([head.values.astype(np.float64) for head in self._targets], axis=1)
        self._refuse_metric()

    def _read(self, source: Source, data: Data) -> tuple[Table, list[str]]:
        return table_with(source.content, data.targets), data.targets

    def _refuse_metric(self) -> None:
        """Refuse a metric that no target has, or a direction that would keep the worst checkpoint.

        Raises:
            InputError: The metric or its direction is wrong; the message has the nearest name, or the right direction.
        """
        given = self._config.metric
        known = {"loss": "loss", **{f"{one}_{head.word}": one for head in self._targets for one in head.measured}}
        data_findings.refuse_unknown_metric(given.name, list(known))
        data_findings.refuse_wrong_direction(given, known[given.name])

    # --- data ---

    def fit(self, train: np.ndarray) -> None:
        """Fit the preprocessing, and mean and deviation of each quantity, in float64.

        Raises:
            InputError: A quantity is the same in all training rows.
        """
        super().fit(train)
        self._means, self._stds = np.zeros(len(self._targets)), np.ones(len(self._targets))
        for nr, head in enumerate(self._targets):
            if head.labels is None:
                values = head.values[train]
                self._means[nr], self._stds[nr] = values.mean(), values.std()
                refuse_constant(head.column, values, self._schema.table.place)

    def all_targets(self) -> np.ndarray:
        """Return the class numbers and values of all rows, float64 [rows, targets]."""
        return self._matrix

    def hashes(self, ids: np.ndarray) -> np.ndarray:
        """Return a hash of some rows' features with their targets, uint64."""
        return row_hashes([self.keys()[ids], *self._matrix[ids].T])

    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the matrix float32 [rows, columns] and class numbers and values float32 [rows, targets]."""
        return self._inputs(ids), torch.from_numpy(self._matrix[ids].astype(np.float32))

    def lacking_classes(self, ids: np.ndarray) -> list[str]:
        """Return the classes without a sample among some rows, each with its target."""
        heads = [(head.name, head.names, head.labels[ids]) for head in self._targets if head.labels is not None]
        return [f"{name} of {target}" for target, classes, labels in heads for name in data_findings.lacking(classes, labels)]

    def _wanted(self) -> list[Head]:
        return self._targets

    def _of_target(self, name: str, found: list[Finding]) -> list[Finding]:
        return [one._replace(what=f"target {name!r}: {one.what}") for one in found]

    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return the findings on each target, its kind and its classes, and on the columns."""
        found = [Finding("info", head.sentence) for head in self._targets]
        for head in self._targets:
            found += self._of_target(head.name, _class_findings(head, ids, limits))
        return [*found, *super().findings(ids, limits)]

    # --- model and loss ---

    @property
    def outputs(self) -> int:  # type: ignore[override]  # of the other tasks known from their class
        """The number of outputs of all heads."""
        return sum(head.width for head in self._targets)

    def model(self) -> nn.Module:
        """Return the config's model between the encoder and the targets' units."""
        widths = [head.width for head in self._targets]
        return self._build(DestandardizeEach(np.repeat(self._means, widths), np.repeat(self._stds, widths)))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the weighted mean of the targets' losses."""
        losses = self.losses(outputs, targets).values()
        first, *others = (head.share * loss for head, loss in zip(self._targets, losses, strict=True))
        for other in others:
            first = first + other
        return first

    def losses(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the mean loss of each target."""
        outputs, targets = each_member(outputs, targets, axes=2)
        return {name: self._loss(nr, outputs, targets) for nr, name in enumerate(self.terms)}

    def _loss(self, nr: int, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a target by its number."""
        head = self._targets[nr]
        if head.labels is None:
            return ((head.outputs(outputs) - targets[:, nr]) / float(self._stds[nr])).square().mean()
        return functional.cross_entropy(head.outputs(outputs), targets[:, nr].long())

    # --- metrics ---

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return each target's loss and metrics, by names such as `mae_price` and `accuracy_kind`."""
        return {
            f"{name}_{head.word}": value
            for nr, head in enumerate(self._targets)
            for name, value in self._measured(nr, outputs, targets, head.measured).items()
        }

    def metric(self, name: str, outputs: Tensor, targets: Tensor) -> float:
        """Return one metric, or the loss, and measure no other target; NaN where it does not exist for these rows."""
        for nr, head in enumerate(self._targets):
            for one in head.measured:
                if f"{one}_{head.word}" == name:
                    return self._measured(nr, outputs, targets, [one]).get(one, math.nan)
        return super().metric(name, outputs, targets)

    def _measured(self, nr: int, outputs: Tensor, targets: Tensor, names: list[str]) -> dict[str, float]:
        """Return some metrics of a target by its number, under the names that they have in a task with one target."""
        head = self._targets[nr]
        found = {"loss": float(self._loss(nr, outputs, targets))} if "loss" in names else {}
        own, true, others = head.outputs(outputs), targets[:, nr], [name for name in names if name != "loss"]
        if head.labels is None:
            return {**found, **metrics.regression(own, true)}
        return {**found, **metrics.classification(own, true.long(), head.positive, others)}

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return of each target the confusion matrix, or pairs of target and prediction with quantiles of the residuals."""
        found = [
            {"name": head.name, "word": head.word, **_evaluation(head, head.outputs(outputs), targets[:, nr])}
            for nr, head in enumerate(self._targets)
        ]
        return {"kind": "targets", "targets": found}

    def inference(self) -> dict[str, Any]:
        """Return the columns in the matrix's order, their categories, and each target with the meaning of its outputs."""
        found = super().inference()
        targets = [
            {"name": head.name, "word": head.word, "output": "logits" if head.names else "value", "classes": head.names or None}
            for head in self._targets
        ]
        return {**found, "target": None, "targets": targets, "output": "targets"}


def _evaluation(head: Head, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
    if head.labels is None:
        return metrics.regression_evaluation(outputs, targets)
    return metrics.classification_evaluation(outputs, targets.long(), head.names, head.positive)


def _class_findings(head: Head, ids: SplitIds, limits: DataLimits) -> list[Finding]:
    if head.labels is None:
        return []
    found = data_findings.one_class_findings(head.names, head.labels[ids.train])
    found += data_findings.class_findings(head.names, head.labels[ids.train], head.labels[ids.validation], limits)
    rare = data_findings.rare_classes(head.names, np.bincount(head.labels, minlength=head.classes))
    held_out = {"the validation split": ids.validation}
    unknown = data_findings.label_findings(head.names, head.labels, ids.train, held_out)
    return [*found, *(Finding("warning", text) for text in rare), *unknown]


# --- targets ------------------------------------------------------------------------------------------


def heads_of(schema: Schema, config: TrainingConfig) -> list[Head]:
    """Return a table's targets in the order of `data.targets`, each as classes or a quantity.

    Raises:
        InputError: A target cannot be predicted, or the metrics of two would have the same names.
    """
    weights = [config.task.weights.get(column.name, 1.0) for column in schema.targets]
    found: list[Head] = []
    for nr, column in enumerate(schema.targets):
        sentence, is_quantity = _kind_of_prediction(column, config)
        labels, names = (None, []) if is_quantity else labels_of(schema, column)
        first = found[-1].first + found[-1].width if found else 0
        word = _word(column.name, [head.word for head in found], f"data.targets.{nr}")
        share = weights[nr] / sum(weights)
        found.append(Head(column=column, labels=labels, names=names, word=word, sentence=sentence, first=first, share=share))
    return found


def _kind_of_prediction(column: Column, config: TrainingConfig) -> tuple[str, bool]:
    """Return a sentence on a target's kind of prediction, and whether it is a quantity.

    Raises:
        InputError: The column is of a kind that cannot be predicted.
    """
    said = config.data.columns.get(column.name) if config.data else None
    if column.kind in NO_TARGETS:
        what = f"column {column.name!r} is read as {column.kind}, of which a model can learn and which it cannot predict"
        raise InputError(what, where="data.columns", hint=f"{column.name}: category, or leave it out of data.targets")
    if said in QUANTITIES:
        return f"target {column.name!r} is predicted as a quantity, as data.columns says {said}", True
    task, what = task_of(column)
    is_quantity = task == "tabular_regression"
    hint = "; data.columns may say number: a quantity" if column.kind == "number" and not is_quantity else ""
    return f"target {what}, predicted as {'a quantity' if is_quantity else 'classes'}{hint}", is_quantity


def _word(name: str, taken: list[str], where: str) -> str:
    """Return the suffix of the names of a target's metrics: its name in small Latin letters, digits and underscores.

    No two metrics get the same name: no metric's name followed by an underscore begins another's.

    Raises:
        InputError: The target's name has none of these, or another target has the same suffix.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    word = re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")
    if not word or word in taken:
        fault = f"the names of another target's, such as loss_{word}" if word else "no name in letters from a to z and digits"
        raise InputError(f"the metrics of {name!r} would have {fault}", where=where, hint="rename the column in the file")
    return word
