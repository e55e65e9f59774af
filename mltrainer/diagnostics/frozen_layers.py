"""Frozen layers: weights that receive gradients and never move, or that nothing trains (page: `diagnostics/frozen_layers.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, evaluations_of, finite, median

FIGURES = ("update_layers.svg", "gradient_layers.svg")


def find(run: Run, *, evaluations: float, share: float, moved: float, skill: float) -> Finding:
    """Fire where a layer's updates were exactly zero at every evaluation although it had gradients, and something else moved.

    Also fire if no layer's weights are trained at all, and the trained rest, such as biases and norms, has not learned.
    """
    held = list(run.start.weights) if run.start is not None and not run.layers else []
    if held and run.reached_skill < skill:
        reason = f"Of {', '.join(held)} no weight is trained (requires_grad), and what is trained beside them has not learned."
        return Finding("fired", reason, {"layers": held, "since_step": 1})
    norms, updates = run.layer_norms, run.layer_updates
    if min(len(norms), len(updates)) < evaluations:
        reason = f"The layers' updates were recorded at {evaluations_of(len(updates))}; the rule needs {evaluations:g}."
        return Finding("not_applicable", reason)
    count = min(map(len, [*norms, *updates]))
    still = [place for place in range(count) if all(row[place] == 0 for row in updates)]
    usual = [median(row[place] for row in norms) for place in range(count)]
    # An update by a gradient that is tiny beside the others may round to zero in float32, which freezes nothing.
    least = share * max(usual, default=0.0)
    frozen = [place for place in still if usual[place] > least]
    others = "other layers" if len(still) < count else "the validation loss" if _changed(run, moved) else None
    if not frozen or others is None:
        reason = "Nothing moved: a matter of the learning rate." if frozen else "Each layer that received a gradient moved."
        return Finding("clear", reason, {"layers": []})
    names = [run.layers[place] if place < len(run.layers) else str(place) for place in frozen]
    reason = f"Gradients reached {', '.join(names)}, which never moved, while {others} did."
    return Finding("fired", reason, {"layers": names, "since_step": 1}, FIGURES)


def _changed(run: Run, moved: float) -> bool:
    """Return True if the validation loss was not the same throughout: then something moved, such as biases alone."""
    losses = finite(run.validation_loss)
    return len(losses) > 1 and max(losses) - min(losses) > moved * abs(losses[0])
