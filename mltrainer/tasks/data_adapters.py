"""The data of each kind of task in one form: samples by split, fingerprint, facts and findings."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Split, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.records.run import TargetKind
from mltrainer.tasks import data_findings, value_checks
from mltrainer.tasks.array_operations import KEPT
from mltrainer.tasks.builtin import BuiltinTask, Classification
from mltrainer.tasks.checks import CHECKS, findings_of, not_looked_at
from mltrainer.tasks.content import Source, file_row
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.forgetting import Forgotten, forgotten
from mltrainer.tasks.ids import consecutive
from mltrainer.tasks.leak_rules import IN_ORDER
from mltrainer.tasks.reading import NO_HASHES, Budget, DataView, Reading, planning_budget, read_split
from mltrainer.tasks.samples import (
    Samples,
    chosen_hashes,
    fingerprint,
    is_iterable,
    labels_of,
    pick,
    samples_of,
    tensor_hashes,
)
from mltrainer.tasks.splits import SPLITS, BySplit, SplitConstraints, SplitIds, fold_places, of_fold, split_ids
from mltrainer.tasks.stored.records import ids_of
from mltrainer.tasks.stored.source import stored_parts
from mltrainer.tasks.targets import class_numbers
from mltrainer.tasks.task import Task
from mltrainer.tasks.user_code import user_code
from mltrainer.workspace import digest, sha256_bytes


class DataAdapter(ABC):
    """All samples of a task, with their splits: the interface that an opened task uses for any kind of data."""

    task: Task
    ids: SplitIds
    folds: np.ndarray | None = None  # the fold in which each sample validates
    sha256: str
    read: int
    files: list[FileRow]
    classes: list[str] | None = None
    labels: np.ndarray | None = None
    forgotten: Forgotten | None = None

    def divide(
        self, n: int, labels: np.ndarray | None, split: Split, seed: int, constraints: SplitConstraints | None = None
    ) -> None:
        """Set `ids`, and with folds `folds`."""
        if not split.folds:
            self.ids = split_ids(n, labels, split, seed, constraints)
            return
        self.folds = fold_places(n, labels, split, seed, constraints)
        self.ids = of_fold(self.folds, split)

    @abstractmethod
    def take(self, split: str) -> Samples:
        """Return the samples of a split."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return `columns`, `target` and `shape`."""

    @abstractmethod
    def findings(self, limits: DataLimits, kind: TargetKind | None) -> list[Finding]:
        """Return the findings on the training and validation samples, by their targets' kind; None where it is not known."""

    @abstractmethod
    def hashes(self, split: str) -> np.ndarray | None:
        """Return a hash of each sample of a split, to be searched for in others; None where each reading draws new samples."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Return a sample's source."""

    def cells(self, row: int) -> dict[str, str]:
        """Return a sample's cells in its source, by column; empty by default."""
        return {}

    @abstractmethod
    def fitted(self) -> str | None:
        """Return a digest of what was fitted on the training samples before the first step; None where that is not known."""

    @abstractmethod
    def test_hashes(self) -> np.ndarray:
        """Return hashes that recognize the test split's samples; of a bounded number of them for a data set that is read."""

    def excuse(self, limits: DataLimits) -> str | None:
        """Return the reason that equal samples may be no leakage, or None."""
        return None

    def not_looked_at(self, kind: TargetKind | None) -> list[str]:
        """Return a line on each gap of the findings, with the reason; none by default."""
        return []

    @property
    def not_compared(self) -> str | None:
        """The reason for not searching one split for samples of another; None where it is done."""
        return None

    @property
    def repeats_hint(self) -> str:
        """The advice on samples that are in two splits."""
        return data_findings.KEEP_TOGETHER


