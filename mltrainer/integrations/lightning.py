"""A Lightning module and its data module as a task: trained unchanged, by mltrainer's own loop.

mltrainer feeds the batches itself - its order, its draws, its place are what makes a run repeat - and calls `training_step`,
`validation_step` and what `configure_optimizers` returns. Of the loaders it takes data set and `collate_fn`. A hook that it does
not call is refused by name where it may change the training, as `lightning_hooks` judges; one that only measures is passed over.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from mltrainer.errors import InputError
from mltrainer.integrations.lightning_hooks import MEASURING, faults, handed_on_to
from mltrainer.integrations.objects import maker_of
from mltrainer.reproducibility import seeds
from mltrainer.tasks.structures import main_output
from mltrainer.tasks.task import Task
from mltrainer.tasks.updating import Length, Scheduler, Updates
from mltrainer.tasks.user_code import check_options, import_module

EXTRA = 'pip install "mltrainer[lightning]"'
OPTIONS = "task.options"
ANY_LOOP = "or keep its own loop: `mltrainer wrap` proves it, and task.script brings its program under the gates"
LOADERS = {"train": "train_dataloader", "validation": "val_dataloader", "test": "test_dataloader"}
STAGES = {"train": "fit", "validation": "fit", "test": "test"}
IN_STEPS = f"do it in training_step or validation_step, where self.current_epoch and self.global_step are known, {ANY_LOOP}"
# Hooks that mltrainer does not call, and the right place for their work; training does not use testing and predicting hooks.
MODULE_HOOKS = {
    **dict.fromkeys(
        ("on_fit_start", "on_fit_end", "on_train_start", "on_train_end", "on_validation_start", "on_validation_end"), IN_STEPS
    ),
    **dict.fromkeys(("on_train_batch_start", "on_train_batch_end", "on_train_epoch_start", "on_train_epoch_end"), IN_STEPS),
    **dict.fromkeys(("on_validation_batch_start", "on_validation_batch_end"), IN_STEPS),
    **dict.fromkeys(
        MEASURING, "measure and log there, and nothing else; a metric of torchmetrics is computed over the whole split"
    ),
    **dict.fromkeys(("on_validation_model_eval", "on_validation_model_train", "on_validation_model_zero_grad"), IN_STEPS),
    **dict.fromkeys(("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step"), IN_STEPS),
    **dict.fromkeys(("backward", "optimizer_step", "optimizer_zero_grad", "lr_scheduler_step"), IN_STEPS),
    "configure_gradient_clipping": "--set clip={norm: 1.0}",
    "configure_callbacks": "early_stopping, checkpoint and callbacks of training_config.yaml take their place",
    "configure_sharded_model": "write configure_model",
    "on_save_checkpoint": "keep the run's state in buffers, which are part of every checkpoint",
    "on_load_checkpoint": "keep the run's state in buffers, which are part of every checkpoint",
}
BATCH_HOOKS = dict.fromkeys(
    ("transfer_batch_to_device", "on_before_batch_transfer", "on_after_batch_transfer"),
    "alter samples in the data set, or batches in the loader's collate_fn",
)
PLAIN = re.compile(r"[^a-z0-9_]+")


class Lightning(Task):
    """A `LightningModule` trained under the gates, with automatic optimization.

    The metrics are those that `validation_step` logs, in lower case (`val/acc` is `val_acc`): numbers are averaged
    over the samples, torchmetrics' objects computed over the whole split. `loss` is that of `training_step`, in an evaluation
    that of `validation_step` where it returns one. The test split is measured by `validation_step`, too.

    Args:
        module: Class of the module, "package.file:Class".
        data: Class of the data module; None if the module or a function has the loaders.
        module_options: Keyword arguments of the module; objects are described by `class_path` and `init_args`, or by `_target_`.
        data_options: Keyword arguments of the data module or of the function, in the same form.
        loaders: A function, "package.file:function", that returns the loaders of training, validation and, if there is one, test.

    Raises:
        InputError: A class does not derive from Lightning's, or has hooks that mltrainer does not call.

    Examples:
        In `mltrainer.yaml`:

            task:
              use: mltrainer.integrations.lightning:Lightning
              options: {module: "net:Net", data: "data:Digits", module_options: {width: 64}}
    """

    def __init__(
        self,
        module: str,
        data: str | None = None,
        module_options: dict[str, Any] | None = None,
        data_options: dict[str, Any] | None = None,
        loaders: str | None = None,
    ) -> None:
        if data is not None and loaders is not None:
            raise InputError(
                expected="data or loaders", found="both", where=OPTIONS, hint="name a data module or a function, not both"
            )
        self._kind, own = _class_of(module, "LightningModule", "module"), module.partition(":")[0].partition(".")[0]
        self.targets = getattr(self._kind, "targets", None)
        check_options(self._kind, module_options or {}, f"{OPTIONS}.module_options")
        self._options = maker_of(module_options or {}, f"{OPTIONS}.module_options", own)
        given = maker_of(data_options or {}, f"{OPTIONS}.data_options", own)
        self._source = self._source_of(data, loaders, given)
        self._seed = int(torch.randint(2**31, ()))  # so that a split drawn in setup() is the same for each stage
        self._stage: str | None = None
        self._collates: dict[str, Callable[[list[Any]], Any]] = {}
        self._place = Place(self._source if data is not None else None)
        self._metrics: tuple[nn.Module | None, list[Any]] = (None, [])
        self._batches = 0  # batches of the evaluation so far

    def _source_of(self, data: str | None, loaders: str | None, options: Callable[[], Any]) -> Any:
        """Return the owner of the loaders: the data module, the loaders of a function, or the module itself."""
        if data is not None:
            return _data_module(data, options())
        if loaders is not None:
            return _Given(_function_of(loaders), options())
        if _is_inherited(self._kind, "train_dataloader"):
            hint = (
                'name a data module: options.data: "file:Class", or a function that returns the loaders: '
                'options.loaders: "file:function", with `return train_loader, val_loader`'
            )
            raise InputError(f"{self._kind.__name__} has no train_dataloader", where=OPTIONS, hint=hint)
        return self._module()

    # --- samples ---

    def dataset(self, split: str) -> Any:
        """Return the data set of a split's loader; None without a test loader."""
        name = LOADERS[split]
        if split == "test" and _is_inherited(type(self._source), name):
            return None
        # Once for each stage, as Lightning does: a setup() that draws the splits would draw them again.
        if self._stage != STAGES[split]:
            self._stage = STAGES[split]
            self._set_up(self._stage)
        given = getattr(self._source, name)()
        if given is None and split == "test":
            return None
        loader = _only(given, name)
        _refuse_loader(loader, name)
        self._collates[split] = loader.collate_fn
        return _Rows(loader.dataset, split)

    def _set_up(self, stage: str) -> None:
        seeds.seed_everything(self._seed)
        if stage == "fit":
            self._source.prepare_data()
        seeds.seed_everything(
            self._seed
        )  # again: the draws of prepare_data, which only one stage calls, must not change the split
        self._source.setup(stage)

    def collate(self, rows: list[Any]) -> dict[str, Any]:
        """Return the batch that the loader's `collate_fn` makes, and its samples' places."""
        made = self._collates[rows[0].split]([row.value for row in rows])
        return {"rows": torch.arange(len(rows)), "batch": made}

    def targets_of(self, batch: Any) -> Any:
        """Return None: only the module knows the targets in a batch."""
        return None

    # --- model ---

    def model(self) -> nn.Module:
        """Return a new module."""
        made: nn.Module = self._module()
        if not made.automatic_optimization:
            hint = f"let training_step return the loss and leave automatic_optimization True, {ANY_LOOP}"
            raise InputError(
                f"{self._kind.__name__} optimizes manually, which mltrainer's loop does not run", where=OPTIONS, hint=hint
            )
        module: Any = made
        module.trainer = self._place
        if not _is_inherited(self._kind, "setup"):
            module.setup("fit")
        return made

    def _module(self) -> Any:
        made = self._kind(**self._options())
        _refuse_hooks(made, MODULE_HOOKS | BATCH_HOOKS)
        if not _is_inherited(self._kind, "configure_model"):
            made.configure_model()
        return made

    def updates(self, model: nn.Module, length: Length) -> Updates:
        """Return the optimizer and the schedulers of `configure_optimizers`."""
        self._place.of_run(length)
        module: Any = model
        module.trainer = self._place
        with self._place.of_model(module):
            return _updates(module.configure_optimizers())

    def enter(self, step: int, length: Length) -> None:
        """Note the step for `self.global_step` and `self.current_epoch`."""
        self._place.of_run(length)
        self._place.of_step(step)
        self._batches = 0

    # --- steps ---

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        """Return outputs (output, loss, logged values, samples) and targets of `training_step`, or of `validation_step`."""
        given, rows = batch["batch"], batch["rows"]
        with self._within(model) as seen:
            loss = self._loss(model, given)
        output = loss.detach().expand(len(rows)) if seen.output is None else seen.output
        outputs = {
            "output": output,
            "loss": loss,
            "logged": seen.logged,
            "whole": seen.whole,
            "lists": seen.lists,
            "samples": len(rows),
        }
        self._last = model
        return outputs, {"rows": rows, "batch": given}

    def _loss(self, model: Any, batch: Any) -> Tensor:
        if torch.is_grad_enabled():
            return _loss_of(model.training_step(batch, self._place.batch_idx), "training_step")
        loss = None
        if not _is_inherited(type(model), "validation_step"):
            if self._batches == 0:
                model.on_validation_epoch_start()
            loss = model.validation_step(batch, self._batches)
            self._batches += 1
        return _loss_of(loss, "validation_step") if loss is not None else self._unlogged(model, batch)

    def _unlogged(self, model: Any, batch: Any) -> Tensor:
        """Return the loss of `training_step` in an evaluation; its logged values belong to training."""
        before, model.log = model.log, _log_nothing
        try:
            return _loss_of(model.training_step(batch, 0), "training_step")
        finally:
            model.log = before

    @contextmanager
    def _within(self, model: Any) -> Iterator[_Seen]:
        """Record the module's logged values and outputs during a step, for which its metrics are reset."""
        model.trainer = self._place
        self._place.evaluates = not torch.is_grad_enabled()
        if self._metrics[0] is not model:
            self._metrics = (model, [module for module in model.modules() if _is_metric(module)])
        for metric in self._metrics[1]:
            metric.reset()
        seen = _Seen()
        model.log = seen.log if self._place.evaluates else _log_nothing
        handle = model.register_forward_hook(seen.note)
        lists = _lists_of(model)
        try:
            with _called(model):
                yield seen
            if self._place.evaluates and not _is_inherited(type(model), "on_validation_epoch_end"):
                seen.whole = {name: copy.deepcopy(part) for name, part in model.named_modules() if _was_updated(part)}
                seen.lists = _taken(model, lists)
        finally:
            handle.remove()
            # The instance's own goes, and Lightning's method is found again.
            del model.log

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Return the step's loss; for a part of its samples, the loss of a step on them."""
        if len(targets["rows"]) == outputs["samples"]:
            return outputs["loss"]  # type: ignore[no-any-return]  # as this class made it
        with self._within(self._last):
            return self._loss(self._last, targets["batch"])

    def loss_items(self, targets: Any) -> int:
        """Return the number of samples."""
        return len(targets["rows"])

    # --- metrics ---

    def accumulate(self, state: Any, outputs: Any, targets: Any) -> Any:
        """Return the logged metrics so far by name: each a sum and its weight, or torchmetrics' object and None."""
        measured = _Measured() if state is None else state
        for name, (value, weight) in outputs["logged"].items():
            weight = len(targets["rows"]) if weight is None else weight
            measured.logged[name] = _joined(name, measured.logged.get(name), value, weight)
        for name, metric in outputs["whole"].items():
            measured.whole[name] = _joined(name, measured.whole.get(name), metric, 0)
        for name, items in outputs["lists"].items():
            measured.lists.setdefault(name, []).extend(items)
        return measured

    def compute(self, state: Any) -> dict[str, float]:
        """Return the metrics by name: those of the steps, and what `on_validation_epoch_end` logs."""
        self._batches = 0
        sums = dict(state.logged)
        if not _is_inherited(type(self._last), "on_validation_epoch_end"):
            sums |= self._at_end(self._last, {name: metric for name, (metric, _) in state.whole.items()}, state.lists)
        return {name: float(held.compute() if weight is None else held / weight) for name, (held, weight) in sums.items()}

    def _at_end(
        self, model: Any, whole: Mapping[str, nn.Module], lists: Mapping[str, list[Any]]
    ) -> dict[str, tuple[Any, int | None]]:
        """Return the values that `on_validation_epoch_end` logs, with the metrics and lists of the whole split."""
        with self._within(model) as seen:
            own = {name: model.get_submodule(name) for name in whole}
            _put(model, whole)
            vars(model).update({name: list(items) for name, items in lists.items()})
            try:
                model.on_validation_epoch_end()
            finally:
                _put(model, own)
                vars(model).update({name: [] for name in lists})
        return {name: (value, None if _is_metric(value) else 1) for name, (value, _) in seen.logged.items()}


