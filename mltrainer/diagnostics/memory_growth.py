"""Memory growth: a process that holds more and more (page: `diagnostics/memory_growth.md`)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, number, percent, text

ID = "memory_growth"
FIGURES: tuple[str, ...] = ()
LEAST_ROWS = 4  # observations after the first, by which caches and buffers have their size


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where memory grew from each observation to the next, also in the second half, and by much in all."""
    held = finite(number(signals.get("memory_mb")) for _, signals in run.seen)[1:]
    if len(held) < LEAST_ROWS:
        return Finding(ID, "not_applicable", f"The memory was recorded {len(held)} times after the first evaluation.")
    grown, share = held[-1] - held[0], held[-1] / held[0] - 1
    evidence: dict[str, Any] = {"from_mb": held[0], "to_mb": held[-1], "grown_mb": grown, "share": share}
    reason = f"The memory of the process went from {text(held[0])} to {text(held[-1])} MiB after the first evaluation"
    reason += f" ({percent(share)}; at most {percent(thresholds['share'])} or {text(thresholds['mb'])} MiB allowed)."
    steadily = all(after > before for before, after in itertools.pairwise(held))
    late = held[-1] - held[len(held) // 2] >= grown * thresholds["late_share"]
    fired = steadily and late and share > thresholds["share"] and grown > thresholds["mb"]
    if fired:
        evidence["since_step"] = run.seen[1][0].get("step")
    return judged(ID, fired, reason, evidence, FIGURES)
