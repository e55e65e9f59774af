"""Classification and regression of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.inference_script import BUCKETS, DATES
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Data, ModelConfig, Split, TableModel, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.run import Errors
from mltrainer.tasks import data_findings, metrics
from mltrainer.tasks.array_files import class_numbers
from mltrainer.tasks.array_operations import common, distinct, evenly_spaced, row_hashes
from mltrainer.tasks.builtin import BuiltinTask, Classification, Movable, ReferenceInputs
from mltrainer.tasks.calibration import residuals
from mltrainer.tasks.content import Arrays, Source, Table, cells_of, require_columns
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.metric_names import CLASSIFICATION_METRICS, REGRESSION_METRICS
from mltrainer.tasks.models import build
from mltrainer.tasks.segments import SegmentFeature, segments
from mltrainer.tasks.sources import table_of
from mltrainer.tasks.splits import SplitConstraints, SplitIds, fold_places, of_fold
from mltrainer.tasks.tables import config_inference, schema, split_columns
from mltrainer.tasks.tables.ambiguities import OTHER_READING, ambiguities
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.embeddings import EFFECT_ROWS, FOLDS, Evidence, fit_codes, fit_edges, standardized
from mltrainer.tasks.tables.encoder import Destandardize, TabularEncoder, fit_statistics
from mltrainer.tasks.tables.hints import SQUARED, heavy_tail, names_hint, table_hints
from mltrainer.tasks.tables.leakage import Answers, Target, leakage_findings
from mltrainer.tasks.tables.models import build_for_table, each_member
from mltrainer.tasks.tables.sentinels import sentinels, together
from mltrainer.tasks.tables.two_splits import split_findings

LEFT_OUT_ROWS = 20_000  # rows that are read of columns that are no features, such as an id for each row
COPIED = 0.2  # chosen by us: the share of the rows that are copies beyond chance
FEW_VALUES = 5  # below half of `chance_values` of planning's page: rows that are not bound are then no leakage either


class Tabular(BuiltinTask):
    """The base class of the tasks about tables."""

    outputs: int

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        assert config.data is not None
        self._config, self._data, self._notes = config, config.data, source.notes
        self._raw_scale = isinstance(source.content, Arrays)
        table, targets = self._read(source, config.data)
        given, split = config.data, config.split
        binds = [name for name in (split.group, split.column) if name is not None and name in table.columns]
        # A column of groups or splits is no feature: held-out rows have values of it that training rows lack.
        not_features = [*given.ignore, *(name for name in binds if name not in given.ignore)]
        require_columns(table, given.leak_accepted, "data.leak_accepted")
        require_columns(table, given.sentinel_accepted, "data.sentinel_accepted")
        found = schema.schema_of(table, targets[0], not_features, given.columns, given.wrong_cells, beside=targets[1:])
        self._schema = split_columns.without_running_days(found, split.time)
        self.size = len(self._schema)
        self.given = None if source.given is None else source.given[self._schema.used_rows]
        self._vocabulary: dict[str, list[str]] = {}
        self._keys: np.ndarray | None = None

    def _read(self, source: Source, data: Data) -> tuple[Table, list[str]]:
        """Return the table, and the names of the columns to predict."""
        table, target = table_of(source.content, data.target)
        return table, [target]

    def fit(self, train: np.ndarray) -> None:
        """Fit vocabularies, medians, means and deviations, and the bins and codes of numbers where the model has them."""
        self._train = train
        self._vocabulary = schema.vocabularies(self._schema, train)
        columns = self._schema.features
        # The whole table had a value, but a split by group or time may leave the training rows none.
        _refuse_empty_in_training(columns, train)
        places = schema.places(self._schema)
        sizes = {name: len(texts) for name, texts in self._vocabulary.items()}
        categories = {places[c.name]: sizes.get(c.name, BUCKETS) for c in columns if c.is_category}
        matrix = schema.encode(self._schema, self._vocabulary, train)
        self._statistics = fit_statistics(matrix, categories)
        numbers = matrix[:, self._statistics.numbers]
        self._is_constant = ~(np.nan_to_num(numbers, nan=-np.inf).max(0) > np.nan_to_num(numbers, nan=np.inf).min(0))
        model = self._config.model
        self._edges = fit_edges(matrix, self._statistics, model.bins) if isinstance(model, TableModel) else []
        evidence = self._evidence(train) if isinstance(model, TableModel) and model.codes else None
        self._codes = fit_codes(matrix, self._statistics, evidence) if evidence else []

    def _evidence(self, train: np.ndarray) -> Evidence | None:
        """Return training rows divided in the same way as the splits: by time the later are held out, by group whole groups.

        None where there are too few moments or groups.
        """
        places = evenly_spaced(np.arange(len(train)), EFFECT_ROWS)
        rows = train[places]
        targets = [standardized(wanted.values[rows], wanted.classes) for wanted in self._wanted()]
        split = self._config.split.model_copy(update={"test": 0.0, "folds": FOLDS, "stratify": False})
        within = self.split_constraints(self._config.split).of(rows)
        try:
            fold_of_row = fold_places(len(rows), None, split, self._config.data_seed, within)
        except InputError:
            return None
        folds = [of_fold(fold_of_row, split.model_copy(update={"fold": fold})) for fold in range(FOLDS)]
        return Evidence(places, np.column_stack(targets), [(ids.train, ids.validation) for ids in folds])

    def with_model(self, model: ModelConfig, train: np.ndarray) -> Self:
        """Return the task with another model, and with the bins and codes of numbers where that has them."""
        other = super().with_model(model, train)
        other.fit(train)
        return other

    def place(self, row: int) -> str:
        """Return the file and line of a row."""
        return self._schema.where(row)

    def cells(self, row: int) -> dict[str, str]:
        """Return a row's cells as in the file, with the target; a missing one is empty."""
        return cells_of(self._schema.table, int(self._schema.used_rows[row]))

    def keys(self) -> np.ndarray:
        """Return a hash of each row's features, before anything is fitted."""
        if self._keys is None:
            self._keys = row_hashes([column.values for column in self._schema.features])
        return self._keys

    def split_constraints(self, split: Split) -> SplitConstraints:
        """Return the constraints by the split's columns.

        Raises:
            InputError: There is no such column, or its cells are not valid.
        """
        if split.repeats == "together" and not self.binds_repeats():
            split = split.model_copy(update={"repeats": "anywhere"})
        rows = split_columns.Rows(self._schema.table, self._schema.used_rows)
        return split_columns.of_columns(rows, split, self.keys, self._data)

    def _wrong_cells(self) -> list[str]:
        """Return sentences on the cells that are not of their column's kind: taken for missing, or left out with their rows."""
        done = "their rows are left out" if self._data.wrong_cells == "drop" else "taken for missing"
        return [f"{what}: {done}" for what in self._schema.wrong]

    def binds_repeats(self) -> bool:
        """Return True if equal rows are more than chance.

        They are chance where the columns can take few values together, and at least half as many rows are distinct as expected
        with independent columns, each of as many values as its entropy corresponds to; nor are the distinct rows
        fewer than expected by a fifth of all.
        """
        rows = np.arange(self.size)
        if not self._few_values(rows, FEW_VALUES):
            return True
        values = np.exp(sum(_entropy(column) for column in self._schema.features))
        # expm1, as 1 - exp(-x) would lose all digits where there are far more values than rows.
        expected = -values * np.expm1(-self.size / values)
        return bool(len(distinct(self.keys())) < max(expected / 2, expected - COPIED * self.size))

    def features(self, ids: np.ndarray) -> list[SegmentFeature]:
        """Return the columns that are features, free text aside."""
        columns = [column for column in self._schema.features if column.kind != "text"]
        return [SegmentFeature(column.name, column.values[ids], column.texts, column.kind in DATES) for column in columns]

    def categories(self) -> list[int | None]:
        """Return the number of categories of each column of the matrix; None for numbers."""
        counts = {place: count for place, count, _ in self._statistics.categories}
        return [counts.get(place) for place in range(sum(column.width for column in self._schema.features))]

    def movable(self) -> Movable:
        """Return each number column's deviation over the training rows; no category is moved, and no number with codes."""
        places, fitted = schema.places(self._schema), self._statistics
        width = sum(column.width for column in self._schema.features)
        scales, names = [0.0] * width, {place: name for name, place in places.items()}
        # A fraction between two codes is neither.
        moved = [nr for nr in range(len(fitted.numbers)) if not (self._codes and len(self._codes[nr]))]
        for nr in moved:
            scales[fitted.numbers[nr]] = 0.0 if self._is_constant[nr] else float(fitted.std[nr])  # which is set to 1 there
        kept = {fitted.numbers[nr] for nr in moved}
        return Movable(scales, None, [names.get(place) if place in kept else None for place in range(width)])

    def _inputs(self, ids: np.ndarray) -> Tensor:
        return torch.from_numpy(schema.encode(self._schema, self._vocabulary, ids))

    def _reference_inputs(self, ids: np.ndarray, targets: np.ndarray) -> ReferenceInputs:
        """Return the matrix with NaN for every missing cell, and the places of the category columns."""
        cells = schema.encode(self._schema, self._vocabulary, ids)
        places = tuple(place for place, _, _ in self._statistics.categories)
        for place in places:
            cells[cells[:, place] < 0, place] = np.nan
        return ReferenceInputs("table", cells, targets[ids], places)

    def _build(self, exit_module: nn.Module | None) -> nn.Module:
        assert self._config.model is not None
        if isinstance(self._config.model, TableModel):
            return build_for_table(self._config.model, self._statistics, self._edges, self._codes, self._heads(), exit_module)
        encoder = TabularEncoder(self._statistics)
        return build(self._config.model, encoder, [encoder.features], self.outputs, exit_module)

    def _heads(self) -> list[int | None]:
        """Return the number of classes of each target; None for a quantity."""
        return [wanted.classes or None for wanted in self._wanted()]

    def _wanted(self) -> Sequence[Target]:
        """Return the targets."""
        return [Target(self._schema.target, self.labels, self.classes or [])]

    def _in_time(self, train: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the training rows in the order of time, with their places in it; None where the split is not by time."""
        name = self._config.split.time
        if name is None:
            return None
        when = schema.column_of(self._schema.table, name, self._data.columns.get(name)).values[self._schema.used_rows]
        return train[np.argsort(when[train], kind="stable")], np.arange(len(train))

    def _answers(self) -> Answers:
        """Return the config's answers about columns that may give the target."""
        return Answers(self._data.ignore, self._data.leak_accepted)

    def _of_target(self, name: str, found: list[Finding]) -> list[Finding]:
        """Return the findings on a target, which is named where there are several."""
        return found

    def excuse(self, ids: SplitIds, limits: DataLimits) -> str | None:
        """Return the reason that equal rows may be no leakage: left-out columns distinguish them, or there are few values."""
        if names := self._telling_apart(ids, limits):
            return f"columns that were left out distinguish them: {', '.join(map(repr, names))}"
        return (
            "the columns can take so few values together that rows must repeat"
            if self._few_values(ids.train, limits.chance_values)
            else None
        )

    def _telling_apart(self, ids: SplitIds, limits: DataLimits) -> list[str]:
        """Return the columns beside ids that were left out, where with them few enough rows repeat."""
        telling = [column for column in self._left_out() if config_inference.id_reason(column) is None or _is_wordy(column)]
        if not telling:
            return []
        whole = row_hashes([self.hashes(np.arange(self.size)), *(column.values for column in telling)])
        still = common(whole[ids.validation], whole[ids.train])
        return [c.name for c in telling] if still < limits.leak_rows * len(ids.validation) else []

    def _left_out(self, rows: int | None = None) -> list[Column]:
        """Return the columns of `data.ignore`, with the rows that are used, or those among the first `rows`."""
        ignored = self._data.ignore
        table, used = self._schema.table, self._schema.used_rows
        part = replace(table, columns={name: table.columns[name][:rows] for name in ignored}, cache=None)
        return [schema.column_of(part, name).take_rows(used if rows is None else used[used < rows]) for name in ignored]

    def _table_hints(self) -> list[str]:
        """Return the hints of `init` on the columns, except for those that the plan has followed."""
        split, kinds = self._config.split, self._data.columns
        by_group = split.group is not None or split.column is not None
        asked = table_hints(self._schema, split.time is not None, by_group, self._left_out(LEFT_OUT_ROWS))
        unread = [schema.column_of(self._schema.table, name) for name, kind in kinds.items() if kind in OTHER_READING]
        columns = [*self._schema.features, *self._schema.targets]
        plain = [*unread, *(column for column in columns if column.name not in kinds)]
        return [*asked, *(text for column in plain for text in ambiguities(column, kinds.get(column.name)))]

    def _few_values(self, rows: np.ndarray, times: float) -> bool:
        """Return True if the columns can take together fewer than `times` values for each of some rows."""
        values = 1
        for column in self._schema.features:  # no further than needed: a million rows have a million values soon
            values *= max(1, column.distinct(rows) + int(column.missing[rows].any()))
            if values >= times * len(rows):
                return False
        return True

    def inference(self) -> dict[str, Any]:
        """Return the columns in the matrix's order, their categories, and the meaning of the output."""
        columns = [*map(self._column, self._schema.features), *map(_difference, self._schema.differences)]
        if self._data.wrong_cells == "missing":
            columns = [{**column, "wrong": "missing"} for column in columns]
        return {
            "kind": self._config.task.kind,
            "input": {"name": "table", "dtype": "float32", "shape": [schema.width_of(self._schema)]},
            "preparation": self._notes,
            "columns": columns,
            "missing": sorted({"", *self._data.no_value}),
            **self._data.reading,
            "target": self._schema.target.name,
            "output": "logits" if self.classes else "value",
            "classes": self.classes,
        }

    def _column(self, column: Column) -> dict[str, Any]:
        training = training_distribution(column, self._train, self._vocabulary.get(column.name))
        return {
            "name": column.name,
            "kind": column.kind,
            **({"categories": self._vocabulary[column.name]} if column.kind == "category" else {}),
            **({"parts": list(column.parts)} if column.parts else {}),
            **({"unit": column.unit} if column.unit else {}),
            **({"training": training} if training else {}),
        }

    def describe(self, ids: SplitIds) -> dict[str, Any]:
        """Return the description of the columns in the training and validation rows, and the matrix's width."""
        open_rows = np.concatenate([ids.train, ids.validation])
        columns = [
            {"name": c.name, "kind": c.kind, "missing": int(c.missing[open_rows].sum()), "distinct": c.distinct(open_rows)}
            for c in self._schema.features
        ]
        return {"columns": columns, "target": None, "shape": [schema.width_of(self._schema)]}

    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return constant and leaking columns, large inputs, and conversions."""
        train, columns = ids.train, self._schema.features
        found = [Finding("warning", text) for text in data_findings.few_rows(self.size)]
        found += data_findings.constant_findings([column.name for column in columns if column.is_constant(train)])
        for wanted in self._wanted():
            leaks = leakage_findings(columns, wanted, train, limits, self._answers(), self._in_time(train))
            found += self._of_target(wanted.name, leaks)
        is_grouped = self._config.split.group is not None
        is_apart = self._config.split.column is not None or bool(self._data.validation)
        found += split_findings(columns, self._wanted(), ids, limits, is_grouped=is_grouped, is_apart=is_apart)
        suspects = sentinels(self._schema.table, [*columns, *self._schema.targets], self._schema.used_rows, train)
        accepted = self._data.sentinel_accepted
        targets = {target.name for target in self._schema.targets}
        found += [one.finding(targets, accepted) for one in together(suspects, {*targets, *accepted})]
        found += [Finding("warning", text) for text in self._table_hints()]
        if self._raw_scale:
            largest = float(np.nanmax(np.abs(schema.encode(self._schema, self._vocabulary, train))))
            found += data_findings.scale_finding(largest, limits)
        return found + [Finding("info", note) for note in [*self._wrong_cells(), *self._schema.notes, *self._notes]]


def _entropy(column: Column) -> float:
    """Return the entropy of a column's values, in nats; missing is a value."""
    _, counts = np.unique(column.values, return_counts=True)
    shares = counts / len(column.values)
    return float(-(shares * np.log(shares)).sum())


def _is_wordy(column: Column) -> bool:
    """Return True if a column's texts are of several words, such as names: no mere ids."""
    return bool(column.texts) and sum(len(text.split()) for text in column.texts[:1000]) >= 2 * len(column.texts[:1000])


def _difference(difference: schema.Difference) -> dict[str, Any]:
    names = [difference.first.name, difference.second.name]
    return {
        "name": " to ".join(names),
        "kind": "difference",
        "of": names,
        "dates": [difference.first.kind, difference.second.kind],
    }


def _refuse_empty_in_training(columns: list[Column], train: np.ndarray) -> None:
    for column in columns:
        if column.missing[train].all():
            raise InputError(
                f"column {column.name!r} has no value in any of {len(train)} training rows", hint="name it in data.ignore"
            )


def refuse_constant(target: Column, values: np.ndarray, where: str) -> None:
    """Refuse a quantity to predict that does not vary.

    Args:
        target: The quantity's column.
        values: The values of the training rows.
        where: The table's place.

    Raises:
        InputError: All training rows have the same value.
    """
    if values.std() == 0:
        raise InputError(
            f"the target {target.name!r} is {values.mean():g} in all {len(values)} training rows",
            where=where,
            hint="predict another column, or bring data in which it varies",
        )


class TabularClassification(Tabular, Classification):
    """The classification of a table's rows."""

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        super().__init__(config, source)
        if isinstance(source.content, Arrays):
            # Called for its refusals: any numbers of a table's column would be taken for classes.
            class_numbers(source.content.y, source.content.place)
        self.labels, self.classes = schema.labels_of(self._schema)
        data_findings.refuse_unknown_metric(config.metric.name, CLASSIFICATION_METRICS)
        self.outputs = len(self.classes)

    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the matrix float32 [rows, columns] and class numbers."""
        return self._inputs(ids), torch.from_numpy(self.labels[ids])

    def reference_inputs(self, ids: np.ndarray) -> ReferenceInputs:
        """Return the table's cells and class numbers."""
        return self._reference_inputs(ids, self.labels)

    def model(self) -> nn.Module:
        """Return the config's model behind the encoder."""
        return self._build(None)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of all rows, and of all members where the model has some."""
        return super().loss(*each_member(outputs, targets, axes=2))

    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return imbalance and missing classes, and the findings on the columns."""
        return [*self._class_findings(ids, limits), *super().findings(ids, limits)]


class TabularRegression(Tabular):
    """Predicts a quantity from a table's row; outputs are in its units, the loss counts deviations of the training split."""

    targets = "values"
    outputs = 1

    def __init__(self, config: TrainingConfig, source: Source) -> None:
        super().__init__(config, source)
        self._target = schema.quantities_of(self._schema)
        data_findings.refuse_unknown_metric(config.metric.name, REGRESSION_METRICS)

    def fit(self, train: np.ndarray) -> None:
        """Fit the preprocessing, and mean and deviation of the target, in float64.

        Raises:
            InputError: All training rows have the same target.
        """
        super().fit(train)
        values = self._target[train]
        self._mean, self._std = float(values.mean()), float(values.std())
        refuse_constant(self._schema.target, values, self._schema.table.place)

    def findings(self, ids: SplitIds, limits: DataLimits) -> list[Finding]:
        """Return the findings on few rows or names among the targets that decide, and on the columns."""
        name, metric = self._schema.target.name, self._config.metric.name
        heavy = heavy_tail(name, self._target[np.concatenate([ids.train, ids.validation])], metric)
        found = [Finding("warning" if metric in SQUARED else "info", one) for one in heavy]
        found += [Finding("info", one) for one in names_hint(self._schema.target)]
        found += data_findings.undefined_r2(self._target[ids.validation])
        return [*found, *super().findings(ids, limits)]

    def all_targets(self) -> np.ndarray:
        """Return the value to predict of all rows."""
        return self._target

    def rows(self, ids: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the matrix float32 [rows, columns] and targets float32 [rows]."""
        return self._inputs(ids), torch.from_numpy(self._target[ids].astype(np.float32))

    def reference_inputs(self, ids: np.ndarray) -> ReferenceInputs:
        """Return the table's cells and targets."""
        return self._reference_inputs(ids, self._target)

    def model(self) -> nn.Module:
        """Return the config's model between the encoder and the target's units."""
        return self._build(Destandardize(self._mean, self._std))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error in deviations of the training targets, so that no unit needs its own lr."""
        outputs, targets = each_member(outputs, targets, axes=1)
        return ((outputs - targets) / self._std).square().mean()

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return `r2`, `rmse` and `mae`, in the target's units."""
        return metrics.regression(outputs, targets)

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return pairs of target and prediction, and quantiles of the residuals."""
        return metrics.regression_evaluation(outputs, targets)

    def errors(self, outputs: Tensor, targets: Tensor, ids: np.ndarray) -> Errors | None:
        """Return the residuals along the predictions, and the segments in which predictions are farther off."""
        along = residuals(outputs, targets)
        off = (outputs.double() - targets.double()).abs().numpy()
        target = SegmentFeature(f"{self._schema.target.name}, the target itself", targets.double().numpy())
        features = [target, *self.features(ids)]
        return None if along is None else Errors(along=along, segments=segments(off, features, "absolute error"))

    def describe(self, ids: SplitIds) -> dict[str, Any]:
        """Return the columns, and the training targets' range."""
        values = self._target[ids.train]
        stats = {"min": float(values.min()), "max": float(values.max()), "mean": self._mean, "std": self._std}
        return {**super().describe(ids), "target": {"name": self._schema.target.name, **stats}}


TENTHS = np.linspace(0.1, 0.9, 9)
MOST_SHARES = 100  # categories whose shares are recorded


def training_distribution(column: Column, train: np.ndarray, vocabulary: list[str] | None) -> dict[str, Any] | None:
    """Return the shares of a column's training values by bin, and of missing ones; None for texts and hashed categories.

    Args:
        column: The column.
        train: The training rows.
        vocabulary: The categories of the training rows.

    Returns:
        `missing`; for numbers `edges`, their inner tenths, and `bins`, the share of the rows between each two; for categories
        `shares`, in the vocabulary's order.
    """
    gone = column.missing[train]
    missing = float(gone.mean())
    if vocabulary is not None and len(vocabulary) <= MOST_SHARES:
        codes = column.block(train, vocabulary)[:, 0].astype(np.int64)
        counts = np.bincount(codes[codes >= 0], minlength=len(vocabulary))
        return {"missing": missing, "shares": (counts / len(train)).tolist()}
    if column.values.dtype != np.float64:
        return None
    present = column.values[train][~gone]
    edges = np.unique(np.quantile(present, TENTHS)).tolist()
    counts = np.histogram(present, bins=[-np.inf, *edges, np.inf])[0]
    return {"missing": missing, "edges": edges, "bins": (counts / len(train)).tolist()}
