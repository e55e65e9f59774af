"""`mltrainer plan`: a trace, a few real steps where they fit, and the arithmetic between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field
from typer import Option

from mltrainer.companions.planner import PLANNER, memory, timing
from mltrainer.companions.planner import devices as known
from mltrainer.companions.planner.memory import Parts
from mltrainer.companions.planner.recommendation import Choice, Way, micro_batches
from mltrainer.companions.planner.sizing import MIB, RECOMPUTED, PlannerSettings, Sizing, variants
from mltrainer.companions.planner.timing import Interval
from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.exploration import Exploration, exploring
from mltrainer.companions.questions.findings import Explored, Findings, Value
from mltrainer.companions.questions.remediation import apply_fix
from mltrainer.configs.loading import Changes, as_assignments, parse_assignment
from mltrainer.configs.pages import Device
from mltrainer.configs.project import ORCHESTRATOR
from mltrainer.errors import InputError, MltrainerError, StoppedError
from mltrainer.records.common import dumped
from mltrainer.records.job import TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.planner import Traced, TracedVariant
from mltrainer.records.run import ProbeResult
from mltrainer.reports.terminal import table
from mltrainer.reports.values import megabytes, microseconds, number
from mltrainer.reproducibility.environment import available_mb
from mltrainer.runs.launcher import Tools


class Memory(Findings):
    """One process's memory by part; `low` and `high` bound the resident memory by the bounds of the allocator's share."""

    weights: Value
    buffers: Value
    gradients: Value
    optimizer: Value
    activations: Value
    copies: Value
    framework: Value
    fragmentation: Value
    tensors: Value
    total: Value
    low: Value
    high: Value


class Measured(Findings):
    """A few real steps of the config: shortest step and 95th percentile in microseconds, and the process's peak; or why not."""

    step: Interval | None
    peak_mb: Value | None
    not_known: str | None


class Row(Findings):
    """A way to train: its keys, the largest micro-batch that fits, its memory and time; `why_not` is the reason of none."""

    name: str
    set: dict[str, Any]
    batch_size: int | None
    accumulate: int | None
    peak: Memory | None
    step: Interval | None
    step_not_known: str | None
    why_not: str | None


class OnDevice(Findings):
    """Memory and time of the config on a device of the page: one micro-batch of one process."""

    name: str
    memory_mb: Value | None
    fits: bool | None
    largest: int | None
    step: Interval | None
    not_known: list[str]
    sources: list[str]


class FoundPlan(Explored):
    """The plan of a training.

    Attributes:
        traced: Result of the trace.
        batch_size: Batch size of the config.
        accumulate: Gradient accumulation of the config.
        processes: Requested number of processes.
        limit_mb: Memory limit of the plan, in MiB; `limit` is the limit in words.
        memory: Memory of the unchanged config.
        measured: Measurement of its real steps.
        ways: Ways to train with the same samples in a step.
        devices: Requested devices.
        set: Recommended keys.
        reason: Reason of the recommendation.
        command: Command that sets the keys; None if nothing needs to change.
        not_known: Unknown figures, each with its reason.
    """

    traced: Traced
    batch_size: int
    accumulate: int
    processes: int
    limit_mb: Value
    limit: str
    memory: Memory | None
    measured: Measured
    ways: list[Row]
    devices: list[OnDevice]
    changes: dict[str, Any] = Field(serialization_alias="set")
    reason: str
    command: str | None
    not_known: list[str]
    applied: list[str] = Field(default_factory=list)


def plan(
    tools: Tools,
    *,
    set: Changes | None = None,
    devices: Sequence[str] = (),
    processes: int | None = None,
    apply: bool = False,
) -> FoundPlan:
    """Return the memory and time of a training of the present config, the ways to make it fit, and the one to take.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        devices: Names of the page of devices; the recommendation is for the first one, else for this machine.
        processes: Number of processes that train together; None: the config's.
        apply: Whether the recommended keys are written into the project's files, as `apply_fix` does.

    Raises:
        InputError: A device is unknown, or the config, its data or its processes are not valid.
    """
    asked = [known.device(name, tools.project.root) for name in devices]
    with exploring(tools, "plan", set, tool=PLANNER) as exploration:
        config = exploration.config
        if config.task.is_opaque:
            what = "the task is a program that trains by itself, whose memory cannot be traced"
            raise InputError(what, where="task.script", hint="write it as a custom task (task.use)")
        count = config.processes if processes is None else processes
        config.model_copy(update={"accumulate": max(config.accumulate, count)}).require_processes(count)
        traced = exploration.ask(Traced, variants=dumped(variants(config)))
        planned = _Planner(exploration, traced, count, asked).found()
    return planned if not (apply and planned.changes) else _applied(tools, planned, set)


