"""Vanishing gradients: first layers that hardly learn (page: `diagnostics/vanishing_gradients.md`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mltrainer.diagnostics.signals import Finding, Run, finite, median, number, ratio, text

TINY_INPUTS = 0.01  # as the page of input_scale has it
FIGURES = ("gradient_layers.svg", "gradients.svg")


def find(run: Run, *, layer_ratio: float, relative_norm: float, learned_skill: float) -> Finding:
    """Fire where the model has not learned and the first layer, or all layers, received hardly any gradient."""
    norms = finite(run.norms("median"))
    if not norms:
        return Finding("not_applicable", "The run recorded no gradient norm.")
    if run.underflowed:
        return Finding("not_applicable", "The gradients of layers are too small for fp16 (see gradient_underflow).")
    signals = _measure(run)
    evidence = signals._asdict()
    hint = _hint(signals, layer_ratio)
    sentence = _sentence(run, signals, hint, layer_ratio, relative_norm)
    skill, least = text(run.reached_skill), text(learned_skill)
    if run.learned(learned_skill):
        reason = f"The model has learned (skill {skill}, at least {least}), so small norms are convergence; {sentence}"
        return Finding("clear", reason, evidence)
    is_layer_below = signals.layer_ratio is not None and signals.layer_ratio < layer_ratio
    if not (is_layer_below or signals.relative_norm < relative_norm):
        return Finding("clear", sentence[0].upper() + sentence[1:], evidence)
    if number(run.start_data and run.start_data.spread) < TINY_INPUTS:
        tiny = f"The inputs' deviation is below {TINY_INPUTS:g}, which scales the first layer's gradient (see input_scale)"
        return Finding("clear", f"{tiny}; {sentence}", evidence)
    return Finding("fired", f"The model has not learned (skill {skill}, below {least}), and {sentence}", evidence, FIGURES)


class _Signals(NamedTuple):
    """Gradient norms of the first half of the run; None for too few layers."""

    layer_ratio: float | None
    first_layer: float | None
    last_layer: float | None
    second_layer_ratio: float | None
    relative_norm: float
    norm: float
    skill: float
    layers: int


def _measure(run: Run) -> _Signals:
    """Return the signals of the first half of the run: later, a healthy model's gradients may fade."""
    layers = _first_half(run.layer_norms)
    whole = median(_first_half(run.norms("median")))
    scale = abs(run.first_loss)
    return _Signals(
        layer_ratio=_layer_ratio(layers),
        first_layer=_middle(layers, 0),
        last_layer=_middle(layers, -1),
        second_layer_ratio=_second_ratio(layers),
        # By the first loss, so that the unit of the targets does not matter.
        relative_norm=ratio(whole, scale) if math.isfinite(scale) and scale > 0 else whole,
        norm=whole,
        skill=run.reached_skill,
        layers=len(run.layers),
    )


def _first_half(rows: Sequence[Any]) -> Sequence[Any]:
    return rows[: math.ceil(len(rows) / 2)]


def _middle(rows: Sequence[Sequence[float]], place: int) -> float | None:
    return median(row[place] for row in rows) if rows else None


def _layer_ratio(rows: Sequence[Sequence[float]]) -> float | None:
    """Return the median of first / last layer's norm, over the rows in which the first received any gradient.

    Exact zeros are left out as long as there are other rows: there, units died or numbers underflowed later on. A first layer
    that never received a gradient has ratio 0. None with fewer than two layers.
    """
    deep = [row for row in rows if len(row) > 1]
    alive = [ratio(row[0], row[-1]) for row in deep if row[0] > 0]
    return median(alive) if alive else 0.0 if deep else None


def _second_ratio(rows: Sequence[Sequence[float]]) -> float | None:
    deep = [ratio(row[1], row[-1]) for row in rows if len(row) > 2 and row[1] > 0]
    return median(deep) if deep else None


def _sentence(run: Run, signals: _Signals, hint: str, layer_ratio: float, relative_norm: float) -> str:
    whole = (
        f"the gradient norm was {text(signals.relative_norm)} of the first loss in the first half of the run "
        f"(at least {text(relative_norm)} expected)."
    )
    if signals.layer_ratio is None:
        return f"the model has one layer of weights; {whole}"
    first = f" ({run.layers[0]})" if run.layers else ""
    received = "exactly zero" if signals.layer_ratio == 0 else text(signals.layer_ratio)
    layer = f"the first layer{first} received {received} of the last layer's gradient (at least {text(layer_ratio)} expected)"
    return f"{layer}{hint}, and {whole}"


def _hint(signals: _Signals, limit: float) -> str:
    """Distinguish the first layer from depth: a gradient scaled by tiny inputs is small in the first layer only."""
    second = signals.second_layer_ratio
    if signals.layer_ratio is None or signals.layer_ratio >= limit or second is None or second < limit:
        return ""
    return f" while the second received {text(second)}: look at the scale of the inputs, or at what cuts the first layer off"
