"""The distributions of a model's weights and activations: a small histogram for some layers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LAYERS = 8  # the most layers with histograms, with the first and the last: a page and a record have room for these
VALUES = 1024  # values of a tensor that its histogram is made from
BINS = 24
TAIL = 0.005  # share of the values outside the bins, at either end: one extreme value would put all others in one bin
_GOLDEN = 0.6180339887498949


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