@contextmanager
def _called(model: Any) -> Iterator[None]:
    """Make `self.forward(x)` in a step the same as `self(x)`, so that hooks see the call.

    So does a call of the part to which the module's `forward` hands its arguments on, and does nothing else.
    """
    own, before = model.forward, dict(vars(model))
    entered: list[bool] = []  # one for each call of the module before its forward
    within: list[bool] = []  # one for each call in its forward

    def forward(*args: Any, **named: Any) -> Any:
        if not entered:
            return model(*args, **named)
        within.append(entered.pop())
        try:
            return own(*args, **named)
        finally:
            within.pop()

    replaced = {"forward": forward}
    if (name := handed_on_to(model)) is not None:
        replaced[name] = _Part(model, getattr(model, name), within)
    handle = model.register_forward_pre_hook(lambda *_: entered.append(True))
    vars(model).update(replaced)
    try:
        yield
    finally:
        handle.remove()
        for name in replaced:
            vars(model).pop(name, None)  # a step may have set it
        vars(model).update({name: before[name] for name in replaced if name in before})


class _Part:
    """A part of a module whose call is the module's, but within the module's own forward."""

    def __init__(self, model: Any, part: Any, within: list[bool]) -> None:
        self._model, self._part, self._within = model, part, within

    def __call__(self, *args: Any, **named: Any) -> Any:
        return (self._part if self._within else self._model)(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


# --- the outputs of a step ------------------------------------------------------------------------


class _Seen:
    """A module's logged values and its first call's output, in one step."""

    def __init__(self) -> None:
        self.logged: dict[str, tuple[Any, int | None]] = {}
        self.whole: dict[str, nn.Module] = {}  # the module's metrics, for the end of the evaluation
        self.lists: dict[str, list[Any]] = {}  # entries that the step added to the module's lists, for the end of the evaluation
        self.output: Tensor | None = None

    def log(
        self, name: str, value: Any, *args: Any, reduce_fx: Any = "mean", batch_size: int | None = None, **others: Any
    ) -> None:
        """Take the place of `self.log`."""
        if reduce_fx not in ("mean", torch.mean):
            what = f"self.log({name!r}, reduce_fx={reduce_fx!r}): metrics are averaged over the samples"
            raise InputError(what, where=OPTIONS, hint="log a torchmetrics object, which is combined over batches")
        # A copy, as the module's object is reset at the next step.
        held = copy.deepcopy(value) if _is_metric(value) else torch.as_tensor(value).detach().double()
        if isinstance(held, Tensor) and held.numel() != 1:
            found = f"a tensor of shape {list(held.shape)}"
            raise InputError(f"self.log({name!r})", expected="a number", found=found, where=OPTIONS, hint="log its mean()")
        self.logged[_plain(name)] = (held, batch_size)

    def note(self, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        """Keep the first output, as a forward hook."""
        main = main_output(outputs)
        if self.output is None and isinstance(main, Tensor) and main.dim():
            self.output = main


Held = tuple[Any, int | None]  # a sum and its weight, or torchmetrics' object and None


class _Measured:
    """The measurements of an evaluation so far.

    Attributes:
        logged: Logged values by name.
        whole: The module's own metrics, for the end of the evaluation.
        lists: Entries that the steps added to the module's lists, for the end of the evaluation.
    """

    def __init__(self) -> None:
        self.logged: dict[str, Held] = {}
        self.whole: dict[str, Held] = {}
        self.lists: dict[str, list[Any]] = {}


def _log_nothing(*_: Any, **__: Any) -> None:
    """Take the place of `self.log` in training, whose loss is recorded anyway."""


def _plain(name: str) -> str:
    """Return a metric's name in a form that a config allows."""
    return PLAIN.sub("_", name.lower()).strip("_")


def _is_metric(value: Any) -> bool:
    """Return True where a value is an object of torchmetrics."""
    return isinstance(value, nn.Module) and all(hasattr(value, name) for name in ("update", "compute", "reset", "merge_state"))


def _was_updated(value: Any) -> bool:
    return _is_metric(value) and bool(value.update_called)


def _lists_of(model: nn.Module) -> dict[str, tuple[list[Any], int]]:
    """Return a module's lists by name, each with its length."""
    return {name: (value, len(value)) for name, value in vars(model).items() if type(value) is list}


def _taken(model: nn.Module, before: Mapping[str, tuple[list[Any], int]]) -> dict[str, list[Any]]:
    """Remove and return the entries that were added to a module's lists."""
    taken = {}
    for name, (value, length) in _lists_of(model).items():
        held, kept = before.get(name, (None, 0))
        first = kept if held is value else 0
        if length > first:
            taken[name] = value[first:]
            del value[first:]
    return taken


def _put(model: nn.Module, parts: Mapping[str, nn.Module]) -> None:
    """Set parts of a module by their dotted names."""
    for name, part in parts.items():
        parent, _, last = name.rpartition(".")
        model.get_submodule(parent)._modules[last] = part


def _joined(name: str, before: Any, value: Any, weight: int) -> tuple[Any, int | None]:
    """Return a metric with one more batch: a sum and its weight, or torchmetrics' object and None."""
    if not _is_metric(value):
        total, items = before or (0.0, 0)
        return total + value * weight, items + weight
    if before is None:
        return value, None
    try:
        before[0].merge_state(value)
    except RuntimeError as error:
        hint = "take one with full_state_update=False, as those of torchmetrics for classification and regression are"
        raise InputError(f"{name}: {type(value).__name__} cannot be added up over batches: {error}", hint=hint) from error
    return before[0], None


def _loss_of(given: Any, method: str) -> Tensor:
    """Return the loss that a step returned.

    Raises:
        InputError: The step returned no loss.
    """
    loss = given.get("loss") if isinstance(given, Mapping) else given
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss.reshape(())
    hint = "return a scalar tensor, or a dict with one as its loss; a batch cannot be left out"
    raise InputError(method, expected="the loss", found=type(loss).__name__, where=OPTIONS, hint=hint)


class Place:
    """The module's `self.trainer` while mltrainer trains: the place in the run, without anything that could change it.

    In an evaluation the place is the run's start: a measurement must be a function of the weights alone, as checkpoints
    are measured again, in other processes.
    """

    def __init__(self, datamodule: Any) -> None:
        self.datamodule = datamodule
        self.max_epochs, self.max_steps, self.estimated_stepping_batches, self.num_training_batches = 0, -1, 0, 0
        self.batch_idx, self.evaluates = 0, False
        self._step = self._epoch = 0
        self.logger, self.loggers, self.callbacks, self.progress_bar_callback = None, [], [], None  # type: ignore[var-annotated]  # all empty
        self.is_global_zero, self.global_rank, self.local_rank = True, 0, 0
        self.world_size = self.num_devices = self.num_nodes = 1
        self.sanity_checking = self.testing = self.predicting = False

    def of_run(self, length: Length) -> None:
        """Record the run's length."""
        self.max_epochs, self.estimated_stepping_batches = length.epochs, length.steps
        self.num_training_batches = length.steps_per_epoch

    @contextmanager
    def of_model(self, module: Any) -> Iterator[None]:
        """Act as a module's trainer while its optimizer is made; later the module would refer to itself through its trainer."""
        self.model = self.lightning_module = module
        try:
            yield
        finally:
            del self.model, self.lightning_module

    def of_step(self, step: int) -> None:
        """Record the trained step (from 1)."""
        self._step = step
        self._epoch, self.batch_idx = divmod(step - 1, self.num_training_batches)

    @property
    def global_step(self) -> int:
        """The optimizer's steps so far."""
        return 0 if self.evaluates else max(0, self._step - 1)

    @property
    def current_epoch(self) -> int:
        """The epoch, from 0."""
        return 0 if self.evaluates else self._epoch

    @property
    def training(self) -> bool:
        """True in a training step."""
        return not self.evaluates

    @property
    def validating(self) -> bool:
        """True in a step of an evaluation."""
        return self.evaluates

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = ", ".join(sorted(key for key in vars(self) if not key.startswith("_")))
        raise AttributeError(f"self.trainer has no {name!r} while mltrainer trains; it has current_epoch, global_step, {known}")


# --- classes --------------------------------------------------------------------------------------


def _class_of(use: str, base: str, option: str) -> Any:
    """Return a class of Lightning's by its name in the project.

    Raises:
        InputError: There is no such name, or it is not such a class.
    """
    where = f"{OPTIONS}.{option}"
    if not re.fullmatch(r"[\w.]+:\w+", use):
        raise InputError(f"{use!r} names no class", where=where, hint='write it as "package.file:Class"')
    try:
        cls = getattr(import_module(use, Path.cwd(), where), use.partition(":")[2], None)
    except InputError as error:
        missing = getattr(error.__cause__, "name", None)
        if str(missing).partition(".")[0] in ("lightning", "pytorch_lightning"):
            error.hint = EXTRA
        raise
    if not isinstance(cls, type) or _base(cls, base) is None:
        what = f"{use} is no {base}" if cls is not None else f"there is no class {use}"
        raise InputError(what, where=where, hint=f"name a class that derives from lightning.{base}")
    return cls


def _base(kind: type, name: str) -> type | None:
    """Return the class of Lightning's own that a class derives from, of either of its packages."""
    tops = ("lightning", "pytorch_lightning")
    return next((each for each in kind.__mro__ if each.__name__ == name and each.__module__.partition(".")[0] in tops), None)


def _is_inherited(kind: type, name: str) -> bool:
    """Return True where a method is Lightning's own."""
    owner = next(each for each in kind.__mro__ if name in vars(each))
    return owner.__module__.partition(".")[0] in ("lightning", "pytorch_lightning")


def _refuse_hooks(made: Any, hooks: Mapping[str, str]) -> None:
    """Refuse hooks that mltrainer does not call and that may change a training.

    Raises:
        InputError: There are such hooks; the message names each with its line, and the right place for its work.
    """
    kind = type(made)
    own = [name for name in hooks if hasattr(kind, name) and not _is_inherited(kind, name)]
    harmful = faults(made, own, _is_metric)
    if harmful:
        said = ", ".join(f"{name} (line {fault.line}: {fault.code})" for name, fault in harmful.items())
        what = f"{kind.__name__} has {said}, which mltrainer does not call and which may change the training"
        hint = "; ".join(dict.fromkeys(f"{name}: {hooks[name]}" for name in harmful))
        raise InputError(what, where=OPTIONS, hint=hint)


def _data_module(use: str, options: dict[str, Any]) -> Any:
    kind = _class_of(use, "LightningDataModule", "data")
    check_options(kind, options, f"{OPTIONS}.data_options")
    made = kind(**options)
    _refuse_hooks(made, BATCH_HOOKS)
    return made


# --- loaders --------------------------------------------------------------------------------------


def _function_of(use: str) -> Any:
    """Return the function that returns the loaders.

    Raises:
        InputError: There is no such function.
    """
    where = f"{OPTIONS}.loaders"
    if not re.fullmatch(r"[\w.]+:\w+", use):
        raise InputError(f"{use!r} names no function", where=where, hint='write it as "package.file:function"')
    function = getattr(import_module(use, Path.cwd(), where), use.partition(":")[2], None)
    if not inspect.isfunction(function):
        raise InputError(f"{use} is no function", where=where, hint="name a function that returns the loaders")
    return function


class _Given:
    """Loaders that a function returns: of training and validation, and of the test split if there is one."""

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        check_options(function, options, f"{OPTIONS}.data_options")
        self._function, self._options = function, options
        self._loaders: tuple[Any, ...] = ()

    def prepare_data(self) -> None:
        """Do nothing: the function does it."""

    def setup(self, _stage: str) -> None:
        """Call the function, once: a split that it draws is the same for each stage.

        Raises:
            InputError: The function did not return two or three loaders.
        """
        if self._loaders:
            return
        given = self._function(**self._options)
        if isinstance(given, Mapping):
            given = tuple(given.get(name) for name in ("train", "validation", "test") if given.get(name) is not None)
        if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
            what = f"{self._function.__name__} returned {type(given).__name__}; two or three loaders were expected"
            raise InputError(
                what, where=f"{OPTIONS}.loaders", hint="return train_loader, val_loader, test_loader; the last is optional"
            )
        self._loaders = tuple(given)

    def train_dataloader(self) -> Any:
        """Return the first loader."""
        return self._loaders[0]

    def val_dataloader(self) -> Any:
        """Return the second loader."""
        return self._loaders[1]

    def test_dataloader(self) -> Any:
        """Return the third loader; None if there are two."""
        return self._loaders[2] if len(self._loaders) > 2 else None


class _Row(NamedTuple):
    """A sample, and the split whose `collate_fn` it goes through."""

    split: str
    value: Any


class _Rows(Dataset[_Row]):
    """A loader's data set."""

    def __init__(self, own: Any, split: str) -> None:
        self.own, self.split = own, split

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, place: int) -> _Row:
        return _Row(self.split, self.own[place])


def _only(given: Any, name: str) -> DataLoader[Any]:
    """Return a method's single loader.

    Raises:
        InputError: The method did not return a single DataLoader.
    """
    loaders = given if isinstance(given, (list, tuple)) else [given]
    if len(loaders) == 1 and isinstance(loaders[0], DataLoader):
        return loaders[0]
    kinds = ", ".join(type(each).__name__ for each in loaders) or "none"
    raise InputError(name, expected="one torch DataLoader", found=kinds, where=OPTIONS, hint="join the data sets into one")


def _refuse_loader(loader: DataLoader[Any], name: str) -> None:
    """Refuse a loader with its own order or batches.

    Raises:
        InputError: The loader has one; the message names the obstacle and the fix.
    """
    samples: Any = loader.dataset
    sampler: Any = loader.sampler
    if isinstance(samples, IterableDataset):
        what, hint = (
            "an IterableDataset",
            "write a mltrainer.Task whose dataset(split) returns it, or a data set with __getitem__",
        )
    elif type(sampler) not in (RandomSampler, SequentialSampler):
        what, hint = f"a {type(sampler).__name__}", "weigh or choose samples in the data set or in the loss"
    elif getattr(sampler, "replacement", False) or len(sampler) != len(samples):
        what, hint = "another number of samples than its data set", "choose or repeat samples in the data set"
    elif type(loader.batch_sampler) is not BatchSampler:
        what, hint = (
            "its own batches",
            "give DataLoader a batch_size; mltrainer draws the order, and batch_size is the config's",
        )
    elif loader.worker_init_fn is not None:
        what, hint = "a worker_init_fn", "leave it out: the generators are seeded for each sample"
    else:
        return
    raise InputError(f"the loader of {name} has {what}, and mltrainer orders the samples itself", where=OPTIONS, hint=hint)


# --- optimizers -----------------------------------------------------------------------------------


def _updates(given: Any) -> Updates:
    """Return the optimizer and the schedulers of `configure_optimizers`, in any of its forms.

    Raises:
        InputError: The method did not return one optimizer.
    """
    if isinstance(given, (tuple, list)) and len(given) == 1:
        (given,) = given
    if isinstance(given, Optimizer):
        return Updates(given)
    if isinstance(given, Mapping):
        schedulers = [given["lr_scheduler"]] if given.get("lr_scheduler") is not None else []
        return Updates(_one(given.get("optimizer")), _schedulers(schedulers, given.get("monitor")))
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (tuple, list)):
        return Updates(_one(given[0]), _schedulers(given[1] if isinstance(given[1], (tuple, list)) else [given[1]], None))
    return Updates(_one(given))


