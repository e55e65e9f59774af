"""Planning: the config, complete and explicit, and the proof that a few real steps of it repeat bit for bit.

In: `mltrainer.yaml`, the baseline template, an edited `training_config.yaml`. Out: `training_config.yaml`, and as
evidence the data's fingerprint, the environment, the code, two probes in fresh processes, and an estimate.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from mltrainer import handbook
from mltrainer.checkpointing.manifest import folders
from mltrainer.configs import yaml
from mltrainer.configs.editing import rewritten
from mltrainer.configs.loading import assign, flatten, parse_assignment, read_text, validate, validate_values
from mltrainer.configs.project import TrainingConfig, bits_config, load_project
from mltrainer.configs.schedules import preview, unreached
from mltrainer.configs.schema import header, write_schemas
from mltrainer.configs.templates import BASELINE, baseline_template
from mltrainer.errors import InputError
from mltrainer.phases.context import Context, Result, file_row, rows_with_role
from mltrainer.phases.localizing import HASH_SEED, MEMORY, NOTHING, Change, find_cause
from mltrainer.phases.runs import ORCHESTRATOR, RESULT_FILE
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.causes import sentence
from mltrainer.reproducibility.code import source, take_snapshot
from mltrainer.reproducibility.environment import available_mb, capture
from mltrainer.reproducibility.secrets import scan_files, scan_text
from mltrainer.tools.launcher import launch
from mltrainer.workspace import digest, read_json, write_atomic

CONFIG_FILE = "training_config.yaml"
HEADER = header("training_config.json", up="../../") + (
    "# Everything that decides a run. Edit it, then type `mltrainer phase run planning` to have it checked and measured.\n"
)


@dataclass(frozen=True)
class Plan:
    """What planning makes of the files that people write.

    Attributes:
        config: The config.
        generated: What template and project file alone give.
        edited: What a person changed against that, by dotted key.
        text: What `training_config.yaml` must hold, or None where it holds it already.
    """

    config: TrainingConfig
    generated: dict[str, Any]
    edited: dict[str, Any]
    text: str | None


def run(ctx: Context) -> Result:
    """Plan: probe the config twice, measure, fingerprint; a config that cannot be run does not replace the one that is there."""
    write_schemas(ctx.project.root)
    plan = plan_config(ctx)
    config, path = plan.config, ctx.folder / CONFIG_FILE
    evidence: dict[str, Any] = {
        "config": config.model_dump(),
        "generated": plan.generated,
        "edited": plan.edited,
        "environment": capture(config.threads),
    }
    if scan_text(json.dumps(evidence, indent=1), ""):
        evidence["stopped"] = "a secret stands in the config, which is neither written nor run"
        ctx.note(evidence["stopped"])
        return _result(ctx, evidence, source(ctx.project.root, []), [])
    free_mb = available_mb()
    probes = probe(ctx, config)
    options = what_options_bring(ctx, config, probes[0])
    schedule = _schedule(config, probes[0])
    if plan.text is not None:
        write_atomic(path, plan.text.encode())
    files = probes[0]["code_files"]
    evidence |= {
        "data": probes[0]["data"],
        "probe": compare(ctx, _fed(config, probes[0]), probes),
        "loader": probes[0].get("loader"),
        "options": options,
        "numerics_class": probes[0]["numerics_class"],
        "libraries": probes[0]["libraries"],
        "precision": probes[0]["precision"],
        "schedule": schedule,
        "estimate": estimate(config, probes, free_mb, shutil.disk_usage(ctx.project.root).free),
    }
    inputs = [*rows_with_role(probes[0]["data"]["files"], "data"), *rows_with_role(files, "code")]
    return _result(ctx, evidence, _source(ctx, files), inputs)


def _schedule(config: TrainingConfig, probe: dict[str, Any]) -> list[list[float]]:
    """Return the schedule's preview.

    Raises:
        InputError: The run ends before the last part of a sequence begins.
    """
    steps, per_epoch = probe["planned_steps"], probe["planned_steps"] // probe["planned_epochs"]
    if (fault := unreached(config.schedule, steps, per_epoch)) is not None:
        raise InputError(fault, where="schedule.parts", mend="shorten the parts, or raise epochs, then plan again")
    return preview(config.schedule, config.optimizer.lr, steps, per_epoch)


def _result(ctx: Context, evidence: dict[str, Any], found: dict[str, Any], inputs: list[dict[str, Any]]) -> Result:
    """Return the phase's result; where a secret would be recorded, it is taken out, and place and kind are told instead."""
    path = ctx.folder / CONFIG_FILE
    own = [ctx.project.file, path, *_own_templates(ctx.project.root)]
    in_files, in_record = scan_files(own), scan_text(json.dumps(evidence, indent=1), "record.json")
    places = [{**row, "path": ctx.project.relative(Path(row["path"]))} for row in in_files or in_record]
    secrets = {"scanned": [*map(ctx.project.relative, own), "record.json"], "found": places}
    rows = [file_row(ctx.project, ctx.project.file, "project")]
    rows += [file_row(ctx.project, path, "config")] if path.exists() else []
    shown = cleaned(evidence) if in_record else evidence
    named_by = digest(bits_config(shown["config"]))
    return Result({**shown, "config_sha256": named_by, "secrets": secrets}, found, [*rows, *inputs], [BASELINE])


