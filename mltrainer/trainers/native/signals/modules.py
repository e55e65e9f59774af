"""What a model's modules do in a forward pass: their outputs' size, dead and saturated units, histograms, calls for training."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from mltrainer.tasks.structures import tensors_in

LAYERS = 8  # the most layers with histograms, with the first and the last: a page and a record have room for these
VALUES = 1024  # values of a tensor that its histogram is made from
BINS = 24
TAIL = 0.005  # share of the values outside the bins, at either end: one extreme value would put all others in one bin
_GOLDEN = 0.6180339887498949
MOST = 64  # modules that are observed, with the first and the last
DEEP = 5.0  # distance of a sigmoid's or tanh's input from 0, from which on less than 0.7 % of a gradient passes
RECTIFIERS = (nn.ReLU, nn.ReLU6)
SATURATING = (nn.Sigmoid, nn.Tanh)
WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@functools.lru_cache(maxsize=4 * LAYERS)
def _places(length: int, device: torch.device) -> Tensor:
    """Return the indices of the values read from a tensor: multiples of the golden ratio, as shares of its length.

    They are as evenly spread as equally spaced ones, but in step with no dimension of the tensor.
    """
    # float64, because float32 cannot name each index of a tensor of more than 16 million values.
    return (torch.arange(VALUES, dtype=torch.float64) * _GOLDEN % 1 * length).long().to(device)


def some_of(values: Tensor) -> Tensor:
    """Return `VALUES` values of a tensor, float32, on its device; a small tensor's values occur several times."""
    flat = values.detach().flatten()
    return flat[_places(len(flat), flat.device)].float()


def chosen_layers(layers: list[str]) -> list[str]:
    """Return at most `LAYERS` of the layers, evenly spaced, with the first and the last."""
    if len(layers) <= LAYERS:
        return layers
    return [layers[round(nr * (len(layers) - 1) / (LAYERS - 1))] for nr in range(LAYERS)]


