"""Planning's evidence: the config, data, environment, two probes that must repeat, and the estimate of the whole run."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from mltrainer.records.claim import PlannedClaim
from mltrainer.records.common import Cause, Divergence, Export, FileRow, Measured, Number, Part
from mltrainer.records.equations import Between, Equal, not_negative, shares
from mltrainer.records.references import BoostingPlan
from mltrainer.records.run import Determinism, MemoryParts, Precision, Program


class Python(Part):
    """The interpreter; its version is used in scripts that are made of the record."""

    version: Annotated[str, Field(pattern=r"^\d+(\.\d+)+[\w.+]*$")]
    implementation: str
    build: str
    executable_kind: str


class Platform(Part):
    """The operating system."""

    system: str
    release: str
    machine: str
    libc: str


class Cpu(Part):
    """The CPU: cores that the process may use, a container's quota of them, and its instructions."""

    model: str
    vendor: str
    cores: int
    quota: Number | None
    flags_sha256: str
    flags: list[str]

    equations = (Between("cores", 1), *not_negative("quota"))


class Distribution(Part):
    """An installed package; no digest for an editable one."""

    name: str
    version: str
    record_sha256: str | None
    editable: bool


class GpuDevice(Part):
    """A GPU, its driver, the newest CUDA that the driver supports, and its memory in MiB."""

    name: str
    driver: str
    cuda: str
    memory_mb: Number | None = None

    equations = not_negative("memory_mb")


class Environment(Part):
    """The machine's environment; `sha256` is the digest of its parts that decide results."""

    python: Python
    platform: Platform
    cpu: Cpu
    memory_mb: int
    distributions: list[Distribution]
    variables: dict[str, str]
    gpu: list[GpuDevice]
    threads: int
    sha256: str

    equations = (Between("threads", 1), *not_negative("memory_mb"))


class Finding(Part):
    """A finding about the data; an error closes the gate."""

    severity: Literal["error", "warning", "info"]
    what: str


class Split(Part):
    """A split's size and the digest of its rows."""

    samples: int
    sha256: str

    equations = not_negative("samples")


class Splits(Part):
    """The three splits."""

    train: Split
    validation: Split
    test: Split


class Column(Part):
    """A column of a table, as its training and validation rows show it."""

    name: str
    kind: str
    missing: int
    distinct: int

    equations = not_negative("missing", "distinct")


class Target(Part):
    """The training targets' range."""

    name: str
    min: Measured
    max: Measured
    mean: Measured
    std: Measured

    equations = (Between("mean", "min", "max"), *not_negative("std"))


class Begun(Part):
    """Weights that the model begins with: its tensors that were loaded, those that were not, and the file's unused ones."""

    weights: str
    loaded: list[str]
    new: list[str]
    unused: list[str]


def _classified(data: "Data", split: str) -> int | None:
    """Return the number of samples of a split that have a class; None where they were not counted by class."""
    counts = (data.class_counts or {}).get(split)
    return sum(counts.values()) if counts else None


class Data(Part):
    """The data: its fingerprint, its splits, the findings in it, and weights that the model begins with.

    `duplicates_across_splits` is None where no samples were compared; `not_looked_at`: the parts that the findings do not cover,
    each with the reason.
    """

    sha256: str
    samples: int
    source: str | None
    kind: str
    files: list[FileRow]
    fingerprinted: int
    splits: Splits
    classes: list[str] | None
    class_counts: dict[str, dict[str, int]] | None
    columns: list[Column] | None
    target: Target | None
    shape: list[int] | None
    findings: list[Finding]
    duplicates_across_splits: int | None
    start: Begun | None = None
    not_looked_at: list[str] = Field(default_factory=list)

    equations = (
        Between("samples", lambda data: sum(split.samples for _, split in data.splits)),
        Between("fingerprinted", 0, "samples"),
        *(Equal(f"splits.{split}.samples", partial(_classified, split=split)) for split in ("train", "validation")),
        *not_negative("class_counts.*.*", "duplicates_across_splits"),
        Between("shape.*", 1),
    )

    @property
    def warnings(self) -> list[str]:
        """The findings above information; an error among them was waived, where later phases read it."""
        return [found.what for found in self.findings if found.severity != "info"]


