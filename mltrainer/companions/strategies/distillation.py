"""Distillation: a model learns a trained model's outputs, beside its own targets (Hinton et al., 2015, arXiv 1503.02531)."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.checkpointing.starting import load_all, weight_rows
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.companions.strategies.kept_rows import KeptRows, kept_rows
from mltrainer.companions.strategies.layer_pairs import LayerPairs
from mltrainer.companions.strategies.mean_teacher import MeanTeacher
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.strategy import MicroBatch, Reading, Strategy, Training
from mltrainer.tasks.task import Task
from mltrainer.tasks.text.generation import TextGeneration
from mltrainer.tasks.user_code import import_module, user_code
from mltrainer.workspace import machine_faults

IGNORED = -100  # a target that counts in no loss, the default of torch's cross-entropy
INTERFACE = "inference.json"
SHOWN = ("kind", "classes", "target")  # parts of an interface that are short enough for a message
NOT_READ = ("training", "wrong")  # parts of a column: statistics of the training rows, and the treatment of wrong cells
SHOWN_TEXT = 80  # characters
HINT = "take a teacher of this task, or leave the strategy out"


class Distillation(Strategy[configs.Distillation]):
    """The distance from a teacher's outputs, or texts that it writes in place of the corpus's."""

    name = "distillation"
    _task: Task
    _teacher: nn.Module
    _pairs: LayerPairs | None = None
    _mean: MeanTeacher | None = None
    _gives_losses: bool = False
    _kept: KeptRows | None = None

    def __init__(self, settings: configs.Distillation, key: str, root: Path) -> None:
        super().__init__(settings, key, root)
        # Texts are training data, not a loss term.
        self.alters = settings.texts is not None
        self.share = 0.0 if self.alters else settings.weight
        if settings.teacher.weights is not None:
            self.files = weight_rows(settings.teacher.weights, root, f"{key}.teacher.weights")

    def begin(self, training: Training) -> str:
        """Make the teacher, which no gradient trains.

        Raises:
            InputError: Its weights do not fit, or it was trained for other inputs or classes; or it has no layer of a name.
        """
        self._task, self._device, self._seed = training.task, training.config.device, training.config.seed
        self._teacher = self._made(training).to(self._device).eval().requires_grad_(False)
        self._gives_losses = isinstance(training.task, TextGeneration) and not self.alters
        if self.settings.features or self._gives_losses:
            self._pairs = LayerPairs(
                self.settings.features,
                f"{self.key}.features",
                training.config.seed,
                training.model,
                self._teacher,
                with_outputs=self._gives_losses,
            )
            self.watch = self._pairs.own
        count = sum(p.numel() for p in self._teacher.parameters())
        return f"learns from {self._teacher_words}, a teacher of {count:,} parameters"

    @property
    def _teacher_words(self) -> str:
        given = self.settings.teacher
        return given.weights or given.use or f"ema: {given.ema}"

    def _made(self, training: Training) -> nn.Module:
        given = self.settings.teacher
        if given.weights is not None:
            return self._trained(training, given.weights)
        return self._returned(training, given.use) if given.use is not None else self._averaged(training)

    def _trained(self, training: Training, weights: str) -> nn.Module:
        """Return a teacher with weights from files."""
        _refuse_other_interface(training.root / weights, training.task, f"{self.key}.teacher.weights")
        try:
            teacher: Any = training.teacher(self.settings.teacher.model)
        except InputError as error:
            raise InputError(error.message, where=f"{self.key}.teacher.model", hint=error.hint) from error
        _require_new(teacher, training, "teacher()", training.config.task.use)
        load_all(teacher, weights, training.root, f"{self.key}.teacher.weights")
        return cast("nn.Module", teacher)

    def _returned(self, training: Training, use: str) -> nn.Module:
        """Return a teacher that a function of the project's makes, with its weights."""
        where, name = f"{self.key}.teacher.use", use.partition(":")[2]
        module = import_module(use, training.root, where)
        function = getattr(module, name, None)
        if not callable(function):
            functions = [one for one, found in vars(module).items() if inspect.isfunction(found)]
            what = f"{module.__name__} has no function {name!r}; its functions are: {', '.join(functions) or 'none'}"
            raise InputError(what, where=where, hint="name one of them, or write it: it returns the teacher")
        with user_code(training.root, f"calling {use}"):
            teacher = function()
        _require_new(teacher, training, f"{use}()", where)
        return cast("nn.Module", teacher)

    def _averaged(self, training: Training) -> nn.Module:
        """Return a teacher that is the average of the trained weights."""
        assert self.settings.teacher.ema is not None
        average = training.task.model()
        _require_new(average, training, "model()", training.config.task.use)
        self._mean = MeanTeacher(training.model, average.to(training.config.device), self.settings.teacher.ema)
        return average

    def stepped(self) -> None:
        """Take the weights into the teacher, where it is their average."""
        if self._mean is not None:
            self._mean.step()

    def state(self) -> dict[str, Any] | None:
        """Return the teacher, where it is the average of the trained weights."""
        return None if self._mean is None else self._mean.state()

    def load_state(self, state: Mapping[str, Any] | None) -> None:
        """Continue with the teacher of a checkpoint; None: start from the present weights."""
        if self._mean is not None:
            self._mean.load_state(state)

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the mean distance of a micro-batch's outputs from the teacher's, and of the paired layers' ones.

        Raises:
            InputError: The outputs cannot be compared.
        """
        outputs = self._tensor(micro.outputs)
        taught = self._teacher_outputs(micro).to(outputs.dtype)
        sides = [] if self._pairs is None else self._pairs.taken()
        distance = self._of_tokens(*sides.pop()) if self._gives_losses else self._distance(outputs, taught, micro.targets)
        if not sides or self._pairs is None:
            return distance
        return distance + self.settings.feature_weight * self._pairs.distance(sides)

    def _teacher_outputs(self, micro: MicroBatch) -> Tensor:
        if self._kept is not None:
            return self._kept.of(micro.ids, micro.outputs.device)
        with torch.no_grad(), nullcontext() if self._pairs is None else self._pairs.teacher:
            return self._outputs(micro.batch)

    def _outputs(self, batch: Any) -> Tensor:
        return self._tensor(self._task.forward(self._teacher, batch)[0])

    def _of_tokens(self, own: Tensor, taught: Tensor) -> Tensor:
        """Return the mean distance of the scores of each next token, [windows, tokens, vocabulary]."""
        return self._of_classes(own.float(), self._beside(own, taught.float()), None)

    def _distance(self, outputs: Tensor, taught: Tensor, targets: Any) -> Tensor:
        """Return the mean distance of outputs from the teacher's."""
        beside = self._beside(outputs, taught)
        if self._tells_classes(outputs, targets):
            return self._of_classes(outputs, beside, targets)
        if isinstance(self._task, BuiltinTask):  # whose own loss counts in deviations, whatever the units
            return self._task.loss(outputs, taught)
        return functional.mse_loss(outputs, taught)

    def teacher(self) -> tuple[str, nn.Module]:
        """Return the teacher, after the place of its weights or the decay of its average."""
        return self._teacher_words, self._teacher.to(self._device)

    # --- outputs that are computed once ---

    def read(self, training: Training, reading: Reading) -> str | None:
        """Compute the teacher's output for each training sample once, if the config asks for that; steps then need no teacher.

        Raises:
            InputError: The output may change between steps, or the samples are not in memory.
        """
        if (key := self.settings.reads_once) is None:
            return None
        where = f"{self.key}.{key}"
        _require_steady(training.task, reading.samples, where)
        asked = {
            "teacher": [self.settings.teacher.model_dump(), weights_sha256(self._teacher.state_dict())],
            "task": [part and part.model_dump() for part in (training.config.task, training.config.data)],
        }
        if self.settings.texts is not None:
            asked |= {"texts": self.settings.texts.model_dump(), "share": self.settings.weight, "seed": self._seed}
        say = self._texts if self.alters else lambda batch, _ids: self._outputs(batch)
        self._kept = kept_rows(reading, training.root, self._device, asked, say, where)
        self._teacher.cpu()  # until it is measured beside the trained model
        said = self._texts_words(self._kept) if self.alters else f"outputs on {len(self._kept.ids):,} samples"
        return f"the teacher's {said}: {self._kept.source}"

    def _texts(self, batch: Any, ids: np.ndarray) -> Tensor:
        """Return a batch's windows, those of the teacher's share as it goes on with their first tokens."""
        task, texts = self._task, self.settings.texts
        windows: Tensor = batch[0].clone()
        assert texts is not None
        assert isinstance(task, TextGeneration)
        own = np.flatnonzero(self._is_taught(ids))
        if len(own):
            draws = seeds.uniforms(seeds.key(self._seed, "texts"), ids[own], windows.shape[1] - texts.prompt)
            places = torch.from_numpy(own).to(windows.device)
            windows[places] = task.written(self._teacher, windows[places], texts.prompt, texts.temperature, draws)
        return windows

    def _is_taught(self, ids: np.ndarray) -> np.ndarray:
        """Return for each sample whether the teacher writes it."""
        return np.asarray(seeds.uniforms(seeds.key(self._seed, "taught"), ids, 1)[:, 0] < self.settings.weight)

    def _texts_words(self, kept: KeptRows) -> str:
        taught = np.flatnonzero(self._is_taught(kept.ids))
        assert isinstance(self._task, TextGeneration)
        first = self._task.decoded(torch.from_numpy(kept.rows[taught[0]]))[:SHOWN_TEXT] if len(taught) else ""
        return f"texts, {len(taught):,} of {len(kept.ids):,} samples, such as {first!r}"

    def alter(self, batch: Any, ids: np.ndarray, epoch: int) -> Any:
        """Return a batch of windows with the teacher's in the place of its share."""
        assert self._kept is not None
        return (self._kept.of(ids, batch[0].device), *batch[1:])

    def _refusal(self, what: str) -> InputError:
        return InputError(what, where=self.key, hint=HINT)

    def _tensor(self, outputs: Any) -> Tensor:
        if not isinstance(outputs, Tensor):
            raise self._refusal(f"outputs that are one tensor can be compared, and forward gives {type(outputs).__name__}")
        return outputs

    def _beside(self, outputs: Tensor, taught: Tensor) -> Tensor:
        """Return the teacher's outputs for each output, also where the model has members and the teacher speaks for its own.

        Raises:
            InputError: The shapes differ.
        """
        has_members = isinstance(self._task, BuiltinTask) and outputs.dim() == taught.dim() + 1
        expected = (*outputs.shape[:1], *outputs.shape[2:]) if has_members else outputs.shape
        if taught.shape != expected:
            raise self._refusal(f"the teacher gives outputs of shape {[*taught.shape]}, and the model {[*outputs.shape]}")
        return taught.unsqueeze(1).expand_as(outputs) if has_members else taught

    def _tells_classes(self, outputs: Tensor, targets: Any) -> bool:
        """Return True if outputs are scores of classes: for a custom task, if the targets are class numbers.

        Raises:
            InputError: There are class numbers, and the classes are not on the last axis.
        """
        if isinstance(self._task, BuiltinTask):
            return self._task.classes is not None
        if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.shape == outputs.shape:
            return False
        if targets.shape != outputs.shape[:-1]:
            what = f"class numbers of shape {[*targets.shape]} need outputs of that shape with the classes last"
            raise self._refusal(f"{what}, and the model's have {[*outputs.shape]}")
        return True

    def _of_classes(self, outputs: Tensor, taught: Tensor, targets: Any) -> Tensor:
        """Return T^2 KL(teacher || model), of softmaxes over the last axis at temperature T, over the items that count."""
        heat = self.settings.temperature
        said = functional.log_softmax(outputs / heat, dim=-1)
        distances = functional.kl_div(said, functional.softmax(taught / heat, dim=-1), reduction="none").sum(-1)
        return heat * heat * _mean(distances, targets)


