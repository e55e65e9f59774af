"""Planning: the config, complete and explicit, and the proof that a few real steps of it repeat bit for bit.

In: `mltrainer.yaml`, the baseline template, an edited `training_config.yaml`. Out: `training_config.yaml`, and as
evidence the data's fingerprint, the environment, the code, two probes in fresh processes, and an estimate.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pydantic

from mltrainer.configs import yaml
from mltrainer.configs.loading import flatten, read_text, set_dotted, validate
from mltrainer.configs.project import TrainingConfig, bits_config, load_project
from mltrainer.configs.schema import header, write_schemas
from mltrainer.configs.templates import BASELINE, baseline_template
from mltrainer.phases.context import Context, Result, file_row, rows_with_role
from mltrainer.phases.runs import ORCHESTRATOR, RESULT_FILE
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.code import source, take_snapshot
from mltrainer.reproducibility.environment import available_mb, capture
from mltrainer.reproducibility.secrets import scan_files, scan_text
from mltrainer.tools.launcher import launch
from mltrainer.workspace import digest, read_json, write_atomic

CONFIG_FILE = "training_config.yaml"
HEADER = header("training_config.json", up="../../") + (
    "# Everything that decides a run. Edit it, then type `mltrainer phase run planning` to have it checked and measured.\n"
)


def run(ctx: Context) -> Result:
    """Plan: write the config, probe it twice, measure, fingerprint."""
    write_schemas(ctx.project.root)
    config, generated, edited = plan_config(ctx)
    path = ctx.folder / CONFIG_FILE
    environment = capture(config.threads)
    free_mb = available_mb()
    ctx.note(f"probing {ctx.page.settings['probe_steps']} steps, twice, in fresh processes")
    probes = [_probe(ctx, config, name) for name in ("first", "second")]
    files = probes[0]["code_files"]
    found = _source(ctx, files)
    evidence = {
        "config": config.model_dump(),
        "config_sha256": digest(bits_config(config.model_dump())),
        "generated": generated,
        "edited": edited,
        "data": probes[0]["data"],
        "environment": environment,
        "probe": _compare(ctx, probes),
        "numerics_class": probes[0]["numerics_class"],
        "estimate": estimate(config, probes, free_mb, shutil.disk_usage(ctx.project.root).free),
    }
    evidence["secrets"] = _secrets(ctx, [ctx.project.file, path], evidence)
    inputs = [
        file_row(ctx.project, ctx.project.file, "project"),
        file_row(ctx.project, path, "config"),
        *rows_with_role(probes[0]["data"]["files"], "data"),
        *rows_with_role(files, "code"),
    ]
    return Result(evidence, found, inputs, [BASELINE])


def _source(ctx: Context, files: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the code identity; a dirty tree is captured, so that it can be restored."""
    found = source(ctx.project.root, files)
    if not found["dirty"]:
        return found
    ctx.note("uncommitted changes: captured and marked on every report; the finalization gate wants a commit")
    taken = take_snapshot(ctx.project.root)
    note = "; ".join(filter(None, (found["note"], taken.note))) or None
    return {**found, "snapshot": taken.ref, "snapshot_skipped": taken.skipped, "note": note}


# --- the config -----------------------------------------------------------------------------------


def plan_config(ctx: Context) -> tuple[TrainingConfig, dict[str, Any], dict[str, Any]]:
    """Return the config, what the template and the project file gave, and what a person changed by hand.

    Edits of `training_config.yaml` are kept, and changes of `mltrainer.yaml` flow through.

    Raises:
        InputError: A file or a `--set` is not valid.
    """
    root = ctx.project.root
    project = load_project(ctx.project.file)
    template = baseline_template(root)
    generated = TrainingConfig.model_validate({**template, **project.model_dump()}).model_dump()
    path = ctx.folder / CONFIG_FILE
    name = ctx.project.relative(path)
    values = generated
    if path.exists():
        document = yaml.parse(read_text(path, "the training config"), name)
        current = validate(TrainingConfig, document).model_dump()
        values = merge(generated, current, _generated_before(ctx) or generated)
    for assignment in ctx.assignments:
        values = apply(values, assignment)
    config = _validated(values, name, ctx.assignments)
    final = config.model_dump()
    if not path.exists() or validate(TrainingConfig, yaml.parse(path.read_bytes(), name)).model_dump() != final:
        write_atomic(path, config_text(final).encode())
    before = flatten(generated)
    edited = {key: value for key, value in flatten(final).items() if key not in before or before[key] != value}
    return config, generated, edited


def apply(values: dict[str, Any], assignment: str) -> dict[str, Any]:
    """Apply one `--set`; a new `name` in a group (another optimizer) drops the old group's other keys."""
    changed = set_dotted(values, assignment)
    group, _, rest = assignment.partition("=")[0].strip().rpartition(".")
    if rest == "name" and isinstance(values.get(group), dict) and values[group].get("name") != changed[group]["name"]:
        return {**changed, group: {"name": changed[group]["name"]}}
    return changed


def _validated(values: dict[str, Any], name: str, assignments: tuple[str, ...]) -> TrainingConfig:
    where = "--set " + " --set ".join(assignments) if assignments else name
    return validate(TrainingConfig, yaml.Document(values, {}, where))


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


def _probe(ctx: Context, config: TrainingConfig, name: str) -> dict[str, Any]:
    folder = ctx.project.state_dir / "probe" / name
    shutil.rmtree(folder, ignore_errors=True)
    job = {
        "schema": 1,
        "run": f"probe-{name}",
        "phase": "planning",
        "purpose": "probe",
        "folder": ctx.project.relative(folder),
        "config": config.model_dump(),
        "gate": None,
        "contract": {},
        "code_files": None,
        "max_steps": int(ctx.page.settings["probe_steps"]),
        "threads": config.threads,
    }
    launch(ctx.project, ORCHESTRATOR, job, ctx.tell)
    return dict(read_json(folder / RESULT_FILE))


def _compare(ctx: Context, probes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the two probes side by side, and the first step in which they differ."""
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
    return {
        "steps": probes[0]["steps"],
        "runs": runs,
        "identical": difference is None and chains[0] == chains[1],
        "first_difference": difference,
    }


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
        "checkpoint_mb": probe["parameters"] * 4 * 3 / 2**20,
        "disk_free_mb": disk_free / 2**20,
    }


def _secrets(ctx: Context, files: list[Path], evidence: dict[str, Any]) -> dict[str, Any]:
    """Scan what planning wrote; what was found is named by place and kind, never shown."""
    found = [*scan_files(files), *scan_text(json.dumps(evidence, indent=1), "record.json")]
    named = [{**row, "path": ctx.project.relative(Path(row["path"]))} for row in found]
    return {"scanned": [*map(ctx.project.relative, files), "record.json"], "found": named}