class _BuiltinAdapter(DataAdapter):
    """The data of a built-in task."""

    def __init__(self, task: BuiltinTask, source: Source, config: TrainingConfig, left_out: Forgotten | None) -> None:
        self.task: BuiltinTask = task
        self._split, self._sources = config.split, config.data.held_out if config.data else {}
        self.files, self.read, self.forgotten = source.files, task.size, left_out
        self.sha256 = source.sha256
        self.classes, self.labels = task.classes, task.labels
        constraints = task.split_constraints(config.split)
        if task.given is not None:
            # A separate file decides the split of its rows before any column does.
            constraints = replace(constraints, given=task.given)
        self.divide(task.size, task.labels, config.split, config.data_seed, constraints)
        self._filled = left_out.filled(self.ids) if left_out is not None else None
        if self._filled is not None:
            task.refuse_forgetting()
            self.ids = BySplit({**self.ids, "train": self.ids.train[self._filled >= 0]})
        before = dict(vars(task))
        task.fit(self.ids.train)  # after the split: nothing is learned from held-out rows, nor from forgotten ones
        if config.class_weights == "balanced" and isinstance(task, Classification):
            task.balance(self.ids.train)
        self._fitted = [name for name, value in vars(task).items() if name not in before or before[name] is not value]

    def take(self, split: str) -> Samples:
        filled = self._filled if split == "train" else None
        return Samples(self.ids[split], self.task.rows(self.ids[split]), filled=filled)

    def fitted(self) -> str:
        # Only written, never read: the bytes say whether two states are equal.
        return sha256_bytes(pickle.dumps([(name, getattr(self.task, name)) for name in self._fitted]))

    def place(self, row: int) -> str:
        return self.task.place(row)

    def cells(self, row: int) -> dict[str, str]:
        return self.task.cells(row)

    def describe(self) -> dict[str, Any]:
        return self.task.describe(self._open_ids())

    def findings(self, limits: DataLimits, kind: TargetKind | None) -> list[Finding]:
        findings = [*self.task.findings(self._open_ids(), limits), *self._kept_together(), *self._held_out()]
        if self.classes is None or self.labels is None:
            return findings
        held_out = {f"the {name} split": self.ids[name] for name in SPLITS[1:]}
        return [*findings, *data_findings.label_findings(self.classes, self.labels, self.ids.train, held_out)]

    def _held_out(self) -> list[Finding]:
        """Return a finding with the splits that have separate sources; none where all are drawn from one."""
        named = ", ".join(f"{name} from {source!r}" for name, source in self._sources.items())
        return [Finding("info", f"splits come as they were given: {named}")] if named else []

    def _kept_together(self) -> list[Finding]:
        """Return the findings on equal rows, where the split keeps them together."""
        bound_otherwise = self._split.group or self._split.time or self._split.column or self._sources
        if self._split.repeats == "anywhere" or bound_otherwise or not self.task.binds_repeats():
            return []
        repeats = data_findings.repeats_finding(self.task.keys(), self.task.hashes(np.arange(self.task.size)))
        return [*repeats, *(self._giant_repeat() if repeats else [])]

    def _giant_repeat(self) -> list[Finding]:
        """Return a finding on the row with the most copies, where they fill a split."""
        _, places, counts = np.unique(self.task.keys(), return_inverse=True, return_counts=True)
        row = int((places == counts.argmax()).argmax())
        split = next(name for name, part in self.ids.items() if row in part)
        return data_findings.giant_finding(lambda: self.place(row), int(counts.max()), self.task.size, split, self._split)

    @property
    def not_compared(self) -> str | None:
        return "what repeats in a text is part of what is learned" if self.task.repeats_belong else None

    def hashes(self, split: str) -> np.ndarray:
        return self.task.hashes(self.ids[split])

    def test_hashes(self) -> np.ndarray:
        return self.task.content_hashes(self.ids.test)

    def excuse(self, limits: DataLimits) -> str | None:
        return self.task.excuse(self._open_ids(), limits)

    def _open_ids(self) -> SplitIds:
        return SplitIds(train=self.ids.train, validation=self.ids.validation)


