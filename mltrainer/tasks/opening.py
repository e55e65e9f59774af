"""From a config to an opened task: samples split and fingerprinted, preprocessing fitted, the test split sealed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from mltrainer.checkpointing.starting import begin, weight_rows
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Split, TrainingConfig
from mltrainer.errors import GateError, InputError
from mltrainer.reproducibility import seeds, tensorflow
from mltrainer.tasks import _probe, validation
from mltrainer.tasks._samples import Samples, chosen_hashes, fingerprint, is_iterable, labels_of, pick, sample_hashes, samples_of
from mltrainer.tasks.builtin import BuiltinTask, Classification, builtin_task
from mltrainer.tasks.content import Source
from mltrainer.tasks.sketch import KEPT, sketch
from mltrainer.tasks.sources import read_source
from mltrainer.tasks.splits import SPLITS, Bound, fold_places, ids_digest, of_fold, split_ids
from mltrainer.tasks.task import Task
from mltrainer.tasks.user_code import import_module, make_task, user_code
from mltrainer.tasks.validation import Finding
from mltrainer.workspace import digest, machine_faults, sha256_file

NO_HASHES = np.zeros(0, dtype=np.uint64)
__all__ = ["OpenTask", "Samples", "check_model", "make_model", "open_task"]


class OpenTask:
    """A task with its samples.

    Attributes:
        task: The task.
        root: The project's folder.
        config: What was opened.
        data_sha256: Digest of all samples with labels and order, of which belong to which split or fold, whichever validates,
            and of weights that the model begins with.
        start: What of such weights was loaded, once a model was made.
    """

    def __init__(self, holdings: _Holdings, config: TrainingConfig, root: Path) -> None:
        self.task, self.root, self.config = holdings.task, root, config
        self._holdings = holdings
        self._ids_sha256 = {name: ids_digest(holdings.ids[name]) for name in SPLITS}
        self._weights = weight_rows(config.start, root) if config.start is not None else []
        begun = {"start": [row["sha256"] for row in self._weights]} if self._weights else {}
        divided = {"folds": ids_digest(holdings.folds)} if holdings.folds is not None else self._ids_sha256
        self.data_sha256 = digest({"content": holdings.sha256, "splits": divided, **begun})
        self.start: dict[str, Any] | None = None
        self._taken: dict[str, Samples] = {name: holdings.take(name) for name in ("train", "validation")}

    def split(self, name: str) -> Samples:
        """Return the samples of "train" or "validation"; of "test" after `open_test`.

        Raises:
            GateError: The test split is sealed.
            InputError: There is no such split.
        """
        if name not in SPLITS:
            raise InputError(f"there is no split {name!r}; there are {', '.join(SPLITS)}")
        if name not in self._taken:
            raise GateError("the test split is sealed until finalization", mend="mltrainer phase run finalization opens it, once")
        return self._taken[name]

    def open_test(self) -> Samples:
        """Open the test split; the caller counts the opening.

        Raises:
            InputError: The task has none.
        """
        if not len(self._holdings.ids["test"]):
            raise InputError("there is no test split", where="split.test", mend="split: {test: 0.1}")
        if "test" not in self._taken:
            self._taken["test"] = self._holdings.take("test")
        return self._taken["test"]

    @property
    def files(self) -> list[dict[str, Any]]:
        """The rows of the files that the data is read from, or that a task names, and of weights that the model begins with."""
        return [*self._holdings.files, *self._weights]

    def test_rows(self, salt: str) -> dict[str, Any]:
        """Return by which the test split is known again, before it is opened: `samples`, `salt` and `digests` of its rows.

        Args:
            salt: The project's; see `sketch.sketch`.
        """
        return {"samples": len(self._holdings.ids["test"]), "salt": salt, "digests": sketch(self._holdings.test_hashes(), salt)}

    def place(self, row: int) -> str:
        """Return a sample's source, by its id: `file:line`, a picture's file, or its place in the task's own data."""
        return self._holdings.place(row)

    def cells(self, row: int) -> dict[str, str]:
        """Return a sample's cells in its source, by column; empty where its inputs show them."""
        return self._holdings.cells(row)

    def keep_training(self, places: np.ndarray) -> None:
        """Leave some of the training samples, by their places, one that is named several times as often; for exploring alone.

        Raises:
            InputError: The samples come as a stream, which has no places.
        """
        if self._taken["train"].is_stream:
            raise InputError("the training samples come as a stream, of which no part can be chosen", where="task.use")
        self._taken["train"] = pick(self._taken["train"], places)

    def close(self) -> None:
        """End the worker processes that were kept for the next evaluation."""
        for samples in self._taken.values():
            samples.loaders.clear()

    def facts(self, limits: DataLimits) -> dict[str, Any]:
        """Return the record of the data; of the test split only its size and digests of its rows were looked at.

        Args:
            limits: By what the findings are judged.
        """
        hashes, ids = self._compared(), self._holdings.ids
        repeats = {name: validation.repeated(hashes[name], hashes["train"]) for name in SPLITS[1:]} if hashes else None
        return {
            "sha256": self.data_sha256,
            "samples": sum(len(part) for part in ids.values()),
            "source": self.config.data.source if self.config.data else self.config.task.use,
            "kind": self.config.task.kind or "own",
            "files": self.files,
            **({"start": self.start} if self.start is not None else {}),
            "fingerprinted": self._holdings.read,
            "splits": {name: {"samples": len(ids[name]), "sha256": self._ids_sha256[name]} for name in SPLITS},
            **self._classes(),
            **self._holdings.describe(),
            "findings": [*self._holdings.findings(limits), *self._repeat_findings(repeats, hashes, limits)],
            "duplicates_across_splits": None if repeats is None else sum(repeats.values()),
        }

    def _compared(self) -> dict[str, np.ndarray]:
        """Return a hash of the samples of each split that are compared; nothing where they cannot be."""
        if self._holdings.not_compared is not None:
            return {}
        found: dict[str, np.ndarray] = {}
        for name in SPLITS:
            hashes = self._holdings.compared(name)
            if hashes is None:
                return {}
            found[name] = hashes
        return found

    def repeated_shares(self) -> dict[str, float]:
        """Return the shares of repeats: validation samples among the training samples, and these among themselves.

        Returns:
            `shared` and `repeated`, shares from 0 to 1; 0 where the samples are not in memory.
        """
        training, held_out = (self._holdings.hashes(name) for name in ("train", "validation"))
        shared = validation.repeated(held_out, training) / max(1, len(held_out))
        return {"shared": shared, "repeated": 1 - len(np.unique(training)) / max(1, len(training)) if len(training) else 0.0}

    def _classes(self) -> dict[str, Any]:
        names, labels = self._holdings.classes, self._holdings.labels
        if names is None or labels is None:
            return {"classes": None, "class_counts": None}
        counts = {
            name: np.bincount(labels[self._holdings.ids[name]], minlength=len(names)).tolist() for name in ("train", "validation")
        }
        return {"classes": names, "class_counts": {name: dict(zip(names, row, strict=True)) for name, row in counts.items()}}

    def _repeat_findings(
        self, repeats: Mapping[str, int] | None, hashes: Mapping[str, np.ndarray], limits: DataLimits
    ) -> list[Finding]:
        """Return the findings on repeated samples, and on those that were not looked at."""
        if repeats is None:
            why = self._holdings.not_compared or "each reading of a sample draws anew"
            return [validation.finding("info", f"duplicates across splits were not looked for: {why}")]
        total = len(hashes["validation"])
        excuse = self._holdings.excuse(limits) if repeats["validation"] >= limits.leak_rows * total else None
        found = validation.duplicate_findings(repeats["validation"], total, repeats["test"], excuse, limits)
        sizes = {name: len(part) for name, part in self._holdings.ids.items()}
        partly = [f"{len(hashes[name])} of {size} {name} samples" for name, size in sizes.items() if len(hashes[name]) < size]
        told = f"duplicates across splits were looked for among {', '.join(partly)} only: reading them all takes too long"
        return [*found, *([validation.finding("info", told)] if partly else [])]