def _mean(distances: Tensor, targets: Any) -> Tensor:
    """Return the mean over the items that the task's loss counts."""
    is_of_items = isinstance(targets, Tensor) and targets.shape == distances.shape and not targets.is_floating_point()
    if not is_of_items:
        return distances.mean()
    counted = targets != IGNORED
    # At least 1: the mean over no item is no number, and its share of the step is 0.
    mean: Tensor = torch.where(counted, distances, 0.0).sum() / counted.sum().clamp(min=1)
    return mean


def _require_steady(task: Task, samples: Samples, where: str) -> None:
    """Refuse samples, or a task, for which the teacher's output may change between steps.

    Raises:
        InputError: The output may change; the message has the reason.
    """
    if samples.tensors is None:
        what = "the training samples are read one by one in each epoch, and only those in memory can keep outputs"
        raise InputError(what, where=where, hint="give all samples as tensors, or leave the key out")
    if type(task).enter is not Task.enter:
        what = "the task follows the step in enter(), and what its forward gives may follow it, too"
        raise InputError(what, where=where, hint="leave the key out")


MODULE = "return the model itself, with its weights"


def _require_new(teacher: Any, training: Training, made_by: str, where: str | None) -> None:
    """Refuse a teacher that is no module, or shares parameters with the trained model.

    Raises:
        InputError: The teacher is no module, or shares parameters; the message names the function that made it.
    """
    if not isinstance(teacher, nn.Module):
        raise InputError(made_by, expected="a torch.nn.Module", found=type(teacher).__name__, where=where, hint=MODULE)
    if {id(p) for p in teacher.parameters()} & {id(p) for p in training.model.parameters()}:
        what = f"{made_by} gave the model that is trained, or a part of it"
        raise InputError(what, where=where, hint="return a new model with each call")


