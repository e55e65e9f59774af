"""From a config to an opened task: samples split and fingerprinted, preprocessing fitted, the test split sealed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from mltrainer.checkpointing.starting import begin, weight_rows
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import ModelConfig, TrainingConfig
from mltrainer.errors import GateError, InputError, did_you_mean
from mltrainer.records.common import FileRow, dumped
from mltrainer.records.planning import Begun
from mltrainer.reproducibility import seeds, tensorflow
from mltrainer.tasks import data_findings, sanity_check
from mltrainer.tasks.array_operations import common, distinct, sketch
from mltrainer.tasks.batch_transform import batch_transform
from mltrainer.tasks.builtin import BuiltinTask, builtin_task
from mltrainer.tasks.data_adapters import DataAdapter, builtin_adapter, user_task_adapter
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.forgetting import Forgotten
from mltrainer.tasks.samples import Samples, pick
from mltrainer.tasks.sources import read_source
from mltrainer.tasks.splits import SPLITS, BySplit, ids_digest
from mltrainer.tasks.stored.records import Part
from mltrainer.tasks.strategies import strategies_of
from mltrainer.tasks.strategy import Alter, Ranked, Training
from mltrainer.tasks.targets import declared, derived
from mltrainer.tasks.task import Task
from mltrainer.tasks.user_code import import_class, make_task, user_code
from mltrainer.workspace import digest

__all__ = ["OpenTask", "Samples", "check_model", "make_model", "open_task"]


def open_task(config: TrainingConfig, root: Path, given: Task | None = None) -> OpenTask:
    """Open the task and data of a config.

    Args:
        config: The training config.
        root: The project's folder.
        given: A task that is made already, in place of the one that `task.use` names.

    Raises:
        InputError: The data, the split or the user's code has a mistake; with file and line.
        MachineError: A data file may not be read, or the disk failed.
    """
    root = root.resolve()
    if config.task.is_opaque:
        what = "the task is a program that trains by itself: only it can open its model and data"
        raise InputError(what, where="task.script", hint="write it as a task of your own (task.use)")
    data: DataAdapter = _user_data(config, config.task.use, root, given) if config.task.use else _builtin_data(config, root)
    if config.task.samples_per_epoch is not None and not data.take("train").is_stream:
        what = "the training samples have a length already"
        raise InputError(what, where="task.samples_per_epoch", hint="leave the key out: it is for an iterable without __len__")
    data_findings.refuse_too_few(config, len(data.ids.train), len(data.classes or []))
    return OpenTask(data, config, root)


def _builtin_data(config: TrainingConfig, root: Path) -> DataAdapter:
    assert config.data is not None
    source = read_source(config.data, root)
    return builtin_adapter(builtin_task(config, source), source, config, root)


def _user_data(config: TrainingConfig, use: str, root: Path, given: Task | None) -> DataAdapter:
    """Return the data of the user's task; TensorFlow, where its module brought that, is seeded before the task is made."""
    if given is None:
        import_class(use, root)
        if tensorflow.switch_on(config.threads):
            tensorflow.seed(seeds.key(config.data_seed, "task"))
        given = make_task(use, config.task.options, root)
    return user_task_adapter(given, config, root)


def make_model(opened: OpenTask) -> nn.Module:
    """Return a new model, with the start weights of the config; torch's generators are seeded before the call.

    Raises:
        InputError: The weights cannot be read, or do not fit.
    """
    model = opened.task.model()
    # An object that is no module is refused by `check_model`, with a fitting message.
    if opened.config.start is not None and isinstance(model, nn.Module):
        is_builtin = opened.config.task.use is None
        opened.start = begin(model, opened.config.start, opened.root, is_builtin=is_builtin)
    if isinstance(model, nn.Module):
        opened.strategies.adapt(opened.training(model), opened.start.new if opened.start is not None else ())
    return model


def check_model(opened: OpenTask, model: nn.Module) -> None:
    """Run one small batch through a model and its loss, in evaluation mode, and note the targets' kind in `opened`.

    Args:
        opened: The task.
        model: The task's model, on the CPU.

    Raises:
        InputError: The model does not fit the data, or the loss is no scalar; with the user's line or the layer.
    """
    outputs, targets = sanity_check.check(opened.task, model, opened.split("train"), opened.config, opened.root)
    opened.target_kind = opened.target_kind or derived(outputs, targets)