def _one(given: Any) -> Optimizer:
    optimizers = given if isinstance(given, (tuple, list)) else [given]
    if len(optimizers) == 1 and isinstance(optimizers[0], Optimizer):
        return optimizers[0]
    kinds = ", ".join(type(each).__name__ for each in optimizers)
    hint = f"return one optimizer, with parameter groups where parts have different learning rates, {ANY_LOOP}"
    raise InputError("configure_optimizers", expected="one optimizer", found=kinds, where=OPTIONS, hint=hint)


def _schedulers(given: Sequence[Any], monitor: str | None) -> list[Scheduler]:
    return [_scheduler(each if isinstance(each, Mapping) else {"scheduler": each}, monitor) for each in given]


def _scheduler(given: Mapping[str, Any], monitor: str | None) -> Scheduler:
    """Return a scheduler as `lr_scheduler` describes it.

    Raises:
        InputError: It depends on an unnamed metric, or has another interval.
    """
    it, every = given["scheduler"], given.get("interval", "epoch")
    by_metric = given.get("reduce_on_plateau", isinstance(it, ReduceLROnPlateau))
    followed = given.get("monitor") or monitor
    if by_metric and followed is None:
        what = f"{type(it).__name__} follows a metric, but none is named"
        raise InputError(what, where=OPTIONS, hint='"lr_scheduler": {"scheduler": ..., "monitor": "val_loss"}')
    if every not in ("step", "epoch"):
        raise InputError(f"the scheduler's interval is {every!r}", where=OPTIONS, hint='it may be "step" or "epoch"')
    return Scheduler(it, every, given.get("frequency", 1), _plain(str(followed)) if by_metric else None)
