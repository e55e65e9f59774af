"""The throughput and the peak memory of micro-batches of rising size."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from pathlib import Path

import torch

from mltrainer.companions.questions.batch_size import Size, SizeTest, doubled, needed_mb, needed_s
from mltrainer.companions.questions.findings import ExplorerSettings
from mltrainer.companions.questions.measurements.explorer import first_steps
from mltrainer.errors import MachineError, is_out_of_memory
from mltrainer.reports.values import duration, megabytes
from mltrainer.reproducibility.environment import available_mb
from mltrainer.trainers.native.session import Session

WARM_UP, LEAST, MOST = 1, 2, 30  # steps of a size that are not timed, and that are timed
SECONDS = 1.0  # timing ends after this time, once LEAST steps are timed


def measure(session: Session, settings: ExplorerSettings, *, first: int, minutes: float | None) -> SizeTest:
    """Return the memory limit in MiB and the reason why no larger size was tried.

    Each measured size is sent as an event, which survives this process. A size is only tried while its expected memory, by
    the sizes before it, is within the page's share of the memory, and its expected time within the time that is left;
    the first one is always tried.
    """
    begun, limit = time.perf_counter(), settings.memory_share * memory_mb(session.config.device)
    rows: list[Size] = []
    most_s = math.inf if minutes is None else 60 * minutes
    for size in doubled(first, session.plan.samples):
        if rows and needed_mb(rows) > limit:
            stopped = f"{size} would take about {megabytes(needed_mb(rows))} of {megabytes(limit)}"
            break
        if rows and time.perf_counter() - begun + needed_s(rows, WARM_UP + LEAST) > most_s:
            stopped = f"{size} would go beyond {duration(most_s)}; --minutes allows more"
            break
        try:
            rows.append(_measured(session, size))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            stopped = f"{size} does not fit into the memory"
            break
        session.events.send("size", **rows[-1].written())
    else:
        stopped = f"twice as many would be more than the {session.plan.samples:,} training samples"
    return SizeTest(limit_mb=limit, stopped=stopped)


def _measured(session: Session, size: int) -> Size:
    device = session.config.device
    _forget_peak(device)
    step_s = step_seconds(_timed(session, size), size, in_bursts=session.readers > 0)
    row = Size(batch_size=size, step_us=step_s * 1e6, samples_per_s=size / step_s, peak_mb=peak_mb(device))
    text = f"batch size {size}: {row.samples_per_s:,.0f} samples/s, {megabytes(row.peak_mb)} at most"
    session.events.send("note", text=text)
    return row


def step_seconds(times: list[tuple[int, float]], size: int, in_bursts: bool) -> float:
    """Return the seconds of a full step: the median, or by the throughput of all steps where samples come in bursts.

    Args:
        times: The samples and the duration of each step.
        size: The samples of a full step; an epoch's last may be smaller.
        in_bursts: Whether processes read the samples: they end their batches together, so that most steps wait for none.
    """
    if in_bursts:
        return size * sum(seconds for _, seconds in times) / sum(samples for samples, _ in times)
    return statistics.median(seconds for samples, seconds in times if samples == size)


def _timed(session: Session, size: int) -> list[tuple[int, float]]:
    """Return samples and duration of real steps of one micro-batch, data included, after the warm-up."""
    plan = dataclasses.replace(session.plan, batch_size=size, accumulate=1)
    warm_up = max(WARM_UP, session.readers * session.config.loader.prefetch)  # batches that were prefetched during the first step
    timed_steps: list[tuple[int, float]] = []
    at = _now(session.config.device)
    for number, step in enumerate(first_steps(session, warm_up + MOST * max(1, session.readers), plan), 1):
        session.trainer.stepper.take(number, session.config.optimizer.lr, step)
        session.stop_signal()
        before, at = at, _now(session.config.device)
        if number > warm_up:
            timed_steps.append((len(step.ids), at - before))
        full = [seconds for samples, seconds in timed_steps if samples == size]
        if len(full) >= LEAST and sum(full) > SECONDS:
            break
    return timed_steps


def _now(device: str) -> float:
    """Return the time in seconds, once the device has finished its queued work."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


# --- memory ---------------------------------------------------------------------------------------


def memory_mb(device: str) -> float:
    """Return the memory in MiB that this process has or may still take, on its device."""
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        # Memory that torch has reserved counts as free: torch reuses it before it asks for more.
        return (free + torch.cuda.memory_reserved()) / 2**20
    return available_mb() + _status_mb("VmRSS")


def peak_mb(device: str) -> float:
    """Return the peak memory in MiB of this process on its device, since the last reset."""
    return torch.cuda.max_memory_reserved() / 2**20 if device == "cuda" else _status_mb("VmHWM")


def _forget_peak(device: str) -> None:
    """Reset the peak; on a GPU cached memory is released first, because it would count."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        # 5 resets the peak of the resident memory (VmHWM) and nothing else; see proc(5).
        Path("/proc/self/clear_refs").write_text("5")


def _status_mb(name: str) -> float:
    """Return an entry of `/proc/self/status`, in MiB."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise MachineError("the peak memory of a process can be reset on Linux alone", hint="run it on Linux, or on a GPU")
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