def _refuse_other_interface(weights: Path, task: Task, where: str) -> None:
    """Refuse a delivered model with other inputs or classes than the task's; a bare file of weights does not describe them.

    Raises:
        InputError: Inputs or classes differ; the message shows both.
    """
    folder = weights if weights.is_dir() else weights.parent
    if not (folder / INTERFACE).is_file():
        return
    theirs, own = _interface(folder / INTERFACE), task.inference()
    for part in ("kind", "classes", "target", "input", "columns"):
        found, expected = (_plain(one.get(part)) for one in (theirs, own))
        if found is not None and expected is not None and found != expected:
            shown = f": {found} there, {expected} here" if part in SHOWN else ""
            raise InputError(f"the teacher was trained for other {part} than this task has{shown}", where=where, hint=HINT)
    for name, content in task.delivered().items():
        with machine_faults(str(folder / name)):
            if (folder / name).is_file() and (folder / name).read_bytes() != content:
                raise InputError(f"the teacher has another {name} than this task", where=where, hint=HINT)


def _interface(file: Path) -> dict[str, Any]:
    with machine_faults(str(file)):
        try:
            interface = json.loads(file.read_text("utf-8"))
        except ValueError as error:
            raise InputError(f"not readable as JSON: {error}", where=str(file), hint="copy the folder again") from error
    return interface if isinstance(interface, dict) else {}


def _plain(part: Any) -> Any:
    """Return a part of an interface as JSON has it, without what does not decide how a model is called."""
    if isinstance(part, list):
        part = [{k: v for k, v in one.items() if k not in NOT_READ} if isinstance(one, dict) else one for one in part]
    return json.loads(json.dumps(part, default=str))
