"""Leakage: validation samples that were trained on, or a feature that is the answer (page: `diagnostics/leakage.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent


def find(run: Run, *, shared: float, times: float, telling: float) -> Finding:
    """Fire where more validation samples are training samples than these repeat, or one feature names the class."""
    data = run.start_data
    if data is None or data.shared is None:
        return Finding("not_applicable", "Samples out of memory, or of a built-in task, are judged by planning alone.")
    copied, repeated, share = map(number, (data.shared, data.repeated, data.telling))
    # Rows of few possible values repeat by chance, within the training set as between the splits.
    fired = copied >= max(shared, times * repeated) or share >= telling
    reason = (
        f"{percent(copied)} of the validation samples are training samples, too ({percent(repeated)} of these repeat one "
        f"another; below {percent(shared)} expected)"
    )
    reason += f"; one feature alone names the class of {percent(share)}" if share > 0 else ""
    evidence = {"shared": copied, "repeated": repeated, "telling": share, "since_step": 0}
    return judged(fired, f"{reason}.", evidence)
