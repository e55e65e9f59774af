"""Dead layers: weights that the loss never reaches (page: `diagnostics/dead_layers.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run

FIGURES = ("gradient_layers.svg",)


def find(run: Run, *, evaluations: float) -> Finding:
    """Fire where a layer's gradient was exactly zero at every evaluation of a run that has enough of them.

    A linear or convolutional layer, that is: a table of vectors may stand for what no sample has, such as a missing value.
    """
    rows, weights = run.layer_norms, run.start and run.start.weights
    if not weights:
        return Finding("not_applicable", "The run did not note which of its weights are those of layers.")
    if len(rows) < evaluations:
        reason = f"{len(rows)} evaluations recorded the layers' gradients; the rule needs {evaluations:g}."
        return Finding("not_applicable", reason)
    count = min(len(run.layers), *map(len, rows))
    # Exactly zero each time, which no small gradient is.
    dead = [place for place in range(count) if all(row[place] == 0 for row in rows)]
    names = [run.layers[place] for place in dead if run.layers[place].removesuffix(".weight") in weights]
    if not names:
        return Finding("clear", f"Each of {len(rows[0])} layers received a gradient.", {"layers": []})
    reason = f"{', '.join(names)} never received a gradient: exactly zero at all {len(rows)} evaluations."
    return Finding("fired", reason, {"layers": names, "since_step": 1}, FIGURES)
