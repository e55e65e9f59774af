"""Masked modelling: a part of each sample is hidden, and the model learns features that predict it, without labels.

Patches of images as in SimMIM (Xie et al., 2022, arXiv 2111.09886); cells of tables, in whose place those of other rows stand, as
in VIME (Yoon et al., 2020, NeurIPS); tokens of texts as in BERT (Devlin et al., 2019, arXiv 1810.04805).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.companions.strategies.hiding import Cells, Hiding, Patches, Tokens
from mltrainer.companions.strategies.inputs import input_of, with_input
from mltrainer.companions.strategies.probing import Probing, probes, read_features
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.tasks import sanity_check
from mltrainer.tasks.strategy import MicroBatch, Training
from mltrainer.tasks.structures import length, mapped
from mltrainer.tasks.tables.task import Tabular

TRIED = 2  # samples with which the outputs of a model's layers are inspected
SIDES = 7  # patches along an image's shorter side, as in the paper: 32 of 224 pixels
IMAGES, TOKENS = 4, 2  # axes of a batch of each


class Decoder(nn.Module):
    """A linear layer that predicts the hidden part from the states of another one, as in SimMIM.

    Args:
        width: Width of a state.
        numbers: Count of numbers that each state predicts.
        vector: Learned vector that represents the hidden part, if any.
    """

    def __init__(self, width: int, numbers: int, vector: Tensor | None) -> None:
        super().__init__()
        self.layer = nn.Linear(width, numbers)
        self.vector = None if vector is None else nn.Parameter(vector)

    def forward(self, states: Tensor) -> Tensor:
        """Return each state's predictions, in the last axis; a map has its width in the second one."""
        predictions: Tensor = self.layer(states.movedim(1, -1) if states.dim() == IMAGES else states)
        return predictions


class Masked(Probing[configs.Masked]):
    """Samples with a hidden part."""

    name = "masked"
    _training: Training
    _hiding: Hiding
    _layer: str | None

    # --- the model ---

    def adapt(self, training: Training, new: Sequence[str]) -> None:
        """Put the predictor of the hidden part beside the model's last layer.

        Raises:
            InputError: There is no linear one, nothing can be hidden, or no layer gives the states for it.
        """
        batch, head = training.batch(TRIED), self.head_of(training.model)
        hiding = self._hiding = self._made(training, input_of(training.task, batch)[1])
        self._layer, shape = self._found(training, batch, head)
        width = shape[1] if len(shape) == IMAGES else shape[-1]
        self.put(training.model, head, Decoder(width, hiding.numbers(shape), hiding.vector(training.model)))

    def _made(self, training: Training, x: Any) -> Hiding:
        """Return the way to hide a part of inputs such as `x`.

        Raises:
            InputError: No part of the inputs can be hidden.
        """
        settings, task = self.settings, training.task
        if isinstance(x, Tensor) and x.dim() == IMAGES:
            return Patches(settings.share or 0.6, settings.patch or max(1, round(min(x.shape[2:]) / SIDES)), tuple(x.shape[1:]))
        if settings.patch is not None:
            raise InputError("only images have patches", where=f"{self.key}.patch", hint="leave it out")
        if isinstance(x, Tensor) and x.is_floating_point():
            return Cells(settings.share or 0.3, task.categories() if isinstance(task, Tabular) else [None] * x[0].numel())
        named = ((name, one) for name, one in training.model.named_modules() if isinstance(one, nn.Embedding))
        name, embedding = next(named, ("", None))
        if isinstance(x, Tensor) and x.dim() == TOKENS and embedding is not None:
            return Tokens(settings.share or 0.15, x.shape[1], name, embedding.num_embeddings, embedding.padding_idx)
        kind = f"{str(x.dtype).removeprefix('torch.')} {[*x.shape]}" if isinstance(x, Tensor) else type(x).__name__
        hint = "let it begin with images, with numbers, or with tokens that an nn.Embedding of the model reads"
        raise InputError(f"a batch begins with {kind}, of which no part can be hidden", where=self.key, hint=hint)

    def _found(self, training: Training, batch: Any, head: str) -> tuple[str | None, Sequence[int]]:
        """Return the layer whose outputs predict the hidden part, None for the last layer's input; and the shape of the states.

        Raises:
            InputError: No layer, or not the one that the config names, gives states for it.
        """
        hiding, pattern = self._hiding, self.settings.layer
        for one in reversed(called(training, batch, head)):
            is_meant = pattern is None or re.search(pattern, one.name)
            if is_meant and hiding.fits(one.shape):
                return one.name, one.shape
            # Layers after the states would learn nothing from them.
            if pattern is None and one.has_weights:
                break
        if pattern is not None or hiding.has_places:
            which = f"whose name matches {pattern!r}" if pattern is not None else "right before the last one"
            hint = "name one that does, or take another model, such as transformer of texts"
            raise InputError(f"no layer {which} gives {hiding.needs}", where=f"{self.key}.layer", hint=hint)
        last: Any = training.model.get_submodule(head)
        return None, [TRIED, last.in_features]

    # --- the loss ---

    def begin(self, training: Training) -> str:
        """Return a line on the hidden parts."""
        self._training, hiding = training, self._hiding
        read = "the last layer's input" if self._layer is None else f"the outputs of {self._layer}"
        return f"hides {hiding.share:.0%} of the {hiding.parts_name}, and learns to predict them from {read}"

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the distance of the model's predictions from the hidden part."""
        training, hiding = self._training, self._hiding
        batch = mapped(Tensor.clone, micro.batch) if training.config.task.use is not None else micro.batch
        place, x = input_of(training.task, batch)
        given, is_hidden = hiding.hide(x)
        ((head, probe),) = probes(training.model).items()
        with hiding.within(training.model, is_hidden, probe.beside.vector):  # type: ignore[arg-type]  # a module's attribute
            states = self._states(head, with_input(batch, place, given))
        return hiding.loss(probe.beside(states.float()).float(), x, is_hidden)

    def _states(self, head: str, batch: Any) -> Tensor:
        """Return the states of a batch that predict the hidden part."""
        task, model = self._training.task, self._training.model
        if self._layer is None:
            return read_features(task, model, head, batch, self.key)
        seen: list[Tensor] = []
        handle = model.get_submodule(self._layer).register_forward_hook(lambda _module, _inputs, given: seen.append(given))
        try:
            task.forward(model, batch)
        finally:
            handle.remove()
        return seen[-1]


# --- layers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Called:
    """A called layer.

    Attributes:
        name: Name of the layer.
        shape: Shape of its outputs; empty for anything but a tensor.
        has_weights: Whether it has weights, those of inner layers apart.
    """

    name: str
    shape: Sequence[int]
    has_weights: bool


def called(training: Training, batch: Any, head: str) -> list[Called]:
    """Return the layers that are done before a model's last one is called, in their order.

    Raises:
        InputError: The model does not fit the batch.
    """
    model, seen, before = training.model, list[Called](), list[Called]()

    def note(name: str, module: nn.Module, given: Any) -> None:
        shape = [*given.shape] if isinstance(given, Tensor) else []
        seen.append(Called(name, shape, next(module.parameters(recurse=False), None) is not None))

    handles = [
        module.register_forward_hook(lambda module, _inputs, given, name=name: note(name, module, given))
        for name, module in model.named_modules()
        if name
    ]
    handles.append(model.get_submodule(head).register_forward_pre_hook(lambda _module, _inputs: before.extend(seen)))
    try:
        sanity_check.check_batch(training.task, model, mapped(torch.clone, batch), length(batch), training.root)
    finally:
        for handle in handles:
            handle.remove()
    return before