class ProbeRun(Part):
    """One of the two probes."""

    steps: int
    chain_head: str
    weights_sha256: str
    weights_tree_sha256: str | None = None
    init_sha256: str
    draws: dict[str, str]
    determinism: Determinism
    step_time_us: Number | None
    wall_s: Number
    parameters: int

    equations = not_negative("steps", "step_time_us", "wall_s", "parameters")


class Probe(Part):
    """Two trainings of a few real steps side by side; the second stopped at `resumed_at` and went on, where that is not 0.

    Attributes:
        hash_seeds: The hash seeds of all processes that were compared.
        changed: The changes in the second training that must not matter, in words.
        not_changed: The changes that were not made, and may still matter.
    """

    steps: int
    resumed_at: int
    runs: list[ProbeRun]
    identical: bool
    first_difference: Divergence | None
    cause: Cause | None
    hash_seeds: list[str] = Field(default_factory=list)
    changed: list[str] = Field(default_factory=list)
    not_changed: list[str] = Field(default_factory=list)

    equations = (
        *not_negative("resumed_at"),  # a program that goes on is killed later than the steps that are compared
        Equal("runs.*.parameters", "runs.0.parameters"),
        Equal("runs.*.steps", lambda probe: probe.steps if probe.identical else None),
    )


class LoaderRow(Part):
    """The reading rate with `workers` loader processes, or the error by which reading failed."""

    workers: int
    samples_per_s: Number | None = None
    wait: Number | None = None
    error: str | None = None

    equations = (*not_negative("workers", "samples_per_s"), *shares("wait"))


class Loader(Part):
    """The number of loader processes that keep the steps fed."""

    workers: int
    in_memory: bool
    rows: list[LoaderRow]
    needed_per_s: Measured | None = None
    reading_s: Measured | None = None

    equations = not_negative("workers", "needed_per_s", "reading_s")


class Cost(Part):
    """A probe's shortest step in microseconds, and its peak memory in MiB."""

    step_us: Number
    peak_mb: Number

    equations = not_negative("step_us", "peak_mb")


class Option(Part):
    """The effect of an option: the cost of the probe with it, and `without` it."""

    key: str
    value: Any
    plain: Any
    with_option: Cost = Field(alias="with")
    without: Cost


class Fault(Part):
    """A part of a task that does not work: the fault, the line, and the hint."""

    what: str
    where: str | None
    mend: str | None


class Rehearsal(Part):
    """The export tried on the untrained model; `inference`, `evaluation`: whether the task has any; `sha256`: the subject's."""

    exports: list[Export]
    inference: bool
    evaluation: bool
    fault: Fault | None
    sha256: str


class Estimate(Part):
    """The estimated time and memory of the whole run, scaled from the probes; in MiB, of the process and of a GPU if any.

    Only a program knows the number of its steps: its time is not estimated. A program without steps ran to its end in the probes.

    `held_mb`, a part of `peak_mb`: the memory that a whole evaluation holds beyond the probe's. `parts`: of one process of the
    probe; `rest_mb`: the rest of its peak, such as activations, copies and the allocator's share.
    """

    steps: int | None
    step_time_us: Number | None
    minutes: Number | None
    budget_minutes: Number
    peak_mb: Number
    available_mb: Number
    checkpoint_mb: Number
    disk_free_mb: Number
    held_mb: Number | None = None
    device_peak_mb: Number | None = None
    device_total_mb: Number | None = None
    parts: MemoryParts | None = None
    rest_mb: Number | None = None

    equations = (
        *not_negative("steps", "step_time_us", "minutes", "budget_minutes", "available_mb", "checkpoint_mb", "disk_free_mb"),
        Between("minutes", lambda found: found.steps * found.step_time_us / 60e6 if found.steps and found.step_time_us else None),
        Between("held_mb", 0, "peak_mb"),
        Between("rest_mb", 0, lambda found: found.peak_mb if found.device_peak_mb is None else found.device_peak_mb),
        *not_negative("device_peak_mb", "device_total_mb"),
    )


class MemoryWay(Part):
    """A way to train with the same samples in a step, and the largest micro-batch that fits; `why_not` where it is none."""

    name: str
    set: dict[str, Any]
    batch_size: int | None
    accumulate: int | None
    peak_mb: Number | None
    why_not: str | None

    equations = (Between("batch_size", 1), Between("accumulate", 1), *not_negative("peak_mb"))


