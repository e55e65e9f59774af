"""Where a step's time goes: real steps timed by section, then some traced operation by operation."""

from __future__ import annotations

import collections
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from mltrainer.companions.planner.trace import rates
from mltrainer.companions.questions.findings import ExplorerSettings
from mltrainer.companions.questions.measurements.explorer import first_steps
from mltrainer.companions.questions.profile import TRACE_FILE, Operator, Profile, Section, Speed
from mltrainer.errors import InputError
from mltrainer.leftovers import new_folder
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.optimization.precision import choose
from mltrainer.trainers.native.recording import NonFiniteError
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.stages import Trainer

Within = Callable[[str], AbstractContextManager[Any]]

SECTIONS = ("data", "forward", "backward", "optimizer", "other")
PARTS = {"loss": "forward", "compute": "backward", "_update": "optimizer"}  # parts of a step; `other` is the rest
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "aten::_local_scalar_dense")
WARM_UP, TRACED, OPERATORS = 5, 5, 10


def measure(session: Session, _: ExplorerSettings, *, steps: int) -> Profile:
    """Return the sections of a step and the most expensive operators; the trace is written to the session's folder.

    The timed steps run without the tracer, which makes every operation slower; on a GPU each section waits for the
    device at its ends, so that its own work is counted to it.
    """
    session.trainer.scheduled = lambda _step: session.config.optimizer.lr  # the schedule may end before these steps do
    taken = first_steps(session, WARM_UP + steps + TRACED + 1)
    clock = Clock(session.config.device)
    session.events.send("note", text=f"timing {steps} steps after {WARM_UP} to warm up")
    _take(session, taken, WARM_UP, clock)
    clock.steps.clear()
    # With a fetch at the end: few steps may not fill the recorder, and training pays for a fetch now and then.
    _take(session, taken, steps, clock, fetches=True)
    session.events.send("note", text=f"tracing {TRACED} steps")
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if session.config.device == "cuda" else [])]
    with profile(activities=kinds) as traced:
        _take(session, taken, TRACED, record_function)
    _export(traced, session.folder / TRACE_FILE)
    is_cuda = session.config.device == "cuda"
    step_us = statistics.median(sum(step.values()) for step in clock.steps) * 1e6
    return Profile(
        steps=len(clock.steps),
        step_us=step_us,
        speed=_speed(session, taken, step_us),
        sections=_sections(clock.steps),
        operators=_operators(traced, is_cuda),
        traced_steps=TRACED,
        host_waits=_waits(traced) if is_cuda else None,
    )


def _speed(session: Session, taken: Iterator[Step], step_us: float) -> Speed:
    """Return the speed of a step; its operations are counted in one more step, which the counter slows."""
    config, is_cuda = session.config, session.config.device == "cuda"
    samples = config.batch_size * config.accumulate
    return Speed(
        samples_per_s=samples / (step_us * 1e-6),
        flops=None if config.compile else round(_flops_per_sample(session, next(taken)) * samples),
        device=torch.cuda.get_device_name() if is_cuda else "CPU",
        precision=choose(config.precision, config.device).chosen,
        measured_peak=None if is_cuda else rates().flops_per_s,
    )


def _flops_per_sample(session: Session, step: Step) -> float:
    with FlopCounterMode(display=False) as counted:
        _take(session, iter([step]), 1, lambda _: contextlib.nullcontext())
    return int(counted.get_total_flops()) / len(step.ids)  # an epoch's last step may have fewer samples than others


def _take(session: Session, steps: Iterator[Step], count: int, section: Within, *, fetches: bool = False) -> None:
    """Take steps as training does, each in sections, and on request bring the recorder's numbers to the host with the last."""
    trainer = session.trainer
    with _watched(trainer, steps, section):
        for number in range(1, count + 1):
            with section("other"):
                trainer._train_step()
                if trainer.recorder.full or (fetches and number == count):
                    _fetch(trainer)
            session.stop_signal()