class _UserTaskAdapter(DataAdapter):
    """The data of a user's task; `parts` holds its samples by split."""

    parts: BySplit[Samples]

    def __init__(self, task: Task, config: TrainingConfig, root: Path) -> None:
        self.task, self._config, self._seed, self._root = task, config, config.data_seed, root
        self._readings: dict[str, Reading] = {}
        self.forgotten = forgotten(config.forget, root)
        with user_code(root, "samples of your task"):
            self._load()
            if self.forgotten is not None:
                ids = {name: part.ids for name, part in self.parts.items()}
                self.parts["train"] = self.forgotten.left(self.parts.train, ids)
            named = _bound_file_rows(task.bound_files(), root)  # after the samples: a task may learn its files from them
        self.files = [*self._read_files(), *named]
        if named:
            self.sha256 = digest([self.sha256, [row.sha256 for row in named]])
        # Ids of a user's samples may be computed: only their length and digest are used here.
        self.ids = cast(SplitIds, BySplit({name: part.ids for name, part in self.parts.items()}))
        with user_code(root, "prepare of your task"):  # once the data is split: it may look at the training samples alone
            task.prepare(self.parts.train.given)

    @abstractmethod
    def _load(self) -> None:
        """Set `parts`, `sha256` and `read`."""

    def _read_files(self) -> list[FileRow]:
        """Return the rows of the files whose content is part of the samples' digest already; none by default."""
        return []

    def take(self, split: str) -> Samples:
        return self.parts[split]

    def fitted(self) -> str | None:
        return "" if type(self.task).prepare is Task.prepare else None

    def describe(self) -> dict[str, Any]:
        tensors = self.parts.train.tensors
        return {"columns": None, "target": None, "shape": list(tensors[0].shape[1:]) if tensors else None}

    def findings(self, limits: DataLimits, kind: TargetKind | None) -> list[Finding]:
        view = self._view(limits, kind)
        if self.parts.train.tensors is not None:
            return [*_nonfinite(self.parts), *findings_of(CHECKS, view)]
        not_finite = [*value_checks.nonfinite(view.train, "train"), *value_checks.nonfinite(view.validation, "validation")]
        return [*not_finite, *findings_of(CHECKS, view)]

    def not_looked_at(self, kind: TargetKind | None) -> list[str]:
        return not_looked_at(self._reading_of("train", kind), self._reading_of("validation", kind))

    def _view(self, limits: DataLimits, kind: TargetKind | None) -> DataView:
        train, held_out = self._reading_of("train", kind), self._reading_of("validation", kind)
        labels, others = _all_labels(self.parts.train, train), _all_labels(self.parts.validation, held_out)
        known = None if labels is None or others is None else (labels, others)
        return DataView(train, held_out, limits, labels=known, in_order=self._in_order(train))

    def _in_order(self, train: Reading) -> tuple[Reading, np.ndarray] | None:
        """Return neighbouring training samples with their places in the order of time; None where none were read."""
        samples = self.parts.train
        if not train.is_complete:
            if samples.tensors is None:
                return None
            samples = pick(samples, np.arange(min(len(samples), IN_ORDER)))
            neighbours = read_split(samples, self.task.target_key, self._seed, Budget(IN_ORDER, 0))
            train = replace(neighbours, kind=train.kind)
        return (train, np.asarray(samples.ids[train.places])) if len(train.places) else None

    def _reading_of(self, split: str, kind: TargetKind | None) -> Reading:
        return replace(self._reading(split), kind=kind)

    def _reading(self, split: str) -> Reading:
        """Return the reading of a split, which is read once; of the test split, hashes alone."""
        if split not in self._readings:
            with user_code(self._root, "samples of your task"):
                budget = planning_budget(is_sealed=split == "test")
                self._readings[split] = read_split(self.parts[split], self.task.target_key, self._seed, budget)
        return self._readings[split]

    @property
    def repeats_hint(self) -> str:
        return f"give each sample to one split alone, in {type(self.task).__name__}"

    def hashes(self, split: str) -> np.ndarray | None:
        return self._reading(split).hashes

    def excuse(self, limits: DataLimits) -> str | None:
        training = self.hashes("train")
        if training is None:
            return None
        few = len(np.unique(training)) < limits.chance_distinct * len(training)
        return "the training samples repeat one another, too" if few else None

    def test_hashes(self) -> np.ndarray:
        test = self.parts.test
        if test.tensors is not None:
            return tensor_hashes(test.tensors) if len(test) else NO_HASHES
        with user_code(self._root, "samples of your task"):
            return chosen_hashes(test, KEPT, self._seed)


class _SamplesAdapter(_UserTaskAdapter):
    """The data of a task with `samples`, which are split here."""

    def _load(self) -> None:
        given = self.task.samples()
        if is_iterable(given):
            hint = "write dataset(self, split) in place of samples(self), with an iterable for each split"
            raise InputError("samples() gave an iterable, which mltrainer cannot split", where="task.use", hint=hint)
        whole = samples_of(given, "samples()", self.task)
        self.sha256, self.read = fingerprint(whole, self._seed)
        labels = labels_of(whole)
        # Without a word of the task, whole numbers that are nearly all different are taken for quantities.
        is_open = self.task.targets is None and labels is not None and len(np.unique(labels)) * 2 <= len(labels)
        stratify = is_open or self.task.targets == "classes"
        self.divide(len(whole), labels if stratify else None, self._config.split, self._seed)
        self.parts = BySplit({name: pick(whole, places) for name, places in self.ids.items()})

    def place(self, row: int) -> str:
        return f"sample {row} of samples()"

    @property
    def repeats_hint(self) -> str:
        return "leave the repeated samples out of the data"


class _StoredAdapter(_UserTaskAdapter):
    """The data of a task that has neither: the records of `data.source`, which stay in their files."""

    def _load(self) -> None:
        found = stored_parts(self._config, self._root)
        self._stored, self.sha256, self.read = found, found.sha256, sum(map(len, found.parts.values()))
        collate = self.task.collate if type(self.task).collate is not Task.collate else None
        self.parts = BySplit()
        for name, part in found.parts.items():
            part.make = self.task.sample
            self.parts[name] = Samples(ids_of(part, found.bases[name]), dataset=part, collate=collate)

    def _read_files(self) -> list[FileRow]:
        return self._stored.rows

    def place(self, row: int) -> str:
        return self._stored.place(row)


