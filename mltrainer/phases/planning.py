"""Planning: the complete, explicit config, and the proof that a few real steps of it repeat bit for bit.

In: `mltrainer.yaml`, the baseline template, an edited `training_config.yaml`. Out: `training_config.yaml`, and as
evidence the data's fingerprint, the environment, the code, two probes in fresh processes, and an estimate.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from mltrainer import handbook, plugins
from mltrainer.configs import yaml
from mltrainer.configs.editing import rewritten
from mltrainer.configs.items import PlanningSettings
from mltrainer.configs.loading import apply, as_typed, flatten, parse_assignment, read_text, validate, validate_values
from mltrainer.configs.project import ProjectConfig, Task, TrainingConfig, config_digest, load_project, load_training, of_task
from mltrainer.configs.schedules import preview, unreached
from mltrainer.configs.schema import header, write_schemas
from mltrainer.configs.templates import BASELINE, production_template, start_template, template_of
from mltrainer.errors import InputError
from mltrainer.gates.claims import CLAIM_FILE, planned, require_metric
from mltrainer.phases.context import Context, Result, code_rows, file_row, rows_with_role
from mltrainer.phases.inputs import opened_by
from mltrainer.phases.probing import Probes, compare, data_of, estimate, fed, option_effects, probe, probe_again
from mltrainer.phases.sanity_check import rehearsal
from mltrainer.records.claim import PlannedClaim
from mltrainer.records.common import FileRow, InputRow, Part, Source, dumped
from mltrainer.records.envelope import evidence_kind
from mltrainer.records.planning import Environment, Estimate, FineTuning, Option, Rehearsal, Usual
from mltrainer.records.references import BoostingPlan
from mltrainer.records.run import ProbeResult, UnsoundDataResult
from mltrainer.redaction import redacted, scan_files, scan_text
from mltrainer.reports.boosting import boosting_line
from mltrainer.reports.claims import late
from mltrainer.reproducibility.code import source, take_snapshot, uncommitted
from mltrainer.reproducibility.environment import available_mb, capture
from mltrainer.runs.references import measure_before_training
from mltrainer.workspace import PROJECT_FILE, Project, digest, write_atomic

CONFIG_FILE = "training_config.yaml"
UNSOUND = "the data has an error, as data_valid says"
SHOWN = 5  # uncommitted files in a note
HEADER = header("training_config.json", up="../../") + (
    "# Everything that decides a run. Edit it, then type `mltrainer phase run planning` to have it checked and measured.\n"
)


@dataclass(frozen=True)
class Plan:
    """The plan that follows from the files that people write.

    Attributes:
        config: The config.
        generated: The values from template and project file alone.
        template: The path of that template.
        edited: The values that a person changed against these, by dotted key.
        text: The new text of `training_config.yaml`; None where the file stays.
        hidden: Changes of `mltrainer.yaml` or the template since the last planning that an earlier edit hides, each in a line.
    """

    config: TrainingConfig
    generated: dict[str, Any]
    template: str
    edited: dict[str, Any]
    text: str | None
    hidden: list[str]


def run(ctx: Context) -> Result:
    """Plan: probe the config twice, measure, fingerprint; a config that cannot be run does not replace the present one."""
    production_template(ctx.project.root)  # a fault in it is reported before anything is probed
    plan = plan_config(ctx)
    for line in plan.hidden:
        ctx.note(line)
    config, environment = plan.config, capture(plan.config.threads)
    evidence: dict[str, Any] = {
        "config": config.model_dump(),
        "generated": plan.generated,
        "template": plan.template,
        "edited": plan.edited,
        "environment": environment.model_dump(),
    }
    # Before anything is written or started: jobs, logs and the committed record would all hold the secret.
    if redacted(evidence) != evidence:
        stopped = "the config contains a secret, which is neither written nor run"
        ctx.note(stopped)
        return _result(ctx, plan, {**evidence, "stopped": stopped}, source(ctx.project.root, []), [])
    # Begun here and waited for last, since a tracker's server may answer slowly.
    trackers = ctx.try_trackers(config.tracking)
    free_mb = available_mb()  # before the probes, whose own memory would count as taken
    first = probe(ctx, config)
    if isinstance(first, UnsoundDataResult):
        _write(ctx, plan)
        return _bound(ctx, plan, {**evidence, "stopped": UNSOUND, "data": first.data}, data_of(first).files, first.code_files)
    found = _measured(ctx, config, environment, first)
    schedule = _schedule(config, first)
    estimated = estimate(config, found.probes, free_mb, shutil.disk_usage(ctx.project.root).free)
    _write(ctx, plan)
    opened, unsteady = opened_by(ctx, config, found.probes.both)
    evidence |= {
        **_of_probes(ctx, config, found),
        "schedule": schedule,
        "estimate": estimated.written(),
        "opened": None if opened is None else dumped(opened),
        "unsteady": unsteady,
        "trackers": dumped(trackers()),
        **_claim_and_advice(ctx, config, first, estimated),
    }
    return _bound(ctx, plan, evidence, [*data_of(first).files, *(opened or [])], first.code_files)


def _claim(ctx: Context, config: TrainingConfig) -> PlannedClaim | None:
    """Return the claim to bind, and note what was known before it.

    Raises:
        InputError: Its file was edited, or it is about another metric than the config's.
        GateError: The ledger of tried runs was changed.
    """
    found = planned(ctx.project, getattr(ctx.last, "claim", None))
    if found is not None and not found.removed:
        require_metric(found.claim, config.metric, CLAIM_FILE)
    if found is not None and (why := late(found)) is not None:
        ctx.note(f"the claim cannot be answered: {why}")
    return found


def _write(ctx: Context, plan: Plan) -> None:
    """Write the config and its schema, only after it was tried: a refused plan writes nothing."""
    write_schemas(ctx.project.root)
    if plan.text is not None:
        write_atomic(ctx.folder / CONFIG_FILE, plan.text.encode())


def _bound(ctx: Context, plan: Plan, evidence: dict[str, Any], data: list[FileRow], code_files: list[FileRow]) -> Result:
    """Return the phase's result, which binds the files of data and code that the probes read."""
    inputs = [*rows_with_role(data, "data"), *code_rows(code_files)]
    bound = [CLAIM_FILE, *(ctx.project.relative(path) for path in config_files(ctx.project, plan.template))]
    code = _source(ctx, plan.config, code_files, [*bound, *(row.path for row in data)])
    return _result(ctx, plan, evidence, code, inputs)


