"""`mltrainer wrap --profile`: what a program's steps wait for, by one run of it: data, the host, the device, or one process."""

from __future__ import annotations

import dataclasses
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mltrainer.configs.pages import diagnostic_page
from mltrainer.errors import InputError
from mltrainer.executors.signs import WAITED
from mltrainer.follow.usage import gpus
from mltrainer.observe.logs import files_of
from mltrainer.observe.process import Settings, is_rank
from mltrainer.programs.chains import steps_in
from mltrainer.programs.checking import NO_STEP, NOTHING, pace, require_success
from mltrainer.programs.starting import Tell, WrappedProgram, start
from mltrainer.reports.terminal import table
from mltrainer.reports.values import duration, microseconds, number, share

Bound = Literal["data", "host", "device", "stragglers", "unknown"]
WARM_UP = 2  # steps that are left out: kernels are loaded, memory is allocated, processes of loaders begin
LEAST_STEPS = 8  # that are judged, chosen by us
BUSY_CORES = 0.5  # of one, chosen by us: a process that computes keeps more busy
PARTS = ("data", "before", "backward", "after")


@dataclass(frozen=True)
class ProcessTimes:
    """The times of one process's steps.

    Attributes:
        name: Its rank where the program is distributed.
        steps: Number of the judged steps.
        step_s: Their median time in seconds.
        own_s: The median time in seconds before the last backward pass, data among it, in which no process waits for another.
        shares: The shares of all the time: `data`, in PyTorch's data loaders; `before` the last backward pass, such as the
            forward pass; `backward`; `after` it, such as the optimizer.
        cores: The mean number of processors that its threads keep busy.
        delayed: The share of the time for which it was ready to run, and another program had the processor; 0 but on Linux.
        has_cuda: Whether it uses CUDA; its times are then those of queueing the work.
    """

    name: str
    steps: int
    step_s: float
    own_s: float
    shares: dict[str, float]
    cores: float
    delayed: float
    has_cuda: bool


@dataclass(frozen=True)
class SpeedVerdict:
    """What holds a program's steps up.

    Attributes:
        command: The command, as it was typed.
        bound: What the steps wait for most.
        why: The evidence in words.
        next: What to try.
        seconds: Duration of the run.
        gpu_percent: The median utilization of the busiest GPU that CUDA_VISIBLE_DEVICES shows, after the first steps; None
            without one that the program uses, and where it is not known.
        processes: The processes that trained.
    """

    command: str
    bound: Bound
    why: str
    next: str
    seconds: float
    gpu_percent: float | None
    processes: tuple[ProcessTimes, ...]


def speed_of(program: WrappedProgram, scratch: Path, steps: int, tell: Tell) -> SpeedVerdict:
    """Return the verdict on a program's speed, by one run of it.

    Args:
        program: The program.
        scratch: An empty folder, which the caller removes.
        steps: Number of steps after which each process is ended; 0 for never.
        tell: Receives the events.

    Raises:
        InputError: The program fails, or makes too few steps.
        MachineError: It was out of memory.
    """
    tell({"event": "note", "text": "the program as it is, its steps timed"})
    seen: list[int] = []
    paced, sample = pace(tell, steps, lambda: None), _sampler(seen, program.environment.get("CUDA_VISIBLE_DEVICES"))

    def poll(lines: Path) -> None:
        paced(lines)
        sample(lines)

    ended = start(program, scratch / "run", NOTHING, Settings(speed=True, steps=steps), poll)
    require_success(ended)
    processes = tuple(filter(None, map(_times, files_of(ended.lines, "chain").items())))
    if not processes:
        least = LEAST_STEPS + WARM_UP
        what = f"{NO_STEP}, or fewer than {least} in each process: too few to judge their speed"
        raise InputError(
            what, where=shlex.join(program.command), hint=f"give --steps {least} or more, and a command that makes them"
        )
    busy = statistics.median(seen) if seen and any(one.has_cuda for one in processes) else None
    bound, why, then = judged(processes, busy)
    return SpeedVerdict(shlex.join(program.command), bound, why, then, ended.seconds, busy, processes)


def _sampler(seen: list[int], shown: str | None) -> Callable[[Path], None]:
    """Return a callback of polls that notes the utilization of the program's busiest GPU, once its warm-up is over.

    Args:
        seen: Receives the utilization in percent.
        shown: CUDA_VISIBLE_DEVICES. Numbers in it are taken as the driver's; without numbers, all GPUs are the program's.
    """
    names = (shown or "").split(",")
    numbers = {int(name) for name in names} if all(name.strip().isdecimal() for name in names) else None

    def sample(lines: Path) -> None:
        if steps_in(lines) <= WARM_UP:
            return
        if found := [gpu.percent for number, gpu in enumerate(gpus()) if numbers is None or number in numbers]:
            seen.append(max(found))

    return sample