def open_task(config: TrainingConfig, root: Path, given: Task | None = None) -> OpenTask:
    """Open what a config describes.

    Args:
        config: The training config.
        root: The project's folder.
        given: A task that is made already, in place of the one that `task.use` names.

    Raises:
        InputError: The data, the split or the user's code has a mistake; with file and line.
        MachineError: A data file may not be read, or the disk failed.
    """
    root = root.resolve()
    seed = config.data_seed
    if config.task.is_opaque:
        told = "the task is a program that trains by itself, whose model and data only it can open"
        raise InputError(told, where="task.script", mend="write it as a task of your own (task.use)")
    if config.task.use is not None:
        task = given or _users_task(config, config.task.use, root)
        holdings: _Holdings = _own_or_whole(task, config, root, seed)
    else:
        assert config.task.kind is not None
        assert config.data is not None
        source = read_source(config.data, root)
        holdings = _Builtin(builtin_task(config, source), source, config, seed)
    if config.task.samples_per_epoch is not None and not holdings.reads_stream:
        what = "the training samples tell their number themselves"
        raise InputError(what, where="task.samples_per_epoch", mend="leave the key out: it is for an iterable without __len__")
    validation.refuse_too_few(config, len(holdings.ids["train"]), len(holdings.classes or []))
    return OpenTask(holdings, config, root)