def _fetch(trainer: Trainer) -> None:
    try:
        trainer.recorder.fetch(trainer.stepper.may_overflow())
    except NonFiniteError as error:
        raise InputError(
            str(error), where="optimizer.lr", hint="lower it, or see `mltrainer guide diagnostics/nan_loss`"
        ) from error


@contextlib.contextmanager
def _watched(trainer: Trainer, steps: Iterator[Step], section: Within) -> Iterator[None]:
    """Put the parts of a trainer's steps into sections for the length of a block; the trainer's code stays unaware of it."""
    owners = {name: trainer.stepper.objective if name == "loss" else trainer.stepper for name in PARTS}
    own = {name: getattr(owner, name) for name, owner in owners.items()}
    trainer._steps = _within_data(steps, section)
    for name, part in own.items():
        setattr(owners[name], name, _within(section, PARTS[name], part))
    try:
        yield
    finally:
        for name, part in own.items():
            setattr(owners[name], name, part)


def _within(section: Within, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any) -> Any:
        with section(name):
            return call(*args)

    return wrapped


def _within_data(steps: Iterator[Step], section: Within) -> Iterator[Step]:
    while True:
        with section("data"):
            step = next(steps, None)
        if step is None:
            return
        yield step


class Clock:
    """Times sections; an inner section's time is not part of the outer one's.

    Args:
        device: The device; "cuda" is synchronized at the ends of sections.

    Attributes:
        steps: Seconds by section, of each outermost one.
    """

    def __init__(self, device: str) -> None:
        self.steps: list[dict[str, float]] = []
        self._open: list[str] = []
        self._at = 0.0
        self._wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count a block's time to a section."""
        if not self._open:
            self.steps.append(dict.fromkeys(SECTIONS, 0.0))
        self._lap()
        self._open.append(name)
        try:
            yield
        finally:
            self._lap()
            self._open.pop()

    def _lap(self) -> None:
        self._wait()
        now = time.perf_counter()
        if self._open:
            self.steps[-1][self._open[-1]] += now - self._at
        self._at = now


def _sections(steps: list[dict[str, float]]) -> list[Section]:
    """Return the median of each section in microseconds, and its share of all the time."""
    total = sum(sum(step.values()) for step in steps)
    return [
        Section(name=name, us=statistics.median(s[name] for s in steps) * 1e6, share=sum(s[name] for s in steps) / total)
        for name in SECTIONS
    ]


# --- the trace ------------------------------------------------------------------------------------


def _export(traced: profile, path: Path) -> None:
    # Under another name until it is complete: a trace takes long to write, and no viewer opens half of one.
    with new_folder(path.parent) as temporary:
        traced.export_chrome_trace(str(temporary / path.name))
        (temporary / path.name).rename(path)


def _operators(traced: profile, is_cuda: bool) -> list[Operator]:
    """Return the operators with the most self time, per traced step."""
    kind = "self_device_time_total" if is_cuda else "self_cpu_time_total"
    host = (row for row in traced.key_averages() if row.device_type.name == "CPU")  # kernels count to their operators
    rows = [row for row in host if row.key not in SECTIONS]
    total = sum(getattr(row, kind) for row in rows) or 1
    rows.sort(key=lambda row: (-getattr(row, kind), row.key))
    return [
        Operator(name=r.key, calls=r.count / TRACED, us=getattr(r, kind) / TRACED, share=getattr(r, kind) / total)
        for r in rows[:OPERATORS]
    ]


def _waits(traced: profile) -> dict[str, int]:
    """Return the counts of host waits for the device within the traced steps, by the function that waited."""
    events = list(traced.events() or [])
    # The outermost section: the tracer itself waits for the device when it begins and ends, outside of any step.
    steps = [event.time_range for event in events if event.name == "other"]
    inside = (e.name for e in events if e.name in WAITS and any(s.start <= e.time_range.start <= s.end for s in steps))
    return dict(collections.Counter(inside))