class MemoryAdvice(Part):
    """Ways for a training that takes much of the memory to take less: advice, which no gate reads.

    Attributes:
        limit_mb: The memory limit for planning, in MiB.
        ways: The ways to train, the config's own first.
        set: The keys to set; empty where nothing need change.
        reason: The reason for the advice.
        command: The command that plans with them; None where there are none.
    """

    limit_mb: Number
    ways: list[MemoryWay]
    set: dict[str, Any]
    reason: str
    command: str | None

    equations = not_negative("limit_mb")


class Usual(Part):
    """A usual range, the config's value, and the value to set where the config's is outside the range; else None."""

    low: Number
    high: Number
    value: Number
    key: str
    proposed: Number | None

    equations = (Between("low", 0, "high"), *not_negative("value", "proposed"))


class FineTuning(Part):
    """Usual settings for a model of this size that begins with given weights: advice, which no gate reads.

    Attributes:
        parameters: The number of the model's parameters.
        rate: The learning rate.
        warmup: The share of the steps in which it rises; None of a schedule that has its own warmup.
    """

    parameters: int
    rate: Usual
    warmup: Usual | None

    equations = not_negative("parameters")


class SecretPlace(Part):
    """The place of something that looks like a key, a token or a password, and its kind."""

    path: str
    line: int
    kind: str

    equations = (Between("line", 1),)


class Secrets(Part):
    """The files that were scanned, and the places found."""

    scanned: list[str]
    found: list[SecretPlace]


class Tracker(Part):
    """A tracker that the config names, tried without a run: its state, the reason of a failure, and the next step."""

    name: str
    state: Literal["ready", "failed", "not_installed"]
    reason: str | None = None
    mend: str | None = None


class Planned(Part):
    """Planning's evidence before it runs anything.

    `config` and `generated` are as `configs/README.md` describes; `edited` are the values that a person changed, by dotted key;
    `template` is the path of the template that planning started from, the baseline's where it is None.
    """

    config: dict[str, Any]
    generated: dict[str, Any]
    edited: dict[str, Any]
    environment: Environment
    config_sha256: str
    secrets: Secrets
    template: str | None = None


class Stopped(Planned):
    """Planning that ran nothing, for the reason in `stopped`."""

    stopped: str


class UnsoundData(Stopped):
    """Planning that found an error in the data, on which it trained nothing."""

    data: Data


def _claimed(key: str) -> "Callable[[Planning], str | None]":
    """Return the function that returns what a claim must say of the config's metric; None without a claim."""
    return lambda found: found.config["metric"][key] if found.claim is not None and not found.claim.removed else None


class Planning(Planned):
    """Planning that probed the config; `schedule` is a list of pairs of epoch and learning rate.

    `opened`: the files that the task opens beside data and code, by the probes and by the runs of the same task and code;
    None where that was not observed. `unsteady`: the files whose content differed in the second probe, which are not bound.
    `trackers`: those that the config names, as they were tried. `fine_tuning`: None unless the model begins with given weights.
    `memory_advice`: None unless a training takes much of the memory. `boosting`: the result of gradient boosting on a table.
    `claim`: None where none was made.
    """

    data: Data
    probe: Probe
    loader: Loader | None
    options: list[Option]
    numerics_class: str
    libraries: dict[str, str]
    precision: Precision
    schedule: list[list[Number]]
    estimate: Estimate
    rehearsal: Rehearsal | None = None
    program: Program | None = None
    opened: list[FileRow] | None = None
    unsteady: list[str] | None = None
    trackers: list[Tracker] | None = None
    fine_tuning: FineTuning | None = None
    memory_advice: MemoryAdvice | None = None
    boosting: BoostingPlan | None = None
    claim: PlannedClaim | None = None

    equations = (
        Equal("claim.claim.metric", _claimed("name")),
        Equal("claim.claim.mode", _claimed("mode")),
        Equal("estimate.budget_minutes", "config.budget.minutes"),
        Equal("probe.runs.*.determinism.threads", "environment.threads"),
        Equal("fine_tuning.parameters", "probe.runs.0.parameters"),
        Equal("boosting.metric", "config.metric.name"),
        Equal("boosting.samples", "data.splits.validation.samples"),
        Between("schedule.*.0", lambda found: [0, *(row[0] for row in found.schedule)]),
        *not_negative("schedule.*.1"),
    )
