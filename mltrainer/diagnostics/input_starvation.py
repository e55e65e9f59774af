"""Input starvation: a loop that waits for its data (page: `diagnostics/input_starvation.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text
from mltrainer.records.baseline import Waiting
from mltrainer.workspace import plain

FIGURES = ("data_wait.svg", "throughput.svg")


def find(run: Run, *, data_wait: float, wait_s: float) -> Finding:
    """Fire where the loop waited for data for a large share of the time, and long enough to be worth fixing."""
    share = run.data_wait
    if math.isnan(share):
        return Finding("not_applicable", "The run recorded no time of waiting for data.")
    starved = is_starved(run, data_wait, wait_s)
    reason = f"The loop waited for data for {percent(share)} of the time (at most {percent(data_wait)} allowed)"
    if share > data_wait and not starved:
        reason += f"; in all only {text(run.waited_s)} s (less than {text(wait_s)} s is not judged)"
    since = next((row.step for row in run.history if number(row.data_wait) > data_wait), None)
    return judged(starved, f"{reason}.", {"data_wait": share, "waited_s": run.waited_s}, FIGURES, since_step=since)


def is_starved(run: Run, limit: float, least_s: float) -> bool:
    """Return True if a run's loop waited for more of the time than is allowed, and in all long enough to be worth fixing."""
    # `not <`: where no durations were recorded, the share decides alone.
    return run.data_wait > limit and not run.waited_s < least_s


def waiting(run: Run, *, data_wait: float, wait_s: float) -> Waiting:
    """Return the share of time in which a run's loop waited for data, with the verdict on it."""
    return Waiting(share=plain(run.data_wait), limit=data_wait, starved=is_starved(run, data_wait, wait_s))