def _applied(tools: Tools, planned: FoundPlan, assigned: Changes | None) -> FoundPlan:
    """Write the recommended keys, with the config changes that the plan was made for."""
    changes = dict(map(parse_assignment, as_assignments(assigned))) | planned.changes
    written = apply_fix(tools, changes)
    return planned.model_copy(update={"applied": [file.path for file in written.files]})


class _Planner:
    """The calculations between a trace and the plan."""

    def __init__(self, exploration: Exploration, traced: Traced, processes: int, devices: Sequence[Device]) -> None:
        self.exploration, self.config, self.traced = exploration, exploration.config, traced
        self.processes, self.devices = processes, devices
        self.settings = partial(PlannerSettings, exploration.settings)
        self.sizing = Sizing(self.config, traced, self.settings, processes, next(iter(devices), None))
        self.own = self.sizing.own

    def found(self) -> FoundPlan:
        """Return the plan."""
        room_mb = available_mb() * self.settings.memory_share  # before anything real is computed
        probed = self._probed(room_mb)
        ways = self.sizing.ways()
        limit_bytes, limit = self._limit(room_mb)
        choices, advice = self.sizing.recommended(ways, limit_bytes, limit)
        rows = [self._row(way, choice, probed) for way, choice in zip(ways, choices, strict=True)]
        own = None if self.own.not_known else self._memory(self.sizing.own_parts(self.config.batch_size))
        return self.exploration.kept(
            FoundPlan(
                traced=self.traced,
                batch_size=self.config.batch_size,
                accumulate=self.config.accumulate,
                processes=self.processes,
                limit_mb=0 if limit_bytes is None else limit_bytes / MIB,
                limit=limit,
                memory=own,
                measured=probed,
                ways=rows,
                devices=[self._on_device(device) for device in self.devices],
                changes=advice.set,
                reason=advice.reason,
                command=self.exploration.command(advice.set) if advice.set else None,
                not_known=self._not_known(),
            )
        )

    def _memory(self, parts: Parts, on_device: bool = False) -> Memory:
        low, high = (0.0, 0.0) if on_device else (self.settings.fragmentation_low, self.settings.fragmentation_high)
        bounds = [parts.framework + parts.tensors * (1 + share) for share in (low, high)]
        values = {name: getattr(parts, name) / MIB for name in (*PARTS, "tensors", "total")}
        return Memory(**values, low=bounds[0] / MIB, high=bounds[1] / MIB)

    # --- measurement ---

    def _probed(self, room_mb: float) -> Measured:
        """Take a few real steps if the largest expected memory is free, and calibrate the allocator's share by them."""
        if self.own.not_known:
            return _unmeasured(f"the step could not be traced: {self.own.not_known}")
        needed = self.sizing.own_parts(self.config.batch_size)
        if self.config.device != "cpu" or self.processes > 1:
            return _unmeasured("only one process on this machine's CPU is tried")
        if needed.total / MIB > room_mb:
            message = f"it may need {megabytes(needed.total / MIB)}, and {megabytes(room_mb)} of this machine may be planned with"
            return _unmeasured(message)
        try:
            result = ProbeResult.model_validate(self.exploration.tools.run(ORCHESTRATOR, self._probe_job()))
        except StoppedError:
            raise
        except MltrainerError as error:
            return _unmeasured(f"real steps failed: {error.message}")
        peak_mb = float(result.memory.peak_rss_mb)
        self.sizing.calibrate(peak_mb * MIB)
        # Of an epoch that ends within the probe, the shortest step may be its last one, which has fewer samples.
        is_whole = self.sizing.checkpoints == 1
        times = result.step_time_us
        shortest = result.shortest_step_us if is_whole or times is None else times.median
        if times is None or shortest is None:
            return Measured(step=None, peak_mb=peak_mb, not_known="no step was seen")
        return Measured(step=Interval(low=shortest, high=times.p95), peak_mb=peak_mb, not_known=None)

    def _probe_job(self) -> TrainingJob:
        folder = self.exploration.folder / "probe"
        config = self.config.with_processes(1)
        return TrainingJob(
            run="plan",
            purpose="probe",
            resumable=True,  # so that a checkpoint is written, which takes memory too
            folder=self.exploration.project.relative(folder),
            config=config,
            contract={},
            threads=config.threads,
            max_steps=self.settings.probe_steps,
        )

    def _row(self, way: Way, choice: Choice | None, probed: Measured) -> Row:
        span, unknown = self._step(way, choice, probed)
        return Row(
            name=way.name,
            set=way.changes,
            batch_size=choice.batch if choice else None,
            accumulate=choice.accumulate if choice else None,
            peak=self._memory(choice.parts, on_device=bool(self.devices)) if choice else None,
            step=span,
            step_not_known=unknown,
            why_not=way.refused or way.not_known or (None if choice else "no micro-batch fits"),
        )

    def _step(self, way: Way, choice: Choice | None, probed: Measured) -> tuple[Interval | None, str | None]:
        """Return the time of a whole step of a way: on a device from the page's figures, else from the measurement here."""
        if choice is not None and self.devices:
            return _step_there(self.sizing.variant_of(way), choice.batch, choice.accumulate, self.devices[0])
        if choice is None or probed.step is None:
            return None, probed.not_known
        if not way.changes.keys() <= {RECOMPUTED}:
            return None, "its steps were not measured; `mltrainer plan` with its keys measures them"
        variant = self.sizing.variant_of(way)
        rates, error = self.traced.rates, self.settings.time_error
        own_s = timing.work_s(timing.row_at(self.own.rows, self.config.batch_size), self.config.accumulate, rates)
        other_s = timing.work_s(timing.row_at(variant.rows, choice.batch), choice.accumulate, rates)
        return timing.scaled(probed.step, own_s, other_s, error), None

    # --- devices ---

    def _limit(self, room_mb: float) -> tuple[float | None, str]:
        """Return the bytes that one process may take, and the memory in words."""
        share = self.settings.memory_share
        if self.devices:
            device = self.devices[0]
            bytes_there = known.memory_bytes(device)
            if bytes_there is None:
                return None, f"the memory of {device.name} is blank on the page of devices"
            return bytes_there * share, f"{share:.0%} of {device.name}'s {bytes_there / known.GIB:g} GiB"
        each = room_mb * MIB / self.processes
        shared = f", shared by {self.processes} processes" if self.processes > 1 else ""
        return each, f"the {megabytes(room_mb)} of this machine that may be planned with{shared}"

    def _on_device(self, device: Device) -> OnDevice:
        memory_bytes, unknown = known.memory_bytes(device), [f"{name}: blank on the page" for name in known.blanks(device)]
        if device.framework_mb.value is None:
            unknown.append("what driver and libraries take before any tensor: blank on the page, so not counted")
        fits, most, step = None, None, None
        untimed: str | None = "time: the step could not be traced"
        if not self.own.not_known:
            step, untimed = _step_there(self.own, self.config.batch_size, self.config.accumulate, device)
        if memory_bytes is not None and not self.own.not_known:
            room = memory_bytes * self.settings.memory_share - (device.framework_mb.value or 0) * MIB
            fits = self.sizing.device_bytes(self.config.batch_size) <= room
            sizes = micro_batches(self.sizing.samples)
            most = next((size for size in sizes if self.sizing.device_bytes(size) <= room), None)
        sources = [device.memory_gib, device.bandwidth_gb_s, *device.tflops.values()]
        return OnDevice(
            name=device.name,
            memory_mb=None if memory_bytes is None else memory_bytes / MIB,
            fits=fits,
            largest=most,
            step=step,
            not_known=[*unknown, untimed] if untimed else unknown,
            sources=list(dict.fromkeys(f"{one.source} (read {one.read})" for one in sources if one.value is not None)),
        )

    def _not_known(self) -> list[str]:
        """Return the unknown figures of the plan, each with its reason."""
        lines = [f"{variant.variant.precision}: {variant.not_known}" for variant in self.traced.variants if variant.not_known]
        if bent := [variant for variant in self.traced.variants if memory.bend(variant.rows) > BENT]:
            names = ", ".join(variant.variant.precision for variant in bent)
            lines.append(
                f"memory does not grow in proportion to the batch ({names}): beyond twice the config's it may be too low"
            )
        if self.config.tensor_parallel > 1 or self.config.launch.parallel == "pipeline":
            lines.append("a process holds only a part of the model, but is planned here as if it held all of it")
        if self.config.launch.offload is not None:
            lines.append("launch.offload: the optimizer's state is counted as the device's, and is in the CPU's memory on a GPU")
        if self.config.compile:
            lines.append("compile: true was traced without the compiler, whose kernels hold less or more")
        if self.config.device != "cpu" or self.devices:
            lines.append("activations were traced with the operations of a CPU; a GPU's may hold other temporary tensors")
        return lines