def histograms(weights: Mapping[str, Tensor], activations: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """Return the histograms of the layers' weights and activations, sampled by `some_of`; None if there are none.

    This waits for the device once.
    """
    given = [*weights.values(), *activations.values()]
    if not given:
        return None
    rows = iter(torch.stack(given).cpu().numpy())
    return {
        kind: {name: found for name, row in zip(layers, rows, strict=False) if (found := histogram(row)) is not None}
        for kind, layers in (("weights", list(weights)), ("activations", list(activations)))
    }


def histogram(values: np.ndarray) -> dict[str, Any] | None:
    """Return a histogram with equal bins between two quantiles; None if no value is finite.

    Returns:
        `low` and `high`, the ends, beyond each of which is a share of `TAIL` of the values, and `counts`, one per bin.
    """
    ordered = np.sort(values[np.isfinite(values)])
    if not len(ordered):
        return None
    cut = int(TAIL * len(ordered))
    inner = ordered[cut : len(ordered) - cut].astype(np.float64)
    low, high = float(inner[0]), float(inner[-1])
    places = ((inner - low) * (BINS / (high - low))).astype(np.int64) if high > low else np.zeros(len(inner), np.int64)
    counts = np.bincount(np.minimum(places, BINS - 1), minlength=BINS)
    return {"low": low, "high": high, "counts": counts.tolist()}


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return some values of some layers' weights, by the parameter's name; without biases and scales, of one dimension."""
    named = {name: p for name, p in model.named_parameters() if p.dim() > 1 and p.numel()}
    return {name: some_of(named[name]) for name in chosen_layers(list(named))}


class Modules:
    """Observes a model's modules in a block; their outputs are not changed.

    A unit is dead if it is 0 for every sample: a channel of a convolution, else a feature. Units behind a rectifier that is not
    a module, such as `torch.relu`, show at the input of the next layer, where no number is below 0.

    Args:
        model: The model, in any mode.
    """

    def __init__(self, model: nn.Module) -> None:
        leaves = [(name, module) for name, module in model.named_modules() if not list(module.children())]
        self._chosen = [leaves[place] for place in sorted({round(i * (len(leaves) - 1) / (MOST - 1)) for i in range(MOST)})]
        self._hooks: list[Any] = []
        self._found: dict[str, dict[str, Tensor]] = {}
        self._drawn = chosen_layers([name for name, module in self._chosen if _has_matrix(module)])
        self.activations: dict[str, Tensor] = {}  # some outputs of each layer with a histogram
        self._channels = -1  # the dimension of the newest layer's units
        self._is_deep = False  # whether a weighted layer was called
        self._given: set[int] = set()  # the memory addresses of the model's inputs
        self._rectified = False
        self.first = self.last = ""
        self._model = model

    def __enter__(self) -> Self:
        self._hooks.append(self._model.register_forward_pre_hook(self._note_given, with_kwargs=True))
        for name, module in self._chosen:
            self._hooks.append(module.register_forward_hook(self._hook(name)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for hook in self._hooks:
            hook.remove()

    def _note_given(self, module: nn.Module, given: Any, named: Any) -> None:
        self._given |= {_place(one) for one in tensors_in((given, named))}

    def _hook(self, name: str) -> Any:
        def note(module: nn.Module, given: Any, output: Any) -> None:
            self.last = type(module).__name__
            self.first = self.first or self.last
            if name in self._drawn and _is_numbers(output):
                self.activations[name] = some_of(output)
            if given and _is_numbers(given[0]) and _is_numbers(output):
                self._note(name, module, given[0].detach(), output.detach())

        return note

    def _note(self, name: str, module: nn.Module, given: Tensor, output: Tensor) -> None:
        if isinstance(module, WEIGHTED):
            self._note_weighted(name, module, given, output)
        elif isinstance(module, RECTIFIERS):
            self._rectified = True
            self._found[name] = {"dead": dead(output, self._channels), "zero": (output <= 0).sum() / output.numel()}
        elif isinstance(module, SATURATING):
            self._found[name] = {"saturated": (given.abs() > DEEP).float().mean()}

    def _note_weighted(self, name: str, module: nn.Module, given: Tensor, output: Tensor) -> None:
        channels = -1 if isinstance(module, nn.Linear) else 1
        bits = torch.tensor(torch.finfo(output.dtype).bits)
        found = {"mean": output.mean(), "std": deviation(output), "largest": output.abs().max(), "bits": bits}
        # A ReLU module's output was counted at the module; zeros in the data, of any branch, are not dead units.
        if self._is_deep and not self._rectified and _place(given) not in self._given:
            found |= {"dead": dead(given, channels), "lowest": given.min()}
        # For a layer that is called again, with other inputs, the first call counts.
        self._found.setdefault(name, found)
        self._channels, self._rectified, self._is_deep = channels, False, True

    def found(self) -> dict[str, dict[str, float]]:
        """Return each module's statistics, by its name."""
        rows = {name: {key: float(value) for key, value in found.items()} for name, found in self._found.items()}
        for row in rows.values():
            if row.pop("lowest", 0.0) < 0:
                # A number below 0 shows that no rectifier came before it; a test inside the hook would wait for the device.
                row.pop("dead")
        return rows


def _place(tensor: Tensor) -> int:
    """Return the address of a tensor's memory, which a slice or a view shares with the whole."""
    return tensor.untyped_storage().data_ptr()


def _has_matrix(module: nn.Module) -> bool:
    """Return True if a module has a weight matrix: a parameter of more than one dimension."""
    return any(p.dim() > 1 for p in module.parameters())


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 1 and value.numel() > 0


def dead(values: Tensor, channels: int) -> Tensor:
    """Return the share of units that are not above 0 for any sample.

    Args:
        values: The values of a batch.
        channels: The dimension of the units.
    """
    others = [dimension for dimension in range(values.dim()) if dimension != channels % values.dim()]
    return (values.amax(others) <= 0).float().mean()


def deviation(values: Tensor) -> Tensor:
    """Return the standard deviation of numbers, NaN for a single one; equal to `std`, in less than half its time."""
    numbers = values.float()
    # In float64: squares of exploding numbers are beyond float32.
    distance: Tensor = torch.linalg.vector_norm(numbers - numbers.mean(), dtype=torch.float64)
    return distance / torch.tensor(values.numel() - 1.0).sqrt()


def symmetric(model: nn.Module) -> list[str]:
    """Return the layers whose units all begin alike, and would stay so: every row of their weight is the same.

    The second half of a low-rank adapter is excluded: it begins at 0 on purpose, and later layers make its units differ.
    """
    return [
        name
        for name, module in model.named_modules()
        if "lora_B" not in name
        and isinstance(module, WEIGHTED)
        and len(module.weight) > 1
        and bool((module.weight == module.weight[:1]).all())
    ]


def spread(model: nn.Module) -> dict[str, float]:
    """Return the standard deviation of each layer's weights times the root of its inputs: 1 to 1.4 after usual initialization."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, WEIGHTED)]
    with torch.no_grad():
        return {name: float(m.weight.std() * m.weight[0].numel() ** 0.5) for name, m in layers[:MOST] if m.weight.numel() > 1}


def trained_share(model: nn.Module) -> float:
    """Return the share of a model's parameters that are trained; it is small for an adapter beside frozen weights."""
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return sum(size for size, is_trained in sizes if is_trained) / max(1, sum(size for size, _ in sizes))


def held(model: nn.Module) -> list[str]:
    """Return the names of a model's frozen matrices, the largest first."""
    matrices = [(p.numel(), name) for name, p in model.named_parameters() if p.dim() > 1 and not p.requires_grad]
    return [name for _, name in sorted(matrices, key=lambda one: -one[0])[:MOST]]


class Argument(NamedTuple):
    """The place and the name of an argument."""

    place: int
    name: str

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the argument of a call; None if it is missing."""
        return args[self.place] if len(args) > self.place else kwargs.get(self.name)


RATE, TRAINING, TRAIN = Argument(1, "p"), Argument(2, "training"), Argument(2, "train")
DROPOUTS: dict[Any, tuple[Argument, Argument | None]] = {
    **{
        getattr(functional, name): (RATE, TRAINING)
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    },
    **{getattr(torch, name): (RATE, TRAIN) for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")},
    functional.scaled_dot_product_attention: (Argument(4, "dropout_p"), None),  # without a mode: the rate is for every call
    functional.multi_head_attention_forward: (Argument(10, "dropout_p"), Argument(13, "training")),
}
BATCH_NORMS = {
    functional.batch_norm: (Argument(1, "running_mean"), Argument(5, "training")),
    torch.batch_norm: (Argument(3, "running_mean"), Argument(5, "training")),
}


class TrainingCalls(TorchFunctionMode):
    """Records calls for training while it is entered, and changes nothing.

    Attributes:
        found: A description of each kind of call, once.
        dropped: The largest rate of a dropout, 0 without one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.dropped = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do a call, and record it if it is for training."""
        kwargs = kwargs or {}
        self.dropped = max(self.dropped, _dropped(func, args, kwargs))
        description = _description(func, args, kwargs)
        if description is not None and description not in self.found:
            self.found.append(description)
        return func(*args, **kwargs)


def _dropped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Return the rate of a dropout call; 0 for any other call, and for one that is switched off."""
    if (found := DROPOUTS.get(func)) is None:
        return 0.0
    rate, training = found
    return float(rate.of(args, kwargs) or 0.0) if training is None or training.of(args, kwargs) else 0.0


def _description(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return a description of a call for training; None for any other."""
    if share := _dropped(func, args, kwargs):
        return f"dropout of {share:g}"
    if (norm := BATCH_NORMS.get(func)) is not None:
        running, training = norm
        if not training.of(args, kwargs):
            return None
        is_kept = running.of(args, kwargs) is not None
        return f"batch norm by the batch's own statistics{'' if is_kept else ', as it keeps none'}"
    return None