def _boosting(ctx: Context, config: TrainingConfig, first: ProbeResult) -> BoostingPlan | None:
    """Return the figures of gradient boosting on a table before a network is trained, and note them; None without any."""
    found = None if config.task.is_opaque else measure_before_training(ctx.tools, config, data_of(first).sha256)
    if found is not None:
        ctx.note(boosting_line(found))
    return found


@dataclass(frozen=True)
class _Measured:
    """The measurements of a config's trial.

    Attributes:
        probes: The two trainings of a few steps.
        options: The effect of each option that it uses.
        rehearsed: The export of an untrained model; None where the trainer keeps no checkpoints.
    """

    probes: Probes
    options: list[Option]
    rehearsed: Rehearsal | None


def _measured(ctx: Context, config: TrainingConfig, environment: Environment, first: ProbeResult) -> _Measured:
    is_exported = "checkpoints" in ctx.trainer.capabilities
    # Not before the first probe, which is timed alone on the machine.
    rehearse = rehearsal(ctx, fed(config, first), first, environment) if is_exported else None
    probes = probe_again(ctx, config, first)
    options = option_effects(ctx, config, first)
    return _Measured(probes, options, rehearse() if rehearse else None)


def _of_probes(ctx: Context, config: TrainingConfig, found: _Measured) -> dict[str, Any]:
    """Return the evidence of the probes, and of the options and the export that were tried with them."""
    first, second = found.probes.both
    return {
        "data": first.data,
        "probe": compare(ctx, config, found.probes).written(),
        "loader": first.loader,
        "options": [row.written() for row in found.options],
        "rehearsal": found.rehearsed.written() if found.rehearsed else None,
        "numerics_class": first.numerics_class,
        "libraries": first.libraries,
        "precision": first.precision.model_dump(),
        **({"program": second.program.model_dump()} if second.program else {}),
    }


