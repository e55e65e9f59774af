"""Data that is not finite: NaN or infinity among the inputs (page: `diagnostics/nonfinite_data.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, judged


def find(run: Run, *, numbers: float) -> Finding:
    """Fire where inputs hold NaN or infinity and the run failed by a number that is not finite; a model may mask them."""
    if run.start_data is None:
        return Finding("not_applicable", "The training samples were not in memory, or hold no numbers.")
    count = run.start_data.not_finite or 0
    failed = run.nonfinite is not None
    reason = f"{count} numbers of the training inputs are NaN or infinite"
    reason += (
        ", and the run met a number that is not finite." if failed else "." if not count else ", which the model copes with."
    )
    return judged(count > numbers and failed, reason, {"numbers": count, "since_step": 0})
