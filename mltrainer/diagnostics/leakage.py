"""Leakage: validation samples that were trained on, or a feature that is the answer (page: `diagnostics/leakage.md`)."""

from __future__ import annotations

from collections.abc import Mapping

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent

ID = "leakage"


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where more validation samples are training samples than these repeat, or one feature names the class."""
    data = run.start_data
    if data is None or data.shared is None:
        return Finding(ID, "not_applicable", "Samples out of memory, or of a built-in task, are judged by planning alone.")
    shared, repeated, telling = map(number, (data.shared, data.repeated, data.telling))
    copied = shared >= max(thresholds["shared"], thresholds["times"] * repeated)
    told = telling >= thresholds["telling"]
    reason = (
        f"{percent(shared)} of the validation samples are training samples, too ({percent(repeated)} of these repeat one "
        f"another; below {percent(thresholds['shared'])} expected)"
    )
    reason += f"; one feature alone names the class of {percent(telling)}" if telling > 0 else ""
    return judged(
        ID, copied or told, reason + ".", {"shared": shared, "repeated": repeated, "telling": telling, "since_step": 0}, ()
    )