def _users_task(config: TrainingConfig, use: str, root: Path) -> Task:
    """Return the user's task; where importing its module brought TensorFlow, that is seeded before the task is made."""
    import_module(use, root)
    if tensorflow.switch_on(config.threads):
        tensorflow.seed(seeds.key(config.data_seed, "task"))
    return make_task(use, config.task.options, root)


def make_model(opened: OpenTask) -> nn.Module:
    """Return a new model, with the weights that the config lets it begin with; torch's generators are seeded before the call.

    Raises:
        InputError: The weights cannot be read, or do not fit.
    """
    model = opened.task.model()
    if opened.config.start is not None and isinstance(model, nn.Module):
        is_builtin = opened.config.task.use is None
        opened.start = begin(model, opened.config.start, opened.root, is_builtin=is_builtin)
    return model


def check_model(opened: OpenTask, model: nn.Module) -> None:
    """Run one small batch through a model and its loss, in evaluation mode, and leave no trace.

    Args:
        opened: The task.
        model: Its model, on the CPU.

    Raises:
        InputError: The model does not fit the data, or the loss is no scalar; with the user's line or the layer.
    """
    _probe.check(opened.task, model, opened.split("train"), opened.config, opened.root)


# --- where the samples are held -----------------------------------------------------------------


class _Holdings(ABC):
    """All samples of a task, and which belong to which split."""

    task: Task
    ids: dict[str, np.ndarray]
    folds: np.ndarray | None = None  # in which each sample validates
    sha256: str
    read: int
    files: list[dict[str, Any]]
    classes: list[str] | None = None
    labels: np.ndarray | None = None
    reads_stream = False

    def divide(self, n: int, labels: np.ndarray | None, split: Split, seed: int, bound: Bound | None = None) -> None:
        """Set `ids`, and with folds `folds`."""
        if not split.folds:
            self.ids = split_ids(n, labels, split, seed, bound)
            return
        self.folds = fold_places(n, labels, split, seed, bound)
        self.ids = of_fold(self.folds, split)

    @abstractmethod
    def take(self, split: str) -> Samples:
        """Return the samples of a split."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return `columns`, `target` and `shape`."""

    @abstractmethod
    def findings(self, limits: DataLimits) -> list[Finding]:
        """Return the findings on the training and validation samples."""

    @abstractmethod
    def hashes(self, split: str) -> np.ndarray:
        """Return a hash of each sample of a split; none where the samples are not in memory."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Return a sample's source."""

    def cells(self, row: int) -> dict[str, str]:
        """Return a sample's cells in its source, by column; empty by default."""
        return {}

    def test_hashes(self) -> np.ndarray:
        """Return hashes by which the test split's samples are known again; of a data set that is read, of bounded many."""
        return self.hashes("test")

    def excuse(self, limits: DataLimits) -> str | None:
        """Return the reason that equal samples may be no leakage, or None."""
        return None

    @property
    def not_compared(self) -> str | None:
        """Why samples of one split are not looked for in another; None where they are."""
        return None

    def compared(self, split: str) -> np.ndarray | None:
        """Return a hash of each sample of a split that is looked for in others; None where each reading draws anew."""
        return self.hashes(split)