class _DatasetAdapter(_UserTaskAdapter):
    """The data of a task with `dataset(split)`, which comes with its own splits; ids count through train, validation, test."""

    def __init__(self, task: Task, config: TrainingConfig, root: Path) -> None:
        if config.split.folds:
            what = f"{type(task).__name__}.dataset(self, split) says itself which samples validate"
            raise InputError(what, where="split.folds", hint="leave folds out, or write samples(self) in its place")
        super().__init__(task, config, root)

    def _load(self) -> None:
        self.parts, prints, start = BySplit(), [], 0
        self.read = 0
        for name in SPLITS:
            given = self.task.dataset(name)
            if given is None and name != "test":
                what, hint = f"dataset({name!r}) gave None; only a test split may be missing", f"return the {name} samples there"
                raise InputError(what, where="task.use", hint=hint)
            part = self._part(name, given)
            sha256, count = fingerprint(part, self._seed) if given is not None else ("", 0)
            prints.append(sha256)
            self.read += count
            ids = consecutive(start, start + len(part))
            self.parts[name] = replace(part, ids=ids, loaders={})
            start += len(part)
        self.sha256 = digest(prints)

    def place(self, row: int) -> str:
        name = next(name for name, part in self.parts.items() if len(part) and part.ids[0] <= row <= part.ids[-1])
        return f"sample {row - int(self.parts[name].ids[0])} of dataset({name!r})"

    def _part(self, name: str, given: Any) -> Samples:
        if given is None:
            return Samples(np.zeros(0, dtype=np.int64))
        if any(given is part.given for part in self.parts.values() if part.is_stream):
            raise InputError(f"dataset({name!r}) gave the iterable of another split", where="task.use", hint="make one for each")
        return samples_of(
            given, f"dataset({name!r})", self.task, self._config.task.samples_per_epoch if name == "train" else None
        )


def _bound_file_rows(paths: Sequence[str], root: Path) -> list[FileRow]:
    """Return the rows of files that a task named.

    Raises:
        InputError: A file is missing.
    """
    rows = []
    for path in dict.fromkeys(paths):
        if not (root / path).is_file():
            hint = "name files relative to the project's folder"
            raise InputError(f"bound_files() names {path!r}, which is not there", where="task.use", hint=hint)
        rows.append(file_row(root / path, Path(path).as_posix()))
    return rows


def builtin_adapter(task: BuiltinTask, source: Source, config: TrainingConfig, root: Path) -> DataAdapter:
    """Return the data of a built-in task."""
    return _BuiltinAdapter(task, source, config, forgotten(config.forget, root))


def user_task_adapter(task: Task, config: TrainingConfig, root: Path) -> DataAdapter:
    """Return the data of a user's task, by the method that it has: `dataset`, or `samples`; without one, of `data.source`.

    Raises:
        InputError: The task has neither, or their results are no data.
    """
    kind = type(task)
    if kind.dataset is not Task.dataset:
        return _DatasetAdapter(task, config, root)
    if kind.samples is Task.samples and config.data is not None:
        return _StoredAdapter(task, config, root)
    if kind.samples is Task.samples:
        what = f"{kind.__name__} has neither samples(self) nor dataset(self, split)"
        raise InputError(what, where="task.use", hint="write one of them, or name files of records in data.source")
    return _SamplesAdapter(task, config, root)


def _all_labels(samples: Samples, read: Reading) -> np.ndarray | None:
    """Return the class numbers of a split; None where they are none, or not all known."""
    if samples.tensors is None:
        return read.labels if read.is_complete else None
    labels = class_numbers(samples.tensors[-1], read.kind)
    return None if labels is None else labels.numpy()


def _nonfinite(parts: BySplit[Samples]) -> list[Finding]:
    """Return a warning on samples in memory that hold NaN or infinity, which the task may mean as a mask."""
    found = []
    for name in ("train", "validation"):
        for place, tensor in enumerate(parts[name].tensors or ()):
            if tensor.is_floating_point() and len(tensor):
                bad = ~tensor.isfinite().flatten(1).all(1) if tensor.dim() > 1 else ~tensor.isfinite()
                if bool(bad.any()):
                    first = int(parts[name].ids[int(bad.int().argmax())])
                    what = f"{int(bad.sum())} {name} samples hold NaN or infinity in tensor {place}; the first is sample {first}"
                    found.append(Finding("warning", what))
    return found