class OpenTask:
    """A task with its samples.

    Attributes:
        task: The task.
        root: The project's folder.
        config: The config that was opened.
        data_sha256: Digest of all samples with labels and order, of their splits or folds, whichever fold validates,
            and of weights that the model begins with, or that a teacher has.
        strategies: The strategies of the training.
        start: The result of loading the start weights, once a model was made; None before, and without such weights.
        target_kind: The kind of the targets, as the task declares or `check_model` derived it; None where neither is known.
    """

    def __init__(self, data: DataAdapter, config: TrainingConfig, root: Path) -> None:
        self.task, self.root, self.config = data.task, root, config
        self._data = data
        self._ids_sha256 = {name: ids_digest(data.ids[name]) for name in SPLITS}
        self._weights = weight_rows(config.start.weights, root) if config.start is not None else []
        start = {"start": [row.sha256 for row in self._weights]} if self._weights else {}
        self.strategies = strategies_of(config, root)
        # All folds have one digest, whichever of them validates: they are one state of the data.
        divided = {"folds": ids_digest(data.folds)} if data.folds is not None else self._ids_sha256
        self._identity = {"content": data.sha256, "splits": divided, **start}
        self.data_sha256 = self._digest(self.strategies.files)
        self.start: Begun | None = None
        self.target_kind = declared(self.task)
        # Without the test split, which is not even gathered before it is opened.
        self._samples = BySplit({name: self._take(name) for name in ("train", "validation")})
        self._rank()

    def _digest(self, files: Sequence[FileRow]) -> str:
        followed = {"strategies": [row.sha256 for row in files]} if files else {}
        return digest({**self._identity, **followed})

    @property
    def untaught_sha256(self) -> str:
        """The digest of the same data in a training without a teacher."""
        return self._digest(strategies_of(self.config.untaught, self.root).files)

    def _take(self, split: str) -> Samples:
        return replace(self._data.take(split), root=self.root)

    def _rank(self) -> None:
        """Let a strategy order the training samples.

        Raises:
            InputError: The samples come in a fixed order, or lack something that a strategy needs.
        """
        train = self._samples.train
        by_epoch = self.strategies.rank(Ranked(train.ids, self.place, partial(difficulty, self._data, self.root)))
        if by_epoch is None:
            return
        if train.filled is not None:
            what = "a strategy orders the training samples by what is in them, the forgotten ones among them"
            raise InputError(what, where="forget", hint="leave the strategy out, or the rows out of the data")
        if train.is_stream or isinstance(train.dataset, Part):
            what = "the training samples stay in their files or come as a stream, in an order of their own"
            raise InputError(what, where="strategies", hint="hold them in memory or in a data set that gives each of them")
        self._samples["train"] = replace(train, by_epoch=by_epoch)

    def split(self, name: str) -> Samples:
        """Return the samples of "train" or "validation"; of "test" after `open_test`.

        Raises:
            GateError: The test split is sealed.
            InputError: There is no such split.
        """
        if name not in SPLITS:
            raise InputError.unknown("split", name, SPLITS)
        if name not in self._samples:
            raise GateError("the test split is sealed until finalization", hint="mltrainer phase run finalization opens it, once")
        return self._samples[name]

    def open_test(self) -> Samples:
        """Open the test split; the caller counts the opening.

        Raises:
            InputError: The task has no test split.
        """
        if not len(self._data.ids.test):
            raise InputError("there is no test split", where="split.test", hint="split: {test: 0.1}")
        if "test" not in self._samples:
            self._samples["test"] = self._take("test")
        return self._samples.test

    @property
    def files(self) -> list[FileRow]:
        """The rows of the files that the data is read from, or that a task or `forget` names, and of weights.

        These are the first ones, and a teacher's.
        """
        left_out = [self._data.forgotten.file] if self._data.forgotten is not None else []
        return [*self._data.files, *left_out, *self._weights, *self.strategies.files]

    @property
    def forgotten(self) -> Forgotten | None:
        """The rows that are forgotten; None without any."""
        return self._data.forgotten

    def fitted(self) -> str | None:
        """Return a digest of what was fitted on the training samples before the first step; None where that is not known."""
        return self._data.fitted()

    def training(self, model: nn.Module) -> Training:
        """Return the training of a model, as its strategies see it."""
        return Training(self.task, model, self.config, self.root, self._teacher, self._first)

    def _first(self, count: int) -> Any:
        train = self.split("train")
        return sanity_check.first_batch(self.task, train, min(count, len(train)), self.config, self.root)

    @property
    def alterations(self) -> list[Alter]:
        """The alterations of a training batch before its step, in order: the config's transform, then the strategies'."""
        transform = batch_transform(self.task, self.config)
        return [*([] if transform is None else [transform]), *self.strategies.alterations]

    def _teacher(self, model: ModelConfig | None) -> nn.Module:
        if not isinstance(self.task, BuiltinTask):
            return self.task.teacher()
        return (self.task if model is None else self.task.with_model(model, self._data.ids.train)).model()

    def test_rows(self, salt: str) -> dict[str, Any]:
        """Return the identity of the test split before it is opened: `samples`, `salt` and `digests` of its rows.

        Args:
            salt: The project's salt; see `sketch.sketch`.
        """
        return {"samples": len(self._data.ids.test), "salt": salt, "digests": sketch(self._data.test_hashes(), salt)}

    def place(self, row: int) -> str:
        """Return a sample's source, by its id: `file:line`, a picture's file, or its place in the task's data."""
        return self._data.place(row)

    def cells(self, row: int) -> dict[str, str]:
        """Return a sample's cells in its source, by column; empty where its inputs show them."""
        return self._data.cells(row)

    def keep_training(self, places: np.ndarray) -> None:
        """Keep some of the training samples, by their places, with repeats; for exploring alone.

        Raises:
            InputError: The samples come as a stream, which has no places.
        """
        if self._samples.train.is_stream:
            what = "the training samples come as a stream, from which no part can be chosen"
            raise InputError(what, where="task.use", hint="return a data set with __len__ and __getitem__ for training")
        self._samples["train"] = pick(self._samples.train, places)

    def close(self) -> None:
        """End the worker processes that were kept for the next evaluation."""
        for samples in self._samples.values():
            samples.loaders.clear()

    def facts(self, limits: DataLimits) -> dict[str, Any]:
        """Return the record of the data; of the test split, it has the size and digests of the rows only.

        Args:
            limits: The limits of the findings.
        """
        hashes, ids = self._compared(), self._data.ids
        repeats = BySplit({n: common(hashes[n], hashes.train) for n in SPLITS[1:]}) if hashes else None
        found = [*self._data.findings(limits, self.target_kind), *self._repeat_findings(repeats, hashes, limits)]
        found += [Finding("info", left_out.described(self.place))] if (left_out := self.forgotten) is not None else []
        samples = sum(len(part) for part in ids.values())
        return {
            "sha256": self.data_sha256,
            "samples": samples,
            "source": self.config.data.source if self.config.data else self.config.task.use,
            "kind": self.config.task.kind or "own",
            "files": dumped(self.files),
            "fingerprinted": min(self._data.read, samples),  # the forgotten ones are read, too
            "splits": {name: {"samples": len(ids[name]), "sha256": self._ids_sha256[name]} for name in SPLITS},
            **self._classes(),
            **self._data.describe(),
            "findings": [one._asdict() for one in found],
            "not_looked_at": [*self._not_compared(hashes), *self._data.not_looked_at(self.target_kind)],
            "duplicates_across_splits": None if repeats is None else sum(repeats.values()),
        }

    def _compared(self) -> BySplit[np.ndarray]:
        """Return a hash of the samples of each split that are compared; nothing where there are none to compare."""
        if self._data.not_compared is not None:
            return BySplit()
        found = {name: self._data.hashes(name) for name in SPLITS}
        read = {name: hashes for name, hashes in found.items() if hashes is not None}
        is_some = len(read) == len(SPLITS) and all(len(hashes) or not len(self._data.ids[name]) for name, hashes in read.items())
        return BySplit(read) if is_some else BySplit()

    def _not_compared(self, hashes: BySplit[np.ndarray]) -> list[str]:
        """Return a line on the samples that are not searched for in other splits, where there are some."""
        if not hashes:
            why = self._data.not_compared or "each reading of a sample draws random numbers, or one is too large"
            return [f"duplicates across splits: {why}"]
        sizes = {name: len(part) for name, part in self._data.ids.items()}
        partial = [f"{len(hashes[name])} of {size} {name} samples" for name, size in sizes.items() if len(hashes[name]) < size]
        return [f"duplicates across splits: compared {', '.join(partial)}; all are too much to read"] if partial else []

    def repeated_shares(self) -> dict[str, float]:
        """Return the shares of repeats: validation samples among the training samples, and these among themselves.

        Returns:
            `shared` and `repeated`, shares from 0 to 1; 0 where samples are drawn again at each reading.
        """
        training, held_out = (self._data.hashes(name) for name in ("train", "validation"))
        if training is None or held_out is None or not len(training):
            return {"shared": 0.0, "repeated": 0.0}
        shared = common(held_out, training) / max(1, len(held_out))
        return {"shared": shared, "repeated": 1 - len(distinct(training)) / len(training)}

    def _classes(self) -> dict[str, Any]:
        names, labels = self._data.classes, self._data.labels
        if names is None or labels is None:
            return {"classes": None, "class_counts": None}
        counts = {
            name: np.bincount(labels[self._data.ids[name]], minlength=len(names)).tolist() for name in ("train", "validation")
        }
        return {"classes": names, "class_counts": {name: dict(zip(names, row, strict=True)) for name, row in counts.items()}}

    def lacking_classes(self, split: str) -> list[str]:
        """Return the classes of which a split has no sample; none where classes are not known."""
        return self.task.lacking_classes(self._data.ids[split]) if isinstance(self.task, BuiltinTask) else []

    def _repeat_findings(self, repeats: BySplit[int] | None, hashes: BySplit[np.ndarray], limits: DataLimits) -> list[Finding]:
        """Return the findings on repeated samples; none where they are not compared."""
        if repeats is None:
            return []
        total = len(hashes.validation)
        # Asked only where it decides: an excuse may have to read other columns or samples.
        excuse = self._data.excuse(limits) if repeats.validation >= limits.leak_rows * total else None
        hint = self._data.repeats_hint
        return data_findings.duplicate_findings(repeats.validation, total, repeats.test, excuse, limits, hint)


