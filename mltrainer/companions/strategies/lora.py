"""Low-rank adapters: beside a held layer, a product of two small matrices is trained (Hu et al., 2021, arXiv 2106.09685).

The layers are peft's. The measured and delivered model is the task's own, to whose weights the products are added; if
held weights are quantized, to the dequantized weights.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.starting import SHOWN, matches
from mltrainer.checkpointing.weights import dtype_name, weights_sha256
from mltrainer.companions.strategies.quantized_linear import BLOCK, DTYPES, QuantizedLinear, QuantizedWeight
from mltrainer.companions.strategies.wrapping import leave_fast_paths, plain_names, plain_state, return_fast_paths, take_plain
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError, first_names
from mltrainer.exporters.adapters import BASE_FILE, CONFIG_FILE, WEIGHTS_FILE
from mltrainer.redaction import shortened
from mltrainer.tasks.strategy import State, Strategy, Training

KINDS = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONV1D = "Conv1D"  # the linear layer of transformers' GPT-2
ADAPTER = "default"  # peft's name of the one
PREFIX = "base_model.model."  # peft's prefix of a tensor's name in a file
MOST_MESSAGE = 200  # characters of peft's message
RESTING = "resting_base"  # an adapted layer's own one in few bits, while a whole one is in its place


class Lora(Strategy[configs.Lora]):
    """Low-rank adapters."""

    name = "lora"
    adapts = holds = True
    _rounded: Mapping[str, Any] = MappingProxyType({})  # settings of a quantized base of an adapter

    def adapt(self, training: Training, new: Sequence[str]) -> None:
        """Hold a model's parameters, but for those that `train` names or that are new, and put adapters beside its layers.

        Raises:
            InputError: A pattern matches nothing, a layer cannot have an adapter, or a package is not installed.
        """
        self.library("peft", "makes adapters", "lora")
        model = training.model
        whole = self._trained_whole(model, new)
        chosen = self._chosen(model, whole)
        trained = [model.get_parameter(name) for name in whole]
        if self.settings.base_bits is not None:
            self._quantize(model, chosen, training.config.device, self.settings.base_bits)
        with self._faults():
            _peft().inject_adapter_in_model(self._options(chosen), model)
        for parameter in trained:
            parameter.requires_grad_(True)
        leave_fast_paths(model)
        take_plain(model, _layers, _rest)

    def begin(self, training: Training) -> str:
        """Return a line on the adapters."""
        sizes = [(p.numel(), p.requires_grad) for p in training.model.parameters()]
        trained = sum(size for size, is_trained in sizes if is_trained)
        total = sum(size for size, _ in sizes) + self.quantized(training.model)
        adapted = f"adapts {len(_layers(training.model))} layers: {trained:,} of {total:,} parameters are trained"
        return "; ".join([adapted, *self._bits_words(training.model)])

    def _bits_words(self, model: nn.Module) -> list[str]:
        weights = [layer.quantized for layer in _quantized(model).values()]
        if not weights:
            return []
        now, whole = sum(one.nbytes for one in weights), sum(one.shape.numel() * one.dtype.itemsize for one in weights)
        bits = self.settings.base_bits
        return [f"{len(weights)} of them hold their weights in {bits} bits: {now:,} bytes in place of {whole:,}"]

    def quantized(self, model: nn.Module) -> int:
        """Return the count of quantized numbers."""
        return sum(layer.quantized.shape.numel() for layer in _quantized(model).values())

    def plain(self, model: nn.Module) -> State:
        """Return the state of the task's own model with the adapters added to its weights."""
        layers = _layers(model)
        return plain_state(model, layers) | {f"{name}.weight": _merged(layer) for name, layer in layers.items()}

    def release(self, model: nn.Module) -> None:
        """Put the layers back in place of those with adapters, which are added to their weights."""
        layers = _layers(model)
        if not any(layer.merged for layer in layers.values()):
            model.load_state_dict(self.plain(model))
        for name, layer in layers.items():
            model.set_submodule(name, layer.get_base_layer())
        model.requires_grad_(True)
        return_fast_paths(model)

    def delivered(self, model: nn.Module) -> dict[str, bytes]:
        """Return the adapter as peft reads it, and the digest of the weights that it belongs to."""
        state, layers = model.state_dict(), _layers(model)
        names = plain_names(model, layers)
        modules = sorted({name.rpartition(".")[0] for name, p in model.named_parameters() if p.requires_grad and names[name]})
        saved = [name for name, plain in names.items() if plain is None or plain.rpartition(".")[0] in modules]
        held = {plain: state[name] for name, plain in names.items() if plain is not None and name not in saved}
        held |= {f"{name}.weight": layer.weight for name, layer in _quantized(model).items()}
        options = self._options([*layers], modules).to_dict() | {"inference_mode": True}
        # Without the module's address: peft's own dict names the class of what it was put into.
        options |= {"auto_mapping": None}
        base = {"tensors": sorted(held), "weights_sha256": weights_sha256(held), **self._rounded}
        return {
            WEIGHTS_FILE: safetensors.torch.save({_file_name(n): state[n].cpu().contiguous() for n in saved}, {"format": "pt"}),
            CONFIG_FILE: _json({k: sorted(v) if isinstance(v, set) else v for k, v in options.items()}),
            BASE_FILE: _json(base),
        }

    # --- held weights in few bits ---

    def _quantize(self, model: nn.Module, chosen: Sequence[str], device: str, bits: int) -> None:
        """Have the linear ones among the chosen layers hold their weights in few bits; the others stay whole.

        Raises:
            InputError: bitsandbytes is not installed or has no kernels for the device, or no layer can.
        """
        key = f"{self.key}.base_bits"
        self.library("bitsandbytes.functional", "holds weights in few bits", "eightbit")
        modules: dict[str, Any] = {name: model.get_submodule(name) for name in chosen}
        layers = {name: module for name, module in modules.items() if _can_be_quantized(module)}
        if not layers:
            what = f"no linear layer gets an adapter: {first_names(chosen, SHOWN)} would stay whole"
            raise InputError(what, where=key, hint="name linear layers under layers, or leave base_bits out")
        _require_kernels(device, bits, key)
        weights = {f"{name}.weight": layer.weight.detach() for name, layer in layers.items()}
        if wide := [name for name, weight in weights.items() if weight.dtype not in DTYPES]:
            what = f"{first_names(wide, SHOWN)} is {dtype_name(weights[wide[0]])}; float32, bfloat16 or float16 was expected"
            raise InputError(what, where=key, hint="make the model of such numbers, or leave base_bits out")
        self._rounded = {"bits": bits, "rounded": sorted(weights), "rounded_from_sha256": weights_sha256(weights)}
        for name, layer in layers.items():
            model.set_submodule(name, QuantizedLinear(layer, bits))

    # --- which layers ---

    def _trained_whole(self, model: nn.Module, new: Sequence[str]) -> list[str]:
        """Return the names of the parameters that are trained whole.

        Raises:
            InputError: A pattern matches nothing, or a parameter of no module within the model.
        """
        names = [name for name, _ in model.named_parameters()]
        self._refuse_unmatched("train", self.settings.train, names, "parameter")
        chosen = [name for name in names if name in new or matches(self.settings.train, name)]
        if loose := [name for name in chosen if "." not in name]:
            what = f"{first_names(loose, SHOWN)} belongs to no module within the model, and peft's files hold whole modules"
            raise InputError(what, where=f"{self.key}.train", hint="put it into a module of its own, or hold it")
        return chosen

    def _chosen(self, model: nn.Module, trained: Collection[str]) -> list[str]:
        """Return the names of the modules that get an adapter.

        Raises:
            InputError: No module matches, or a named one cannot have an adapter.
        """
        # Left out: fully trained modules need no adapter, such as a new head that a pattern names along with other layers.
        modules = {n: m for n, m in model.named_modules() if n and _is_layer(m) and not _is_within(m, n, trained)}
        if any(isinstance(m, _tuner_layer()) for m in model.modules()):
            what = "the model already has adapters"
            raise InputError(what, where=self.key, hint="leave one of them out: the task's option, or the strategy")
        reasons = {name: reason for name in modules if (reason := _obstacle(model, name, trained))}
        if self.settings.layers is None:
            chosen = [name for name, m in modules.items() if _is_linear(m) and name not in reasons]
        else:
            self._refuse_unmatched("layers", self.settings.layers, [*modules], "linear, embedding or convolution layer")
            chosen = [name for name in modules if matches(self.settings.layers, name)]
        if refused := [f"{name} {reasons[name]}" for name in chosen if name in reasons]:
            raise InputError("; ".join(refused[:SHOWN]), where=f"{self.key}.layers", hint="name other layers")
        if not chosen:
            raise InputError("no layer of the model can have an adapter", where=f"{self.key}.layers", hint="name some")
        return chosen

    def _refuse_unmatched(self, key: str, patterns: Sequence[str], names: Sequence[str], what: str) -> None:
        for pattern in patterns:
            if not matches([pattern], *names):
                raise InputError(
                    f"no {what}'s name matches {pattern!r}; the names are: {first_names(names, SHOWN) or 'none'}",
                    where=f"{self.key}.{key}",
                    hint="change the pattern in mltrainer.yaml",
                )

    def _options(self, layers: Sequence[str], modules: Sequence[str] = ()) -> Any:
        """Return peft's config; the layers are one pattern, as of a list peft takes each for the end of a name."""
        settings = self.settings
        return _peft().LoraConfig(
            r=settings.rank,
            lora_alpha=settings.rank if settings.alpha is None else settings.alpha,
            lora_dropout=settings.dropout,
            use_dora=settings.dora,
            target_modules=f"(?:{'|'.join(map(re.escape, layers))})",
            modules_to_save=[*modules] or None,
        )

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, RuntimeError, TypeError, NotImplementedError) as error:
            raise InputError(f"peft: {_message(error)}", where=self.key, hint="name other layers under layers") from error