class _Builtin(_Holdings):
    """The samples of a built-in task."""

    def __init__(self, task: BuiltinTask, source: Source, config: TrainingConfig, seed: int) -> None:
        self.task: BuiltinTask = task
        self._split, self._sources = config.split, config.data.held_out if config.data else {}
        self.files, self.read = source.files, task.size
        self.sha256 = source.sha256
        self.classes, self.labels = task.classes, task.labels
        bound = task.bound(config.split)
        if task.given is not None:
            bound = replace(bound, given=task.given)
        self.divide(task.size, task.labels, config.split, seed, bound)
        task.fit(self.ids["train"])
        if config.class_weights == "balanced" and isinstance(task, Classification):
            task.balance(self.ids["train"])

    def take(self, split: str) -> Samples:
        return Samples(self.ids[split], self.task.rows(self.ids[split]))

    def place(self, row: int) -> str:
        return self.task.place(row)

    def cells(self, row: int) -> dict[str, str]:
        return self.task.cells(row)

    def describe(self) -> dict[str, Any]:
        return self.task.describe(self._open_ids())

    def findings(self, limits: DataLimits) -> list[Finding]:
        own = [*self.task.findings(self._open_ids(), limits), *self._kept_together(), *self._held_out()]
        if self.classes is None or self.labels is None:
            return own
        held_out = {f"the {name} split": self.ids[name] for name in SPLITS[1:]}
        return [*own, *validation.label_findings(self.classes, self.labels, {"train": self.ids["train"], **held_out})]

    def _held_out(self) -> list[Finding]:
        """Return a finding with the splits that have separate sources; none where all are drawn from one."""
        named = ", ".join(f"{name} from {source!r}" for name, source in self._sources.items())
        return [validation.finding("info", f"splits come as they were given: {named}")] if named else []

    def _kept_together(self) -> list[Finding]:
        """Return the findings on equal rows, where the split keeps them together."""
        bound_otherwise = self._split.group or self._split.time or self._split.column or self._sources
        if self._split.repeats == "anywhere" or bound_otherwise or not self.task.binds_repeats():
            return []
        told = validation.repeats_finding(self.task.keys(), self.task.hashes(np.arange(self.task.size)))
        return [*told, *self._giant_repeat()]

    def _giant_repeat(self) -> list[Finding]:
        """Return a finding on the row with the most copies, where they fill a split."""
        _, places, counts = np.unique(self.task.keys(), return_inverse=True, return_counts=True)
        row = int((places == counts.argmax()).argmax())
        split = next(name for name, part in self.ids.items() if row in part)
        return validation.giant_finding(self.place(row), int(counts.max()), self.task.size, split, self._split)

    @property
    def not_compared(self) -> str | None:
        return "what repeats in a text is part of what is learned" if self.task.repeats_belong else None

    def hashes(self, split: str) -> np.ndarray:
        return self.task.hashes(self.ids[split])

    def test_hashes(self) -> np.ndarray:
        return self.task.content_hashes(self.ids["test"])

    def excuse(self, limits: DataLimits) -> str | None:
        return self.task.excuse(self._open_ids(), limits)

    def _open_ids(self) -> dict[str, np.ndarray]:
        return {name: self.ids[name] for name in ("train", "validation")}


class _Own(_Holdings):
    """The samples of a user's task; `parts` holds them by split."""

    parts: dict[str, Samples]

    def __init__(self, task: Task, root: Path, seed: int) -> None:
        self.task, self._seed, self._root = task, seed, root
        with user_code(root, "samples of your task"):
            self._load(seed)
            self.files = _file_rows(task.bound_files(), root)
        if self.files:
            self.sha256 = digest([self.sha256, [row["sha256"] for row in self.files]])
        self.ids = {name: part.ids for name, part in self.parts.items()}
        self.reads_stream = self.parts["train"].is_stream
        with user_code(root, "prepare of your task"):
            train = self.parts["train"]
            task.prepare(train.given)

    @abstractmethod
    def _load(self, seed: int) -> None:
        """Set `parts`, `sha256` and `read`."""

    def take(self, split: str) -> Samples:
        return self.parts[split]

    def describe(self) -> dict[str, Any]:
        tensors = self.parts["train"].tensors
        return {"columns": None, "target": None, "shape": list(tensors[0].shape[1:]) if tensors else None}

    def findings(self, limits: DataLimits) -> list[Finding]:
        train, held_out = labels_of(self.parts["train"]), labels_of(self.parts["validation"])
        found = _nonfinite(self.parts)
        if train is None or held_out is None or not len(train) or min(train.min(), held_out.min(initial=0)) < 0:
            return found
        names = [str(nr) for nr in range(int(max(train.max(), held_out.max(initial=0))) + 1)]
        return found + (validation.class_findings(names, train, held_out, limits) if len(names) <= len(train) else [])

    @property
    def not_compared(self) -> str | None:
        return "the samples come as a stream" if any(part.is_stream for part in self.parts.values()) else None

    def compared(self, split: str) -> np.ndarray | None:
        part = self.parts[split]
        if part.dataset is None or not len(part):
            return self.hashes(split)
        with user_code(self._root, "samples of your task"):
            return sample_hashes(part, self._seed)

    def excuse(self, limits: DataLimits) -> str | None:
        training = self.compared("train")
        if training is None:
            return None
        few = len(np.unique(training)) < limits.chance_distinct * len(training)
        return "the training samples repeat one another, too" if few else None

    def hashes(self, split: str) -> np.ndarray:
        tensors = self.parts[split].tensors
        return validation.row_hashes([t.float().numpy() for t in tensors]) if tensors and len(tensors[0]) else NO_HASHES

    def test_hashes(self) -> np.ndarray:
        if self.parts["test"].tensors is not None:
            return self.hashes("test")
        with user_code(self._root, "samples of your task"):
            return chosen_hashes(self.parts["test"], KEPT, self._seed)


