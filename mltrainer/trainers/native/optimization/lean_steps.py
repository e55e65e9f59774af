"""PyTorch's optimizers without the code around their arithmetic: the same kernels on the same tensors, and so the same bits."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as hooks

COMPILER_AWARE = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")  # methods, besides `step`
Step = Callable[..., Any]


def without_compiler(kind: type[torch.optim.Optimizer]) -> Any:
    """Return an optimizer's class whose methods avoid torch's compiler, and whose step does only the necessary work.

    PyTorch decorates them to keep the compiler out, and imports the compiler for that: more than a second for each process, and
    some microseconds per step. The decorated code itself is the same.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in COMPILER_AWARE}
    own = inspect.unwrap(kind.step)
    step: Step = torch.no_grad()(own)
    return type(kind.__name__, (kind,), {**methods, "step": _with_hooks(_direct(step) if own is _ADAM_STEP else step)})


def _with_hooks(step: Step) -> Step:
    """Return a step that calls its registered hooks, and is a span of a profile only if there are hooks or a profiler.

    PyTorch makes a span of each optimizer step unless the class is marked as `hooked`: a fifth of a small model's step.
    """
    spanned = torch.optim.Optimizer.profile_hook_step(step)

    @functools.wraps(step)
    def hooked(self: Any, closure: Any = None) -> Any:
        registered = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        everywhere = hooks._global_optimizer_pre_hooks or hooks._global_optimizer_post_hooks
        return (spanned if registered or everywhere or torch.autograd.profiler._is_profiler_enabled else step)(self, closure)

    hooked.hooked = True  # type: ignore[attr-defined]  # torch's own mark of a step that needs no wrapper
    return hooked


# --- Adam and AdamW -------------------------------------------------------------------------------

_ADAM_STEP = inspect.unwrap(torch.optim.Adam.step)  # AdamW's too
Tensors = list[list[Tensor]]  # parameters, gradients, both moments, the second's largest, counts of steps


def _direct(step: Step) -> Step:
    """Return the step of a fused Adam that passes its tensors to the kernel directly.

    PyTorch's own step sorts them by device and type each time, which takes longer than the arithmetic on a small model. It still
    does the first step, which makes the state, steps of a scaled loss, and groups of several devices or types.
    """

    @torch.no_grad()
    def direct(self: Any, closure: Any = None) -> Any:
        is_plain = closure is None and not hasattr(self, "found_inf")
        gathered = [_gathered(self.state, group) for group in self.param_groups] if is_plain else [None]
        if any(tensors is None for tensors in gathered):
            return step(self, closure)
        updates = [(group, tensors) for group, tensors in zip(self.param_groups, gathered, strict=True) if tensors and tensors[0]]
        if updates:  # the step count comes first: the update reads it
            torch._foreach_add_([count for _, tensors in updates for count in tensors[-1]], 1)
        for group, tensors in updates:
            _update(group, tensors)
        return None

    return direct


def _gathered(state: Any, group: dict[str, Any]) -> Tensors | None:
    """Return the tensors of a group's parameters with gradients; None if they are not ready or not all of one type and device."""
    parameters = [p for p in group["params"] if p.grad is not None]
    entries = [state[p] for p in parameters]
    # An empty entry is a parameter before its first step: PyTorch's own step makes its moments.
    if not all(entries) or len({(p.dtype, p.device) for p in parameters}) > 1:
        return None
    largest = [entry["max_exp_avg_sq"] for entry in entries] if group["amsgrad"] else []
    moments = [[entry[name] for entry in entries] for name in ("exp_avg", "exp_avg_sq")]
    return [parameters, [p.grad for p in parameters], *moments, largest, [entry["step"] for entry in entries]]


def _update(group: dict[str, Any], tensors: Tensors) -> None:
    kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
    beta1, beta2 = group["betas"]
    options = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
    kernel(*tensors, beta1=beta1, beta2=beta2, **options)