def reread(model: nn.Module, content: bytes) -> None:
    """Load an adapted model's trained tensors from a delivered file alone: tensors that the file lacks become NaN."""
    state = model.state_dict()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.fill_(float("nan"))
        for name, tensor in safetensors.torch.load(content).items():
            state[_own_name(name)].copy_(tensor)


# --- peft's layers ----------------------------------------------------------------------------------


def _peft() -> Any:
    return importlib.import_module("peft")


def _tuner_layer() -> Any:
    return importlib.import_module("peft.tuners.tuners_utils").BaseTunerLayer


def _layers(model: nn.Module) -> dict[str, Any]:
    """Return the modules that have an adapter, by name."""
    kind = _tuner_layer()
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


def _quantized(model: nn.Module) -> dict[str, QuantizedLinear]:
    """Return the layers in few bits within those that have an adapter, by the name of these."""
    return {n: layer.base_layer for n, layer in _layers(model).items() if isinstance(layer.base_layer, QuantizedLinear)}


def _can_be_quantized(module: Any) -> bool:
    # What else a subclass or a hook of the user's does, a new layer in its place would not do.
    return type(module) is nn.Linear and not (module._forward_hooks or module._forward_pre_hooks)


def _require_kernels(device: str, bits: int, key: str) -> None:
    """Try a few numbers on a device.

    Raises:
        InputError: The library has no kernels for it.
    """
    try:
        QuantizedWeight(torch.ones(2, BLOCK), bits).to(device).whole()
    except (RuntimeError, NotImplementedError, ValueError, AssertionError, AttributeError) as error:
        what = f"bitsandbytes has no kernels of {bits} bits for the device {device}: {_message(error)}"
        raise InputError(what, where=key, hint="leave base_bits out, or take another device") from error


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == CONV1D


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, KINDS) or _is_linear(module)


