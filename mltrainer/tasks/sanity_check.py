"""The check of a model, its loss and the data with one small batch, before training begins."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MltrainerError, is_out_of_memory
from mltrainer.tasks.samples import Samples, generators_kept
from mltrainer.tasks.structures import tensors_in
from mltrainer.tasks.task import Task
from mltrainer.tasks.user_code import user_code, user_frame
from mltrainer.workspace import is_of_machine

BATCH = 8


def check(task: Task, model: nn.Module, samples: Samples, config: TrainingConfig, root: Path) -> tuple[Any, Any]:
    """Return outputs and targets of one small batch in evaluation mode, and leave no trace in model or generators.

    Raises:
        InputError: The model does not fit the data, or the loss is no scalar.
    """
    given: Any = model
    if not isinstance(given, nn.Module):
        raise InputError("model()", expected="a torch.nn.Module", found=type(given).__name__, where=config.task.use)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        hint = "set requires_grad on the parameters to train"
        raise InputError("model() gave a model without a parameter to train", where=config.task.use, hint=hint)
    _refuse_complex(model, config)
    _refuse_replicas(model, config)
    count = min(BATCH, config.batch_size, len(samples))
    return check_batch(task, model, first_batch(task, samples, count, config, root), count, root)


def check_batch(task: Task, model: nn.Module, batch: Any, count: int, root: Path) -> tuple[Any, Any]:
    """Return outputs and targets of a batch of `count` samples in evaluation mode, and leave no trace in model or generators.

    Raises:
        InputError: The model does not fit the batch, or the loss is no scalar.
    """
    # Module by module: model.train() afterwards would also wake parts that the user had put into evaluation mode.
    modes = [(module, module.training) for module in model.modules()]
    with generators_kept():
        model.eval()
        try:
            return _run(task, model, batch, count, root)
        finally:
            for module, training in modes:
                module.training = training


def _refuse_complex(model: nn.Module, config: TrainingConfig) -> None:
    """Raise an `InputError` where a parameter is complex, which fused optimizers and averages do not support."""
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise InputError(
                f"the parameter {name} is {str(parameter.dtype).removeprefix('torch.')}; only real ones can be trained",
                where=config.task.use,
                hint="keep real and imaginary part in a real parameter, and join them in forward with torch.view_as_complex",
            )


def _refuse_replicas(model: nn.Module, config: TrainingConfig) -> None:
    """Raise an `InputError` where a model is wrapped to be computed on several devices, in an order that their number decides."""
    wrapped = next((m for m in model.modules() if isinstance(m, (nn.DataParallel, nn.parallel.DistributedDataParallel))), None)
    if wrapped is not None:
        raise InputError(
            f"model() gave a {type(wrapped).__name__}, whose sums depend on the number of devices",
            where=config.task.use,
            hint="return the model that it wraps; several processes or GPUs share a step by --processes, with the bits of one",
        )


def first_batch(task: Task, samples: Samples, count: int, config: TrainingConfig, root: Path) -> Any:
    """Return the first samples as one batch, as a task's `forward` takes it, on the CPU.

    Raises:
        InputError: The user's data set failed, or the samples make no batch.
    """
    if samples.tensors is not None:
        return samples.batch([tensor[:count] for tensor in samples.tensors])
    rows = []
    with generators_kept(), user_code(root, "reading your data set"):
        for place in range(count):
            rows.append(samples.read(config.seed, "sample", 0, place))
    batch = _collated(task, rows, root)
    if isinstance(batch, Mapping):
        return dict(batch)
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def _collated(task: Task, rows: list[Any], root: Path) -> Any:
    """Return samples as one batch.

    Raises:
        InputError: The samples make no batch.
    """
    try:
        with user_code(root, "collate of your task"):
            return task.collate(rows)
    except InputError as error:
        if type(task).collate is Task.collate:
            error.hint = "give every sample the same shapes and types, or write collate(self, rows) in your task"
            error.message = error.message.replace("collate of your task", "the samples do not make one batch")
        raise


def _run(task: Task, model: nn.Module, batch: Any, count: int, root: Path) -> tuple[Any, Any]:
    entered: list[str] = []
    with _watched(model, entered), _explained("forward", batch, entered, root):
        outputs, targets = _two(task.forward(model, batch))
    if isinstance(outputs, Tensor) and isinstance(targets, Tensor) and len(outputs) != len(targets):
        hint = "return one row of outputs and one target for each sample"
        raise InputError(f"forward gave {len(outputs)} outputs for {len(targets)} targets", hint=hint)
    shapes = [f"outputs {_shape(outputs)}, targets {_shape(targets)}"]
    with _explained("loss", (outputs, targets), shapes, root):
        loss: Any = task.loss(outputs, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InputError("loss", expected="a scalar tensor, the mean per sample", found=_shape(loss), hint="return loss.mean()")
    if not loss.requires_grad:
        what = "the loss does not depend on the model's parameters: something detached it from them"
        raise InputError(what, hint="compute it of the outputs, without .detach(), .item(), .numpy() and torch.no_grad()")
    _check_items(task, targets, count, root)
    _check_metrics(task)
    with _explained("check", batch, shapes, root):
        task.check(model, batch)
    return outputs, targets


def _check_items(task: Task, targets: Any, count: int, root: Path) -> None:
    """Refuse targets whose number of samples the default `loss_items` gets wrong.

    Raises:
        InputError: The numbers differ; the message has both.
    """
    with user_code(root, "loss_items of your task"):
        items = task.loss_items(targets)
    if type(task).loss_items is Task.loss_items and items != count:
        raise InputError(
            f"the targets of {count} samples look like those of {items}: {_shape(targets)}",
            where="task.use",
            hint="write loss_items(self, targets): the number of items that the loss is the mean of",
        )


def _check_metrics(task: Task) -> None:
    """Refuse `accumulate` without `compute`.

    Raises:
        InputError: One of the two is missing.
    """
    kind = type(task)
    if kind.accumulate is not Task.accumulate and kind.compute is Task.compute:
        what = f"{kind.__name__} has accumulate, but no compute"
        raise InputError(what, where="task.use", hint="write compute(self, state), which returns the metrics by name")


def _two(given: Any) -> tuple[Any, Any]:
    """Return the outputs and targets of a task's forward, each a tensor or a structure of tensors.

    Raises:
        InputError: `given` is no such pair.
    """
    parts = given if isinstance(given, (tuple, list)) else [given]
    if len(parts) != 2 or not all(any(True for _ in tensors_in(part)) for part in parts):
        wanted, found = "two parts, outputs and targets, each of tensors", ", ".join(map(_shape, parts))
        raise InputError("forward", expected=wanted, found=found, hint="return model(inputs), targets")
    return parts[0], parts[1]


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, Mapping):
        return f"{type(value).__name__}({', '.join(f'{name}: {_shape(part)}' for name, part in value.items())})"
    return type(value).__name__


@contextlib.contextmanager
def _watched(model: nn.Module, entered: list[str]) -> Any:
    """Keep in `entered` the modules that a forward pass is inside of, the innermost last."""
    handles = []
    for name, module in model.named_modules():

        def before(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], name: str = name) -> None:
            found = ", ".join([*map(_shape, inputs), *(f"{key}: {_shape(part)}" for key, part in named.items())])
            entered.append(f"layer {name or 'model'} = {_one_line(module)} got {found}")

        def after(_module: nn.Module, _inputs: Any, _output: Any) -> None:
            entered.pop()

        handles += [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _one_line(module: nn.Module) -> str:
    return f"{type(module).__name__}({module.extra_repr()})"


@contextlib.contextmanager
def _explained(what: str, batch: Any, inside: list[str], root: Path) -> Any:
    try:
        yield
    except MltrainerError:
        raise
    except (Exception, SystemExit) as error:
        # The machine's fault: a message on shapes would mislead.
        if is_of_machine(error) or is_out_of_memory(error):
            raise
        parts = map(_shape, batch) if isinstance(batch, tuple) else [_shape(batch)]
        place = inside[-1] if inside else f"a batch of {', '.join(parts)}"
        raise InputError(
            f"the model does not fit the data: {what} raised {type(error).__name__}: {error}; {place}",
            where=user_frame(error, root),
            hint="fix your code, or change the model or the data so that their shapes agree",
        ) from error
