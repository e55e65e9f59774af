"""`mltrainer profile`: the times of a step's sections and operators."""

from __future__ import annotations

from typer import Option

from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.exploration import exploring
from mltrainer.companions.questions.findings import Explored, Findings, Value
from mltrainer.configs.loading import Changes
from mltrainer.configs.pages import peak_flops_per_s
from mltrainer.reports.terminal import table
from mltrainer.reports.values import microseconds, number, share
from mltrainer.runs.launcher import Tools


class Section(Findings):
    """A section of a step: its median time in microseconds, and its share of all the time."""

    name: str
    us: Value
    share: Value


class Operator(Section):
    """An operator: its own time and its number of calls, per traced step."""

    calls: Value


class Speed(Findings):
    """A step's speed.

    Attributes:
        samples_per_s: Samples of the median step, by its time.
        flops: Floating-point operations of a step's matrix products, convolutions and attention, forward and backward, as
            PyTorch's counter counts them; None for a compiled model, whose kernels it does not see.
        device: The device's name.
        precision: The precision of the matrix products.
        measured_peak: Operations in a second of a product of matrices, measured here; None on a GPU, whose peak is on a page.
    """

    samples_per_s: Value
    flops: int | None
    device: str
    precision: str
    measured_peak: Value | None


class Profile(Findings):
    """Where a step's time goes.

    Attributes:
        steps: Number of timed steps.
        step_us: The median step, in microseconds.
        speed: Its speed.
        sections: The parts of a step.
        operators: The most expensive operators.
        traced_steps: Number of traced steps.
        host_waits: Number of the host's waits for the device, by the waiting function; None on a CPU.
    """

    steps: int
    step_us: Value
    speed: Speed
    sections: list[Section]
    operators: list[Operator]
    traced_steps: int
    host_waits: dict[str, int] | None


class FoundProfile(Profile, Explored):
    """A profile with the path of its trace.

    Attributes:
        trace: The path.
        flops_per_s: Operations in a second; None where they are not counted.
        utilization: Their share of the device's peak rate (MFU: Chowdhery et al., 2022, arXiv 2204.02311, appendix B), or on a
            CPU of its rate in a product of matrices; None where the peak is not known.
    """

    trace: str
    flops_per_s: Value | None
    utilization: Value | None


TRACE_FILE = "trace.json"
STEPS = 20  # unless asked otherwise


def profile(tools: Tools, *, set: Changes | None = None, steps: int = STEPS) -> FoundProfile:
    """Return the times of a step's sections, its most expensive operators, and the path of the trace; taken on a copy.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        steps: Number of timed steps.
    """
    with exploring(tools, "profile", set) as exploration:
        measured = exploration.ask(Profile, steps=steps)
        trace = tools.project.relative(exploration.folder / TRACE_FILE)
        speed = measured.speed
        rate = None if speed.flops is None else speed.flops / (measured.step_us * 1e-6)
        peak = speed.measured_peak or peak_flops_per_s(speed.device, speed.precision, tools.project.root)
        used = rate / peak if rate is not None and peak else None
        return exploration.kept(FoundProfile.of(measured, trace=trace, flops_per_s=rate, utilization=used))


def text(measured: FoundProfile) -> str:
    """Return a step's time by section, its most expensive operators, and the path of the trace."""
    sections = [[row.name, microseconds(row.us), share(row.share)] for row in measured.sections]
    operators = [[r.name, number(r.calls), microseconds(r.us), share(r.share)] for r in measured.operators]
    lines = [
        f"a step takes {microseconds(measured.step_us)} (median of {measured.steps} steps): {_rates(measured)}",
        table(sections, ["section", "median", "share of all"]),
        f"operators by their own time, per step (traced, {measured.traced_steps} steps):",
        table(operators, ["operator", "calls", "time", "share of all"]).rstrip("\n"),
        *_waits(measured),
        f"trace: {measured.trace} (open it at https://ui.perfetto.dev or chrome://tracing)",
    ]
    return "\n".join(lines)


def _rates(measured: FoundProfile) -> str:
    speed, samples = measured.speed, f"{measured.speed.samples_per_s:,.0f} samples/s"
    if measured.flops_per_s is None:
        return f"{samples}; operations of a compiled model are not counted"
    rate = f"{samples}, {number(measured.flops_per_s / 1e12)} TFLOPS in {speed.precision}"
    if measured.utilization is None:
        return f"{rate}; the page of devices has no peak rate of {speed.device} (mltrainer guide tools/planner/devices --copy)"
    peak = "what this machine reaches in a product of matrices" if speed.measured_peak is not None else f"{speed.device}'s peak"
    return f"{rate}, {share(measured.utilization)} of {peak}"


def _waits(measured: FoundProfile) -> list[str]:
    if measured.host_waits is None:
        return []
    waits = ", ".join(f"{name} {count} times" for name, count in sorted(measured.host_waits.items()))
    return [f"within these steps the host waited for the device: {waits or 'never'}"]


app = command(
    profile,
    text,
    name="profile",
    help="Show where a step's time goes: data, forward, backward, optimizer, other; with a trace for viewers.\n\n"
    "Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.",
    example="mltrainer profile --steps 50",
    steps=Option(min=1, max=100_000, metavar="N", help="Number of timed steps."),
)