def _has_own_way(module: Any) -> str | None:
    """Return the reason that a layer computes something else than its adapter supposes, or None."""
    kind = next((kind for kind in KINDS if isinstance(module, kind)), None)
    if kind is not None and type(module).forward is not kind.forward:
        return "has a custom computation"
    if "weight" not in module._parameters or nn.parameter.is_lazy(module.weight):
        return "computes its weight in each pass, as parametrizations, pruning and lazy layers do"
    if isinstance(module, nn.Embedding) and (module.max_norm is not None or module.sparse):
        return "has max_norm or sparse gradients"
    is_plain = (
        module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        if hasattr(module, "groups")
        else True
    )
    return None if is_plain else "has groups, dilation or a padding that is not of zeros"


def _is_within(module: nn.Module, name: str, trained: Collection[str]) -> bool:
    """Return True if all of a module's parameters are among those that are trained whole."""
    return all(f"{name}.{part}" in trained for part, _ in module.named_parameters(recurse=False))


def _obstacle(model: nn.Module, name: str, trained: Collection[str]) -> str | None:
    """Return the reason that a module cannot have an adapter, or None."""
    module: Any = model.get_submodule(name)
    if (own := _has_own_way(module)) is not None:
        return f"{own}, which its adapter would pass by"
    weight = module.weight
    if whole := [part for part, _ in module.named_parameters(recurse=False) if f"{name}.{part}" in trained]:
        return f"is trained whole in part: {', '.join(whole)}"
    if isinstance(model.get_submodule(name.rpartition(".")[0]), nn.MultiheadAttention):
        return "is a part of torch's MultiheadAttention, which reads its weight and would pass its adapter by"
    if sum(p is weight for _, p in model.named_parameters(remove_duplicate=False)) > 1:
        return "shares its weight with another layer, to which the adapter would be added, too"
    return None