def _claim_and_advice(ctx: Context, config: TrainingConfig, first: ProbeResult, estimated: Estimate) -> dict[str, Any]:
    """Return the evidence of the claim and of planning's advice on the config, without what does not apply."""
    settings = PlanningSettings.model_validate(ctx.page.settings)
    advice: dict[str, Part | None] = {
        "claim": _claim(ctx, config),
        "fine_tuning": fine_tuning(config, first, settings),
        "memory_advice": plugins.part("planning", "memory_advice")(ctx, fed(config, first), first, estimated, settings),
        "boosting": _boosting(ctx, config, first),
    }
    return {name: advised.model_dump() for name, advised in advice.items() if advised is not None}


def _schedule(config: TrainingConfig, probe: ProbeResult) -> list[list[float]]:
    """Return the schedule's preview; empty for the task's own schedulers, and for a program's.

    Raises:
        InputError: The run ends before the last part of a sequence begins.
    """
    if config.schedule.name == "own" or config.task.is_opaque:  # only the task knows it
        return []
    steps, per_epoch = probe.planned_steps, probe.planned_steps // probe.planned_epochs
    if (fault := unreached(config.schedule, steps, per_epoch)) is not None:
        raise InputError(fault, where="schedule.parts", hint="shorten the parts, or raise epochs, then plan again")
    return preview(config.schedule, config.optimizer.lr, steps, per_epoch)


def _result(ctx: Context, plan: Plan, evidence: dict[str, Any], found: Source, inputs: list[InputRow]) -> Result:
    """Return the phase's result; a secret that would be recorded is removed, and its place and kind are reported instead."""
    path = ctx.folder / CONFIG_FILE
    template = plan.template
    from_handbook = template in handbook.page_paths()
    own = config_files(ctx.project, template)
    shown = redacted(evidence)
    in_files, in_record = scan_files(own), scan_text(json.dumps(evidence, indent=1), "record.json") if shown != evidence else []
    # A secret in a file comes into the record from there: the file is named, where it can be removed.
    places = [{**row, "path": ctx.project.relative(Path(row["path"]))} for row in in_files or in_record]
    secrets = {"scanned": [*map(ctx.project.relative, own), "record.json"], "found": places}
    rows = [file_row(ctx.project, ctx.project.file, "project")]
    rows += [file_row(ctx.project, path, "config")] if path.exists() else []
    pages = list(dict.fromkeys([BASELINE, *([template] if from_handbook else [])]))
    rows += [file_row(ctx.project, claim, "claim")] if (claim := ctx.project.root / CLAIM_FILE).exists() else []
    rows += [] if from_handbook else [file_row(ctx.project, ctx.project.root / template, "template")]
    whole = {**shown, "config_sha256": _named_by(shown["config"]), "secrets": secrets}
    return Result(evidence_kind("planning", whole).model_validate(whole), found, [*rows, *inputs], pages)


def _named_by(values: dict[str, Any]) -> str:
    """Return the digest that names a config's run; values without their secret may no longer be a valid config."""
    try:
        return config_digest(TrainingConfig.model_validate(values))
    except pydantic.ValidationError:
        return digest(values)


def _own_templates(root: Path) -> list[Path]:
    """Return the project's own config templates, whose values reach the written files."""
    return [root / page for page in handbook.overrides(root) if page.endswith(".yaml")]


def config_files(project: Project, template: str) -> list[Path]:
    """Return a project's config files: project file, training config, and the templates that are not the handbook's."""
    own = [project.file, project.phase_dir("planning") / CONFIG_FILE, *_own_templates(project.root)]
    return own if template in handbook.page_paths() else [*own, project.root / template]


def _source(ctx: Context, config: TrainingConfig, files: list[FileRow], bound: list[str]) -> Source:
    """Return the code identity; a dirty tree is captured, so that it can be restored."""
    started = _started(ctx, config)
    found = source(ctx.project.root, files, bound, started)
    if found.commit is None and found.note:
        ctx.note(found.note)
    if not found.dirty:
        return _with_configs(ctx, found, [*(row.path for row in files), *started], bound)
    listed = _some(uncommitted(ctx.project.root, [*(row.path for row in files), *started], bound))
    ctx.note(f"uncommitted changes{listed}: captured and marked on every report; the finalization gate wants a commit")
    taken = take_snapshot(ctx.project.root)
    note = "; ".join(filter(None, (found.note, taken.note))) or None
    return found.model_copy(update={"snapshot": taken.ref, "snapshot_skipped": taken.skipped, "note": note})


