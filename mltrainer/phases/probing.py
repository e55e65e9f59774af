"""Planning's probes: a few real steps of a config in fresh processes, compared bit for bit, with their time and memory.

In: the config. Out: the probes' results, whether they repeat and the cause if not, the effect of each option, and the estimate
of the whole run.
"""

from __future__ import annotations

import math
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mltrainer.checkpointing.manifest import folders
from mltrainer.configs.items import DataLimits, PlanningSettings
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.observe.disturbances import ALL, NOT_CHANGED, words_of
from mltrainer.phases.context import Context
from mltrainer.plugins import located
from mltrainer.programs.leftover_files import first_unlike
from mltrainer.records.common import Call, Cause, Divergence
from mltrainer.records.event import Event
from mltrainer.records.job import TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.planning import Cost, Data, Estimate, Loader, Option, Probe, ProbeRun
from mltrainer.records.run import Memory, ProbeResult, Rehearsal, Resumed, UnsoundDataResult
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.causes import HASH_SEEDS, sentence
from mltrainer.reproducibility.hash_seeds import hash_seeds
from mltrainer.reproducibility.short_strings import named
from mltrainer.runs.localize import HASH_SEED_VARIABLE, NOTHING, ONE_BY_ONE, OTHER_HASHES, Change, find_cause
from mltrainer.runs.trainer import Trainer

MOST_CALLS = 5  # reported attributes that a resumed probe did not restore


@dataclass(frozen=True)
class Probes:
    """Two trainings of a few real steps.

    Attributes:
        first: The result of the undisturbed training.
        second: The result of the training with everything changed that must not matter.
        hash_seeds: The hash seeds of all processes that were compared.
        checkpoint_bytes: The size of a checkpoint in bytes; 0 where none was left, as after a loss that is not a number.
    """

    first: ProbeResult
    second: ProbeResult
    hash_seeds: tuple[str, ...]
    checkpoint_bytes: int

    @property
    def both(self) -> tuple[ProbeResult, ProbeResult]:
        """The two results."""
        return self.first, self.second


def probe(ctx: Context, config: TrainingConfig) -> ProbeResult | UnsoundDataResult:
    """Return the result of a few steps, trained alone on the machine, since their times are evidence; none on unsound data.

    It also measures the number of loader processes that are needed, where the config leaves it open, and rehearses the work that
    an evaluation adds to the steps.
    """
    settings = _settings(ctx)
    steps = settings.probe_steps
    judged = settings.model_dump(include=set(DataLimits.model_fields))  # once: the second probe has the same data, by its digest
    asked: dict[str, Any] = {"rehearse": True, "data_limits": judged}
    if config.loader.workers == "auto":
        limits = {"seconds": settings.loader_seconds, "largest_wait": settings.loader_wait, "least_s": settings.loader_least_s}
        asked["measure_loader"] = limits
    return _announced(ctx, steps).first_probe(_job(ctx, config, "first", steps, **asked))


def _announced(ctx: Context, steps: int) -> Trainer:
    """Return the trainer, with a note when its steps begin: a refused config has no steps."""
    text = f"probing {steps} steps, twice, in fresh processes"
    if "resume" not in ctx.trainer.capabilities:  # another trainer may not report its start
        ctx.note(text)
        return ctx.trainer

    def show(event: Event) -> None:
        if event["event"] == "start":
            ctx.note(f"{text}; the second time interrupted half-way and resumed")
        ctx.tell(event)

    return ctx.trainer_reporting_to(show)


def probe_again(ctx: Context, config: TrainingConfig, first: ProbeResult) -> Probes:
    """Train the same steps with everything changed that must not matter, and return the results of both times.

    It stops half-way and goes on in another process, strings hash differently, another number of processes loads the samples,
    new memory holds NaN, and where several processes are to train together, one begins alone; `observe.disturbances` lists the
    other changes.

    Raises:
        InputError: The training fails this time, though not the first time.
    """
    try:
        return _probed_again(ctx, config, first)
    except InputError as error:
        if error.where == "task.resume":  # a command that the first time did not need
            raise
        stops = ["an interruption"] if "resume" in ctx.trainer.capabilities else []
        changed = ", ".join([*_changed(ctx, config), *stops])
        message = f"it trained as it is, and failed once what must not matter was changed ({changed}): {error.message}"
        raise InputError(message, where=error.where, hint=error.hint) from error