def _merged(layer: Any) -> Tensor:
    """Return a layer's weight with its adapter added; the layer stays as it is, bit for bit."""
    base = layer.base_layer
    layer.base_layer = base.whole() if isinstance(base, QuantizedLinear) else base
    weight = layer.base_layer.weight
    with torch.no_grad():
        kept = weight.detach().clone()
        layer.merge()
        merged: Tensor = weight.detach().clone()
        # Restored, not subtracted as in `unmerge`, which leaves other bits.
        weight.copy_(kept)
    layer.merged_adapters.clear()
    layer.base_layer = base
    return merged


def _rest(layer: Any, is_merged: bool) -> None:
    """Let a layer's adapter rest while its weight has it in already, and one of few bits, which cannot."""
    if is_merged and isinstance(layer.base_layer, QuantizedLinear):
        # Not as an attribute, which would make it a part of the model's state.
        vars(layer)[RESTING] = layer.base_layer
        layer.base_layer = layer.base_layer.whole()
    elif not is_merged and RESTING in vars(layer):
        layer.base_layer = vars(layer).pop(RESTING)
    layer.merged_adapters[:] = [ADAPTER] if is_merged else []


def _file_name(name: str) -> str:
    """Return a tensor's name in peft's file, which leaves the adapter's own name out."""
    short = name.replace(f".{ADAPTER}.weight", "") if ".lora_magnitude_vector." in name else name.replace(f".{ADAPTER}", "")
    return PREFIX + (short if ".lora_" in name else name)


def _own_name(name: str) -> str:
    """Return the name in the model of a tensor in peft's file."""
    short = name.removeprefix(PREFIX)
    if short.endswith(".lora_magnitude_vector"):
        return f"{short}.{ADAPTER}.weight"
    return re.sub(r"(\.lora_(?:embedding_)?[AB])(?=\.weight$|$)", rf"\1.{ADAPTER}", short)


def _message(error: Exception) -> str:
    return shortened(" ".join(str(error).split()), MOST_MESSAGE)


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()
