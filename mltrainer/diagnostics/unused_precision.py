"""Unused precision: no layer computes in the requested precision (page: `diagnostics/unused_precision.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, judged, number

LOWER = ("bf16", "fp16")
WHOLE = 32  # bits


def find(run: Run, *, layers: float, share: float) -> Finding:
    """Fire where hardly a layer computed in fewer than 32 bits, though the run trains in a lower precision."""
    chosen, start = run.result.precision.chosen, run.start
    if chosen not in LOWER or start is None:
        return Finding("not_applicable", "The run does not train in bf16 or fp16.")
    bits = [number(row["bits"]) for row in start.modules.values() if "bits" in row]
    if len(bits) < layers:
        return Finding("not_applicable", f"{len(bits)} linear layers and convolutions were seen; the rule needs {layers:g}.")
    lowered = sum(width < WHOLE for width in bits)
    reason = f"Of {len(bits)} linear layers and convolutions that were seen, {lowered} computed in {chosen}"
    return judged(lowered < share * len(bits), f"{reason}.", {"layers": len(bits), "lowered": lowered}, since_step=1)