class _Whole(_Own):
    """A user's samples, split here."""

    def __init__(self, task: Task, config: TrainingConfig, root: Path, seed: int) -> None:
        self._split = config.split
        super().__init__(task, root, seed)

    def _load(self, seed: int) -> None:
        given = self.task.samples()
        if is_iterable(given):
            mend = "write dataset(self, split) in place of samples(self), with an iterable for each split"
            raise InputError("samples() gave an iterable, which mltrainer cannot split", where="task.use", mend=mend)
        whole = samples_of(given, "samples()", self.task)
        self.sha256, self.read = fingerprint(whole, seed)
        labels = labels_of(whole)
        stratify = labels is not None and len(np.unique(labels)) * 2 <= len(labels)
        self.divide(len(whole), labels if stratify else None, self._split, seed)
        self.parts = {name: pick(whole, places) for name, places in self.ids.items()}

    def place(self, row: int) -> str:
        return f"sample {row} of samples()"


class _Given(_Own):
    """A user's samples that come with their own splits; ids count through train, validation and test."""

    def __init__(self, task: Task, config: TrainingConfig, root: Path, seed: int) -> None:
        self._train_samples = config.task.samples_per_epoch
        if config.split.folds:
            what = f"{type(task).__name__}.dataset(self, split) says itself which samples validate"
            raise InputError(what, where="split.folds", mend="leave folds out, or write samples(self) in its place")
        super().__init__(task, root, seed)

    def _load(self, seed: int) -> None:
        self.parts, prints, start = {}, [], 0
        self.read = 0
        for name in SPLITS:
            given = self.task.dataset(name)
            if given is None and name != "test":
                raise InputError(f"dataset({name!r}) gave None; only a test split may be missing", where="task.use")
            part = self._part(name, given)
            sha256, count = fingerprint(part, seed) if given is not None else ("", 0)
            prints.append(sha256)
            self.read += count
            self.parts[name] = replace(part, ids=part.ids + start, loaders={})
            start += len(part)
        self.sha256 = digest(prints)

    def place(self, row: int) -> str:
        name = next(name for name, part in self.parts.items() if len(part) and part.ids[0] <= row <= part.ids[-1])
        return f"sample {row - int(self.parts[name].ids[0])} of dataset({name!r})"

    def _part(self, name: str, given: Any) -> Samples:
        if given is None:
            return Samples(np.zeros(0, dtype=np.int64))
        if any(given is part.given for part in self.parts.values() if part.is_stream):
            raise InputError(f"dataset({name!r}) gave the iterable of another split", where="task.use", mend="make one for each")
        return samples_of(given, f"dataset({name!r})", self.task, self._train_samples if name == "train" else None)


def _file_rows(paths: Sequence[str], root: Path) -> list[dict[str, Any]]:
    """Return `path`, `sha256` and `size` of files that a task named.

    Raises:
        InputError: One is not there.
    """
    rows = []
    for path in dict.fromkeys(paths):
        if not (root / path).is_file():
            raise InputError(f"bound_files() names {path!r}, which is not there", where="task.use")
        with machine_faults(path):
            rows.append({"path": Path(path).as_posix(), "sha256": sha256_file(root / path), "size": (root / path).stat().st_size})
    return rows


def _own_or_whole(task: Task, config: TrainingConfig, root: Path, seed: int) -> _Own:
    kind = type(task)
    if kind.dataset is not Task.dataset:
        return _Given(task, config, root, seed)
    if kind.samples is Task.samples:
        raise InputError(
            f"{kind.__name__} has neither samples(self) nor dataset(self, split)", where="task.use", mend="write one of them"
        )
    return _Whole(task, config, root, seed)


def _nonfinite(parts: dict[str, Samples]) -> list[Finding]:
    """Return a warning of samples in memory that hold NaN or infinity, which the task may mean as a mask."""
    found = []
    for name in ("train", "validation"):
        for place, tensor in enumerate(parts[name].tensors or ()):
            if tensor.is_floating_point() and len(tensor):
                bad = ~tensor.isfinite().flatten(1).all(1) if tensor.dim() > 1 else ~tensor.isfinite()
                if bool(bad.any()):
                    first = int(parts[name].ids[int(bad.int().argmax())])
                    what = f"{int(bad.sum())} {name} samples hold NaN or infinity in tensor {place}; the first is sample {first}"
                    found.append(validation.finding("warning", what))
    return found
