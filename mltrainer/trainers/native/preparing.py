"""The preparation of a new model for training: options that trade time for memory, or the reverse, and keep its state's keys."""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.trainers.native.optimization.groups import refuse_unmatched

COMPILED_SHAPES = 64  # greatest number of batch shapes that one model is compiled for
WITHOUT = "mltrainer phase run planning --set compile=false"


def prepare_model(model: nn.Module, config: TrainingConfig) -> None:
    """Make a model ready for training, in place; its parameters and buffers keep names and values.

    Args:
        model: The model, on its device, before an optimizer holds its parameters.
        config: The config, with `gradient_checkpointing`, `channels_last` and `compile`.

    Raises:
        InputError: A pattern matches no module, or no compiler is installed.
    """
    for module in modules_to_recompute(model, config.gradient_checkpointing):
        _recompute(module, config.compile)
    if config.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch declares it for tensors alone
        model.register_forward_pre_hook(_inputs_channels_last)
    if config.compile:
        _compile(model, config.device)


# --- gradient checkpointing -----------------------------------------------------------------------


def modules_to_recompute(model: nn.Module, patterns: list[str]) -> list[nn.Module]:
    """Return the modules whose names match a pattern; without modules inside of another one, and without mere lists of modules.

    Raises:
        InputError: A pattern matches nothing; with the names that exist.
    """
    callable_ones = {n: m for n, m in model.named_modules() if n and type(m).forward is not nn.Module.forward}
    for pattern in patterns:
        refuse_unmatched(pattern, [*callable_ones], "module", "gradient_checkpointing")
    chosen: dict[str, nn.Module] = {}
    for name, module in callable_ones.items():
        is_inside = any(name.startswith(f"{outer}.") for outer in chosen)
        if not is_inside and any(re.search(pattern, name) for pattern in patterns):
            chosen[name] = module
    return list(chosen.values())


def _recompute(module: nn.Module, compiles: bool) -> None:
    """Have the backward pass recompute a module's activations."""
    forward = module.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not (module.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        contexts = (contextlib.nullcontext(), _AsItWas(module))
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=True, context_fn=lambda: contexts, **kwargs)

    # A module that is computed twice is not compiled: its buffers are swapped meanwhile. Importing the compiler takes a second.
    module.forward = torch.compiler.disable(recomputed) if compiles else recomputed


class _AsItWas:
    """A context in which a module has the buffers, and Python and NumPy the generators, that they had when it was made.

    So the second computation repeats the first: it reads the same statistics and draws the same numbers, and a
    changed buffer, such as the running mean of a batch norm, does not change twice. `checkpoint` restores torch's generators.
    """

    def __init__(self, module: nn.Module) -> None:
        found = [(owner, name, b) for owner in module.modules() for name, b in owner._buffers.items() if b is not None]
        self._owners = [(owner, name) for owner, name, _ in found]
        self._buffers = [buffer.clone() for _, _, buffer in found]
        self._generators = (random.getstate(), np.random.get_state())

    def __enter__(self) -> None:
        self._now = ([owner._buffers[name] for owner, name in self._owners], (random.getstate(), np.random.get_state()))
        # Copies of the copies: the computation changes them in place, and a retained graph may be used again.
        self._put([buffer.clone() for buffer in self._buffers], self._generators)

    def __exit__(self, *_: object) -> None:
        self._put(*self._now)

    def _put(self, buffers: Sequence[Tensor | None], generators: tuple[Any, Any]) -> None:
        for (owner, name), buffer in zip(self._owners, buffers, strict=True):
            owner._buffers[name] = buffer
        random.setstate(generators[0])
        np.random.set_state(generators[1])


# --- channels last --------------------------------------------------------------------------------


def _inputs_channels_last(_model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.contiguous(memory_format=torch.channels_last) if isinstance(x, Tensor) and x.dim() == 4 else x for x in inputs)


def lay_out_like_parameters(optimizer: Any) -> None:
    """Give an optimizer's loaded state the memory layout of its parameters; a checkpoint holds rows in C order.

    Fused kernels go through a parameter, its gradient and its moments in their order in memory.
    """
    for part in filter(None, (optimizer, getattr(optimizer, "optimizer", None))):  # a wrapper's own state, and the wrapped one's
        for parameter, entries in part.state.items():
            for name, value in entries.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                    entries[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


# --- compiling ------------------------------------------------------------------------------------


def _compile(model: nn.Module, device: str) -> None:
    """Compile a model's forward pass in place, for each shape separately.

    A kernel for several shapes is made or not depending on the earlier shapes, so that the bits would depend on
    the place of an interruption; with too many shapes, torch would silently stop compiling: an error is raised instead.
    `nn.Module.compile` does nothing for a model of one of torch's own classes, such as `nn.Sequential`.
    """
    _refuse_without_compiler(device)
    import torch._inductor.config

    torch._inductor.config.deterministic = True  # no kernel is chosen by its time
    torch._dynamo.reset()  # another model of this process must not use up the shapes
    torch._dynamo.config.recompile_limit = COMPILED_SHAPES
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    compiled = torch.compile(model.forward, dynamic=False)

    def forward(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except torch._dynamo.exc.FailOnRecompileLimitHit as error:
            what = f"batches came in more than {COMPILED_SHAPES} shapes, and each is compiled by itself"
            raise InputError(what, where="compile", hint=f"make your samples of one shape, or: {WITHOUT}") from error
        except torch._dynamo.exc.TorchDynamoException as error:
            what = f"the model cannot be compiled: {str(error).strip().partition(chr(10))[0]}"
            raise InputError(what, where="compile", hint=WITHOUT) from error

    model.forward = forward


def compiled_with(config: TrainingConfig) -> dict[str, str]:
    """Return the compiler, whose version decides the bits of a compiled model, as name and version; {} without compiling."""
    if not config.compile:
        return {}
    from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

    version = get_compiler_version_info(get_cpp_compiler())
    found = re.search(r"\w+ version [^_]+", version)
    return {"C++ compiler": found[0].strip() if found else version}


def _refuse_without_compiler(device: str) -> None:
    """Raise an `InputError` if no compiler for a device is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, when it imports its compiler
        importlib.import_module("torch._inductor.compile_fx")
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler
        from torch.utils._triton import has_triton
    if device == "cuda" and not has_triton():
        raise InputError(
            "compile: true needs Triton, which is not installed", where="compile", hint=f"pip install triton, or: {WITHOUT}"
        )
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        hint = f"install one (Debian, Ubuntu: apt-get install g++), or name it in the variable CXX, or: {WITHOUT}"
        raise InputError("compile: true needs a C++ compiler, and none was found", where="compile", hint=hint) from error