def _own_templates(root: Path) -> list[Path]:
    """Return the config templates of a project's own: their values reach what is written."""
    return [root / page for page in handbook.overrides(root) if page.endswith(".yaml")]


def cleaned(value: Any, key: str = "") -> Any:
    """Return a record's values without the texts in them that look like a secret, alone or under their key."""
    if isinstance(value, dict):
        return {cleaned(name): cleaned(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [cleaned(item, key) for item in value]
    found = scan_text(json.dumps({key: value}), "") if isinstance(value, str) else []
    return f"[removed: {found[0]['kind']}]" if found else value


def _source(ctx: Context, files: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the code identity; a dirty tree is captured, so that it can be restored."""
    found = source(ctx.project.root, files)
    if found["commit"] is None and found["note"]:
        ctx.note(found["note"])
    if not found["dirty"]:
        return found
    ctx.note("uncommitted changes: captured and marked on every report; the finalization gate wants a commit")
    taken = take_snapshot(ctx.project.root)
    note = "; ".join(filter(None, (found["note"], taken.note))) or None
    return {**found, "snapshot": taken.ref, "snapshot_skipped": taken.skipped, "note": note}


# --- the config -----------------------------------------------------------------------------------


def plan_config(ctx: Context) -> Plan:
    """Return the config that template, project file, edits of `training_config.yaml` and the command line give together.

    Edits are kept, and changes of `mltrainer.yaml` flow through; nothing is written.

    Raises:
        InputError: A file or a `--set` is not valid.
    """
    root = ctx.project.root
    project = load_project(ctx.project.file)
    template = baseline_template(root)
    generated = TrainingConfig.model_validate({**template, **project.model_dump()}).model_dump()
    path = ctx.folder / CONFIG_FILE
    name = ctx.project.relative(path)
    old = yaml.parse(read_text(path, "the training config"), name) if path.exists() else None
    values = generated
    if old is not None:
        current = validate(TrainingConfig, old).model_dump()
        values = merge(generated, current, _generated_before(ctx) or generated)
    config = validate_values(TrainingConfig, *apply(values, ctx.assignments, name))
    final, before = config.model_dump(), flatten(generated)
    edited = {key: value for key, value in flatten(final).items() if key not in before or before[key] != value}
    text = None
    if old is None or old.value != final:
        kept = rewritten(path.read_text("utf-8-sig"), final) if old is not None else None
        text = kept or config_text(final)
    return Plan(config, generated, edited, text)


def apply(values: dict[str, Any], assignments: Sequence[str], name: str) -> tuple[dict[str, Any], str]:
    """Return values after every `--set KEY=VALUE`, and what messages call them: the command line's, or `name`."""
    where = " ".join(f"--set {assignment}" for assignment in assignments) or name
    return assign(values, map(parse_assignment, assignments)), where


def _generated_before(ctx: Context) -> dict[str, Any] | None:
    try:
        return TrainingConfig.model_validate((ctx.current or {})["evidence"]["generated"]).model_dump()
    except (KeyError, TypeError, pydantic.ValidationError):
        return None


def merge(generated: dict[str, Any], current: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the generated values with the edits that a person made to those generated before.

    Args:
        generated: What template and project file give now.
        current: What the config file holds.
        before: What template and project file gave when the config file was written.
    """
    edits = {key: value for key, value in current.items() if value != before.get(key)}
    result = {**generated}
    for key, value in edits.items():
        groups = all(isinstance(side.get(key), dict) for side in (generated, before)) and isinstance(value, dict)
        same_kind = groups and value.get("name") == generated[key].get("name") == before[key].get("name")
        result[key] = merge(generated[key], value, before[key]) if same_kind else value
    return result


def config_text(values: dict[str, Any]) -> str:
    """Return a training config as YAML, each key with what it means."""
    parts = [HEADER]
    for key, value in values.items():
        text = yaml.dump({key: value}).rstrip("\n")
        comment = TrainingConfig.model_fields[key].description
        parts.append(f"# {comment}\n{text}\n" if comment else f"{text}\n")
    return "".join(parts)


# --- the probe ------------------------------------------------------------------------------------


def probe(ctx: Context, config: TrainingConfig) -> list[dict[str, Any]]:
    """Train a few steps twice, and return both results.

    The second time everything is changed that must not matter: it stops half-way and goes on in another process, strings
    hash differently, another number of processes loads the samples, and new memory holds NaN. The first one also measures how
    many of these processes are needed, where the config leaves that open.
    """
    steps = int(ctx.page.settings["probe_steps"])
    ctx.note(f"probing {steps} steps, twice, in fresh processes; the second time stopped half-way and gone on with")
    whole = _job(ctx, config, "first", steps)
    if config.loader.workers == "auto":
        limits = {"seconds": "loader_seconds", "largest_wait": "loader_wait", "least_s": "loader_least_s"}
        whole["measure_loader"] = {name: float(ctx.page.settings[setting]) for name, setting in limits.items()}
    first = _launched(ctx, whole)
    fed = _fed(config, first)
    halves = {**_job(ctx, fed, "second", steps), "resumable": True, "fill_memory": True}
    launch(ctx.project, ORCHESTRATOR, {**halves, "max_steps": _middle(steps)}, ctx.tell, HASH_SEED.variables)
    second = _launched(ctx, {**halves, "config": _other_workers(fed)}, HASH_SEED.variables)
    checkpoints = ctx.project.root / halves["folder"] / "checkpoints"
    second["checkpoint_bytes"] = max(sum(file.stat().st_size for file in folder.iterdir()) for folder in folders(checkpoints))
    shutil.rmtree(checkpoints, ignore_errors=True)
    return [first, second]


def _launched(ctx: Context, job: dict[str, Any], variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    launch(ctx.project, ORCHESTRATOR, job, ctx.tell, variables)
    return dict(read_json(ctx.project.root / job["folder"] / RESULT_FILE))


def _fed(config: TrainingConfig, probe: dict[str, Any]) -> TrainingConfig:
    """Return a config with the number of loader processes that a probe found, where it was left open."""
    return config.with_workers((probe.get("loader") or {}).get("workers", 0))


# Options that trade speed, memory or portability, and the value that each has where it is not used.
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("numerics", "native"),
    ("precision", "fp32"),
    ("compile", False),
    ("channels_last", False),
    ("gradient_checkpointing", []),
)


def what_options_bring(ctx: Context, config: TrainingConfig, probe: dict[str, Any]) -> list[dict[str, Any]]:
    """Probe the config once more for each option that it uses, with only that one switched off.

    Returns:
        For each: its `key`, `value` and `plain` value, and `step_us` (the shortest step) and `peak_mb` `with` and `without` it.
    """
    rows, own = [], _cost(probe)
    for key, plain in OPTIONS:
        value = probe["precision"]["chosen"] if key == "precision" else getattr(config, key)
        if value == plain:
            continue
        ctx.note(f"probing once more without {key}, to measure what it brings")
        other = _fed(config.model_copy(update={key: plain}), {})
        without = _cost(_launched(ctx, _job(ctx, other, f"without-{key}", int(ctx.page.settings["probe_steps"]))))
        rows.append({"key": key, "value": value, "plain": plain, "with": own, "without": without})
    return rows


def _cost(probe: dict[str, Any]) -> dict[str, float]:
    """Return a probe's shortest step, and its peak memory: the device's, or on a CPU that of the whole process."""
    memory = probe["memory"]
    return {"step_us": probe["shortest_step_us"], "peak_mb": memory["device_peak_mb"] or memory["peak_rss_mb"]}


def _job(ctx: Context, config: TrainingConfig, name: str, steps: int) -> dict[str, Any]:
    folder = ctx.project.state_dir / "probe" / name
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "schema": 1,
        "run": f"probe-{name}",
        "phase": "planning",
        "purpose": "probe",
        "folder": ctx.project.relative(folder),
        "config": config.model_dump(),
        "gate": None,
        "contract": {},
        "code_files": None,
        "max_steps": steps,
        "threads": config.threads,
    }


def _middle(steps: int) -> int:
    return max(1, steps // 2)


def _other_workers(config: TrainingConfig) -> dict[str, Any]:
    """Return the config with one worker less; none stay none, since a data set may be unfit for other processes."""
    return {**config.model_dump(), "loader": {**config.loader.model_dump(), "workers": max(0, config.loader.processes - 1)}}


def compare(ctx: Context, config: TrainingConfig, probes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the two probes side by side, the first step in which they differ, and why they do."""
    chains = [fingerprint.read(ctx.project.state_dir / "probe" / name / fingerprint.CHAIN_FILE) for name in ("first", "second")]
    runs = [
        {
            "steps": probe["steps"],
            "chain_head": probe["chain"]["head"],
            "weights_sha256": probe["weights_sha256"],
            "init_sha256": probe["init_sha256"],
            "draws": probe["draws"],
            "determinism": probe["determinism"],
            "step_time_us": probe["step_time_us"]["median"],
            "wall_s": probe["wall_s"],
            "parameters": probe["parameters"],
        }
        for probe in probes
    ]
    difference = fingerprint.first_divergence(*chains)
    identical = difference is None and chains[0] == chains[1] and probes[0]["data_sha256"] == probes[1]["data_sha256"]
    return {
        "steps": probes[0]["steps"],
        "resumed_at": min(_middle(int(ctx.page.settings["probe_steps"])), probes[0]["steps"]),
        "runs": runs,
        "identical": identical,
        "first_difference": difference,
        "cause": None if identical else _cause(ctx, config, difference),
    }


def _cause(ctx: Context, config: TrainingConfig, difference: dict[str, Any] | None) -> dict[str, Any]:
    """Return why the probes differ; what no pair of processes shows is what only the second probe did: go on half-way."""
    steps = int(ctx.page.settings["probe_steps"])
    workers = Change("workers", job={"config": _other_workers(config)})
    changes = [NOTHING, HASH_SEED, *([workers] if config.loader.processes else []), MEMORY]
    found = find_cause(ctx.project, _job(ctx, config, "cause", steps), changes, 1, ctx.tell)
    step = difference["step"] if difference else 0
    kind = "state" if step > _middle(steps) else "chance"
    found = found or {"kind": kind, "step": step, "what": "the training that was stopped and gone on with", "calls": []}
    ctx.note(sentence(found))
    return found


def estimate(config: TrainingConfig, probes: list[dict[str, Any]], free_mb: float, disk_free: int) -> dict[str, Any]:
    """Return what the whole run will take, scaled from the probes' measured steps and evaluation."""
    probe = probes[0]
    step_us = min(p["step_time_us"]["median"] for p in probes)
    steps = probe["planned_steps"]
    per_sample = probe["rehearsal"]["seconds"] / max(1, probe["rehearsal"]["samples"])
    every = config.evaluate.every_n_steps or max(1, steps // config.epochs) * (config.evaluate.every_n_epochs or 1)
    validation = probe["data"]["splits"]["validation"]["samples"]
    seconds = steps * step_us / 1e6 + (steps / every) * 2 * validation * per_sample + probe["time_s"]["setup"]
    return {
        "steps": steps,
        "step_time_us": step_us,
        "minutes": seconds / 60,
        "budget_minutes": config.budget.minutes,
        "peak_mb": max(p["memory"]["peak_rss_mb"] for p in probes),
        "available_mb": free_mb,
        "checkpoint_mb": probes[-1]["checkpoint_bytes"] / 2**20,
        "disk_free_mb": disk_free / 2**20,
    }