def difficulty(data: DataAdapter, root: Path, name: str | None, where: str) -> np.ndarray:
    """Return a number for each sample by its id, NaN where there is none, float64.

    Args:
        data: All samples.
        root: The project's folder.
        name: The name of a feature or a column; None: the task's `difficulty`.
        where: The config's key that holds the name.

    Raises:
        InputError: There is no such feature or column.
    """
    if name is None:
        return _difficulties(data.task, root, where)
    features = data.task.features(np.arange(data.task.size)) if isinstance(data.task, BuiltinTask) else []
    found = {feature.name: feature.values.astype(np.float64) for feature in features if not feature.texts}
    return found[name] if name in found else _of_column(data, name, [*found], where)


def _of_column(data: DataAdapter, name: str, others: list[str], where: str) -> np.ndarray:
    """Return the numbers in a column of the source, also one that the model does not read; `others` were possible, too."""
    ids = np.asarray(data.ids.train)
    cells = data.cells(int(ids[0]))
    if name not in cells:
        there = [*dict.fromkeys([*others, *cells])]
        what = f"samples have no {name!r}; there are: {', '.join(there) or 'none'}{did_you_mean(name, there)}"
        raise InputError(what, where=where, hint="name one of them")
    values = np.full(int(ids.max()) + 1, np.nan)
    for row in ids.tolist():
        with contextlib.suppress(ValueError):  # no number: reported with the row
            values[row] = float(data.cells(row)[name])
    return values


def _difficulties(task: Task, root: Path, where: str) -> np.ndarray:
    """Return the samples' difficulties from a custom task."""
    if isinstance(task, BuiltinTask):
        hint = "by: a column of numbers, or margins: those of an earlier run"
        raise InputError("nothing says how difficult a sample is", where=where, hint=hint)
    with user_code(root, "difficulty of your task"):
        given = task.difficulty()
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        found = np.empty((0, 0))  # of no accepted form
    if found.ndim != 1:
        what = f"difficulty() gave {type(given).__name__}; a number for each training sample was expected"
        raise InputError(what, where=where, hint="return a list or an array of numbers")
    return found