def _probed_again(ctx: Context, config: TrainingConfig, first: ProbeResult) -> Probes:
    steps, trainer, as_fed = _settings(ctx).probe_steps, ctx.trainer, fed(config, first)
    halves = _job(ctx, as_fed, "second", steps, resumable=True, disturbances=ALL.names)
    seeds = _hash_seeds(ctx, config, first)
    if "resume" in trainer.capabilities:
        begins = halves.model_copy(update={"max_steps": _middle(steps), "config": as_fed.with_processes(1)})
        trainer.probe(begins, {HASH_SEED_VARIABLE: seeds[-1]})
        second = trainer.probe(halves.model_copy(update={"config": _other_workers(as_fed)}), OTHER_HASHES)
    else:
        second = _whole_again(ctx, halves, first, seeds)
    # Measured before they are removed, for the estimate of disk space: only the second probe saves checkpoints.
    checkpoints = ctx.project.root / halves.folder / "checkpoints"
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in folders(checkpoints)]
    shutil.rmtree(checkpoints, ignore_errors=True)
    return Probes(first, second, seeds, max(sizes, default=0))


def _hash_seeds(ctx: Context, config: TrainingConfig, first: ProbeResult) -> tuple[str, ...]:
    """Return the hash seeds of all probes, under which small sets of the task's strings begin with other elements."""
    if not first.code_files:
        return HASH_SEEDS  # only our own code, which iterates over no set
    root, command = ctx.project.root, config.task.command(config.seed)
    sources = [located(root, row.path) for row in first.code_files]
    data = [root / row.path for row in data_of(first).files]
    return hash_seeds(named(sources, data, command)).seeds


def _whole_again(ctx: Context, job: TrainingJob, first: ProbeResult, seeds: tuple[str, ...]) -> ProbeResult:
    """Return the result of the same steps, uninterrupted, under other hash seeds: the first that differs, else the last."""
    for seed in seeds[2:]:
        ctx.note(f"once more, with hash seed {seed}: small sets of your strings come in another order")
        found = ctx.trainer.probe(job.model_copy(update={"resumable": False}), {HASH_SEED_VARIABLE: seed})
        if found.chain != first.chain:
            return found
    return ctx.trainer.probe(job, OTHER_HASHES)


def fed(config: TrainingConfig, probe: ProbeResult) -> TrainingConfig:
    """Return a config with the number of loader processes that a probe found, where the config leaves it open."""
    return config.with_workers(partial(Loader, probe.loader or {}).workers or 0)


def data_of(probe: ProbeResult | UnsoundDataResult) -> Data:
    """Return a probe's description of the data."""
    return partial(Data, probe.data or {})


# --- the effect of each option --------------------------------------------------------------------

# Options that trade speed, memory or portability, each with its value where it is not used.
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("numerics", "native"),
    ("precision", "fp32"),
    ("compile", False),
    ("channels_last", False),
    ("gradient_checkpointing", []),
)


def option_effects(ctx: Context, config: TrainingConfig, probe: ProbeResult) -> list[Option]:
    """Return the effect of each option that the config uses, from a further probe with only that one switched off."""
    trainer, rows = ctx.trainer, []
    if "options" not in trainer.capabilities:
        return []
    own = _cost(probe)
    for key, plain in OPTIONS:
        value = probe.precision.chosen if key == "precision" else getattr(config, key)
        if value == plain:
            continue
        ctx.note(f"probing once more without {key}, to measure its effect")
        other = config.model_copy(update={key: plain}).with_workers(0)
        without = _cost(trainer.probe(_job(ctx, other, f"without-{key}", _settings(ctx).probe_steps)))
        rows.append(Option.model_validate({"key": key, "value": value, "plain": plain, "with": own, "without": without}))
    return rows


def _cost(probe: ProbeResult) -> Cost:
    """Return a probe's shortest step, and its peak memory: the device's, or on a CPU the process's."""
    assert probe.shortest_step_us is not None  # a trainer with options makes steps
    return Cost(step_us=probe.shortest_step_us, peak_mb=probe.memory.device_peak_mb or probe.memory.peak_rss_mb)