BENT = 0.05  # relative distance of the middle of three traced batches from the line through the others


def _step_there(variant: TracedVariant, batch: int, accumulate: int, device: Device) -> tuple[Interval | None, str | None]:
    """Return the time of a step on a device, or why it is not known."""
    step = timing.on_device(timing.row_at(variant.rows, batch), device, variant.variant.precision)
    return (None, f"time: {step}") if isinstance(step, str) else (step.times(accumulate), None)


def _unmeasured(reason: str) -> Measured:
    return Measured(step=None, peak_mb=None, not_known=reason)


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


def text(planned: FoundPlan) -> str:
    """Return memory by part, the ways to train, the devices, and the recommendation with what to type."""
    lines = [
        *_memory(planned),
        *_measured_words(planned),
        f"ways to train with the same samples in a step, within {planned.limit}:",
        table([_way(row) for row in planned.ways], ["way", "largest micro-batch", "accumulate", "peak", "step"]).rstrip("\n"),
        *(f"  {row.name}: {row.why_not}" for row in planned.ways if row.why_not),
        *(line for device in planned.devices for line in _device(device)),
        f"recommendation: {planned.reason}.",
        *([f"  {planned.command}"] if planned.command and not planned.applied else []),
        *(f"written: {path}" for path in planned.applied),
        *(["next: git diff, then mltrainer phase run planning"] if planned.applied else []),
        *(f"not known: {line}" for line in planned.not_known),
    ]
    return "\n".join(lines)


