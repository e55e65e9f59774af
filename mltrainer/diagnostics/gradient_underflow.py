"""Gradient underflow: gradients that are too small for fp16 and become zero (page: `diagnostics/gradient_underflow.md`)."""

from __future__ import annotations

from itertools import groupby

from mltrainer.diagnostics.signals import Finding, Run, evaluations_of, number, text

FIGURES = ("gradient_layers.svg",)
MOST = 6  # loss scales that are named; of more, the first and the last of them


def find(run: Run, *, evaluations: float) -> Finding:
    """Fire where a layer has a gradient in fp32, and exactly zero at every evaluation of a run in fp16."""
    reached = run.start.reached if run.start is not None else None
    if run.result.precision.chosen != "fp16" or reached is None:
        return Finding("not_applicable", "The run does not train in fp16, or nobody looked which layers have a gradient in fp32.")
    rows = run.layer_norms
    if len(rows) < evaluations:
        reason = f"The layers' gradients were recorded at {evaluations_of(len(rows))}; the rule needs {evaluations:g}."
        return Finding("not_applicable", reason)
    names, scales = run.underflowed, _scales(run)
    evidence = {"layers": names, "loss_scales": scales}
    if not names:
        return Finding("clear", f"Of {len(reached)} parameters with a gradient in fp32, none is a layer without one.", evidence)
    zeros = max((number(row.zero_gradients) for row in run.history if row.zero_gradients is not None), default=0.0)
    reason = (
        f"In fp16 the gradients of {', '.join(names)} were exactly zero at all {len(rows)} evaluations, in fp32 they are not: "
        f"they are too small for fp16. The loss scale was {_in_words(scales)}; up to {zeros:.0%} of a step's gradients were zero."
    )
    return Finding("fired", reason, {**evidence, "since_step": 1}, FIGURES)


def _scales(run: Run) -> list[list[float]]:
    """Return the loss scales, one after the other, each with the epoch of the first evaluation that saw it."""
    seen = [(number(row.loss_scale), number(row.epoch)) for row in run.history if row.loss_scale is not None]
    return [[scale, next(group)[1]] for scale, group in groupby(seen, key=lambda pair: pair[0])]


def _in_words(scales: list[list[float]]) -> str:
    shown = scales if len(scales) <= MOST else [*scales[: MOST // 2], *scales[-MOST // 2 :]]
    return ", ".join(f"{scale:,.10g} from epoch {text(epoch)}" for scale, epoch in shown) or "not recorded"
