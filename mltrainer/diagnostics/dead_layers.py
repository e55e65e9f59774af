"""Dead layers: weights that the loss never reaches (page: `diagnostics/dead_layers.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, evaluations_of

FIGURES = ("gradient_layers.svg",)


def find(run: Run, *, evaluations: float) -> Finding:
    """Fire where a layer's gradient was exactly zero at every evaluation of a run that has enough of them.

    A linear or convolutional layer, that is: an embedding may have vectors for values that no sample has, such as none.
    """
    rows, start = run.layer_norms, run.start
    if start is None or not start.weights:
        return Finding("not_applicable", "The run did not note which of its weights are those of layers.")
    if len(rows) < evaluations:
        reason = f"The layers' gradients were recorded at {evaluations_of(len(rows))}; the rule needs {evaluations:g}."
        return Finding("not_applicable", reason)
    # Exactly zero each time, which no small gradient is but in fp16.
    names = [name for name in run.silent if name.removesuffix(".weight") in start.weights and name not in run.underflowed]
    if not names:
        return Finding("clear", f"Of {len(rows[0])} layers, the loss reaches each.", {"layers": []})
    reason = f"No gradient ever reached {', '.join(names)}: exactly zero at all {len(rows)} evaluations."
    return Finding("fired", reason, {"layers": names, "since_step": 1}, FIGURES)
