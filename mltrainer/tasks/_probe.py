"""One small batch through a model and its loss, to find what does not fit before training begins."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils.data import default_collate

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MltrainerError, is_out_of_memory
from mltrainer.reproducibility import seeds
from mltrainer.tasks._samples import Samples, generators_kept
from mltrainer.tasks.task import Task
from mltrainer.tasks.user_code import user_code, user_frame
from mltrainer.workspace import MACHINE_ERRNOS

BATCH = 8


def check(task: Task, model: nn.Module, samples: Samples, config: TrainingConfig, root: Path) -> None:
    """Run one small batch forward, in evaluation mode, and leave no trace in model or generators.

    Raises:
        InputError: The model does not fit the data, or the loss is no scalar.
    """
    given: Any = model
    if not isinstance(given, nn.Module):
        raise InputError(f"model() gave {type(given).__name__}; a torch.nn.Module was expected", where=config.task.use)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("model() gave a model without a parameter to train", where=config.task.use)
    _refuse_complex(model, config)
    modes = [(module, module.training) for module in model.modules()]
    with generators_kept():
        batch = _batch(samples, min(BATCH, config.batch_size, len(samples)), config, root)
        model.eval()
        try:
            _run(task, model, batch, root)
        finally:
            for module, training in modes:
                module.training = training


def _refuse_complex(model: nn.Module, config: TrainingConfig) -> None:
    """Raise an `InputError` where a parameter is complex, which fused optimizers and averages cannot do with."""
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise InputError(
                f"the parameter {name} is {str(parameter.dtype).removeprefix('torch.')}; only real ones can be trained",
                where=config.task.use,
                mend="keep real and imaginary part in a real parameter, and join them in forward with torch.view_as_complex",
            )


def _batch(samples: Samples, count: int, config: TrainingConfig, root: Path) -> tuple[Any, ...]:
    if samples.tensors is not None:
        return tuple(tensor[:count] for tensor in samples.tensors)
    assert samples.dataset is not None
    rows = []
    with user_code(root, "reading your data set"):
        for place in range(count):
            seeds.seed_everything(seeds.key(config.seed, "sample", 0, int(samples.ids[place])))
            rows.append(samples.dataset[place])
        batch = default_collate(rows)
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def _run(task: Task, model: nn.Module, batch: tuple[Any, ...], root: Path) -> None:
    entered: list[str] = []
    with _watched(model, entered), _explained("forward", batch, entered, root):
        outputs, targets = _two(task.forward(model, batch))
    if len(outputs) != len(targets):
        raise InputError(f"forward gave {len(outputs)} outputs for {len(targets)} targets")
    shapes = [f"outputs {_shape(outputs)}, targets {_shape(targets)}"]
    with _explained("loss", (outputs, targets), shapes, root):
        loss: Any = task.loss(outputs, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InputError(f"loss gave {_shape(loss)}; a scalar tensor, the mean per sample, was expected")
    if not loss.requires_grad:
        raise InputError("the loss does not depend on the model's parameters: something detached it from them")


def _two(given: Any) -> tuple[Tensor, Tensor]:
    """Return what a task's forward gave as outputs and targets.

    Raises:
        InputError: It is not two tensors.
    """
    parts = given if isinstance(given, (tuple, list)) else [given]
    if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        raise InputError(f"forward gave {', '.join(map(_shape, parts))}; two tensors, outputs and targets, were expected")
    return parts[0], parts[1]


def _shape(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


@contextlib.contextmanager
def _watched(model: nn.Module, entered: list[str]) -> Any:
    """Keep in `entered` the modules that a forward pass is inside of, the innermost last."""
    handles = []
    for name, module in model.named_modules():

        def before(module: nn.Module, inputs: tuple[Any, ...], name: str = name) -> None:
            found = ", ".join(_shape(part) for part in inputs)
            entered.append(f"layer {name or 'model'} = {_one_line(module)} got {found}")

        def after(_module: nn.Module, _inputs: Any, _output: Any) -> None:
            entered.pop()

        handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _one_line(module: nn.Module) -> str:
    return f"{type(module).__name__}({module.extra_repr()})"


@contextlib.contextmanager
def _explained(what: str, batch: tuple[Any, ...], inside: list[str], root: Path) -> Any:
    try:
        yield
    except MltrainerError:
        raise
    except (Exception, SystemExit) as error:
        machine = isinstance(error, OSError) and error.errno in MACHINE_ERRNOS
        if machine or is_out_of_memory(error):
            raise
        place = inside[-1] if inside else f"a batch of {', '.join(map(_shape, batch))}"
        raise InputError(
            f"the model does not fit the data: {what} raised {type(error).__name__}: {error}; {place}",
            where=user_frame(error, root),
            mend="mend your code, or change the model or the data so that their shapes agree",
        ) from error