def _times(file: tuple[tuple[str, int], Path]) -> ProcessTimes | None:
    """Return the times in a process's file; None where it made too few steps."""
    (name, _), path = file
    whole, _, _ = path.read_text("utf-8").rpartition("\n")  # what follows are zeros, or half of a line
    rows = [[int(word) / 1e9 for word in line.split(" ")[2:8]] for line in whole.splitlines()][WARM_UP:]
    if len(rows) < LEAST_STEPS:
        return None
    sums = [sum(column) for column in zip(*rows, strict=True)]
    total = sum(sums[:4])
    return ProcessTimes(
        name=name,
        steps=len(rows),
        step_s=statistics.median(sum(row[:4]) for row in rows),
        own_s=statistics.median(row[0] + row[1] for row in rows),
        shares={part: seconds / total for part, seconds in zip(PARTS, sums, strict=False)},
        cores=sums[4] / total,
        delayed=sums[5] / total,
        has_cuda=whole.endswith(" 1"),
    )


# --- the verdict ----------------------------------------------------------------------------------


def judged(processes: Sequence[ProcessTimes], gpu_percent: float | None) -> tuple[Bound, str, str]:
    """Return the verdict: the part that the steps wait for most, the evidence, and what to try.

    Args:
        processes: The processes that trained, at least one.
        gpu_percent: The utilization of the GPU that they use; None without one, and where it is not known.
    """
    limit = diagnostic_page("input_starvation", None).thresholds["data_wait"]
    if (late := _straggler(processes)) is not None:
        return "stragglers", late, "look at that process's machine and data: other programs, a slower disk, longer samples"
    most = max(processes, key=lambda one: one.shares["data"])
    if most.shares["data"] > limit:
        why = f"{share(most.shares['data'])} of the time in PyTorch's data loaders (more than {share(limit)} holds a training up)"
        return "data", why, "more num_workers, decoded and resized data on the disk, or all of it in memory"
    return _of_gpu(gpu_percent) if any(one.has_cuda for one in processes) else _of_cpu(most, limit)


def _straggler(processes: Sequence[ProcessTimes]) -> str | None:
    """Return in words which of several ranks the others wait for; None where none takes a tenth of a step more.

    Processes without a rank may be programs of their own, of which none waits for another.
    """
    ranks = [one for one in processes if is_rank(one.name)]
    if len(ranks) < 2:
        return None
    slow = max(ranks, key=lambda one: one.own_s)
    others = statistics.median(one.own_s for one in ranks if one is not slow)
    late = (slow.own_s - others) / slow.step_s
    if late < WAITED:
        return None
    own, usual = microseconds(1e6 * slow.own_s), microseconds(1e6 * others)
    return (
        f"process {slow.name} takes {own} before its backward pass, the others {usual}: they wait {share(late)} of a step for it"
    )


def _of_gpu(percent: float | None) -> tuple[Bound, str, str]:
    """Return the verdict on a GPU: it computes, or the host keeps it waiting; unknown without a measured utilization."""
    if percent is None:
        then = 'pip install "mltrainer[gpu]", with which it is measured; if that is installed, give more --steps'
        return "unknown", "the GPU's utilization is unknown: it could not be measured", then
    least = diagnostic_page("resource_inefficiency", None).thresholds["gpu_percent"]
    why = f"the GPU is busy for {number(percent)} % (median; {number(least)} % or more are usual)"
    if percent < least:
        return "host", why, "a larger batch, torch.compile, or fewer .item() and .cpu(), each of which waits for the GPU"
    return "device", why, "a lower precision, or a smaller model; a faster GPU"


def _of_cpu(most: ProcessTimes, limit: float) -> tuple[Bound, str, str]:
    """Return the verdict on a CPU: it computes, others take it, or the program waits for something else."""
    cores = f"its threads keep {number(most.cores)} processors busy"
    if most.delayed > limit:
        why = f"for {share(most.delayed)} of the time it was ready to run, and other programs had the processors"
        return "host", why, "stop other programs here, or give it fewer threads than there are processors"
    if most.cores + most.delayed < BUSY_CORES:
        why = f"{cores}, and {share(most.shares['data'])} of the time is spent in data loaders"
        return "host", why, "look for what it waits for: files, a network, another program, locks; `py-spy dump` shows the line"
    part = max(("before", "backward", "after"), key=lambda name: most.shares[name])
    words = {"before": "before the backward pass", "backward": "in the backward pass", "after": "after the backward pass"}
    why = f"the CPU computes: {cores}; {share(most.shares[part])} of the time {words[part]}"
    return "device", why, "a GPU, more threads, a lower precision, or a smaller model"


WORDS: dict[Bound, str] = {
    "data": "it waits for data",
    "host": "the host holds it up",
    "device": "the device computes all the time",
    "stragglers": "it waits for the slowest of its processes",
    "unknown": "what holds it up is unknown",
}


def text(verdict: SpeedVerdict) -> str:
    """Return a verdict as plain lines."""
    rows = [
        [one.name, str(one.steps), microseconds(1e6 * one.step_s), *map(share, one.shares.values()), number(one.cores)]
        for one in verdict.processes
    ]
    heads = ["process", "steps", "a step", "data", "before backward", "backward", "after", "processors"]
    lines = [
        f"speed: {WORDS[verdict.bound]}",
        f"  {verdict.why}",
        f"  next: {verdict.next}",
        table(rows, heads).rstrip("\n"),
        f"one run of {duration(verdict.seconds)}, without its first {WARM_UP} steps; programs beside it change its times",
    ]
    return "\n".join(lines)


def as_json(verdict: SpeedVerdict) -> dict[str, object]:
    """Return a verdict as one JSON object."""
    return dataclasses.asdict(verdict)