def _job(ctx: Context, config: TrainingConfig, name: str, steps: int, **more: Any) -> TrainingJob:
    folder = ctx.project.state_dir / "probe" / name
    # Emptied when a job is made, not when it starts: the second probe's halves are copies of one job and share a folder.
    shutil.rmtree(folder, ignore_errors=True)
    return TrainingJob(
        run=f"probe-{name}",
        phase="planning",
        purpose="probe",
        folder=ctx.project.relative(folder),
        config=config,
        gate=None,
        contract={},
        code_files=None,
        max_steps=steps,
        threads=config.threads,
        **more,
    )


def _settings(ctx: Context) -> PlanningSettings:
    return PlanningSettings.model_validate(ctx.page.settings)


def _middle(steps: int) -> int:
    return max(1, steps // 2)


def _other_workers(config: TrainingConfig) -> TrainingConfig:
    """Return the config with one worker less, at least 0, since a data set may not work in other processes."""
    if config.task.is_opaque:
        return config
    return config.model_copy(update={"loader": config.loader.model_copy(update={"workers": max(0, config.loader.processes - 1)})})


# --- the results of the probes --------------------------------------------------------------------


def compare(ctx: Context, config: TrainingConfig, probes: Probes) -> Probe:
    """Return the two probes side by side, the first step in which they differ, and the cause."""
    chains = [fingerprint.read(ctx.project.state_dir / "probe" / name / fingerprint.CHAIN_FILE) for name in ("first", "second")]
    first, second = probes.both
    difference, is_resumed = _difference(chains, probes), "resume" in ctx.trainer.capabilities
    steps, resumed = _settings(ctx).probe_steps, second.program.resumed if second.program else None
    if resumed is not None:
        is_resumed, difference = True, difference or _not_resumed(resumed)
    same = chains[0] == chains[1] and first.data_sha256 == second.data_sha256
    identical = difference is None and same
    return Probe(
        steps=first.steps,
        resumed_at=resumed.killed_after if resumed else min(_middle(steps), first.steps) if is_resumed else 0,
        runs=[_side(result) for result in probes.both],
        identical=identical,
        first_difference=difference,
        hash_seeds=[*probes.hash_seeds],
        changed=_changed(ctx, config),
        not_changed=[*NOT_CHANGED],
        cause=None if identical else _cause(ctx, fed(config, first), difference, same, second.not_restored),
    )


def _changed(ctx: Context, config: TrainingConfig) -> list[str]:
    """Return the changes of the second probe, in words."""
    fills = platform.libc_ver()[0] == "glibc" if config.task.is_opaque else "resume" in ctx.trainer.capabilities
    return words_of(replace(ALL, memory=fills))


def _difference(chains: Sequence[list[str]], probes: Probes) -> Divergence | None:
    """Return the first step in which two probes differ; where no step was seen, the first output that differs."""
    lefts = [one.program.left for one in probes.both if one.program and one.program.left is not None]
    return first_unlike(*lefts) if len(lefts) == len(probes.both) else fingerprint.first_divergence(*chains)


def _side(result: ProbeResult) -> ProbeRun:
    """Return a probe's part of planning's record."""
    keys = ("steps", "weights_sha256", "init_sha256", "draws", "determinism", "wall_s", "parameters")
    same = {key: getattr(result, key) for key in (*keys, *(("weights_tree_sha256",) if result.weights_tree_sha256 else ()))}
    return ProbeRun(
        **same, chain_head=result.chain.head, step_time_us=result.step_time_us.median if result.step_time_us else None
    )


def _not_resumed(resumed: Resumed) -> Divergence | None:
    """Return the first difference of a killed and resumed program from the undisturbed run; None where there is none."""
    if resumed.same:
        return None
    return Divergence(
        step=resumed.step or resumed.steps,
        what=resumed.what or "the end",
        expected="the undisturbed run's",
        found=f"killed after step {resumed.killed_after} and gone on with",
    )


def _cause(ctx: Context, config: TrainingConfig, difference: Divergence | None, resumed: bool, lost: Sequence[Call]) -> Cause:
    """Return the cause of the probes' difference; where no pair of processes shows one, it is the second probe's resumption.

    Args:
        ctx: The phase's context.
        config: The config that was probed.
        difference: The first difference; None where none is known.
        resumed: Whether a program repeats, and only its resumption differs.
        lost: The attributes that were not restored when the second probe went on.
    """
    steps = _settings(ctx).probe_steps
    if config.task.is_opaque:
        job = _job(ctx, config, "cause", steps, trace_from=1)
        found = None if resumed else ctx.trainer.probe(job).cause
        kind = "state" if resumed else "chance"
        found = found or Cause(kind=kind, step=difference.step if difference else 0, what="what went on", calls=[])
        ctx.note(sentence(found))
        return found
    workers = Change("workers", job={"config": _other_workers(config)})
    changes = [NOTHING, *ONE_BY_ONE, *([workers] if config.loader.processes else [])]
    traced = "trace" in ctx.trainer.capabilities
    found = find_cause(ctx.tools, _job(ctx, config.with_processes(1), "cause", steps), changes, 1) if traced else None
    step = difference.step if difference else 0
    kind = "state" if traced and step > _middle(steps) else "chance"
    calls = [*lost[:MOST_CALLS]] if kind == "state" else []
    found = found or Cause(kind=kind, step=step, what="the training that was stopped and gone on with", calls=calls)
    ctx.note(sentence(found))
    return found


def estimate(config: TrainingConfig, probes: Probes, free_mb: float, disk_free: int) -> Estimate:
    """Return the whole run's estimated time, memory and disk space, scaled from the probes' measured steps and evaluation."""
    probe = probes.first
    # The faster probe: other work on the machine can slow one down, but nothing speeds it up.
    step_us = min((one.step_pace_us for one in probes.both if one.step_pace_us is not None), default=None)
    known: dict[str, Any] = {
        "step_time_us": step_us,
        "budget_minutes": config.budget.minutes,
        "available_mb": free_mb,
        "checkpoint_mb": probes.checkpoint_bytes / 2**20,
        "disk_free_mb": disk_free / 2**20,
    }
    peak_mb = config.processes * max(one.memory.peak_rss_mb for one in probes.both)
    if config.task.is_opaque:  # its steps are known where a probe ran it to its end
        resumed = probes.second.program.resumed if probes.second.program else None
        steps = resumed.steps if resumed else None
        minutes = steps * step_us / 60e6 if steps and step_us else None
        if probe.is_without_steps:  # both ran to their end
            minutes = min(one.wall_s for one in probes.both) / 60
        return Estimate(**known, steps=steps, minutes=minutes, peak_mb=peak_mb)
    assert step_us is not None  # only a program can be without steps
    validation = data_of(probe).splits.validation.samples
    held_mb = _held_mb(probe.rehearsal, validation)
    on_device = [one.memory.device_peak_mb for one in probes.both if one.memory.device_peak_mb]
    return Estimate(
        **known,
        steps=probe.planned_steps,
        minutes=_seconds(config, probe, validation, step_us) / 60,
        peak_mb=peak_mb + held_mb,
        held_mb=held_mb,
        device_peak_mb=max(on_device, default=None),
        device_total_mb=probe.memory.device_total_mb,
        parts=probe.memory.parts,
        rest_mb=_rest_mb(probe.memory),
    )


def _rest_mb(memory: Memory) -> float | None:
    """Return the rest of the peak memory (the device's where there is one) beyond the parts that were measured, in MiB."""
    parts = memory.parts
    if parts is None:
        return None
    held = float(parts.weights_mb + parts.buffers_mb + parts.gradients_mb + parts.optimizer_mb)
    peak = memory.peak_rss_mb - parts.start_mb if memory.device_peak_mb is None else memory.device_peak_mb
    return max(0.0, float(peak) - held)


def _seconds(config: TrainingConfig, probe: ProbeResult, validation: int, step_us: float) -> float:
    """Return the expected seconds of the whole run, evaluations and start included."""
    steps = probe.planned_steps
    per_sample = probe.rehearsal.seconds / max(1, probe.rehearsal.samples)
    evaluations = math.ceil(steps / config.evaluate.interval(max(1, steps // config.epochs)))  # the last step always is evaluated
    # As many training samples are measured, too; with averaged weights, validation once more by the weights before averaging.
    measured = (3 if config.averages else 2) * validation
    return steps * step_us / 1e6 + evaluations * measured * per_sample + probe.time_s["setup"]


def _held_mb(rehearsal: Rehearsal, validation: int) -> float:
    """Return the MiB that a whole evaluation holds beyond the probe's evaluation, which measured only some samples.

    Outputs and targets of the whole split are held twice for a moment, batch by batch and joined.
    """
    per_sample = (rehearsal.held_bytes or 0) / max(1, rehearsal.samples)
    return float(2 * per_sample * max(0, validation - rehearsal.samples) / 2**20)
