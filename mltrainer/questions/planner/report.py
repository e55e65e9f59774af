"""The plan as text for the terminal; the same findings give the same bytes."""

from __future__ import annotations

from mltrainer.questions.planner.findings import FoundPlan, Memory, OnDevice, Row, Span
from mltrainer.questions.texts import changed_files
from mltrainer.reports.terminal import table
from mltrainer.reports.values import megabytes, microseconds, number

PARTS = {
    "weights": "weights",
    "buffers": "buffers",
    "gradients": "gradients",
    "optimizer": "optimizer's state",
    "activations": "activations and temporary tensors",
    "copies": "copies: weights before an update, a checkpoint being written",
    "framework": "framework: Python, torch, the opened data",
    "fragmentation": "fragmentation: the allocator beyond all tensors",
}


def text(found: FoundPlan) -> str:
    """Return memory by part, the ways to train, the devices, and the recommendation with what to type."""
    lines = [
        *_memory(found),
        *_measured(found),
        f"ways to train with the same samples in a step, within {found.limit}:",
        table([_way(row) for row in found.ways], ["way", "largest micro-batch", "accumulate", "peak", "step"]).rstrip("\n"),
        *(f"  {row.name}: {row.why_not}" for row in found.ways if row.why_not),
        *(line for device in found.devices for line in _device(device)),
        f"recommendation: {found.reason}.",
        *([f"  {found.command}"] if found.command and not found.applied else []),
        *(f"written: {path}" for path in found.applied),
        *(["next: git diff, then mltrainer phase run planning"] if found.applied else []),
        *(f"not known: {line}" for line in found.not_known),
    ]
    return "\n".join([*lines, *changed_files(found)])


def _memory(found: FoundPlan) -> list[str]:
    if found.memory is None:
        return ["memory: not known"]
    each = " of each process" if found.processes > 1 else ""
    rows = [[told, megabytes(getattr(found.memory, name))] for name, told in PARTS.items()]
    size = f"{number(found.batch_size)} samples at a time, {number(found.accumulate)} times a step"
    return [f"memory{each} with {size}:", table(rows, ["part", "size"]).rstrip("\n"), _peak(found.memory)]


def _peak(memory: Memory) -> str:
    span = f"{megabytes(memory.low)} to {megabytes(memory.high)} resident, by the allocator"
    return f"peak: {megabytes(memory.total)}; tensors alone {megabytes(memory.tensors)}; {span}"


def _measured(found: FoundPlan) -> list[str]:
    measured = found.measured
    if measured.step is None:
        return [f"a step's time is not known: {measured.not_known}"]
    return [f"measured on this machine: a step takes {_span(measured.step)}, the process {megabytes(measured.peak_mb)} at most"]


def _span(span: Span) -> str:
    return f"{microseconds(span.low)} to {microseconds(span.high)}"


def _way(row: Row) -> list[str]:
    size, times = (number(value) if value is not None else "-" for value in (row.batch_size, row.accumulate))
    peak = megabytes(row.peak.total) if row.peak else "-"
    return [row.name, size, times, peak, _span(row.step) if row.step else "not known"]


def _device(device: OnDevice) -> list[str]:
    words = {True: "fits", False: "does not fit", None: "not known whether it fits"}
    room = "" if device.memory_mb is None else f" into {megabytes(device.memory_mb)}"
    most = "" if device.largest is None else f"; largest micro-batch of the step: {number(device.largest)}"
    time = f"; a step takes {_span(device.step)}" if device.step else ""
    lines = [f"{device.name}: {words[device.fits]}{room}{most}{time}"]
    lines += [f"  not known: {line}" for line in device.not_known]
    return [*lines, *(f"  source: {source}" for source in device.sources)]