def _with_configs(ctx: Context, found: Source, used: list[str], bound: list[str]) -> Source:
    """Return the identity of committed code with a note on the project's config files that the commit does not have so."""
    own = [PROJECT_FILE, *map(ctx.project.relative, _own_templates(ctx.project.root))]
    apart = uncommitted(ctx.project.root, [*used, *own], [path for path in bound if path not in own])
    if not apart:
        return found
    note = f"config that is not as the commit has it{_some(apart)}: commit it, as a checkout of that commit may plan otherwise"
    ctx.note(note)
    return found.model_copy(update={"note": "; ".join(filter(None, (found.note, note)))})


def _started(ctx: Context, config: TrainingConfig) -> list[str]:
    """Return the project's files in the command of a program: a script that Python starts is not imported."""
    return [word for word in config.task.command(config.seed) if (ctx.project.root / word).is_file()]


def _some(paths: list[str]) -> str:
    """Return the first paths in brackets, with the number of further ones."""
    more = [f"{len(paths) - SHOWN} more"] if len(paths) > SHOWN else []
    return f" ({', '.join([*paths[:SHOWN], *more])})" if paths else ""


# --- the config -----------------------------------------------------------------------------------


def plan_config(ctx: Context) -> Plan:
    """Return the plan from template, project file, edits of `training_config.yaml` and the command line.

    Edits are kept, and changes of `mltrainer.yaml` flow through; nothing is written.

    Raises:
        InputError: A file or a `--set` is not valid.
    """
    root = ctx.project.root
    project = load_project(ctx.project.file)
    template_file, template = start_template(ctx.template or _template_before(ctx, project), root)
    values = of_task(template, project.task)
    generated = TrainingConfig.model_validate({**values, **project.model_dump()}).model_dump()
    path = ctx.folder / CONFIG_FILE
    name = ctx.project.relative(path)
    old = yaml.parse(read_text(path, "the training config"), name) if path.exists() else None
    values, before = generated, _generated_before(ctx)
    if old is not None:
        current = validate(TrainingConfig, old).model_dump()
        # Without a record of the values generated then, every difference from today's counts as a person's edit.
        values = merge(generated, current, before or generated)
    config = validate_values(TrainingConfig, *apply(values, ctx.assignments, name))
    final, made = config.model_dump(), flatten(generated)
    edited = {key: value for key, value in flatten(final).items() if key not in made or made[key] != value}
    text, shown = None, of_task(final, config.task)
    # A file with the same values is not rewritten: its comments and layout are a person's own.
    if old is None or old.value != shown:
        kept = rewritten(path.read_text("utf-8-sig"), shown) if old is not None else None
        text = kept or config_text(shown)
    hidden = _hidden(made, flatten(before or {}), flatten(final), [parse_assignment(typed)[0] for typed in ctx.assignments])
    return Plan(config, generated, template_file, edited, text, hidden)


def _hidden(made: dict[str, Any], before: dict[str, Any], final: dict[str, Any], typed: Collection[str]) -> list[str]:
    """Return a line for each key whose generated value changed while an edit of it hides the change."""
    keys = [key for key in made if key in before and before[key] != made[key] and final.get(key, made[key]) != made[key]]
    return [
        f"{key} stays {final[key]!r}, as training_config.yaml was edited; mltrainer.yaml or the template says {made[key]!r} now; "
        f"to take that: {as_typed({key: made[key]})}"
        for key in keys
        if key not in typed
    ]


def planned_config(project: Project) -> TrainingConfig:
    """Return the training config of a planned project.

    Raises:
        InputError: The project has no plan yet, or its config is not valid.
    """
    path = project.phase_dir("planning") / CONFIG_FILE
    if not path.is_file():
        raise InputError("the project is not planned yet", where=project.relative(path), hint="mltrainer phase run planning")
    return load_training(path, project.relative(path))


def _template_before(ctx: Context, project: ProjectConfig) -> str:
    """Return the template that planning started from last; the task's where none is recorded."""
    return (ctx.last.template if ctx.last else None) or template_of(project.task.use)


def _generated_before(ctx: Context) -> dict[str, Any] | None:
    try:
        return TrainingConfig.model_validate(ctx.last.generated).model_dump() if ctx.last else None
    except pydantic.ValidationError:
        return None


