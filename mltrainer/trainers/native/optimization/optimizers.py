"""A model's optimizer: PyTorch's own kinds, pytorch_optimizer's and LAMB, in groups, with their wrappers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from mltrainer.configs.optimizers import Lookahead, Optimizer, PluginOptimizer, Sam
from mltrainer.errors import InputError
from mltrainer.plugins import made
from mltrainer.trainers.native.optimization.groups import parameter_groups
from mltrainer.trainers.native.optimization.lean_steps import without_compiler

# The module, class and kernel options of each kind: kernels with one pass over memory if there are some for the CPU,
# else kernels that take all parameters together.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sgd": ("torch.optim", "SGD", {"fused": True}),
    "adam": ("torch.optim", "Adam", {"fused": True}),
    "adamw": ("torch.optim", "AdamW", {"fused": True}),
    "adagrad": ("torch.optim", "Adagrad", {"fused": True}),
    "nadam": ("torch.optim", "NAdam", {"foreach": True}),
    "radam": ("torch.optim", "RAdam", {"foreach": True}),
    "adamax": ("torch.optim", "Adamax", {"foreach": True}),
    "rmsprop": ("torch.optim", "RMSprop", {"foreach": True}),
    "lamb": ("mltrainer.trainers.native.optimization.lamb", "Lamb", {}),  # pytorch_optimizer's differs from the paper's
    "lars": ("pytorch_optimizer", "LARS", {"foreach": True}),
    "lion": ("pytorch_optimizer", "Lion", {"foreach": True}),
    "ranger": ("pytorch_optimizer", "Ranger", {"foreach": True, "degenerated_to_sgd": True}),  # else its first steps climb
    "schedule_free": ("pytorch_optimizer", "ScheduleFreeAdamW", {"foreach": True}),
    "adamw_8bit": ("bitsandbytes.optim", "AdamW8bit", {}),
}
SHARE = "share"  # a group's entry besides the optimizer's own: its share of the scheduled learning rate
NOT_OPTIONS = ("name", "groups", "layer_decay", "decay_norms_and_biases", "sam", "lookahead")


class OptimizerPlugin(Protocol):
    """An optimizer of another distribution: a pydantic model of its options, named in the entry points `mltrainer.optimizers`."""

    def build(self, groups: list[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        """Return the optimizer.

        Args:
            groups: The parameter groups: `params`, `weight_decay`, and `share`, an entry that the optimizer leaves unchanged.
            lr: The first learning rate; each step sets every group's rate from the schedule.
        """


def build_optimizer(config: Optimizer, model: nn.Module, own: Mapping[str, Tensor] | None = None) -> Any:
    """Return the optimizer over a model's trainable parameters, in groups; a group's learning rate is its share of the step's.

    Args:
        config: The optimizer's kind and options.
        model: The model, on its device.
        own: The tensors that the optimizer updates, by the parameter's name; None: the whole parameters.

    Raises:
        InputError: The optimizer needs a package that is not installed.
    """
    make = _maker(config)
    own = dict(model.named_parameters()) if own is None else own
    groups = [
        {"params": [own[name] for name in group.parameters], "weight_decay": group.weight_decay, SHARE: group.lr}
        for group in parameter_groups(config, model)
    ]
    if config.sam is not None:
        return _sharpness_aware(groups, make, config.sam, config.lr)
    return make(groups) if config.lookahead is None else _looking_ahead(make(groups), config.lookahead)


def begin_momentum(optimizer: Any) -> None:
    """Start SGD's momentum at zero, which gives the same first step.

    If a first step overflows and is skipped, the fused kernel leaves the momentum unwritten; and it refuses parameters of which
    only some have had their first step.
    """
    for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else ():
        for p in group["params"] if group["momentum"] else ():
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


def kind_of(config: Optimizer) -> str:
    """Return the kind of an optimizer's state entries: its name with its wrapper, and a remark if it has no momentum."""
    wrapper = "sam over " if config.sam is not None else "lookahead over " if config.lookahead is not None else ""
    return wrapper + config.name + (" without momentum" if getattr(config, "momentum", 1) == 0 else "")


def _maker(config: Optimizer) -> Callable[..., torch.optim.Optimizer]:
    """Return a function that makes the config's optimizer from parameter groups."""
    if isinstance(config, PluginOptimizer):
        plugin: OptimizerPlugin = made("optimizers", config.name, config.options, "optimizer.options", ("build",))
        return lambda groups, **_: plugin.build(groups, config.lr)
    module, name, kernels = KINDS[config.name]
    options = config.model_dump(exclude=set(NOT_OPTIONS))
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    kind = without_compiler(getattr(_import(module, config.name), name))
    return lambda groups, **_: kind(groups, **options, **kernels)


def _import(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = 'pip install "mltrainer[eightbit]", or choose another optimizer.name'
        raise InputError(
            f"the optimizer {name} needs {module.partition('.')[0]}: {error}", where="optimizer.name", hint=hint
        ) from error


def _sharpness_aware(groups: list[dict[str, Any]], make: Any, sam: Sam, lr: float) -> Any:
    from pytorch_optimizer import SAM

    return without_compiler(SAM)(groups, make, rho=sam.rho, adaptive=sam.adaptive, lr=lr)


def _looking_ahead(base: torch.optim.Optimizer, lookahead: Lookahead) -> Any:
    from pytorch_optimizer import Lookahead as Wrapper

    return Wrapper(base, k=lookahead.k, alpha=lookahead.alpha)


def own_average(optimizer: Any) -> dict[Tensor, Tensor] | None:
    """Return the weights that an optimizer evaluates with, by parameter; None if they are the trained ones.

    The parameters keep their bits: an optimizer's switch to its average is undone by copying.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if hasattr(optimizer, "clear_and_load_backup"):
        return {p: optimizer.state[p]["slow_params"] for p in parameters}
    if not hasattr(optimizer, "eval"):
        return None
    # Schedule-free's eval() and train() are inverse only up to rounding: using them to return would change the weights.
    trained = [p.detach().clone() for p in parameters]
    optimizer.eval()
    average = {p: p.detach().clone() for p in parameters}
    optimizer.train()
    with torch.no_grad():
        for p, kept in zip(parameters, trained, strict=True):
            p.copy_(kept)
    return average
