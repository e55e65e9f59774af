"""Layers of two models whose outputs are trained to be equal, and their distance (FitNets: arXiv 1412.6550).

Romero et al., 2015, learn a map from the narrower layer to the wider one. Here the wider one is mapped to the narrower by a fixed
matrix of draws, which nearly keeps lengths and angles (Johnson and Lindenstrauss, 1984): it has no weights to train, to save or
to average.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.strategies import LayerPair
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds


class Taps:
    """Modules of a model whose outputs are kept during a forward pass in this context.

    Args:
        model: The model.
        names: Names of the modules.
        keys: Config keys of the names.

    Raises:
        InputError: The model has no module of that name.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], keys: Sequence[str]) -> None:
        self._names, self._keys, known = names, keys, dict(model.named_modules())
        for name, key in zip(names, keys, strict=True):
            if name not in known:
                close = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
                what = f"the model has no module {name!r}; near to it are {', '.join(map(repr, filter(None, close)))}"
                raise InputError(what, where=key, hint="name one as model.named_modules() does")
        self._modules = [known[name] for name in names]
        self._seen: list[list[Any]] = []

    def __enter__(self) -> None:
        self._seen = [[] for _ in self._names]
        self._handles = [
            module.register_forward_hook(partial(_keep, seen)) for module, seen in zip(self._modules, self._seen, strict=True)
        ]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()

    def taken(self) -> list[Tensor]:
        """Return the outputs of the last forward pass, and drop them.

        Raises:
            InputError: A module was not called once, or gave something else than one tensor.
        """
        seen, self._seen = self._seen, []
        for name, key, outputs in zip(self._names, self._keys, seen, strict=True):
            if len(outputs) != 1 or not isinstance(outputs[0], Tensor):
                gave = f"gives {type(outputs[0]).__name__}" if len(outputs) == 1 else f"is called {len(outputs)} times"
                what = f"a module that is called once and gives one tensor was expected, and {name!r} {gave} in a forward pass"
                raise InputError(what, where=key, hint="name another module, such as one within it or around it")
        return [outputs[0] for outputs in seen]


def _keep(seen: list[Any], _module: nn.Module, _given: Any, output: Any) -> None:
    # A copy: a module after it may change it in place, as nn.ReLU(inplace=True) does.
    seen.append(output.clone() if isinstance(output, Tensor) else output)


class LayerPairs:
    """Pairs of modules of a trained model and its teacher.

    Args:
        pairs: Names of each pair's modules.
        key: Config key of the pairs.
        seed: The run's seed.
        own: The trained model.
        teacher: The trained model's teacher.
        with_outputs: Whether the outputs of both models are a last pair.

    Attributes:
        own: Taps of the trained model.
        teacher: Taps of its teacher.
    """

    def __init__(
        self,
        pairs: Sequence[LayerPair],
        key: str,
        seed: int,
        own: nn.Module,
        teacher: nn.Module,
        *,
        with_outputs: bool = False,
    ) -> None:
        self._key, self._seed = key, seed
        whole = [LayerPair.model_construct(student="", teacher="")] if with_outputs else []
        sides = [*pairs, *whole]
        self.own = Taps(own, [pair.student for pair in sides], [f"{key}.{nr}.student" for nr in range(len(sides))])
        self.teacher = Taps(teacher, [pair.teacher for pair in sides], [f"{key}.{nr}.teacher" for nr in range(len(sides))])
        self._maps: dict[tuple[int, torch.Size], Tensor] = {}

    def taken(self) -> list[tuple[Tensor, Tensor]]:
        """Return the outputs of each pair in the last forward passes of both, and drop them.

        Raises:
            InputError: A module did not return a single tensor.
        """
        return list(zip(self.own.taken(), self.teacher.taken(), strict=True))

    def distance(self, sides: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the sum over some pairs of the mean squared differences of both outputs.

        Raises:
            InputError: The outputs of a pair cannot be compared.
        """
        return torch.stack([self._apart(nr, own.float(), taught.float()) for nr, (own, taught) in enumerate(sides)]).sum()

    def _apart(self, nr: int, own: Tensor, taught: Tensor) -> Tensor:
        axis = self._axis(nr, own.shape, taught.shape)
        if axis is not None and own.shape[axis] > taught.shape[axis]:
            own = self._narrowed(nr, own, axis, taught.shape[axis])
        elif axis is not None:
            taught = self._narrowed(nr, taught, axis, own.shape[axis])
        return functional.mse_loss(own, taught)

    def _axis(self, nr: int, own: torch.Size, taught: torch.Size) -> int | None:
        """Return the one axis in which two shapes differ; None if they are the same.

        Raises:
            InputError: The shapes differ in the number of samples, or in several axes.
        """
        differing = [axis for axis in range(len(own)) if own[axis] != taught[axis]] if len(own) == len(taught) else [0]
        if len(differing) > 1 or 0 in differing:
            what = f"the student's layer gives {[*own]}, and the teacher's {[*taught]}: one axis after the first may differ"
            raise InputError(what, where=f"{self._key}.{nr}", hint="pair layers of the same form, such as two of as many pixels")
        return differing[0] if differing else None

    def _narrowed(self, nr: int, features: Tensor, axis: int, width: int) -> Tensor:
        """Return features mapped along an axis to a smaller width, by a matrix that the seed draws."""
        shape = torch.Size((features.shape[axis], width))
        if (nr, shape) not in self._maps:
            drawn = seeds.generator(self._seed, "layer pair", nr).standard_normal(shape) / width**0.5
            self._maps[nr, shape] = torch.from_numpy(drawn).float().to(features.device)
        return (features.movedim(axis, -1) @ self._maps[nr, shape]).movedim(-1, axis)