def merge(generated: dict[str, Any], current: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the generated values with a person's edits of the formerly generated ones.

    Args:
        generated: The values from template and project file now.
        current: The values in the config file.
        before: The values from template and project file when the config file was written.
    """
    edits = {key: value for key, value in current.items() if value != before.get(key)}
    result = {**generated}
    for key, value in edits.items():
        groups = all(isinstance(side.get(key), dict) for side in (generated, before)) and isinstance(value, dict)
        # The keys of two optimizers have different meanings: a group of another kind is taken whole.
        same_kind = groups and value.get("name") == generated[key].get("name") == before[key].get("name")
        result[key] = merge(generated[key], value, before[key]) if same_kind else value
    return result


def config_text(values: dict[str, Any]) -> str:
    """Return a training config as YAML: the keys that apply to its task, each with its description as a comment."""
    parts = [HEADER]
    for key, value in of_task(values, Task.model_validate(values["task"])).items():
        text = yaml.dump({key: value}).rstrip("\n")
        comment = TrainingConfig.model_fields[key].description
        parts.append(f"# {comment}\n{text}\n" if comment else f"{text}\n")
    return "".join(parts)


ADAM = ("adam", "adamw", "nadam", "radam")  # the usual rates are theirs: those of SGD and Lion differ by orders of magnitude
TRANSFORMERS = ("mltrainer.integrations.transformers:", "mltrainer.integrations.fine_tuning:")
OF_THEIR_OWN = ("own", "one_cycle", "sequence")  # schedules with their own warm-up, or with parts that have one


def fine_tuning(config: TrainingConfig, probe: ProbeResult, settings: PlanningSettings) -> FineTuning | None:
    """Return the usual ranges beside the config's values; None for random weights, adapters, and other optimizers.

    Args:
        config: The config.
        probe: The result of a probe of it, with the number of parameters and the steps of the whole run.
        settings: Planning's settings.
    """
    if config.optimizer.name not in ADAM or not begins_with_weights(config):
        return None
    low, high = _rates(probe.parameters, settings)
    lr = config.optimizer.lr
    proposed = None if low <= lr <= high else min(max(lr, low), high)
    rate = Usual(low=low, high=high, value=lr, key="optimizer.lr", proposed=proposed)
    return FineTuning(parameters=probe.parameters, rate=rate, warmup=_warmup(config, probe, settings))


def begins_with_weights(config: TrainingConfig) -> bool:
    """Return True if all of a model's weights are trained from given ones; adapters beside frozen ones use other rates."""
    if any(one.name == "lora" for one in config.strategies):
        return False
    options = config.task.options
    of_a_folder = (config.task.use or "").startswith(TRANSFORMERS) and isinstance(options.get("model"), str)
    return config.start is not None or (of_a_folder and not options.get("lora"))


def _rates(parameters: int, settings: PlanningSettings) -> tuple[float, float]:
    """Return the ends of the usual range of the learning rate for a model's size."""
    if parameters < settings.fine_tuning_small:
        return settings.rate_small_low, settings.rate_small_high
    if parameters > settings.fine_tuning_large:
        return settings.rate_large_low, settings.rate_large_high
    return settings.rate_middle_low, settings.rate_middle_high


def _warmup(config: TrainingConfig, probe: ProbeResult, settings: PlanningSettings) -> Usual | None:
    """Return the usual share of the steps for the warm-up, and the config's; None for a schedule with its own warm-up."""
    low, high, steps = settings.warmup_low, settings.warmup_high, probe.planned_steps
    if config.schedule.name in OF_THEIR_OWN:
        return None
    share = config.schedule.warmed_up(steps // probe.planned_epochs) / steps
    by_epochs = bool(config.schedule.warmup_epochs)
    key = "schedule.warmup_epochs" if by_epochs else "schedule.warmup_steps"
    # Rounded inwards: the next planning would advise against a proposal outside the range.
    least, most = math.ceil(low * steps), math.floor(high * steps)
    if low <= share <= high or not 1 <= least <= most:
        return Usual(low=low, high=high, value=share, key=key, proposed=None)
    wanted = least if share < low else most
    proposed = round(wanted * probe.planned_epochs / steps, 4) if by_epochs else wanted
    return Usual(low=low, high=high, value=share, key=key, proposed=proposed)