def _memory(found: FoundPlan) -> list[str]:
    if found.memory is None:
        return ["memory: not known"]
    each = " of each process" if found.processes > 1 else ""
    rows = [[label, megabytes(getattr(found.memory, name))] for name, label in PARTS.items()]
    size = f"{number(found.batch_size)} samples at a time, {number(found.accumulate)} times a step"
    return [f"memory{each} with {size}:", table(rows, ["part", "size"]).rstrip("\n"), _peak(found.memory)]


def _peak(memory: Memory) -> str:
    span = f"{megabytes(memory.low)} to {megabytes(memory.high)} resident, by the allocator"
    return f"peak: {megabytes(memory.total)}; tensors alone {megabytes(memory.tensors)}; {span}"


def _measured_words(planned: FoundPlan) -> list[str]:
    measured = planned.measured
    if measured.step is None:
        return [f"a step's time is not known: {measured.not_known}"]
    peak = megabytes(measured.peak_mb)
    return [f"measured on this machine: a step takes {_span_words(measured.step)}, the process {peak} at most"]


def _span_words(span: Interval) -> str:
    return f"{microseconds(span.low)} to {microseconds(span.high)}"


def _way(row: Row) -> list[str]:
    size, times = (number(value) if value is not None else "-" for value in (row.batch_size, row.accumulate))
    peak = megabytes(row.peak.total) if row.peak else "-"
    return [row.name, size, times, peak, _span_words(row.step) if row.step else "not known"]


def _device(device: OnDevice) -> list[str]:
    words = {True: "fits", False: "does not fit", None: "not known whether it fits"}
    room = "" if device.memory_mb is None else f" into {megabytes(device.memory_mb)}"
    most = "" if device.largest is None else f"; largest micro-batch of the step: {number(device.largest)}"
    time = f"; a step takes {_span_words(device.step)}" if device.step else ""
    lines = [f"{device.name}: {words[device.fits]}{room}{most}{time}"]
    lines += [f"  not known: {line}" for line in device.not_known]
    return [*lines, *(f"  source: {source}" for source in device.sources)]


app = command(
    plan,
    text,
    name="plan",
    help="Plan memory and time: a step's needs by part, the sizes that fit, and the keys to set.\n\n"
    "The step is traced without computing it; if it surely fits, a few real steps measure time and allocator. "
    "Nothing of it stays but a scratch folder, unless --apply is given.",
    example='mltrainer plan --device "NVIDIA H100 SXM"',
    devices=Option("--device", metavar="NAME", help="A device of the planner's page; may be given more than once."),
    processes=Option("--devices", min=1, max=4096, metavar="N", help="Processes that train together."),
    apply=Option("--apply", help="Write the recommended keys into the project's own files."),
)
