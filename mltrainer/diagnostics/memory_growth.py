"""Memory growth: a process that holds more and more (page: `diagnostics/memory_growth.md`)."""

from __future__ import annotations

import itertools
import math

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text

LEAST_ROWS = 4  # evaluations after the first, by which caches and buffers have their size
MOST_ROWS = 12  # evenly spaced; of hundreds, one in which freed memory was used again would hide a leak


def find(run: Run, *, share: float, mb: float, late_share: float, allocated_mb: float) -> Finding:
    """Fire where memory grew from each of some evaluations to the next, also in the second half, and by much in all."""
    allocated = [(row.step, number(row.allocated_mb)) for row in run.history if row.allocated_mb is not None]
    findings = [
        _judged("The memory of the process", _recorded(run), share, mb, late_share),
        _judged("The memory that is in use", allocated, share, allocated_mb, late_share),
    ]
    return next((one for one in findings if one.state == "fired"), findings[0])


def _judged(what: str, rows: list[tuple[int, float]], share: float, mb: float, late_share: float) -> Finding:
    rows = rows[1:]
    if len(rows) < LEAST_ROWS:
        times = "once" if len(rows) == 1 else f"{len(rows)} times"
        reason = f"Not judged: the memory was recorded {times} after the first evaluation, and a trend needs {LEAST_ROWS}."
        return Finding("not_applicable", reason)
    rows = _spaced(rows)
    held = [size for _, size in rows]
    grown, grown_share = held[-1] - held[0], held[-1] / held[0] - 1
    reason = f"{what} went from {text(held[0])} to {text(held[-1])} MiB after the first evaluation"
    reason += f" ({percent(grown_share)}; at most {percent(share)} or {text(mb)} MiB allowed)."
    steadily = all(after > before for before, after in itertools.pairwise(held))
    # A leak grows by half in each half of the run; a cache that fills up has its size early.
    late = held[-1] - held[len(held) // 2] >= grown * late_share
    fired = steadily and late and grown_share > share and grown > mb
    evidence = {"from_mb": held[0], "to_mb": held[-1], "grown_mb": grown, "share": grown_share}
    return judged(fired, reason, evidence, since_step=rows[0][0])


def _recorded(run: Run) -> list[tuple[int, float]]:
    """Return the step and the memory of each evaluation at which it is known."""
    rows = [(row.step, number(row.memory_mb)) for row in run.history]
    return [(step, mb) for step, mb in rows if math.isfinite(mb)]


def _spaced(rows: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return a number of evenly spaced rows, with the first and the last; all if there are fewer."""
    last = len(rows) - 1
    places = {round(nr * last / (MOST_ROWS - 1)) for nr in range(MOST_ROWS)}
    return [rows[place] for place in sorted(places)]
