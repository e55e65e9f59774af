"""Optimization: a search over the tuning template's space, or a recorded skip when the baseline is good enough.

In: the baseline's config and result, the diagnosis. Out: trials, the winner's replay, its comparison with the
baseline over fresh seeds, and `final_config.yaml`.
"""

from __future__ import annotations

import math
from typing import Any

from mltrainer.configs.loading import set_dotted
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import TUNING, TuningTemplate, applicable_space, overlay, tuning_template
from mltrainer.errors import InputError
from mltrainer.phases.baseline import run_source
from mltrainer.phases.context import Context, Result, file_row
from mltrainer.phases.planning import config_text
from mltrainer.phases.runs import contract_of, reproduce
from mltrainer.phases.statistics import sign_flip_p_value
from mltrainer.tools.launcher import launch
from mltrainer.workspace import digest, read_json, write_atomic

CONFIG_FILE = "final_config.yaml"
TUNER = "hyperparameter_tuner"


def run(ctx: Context) -> Result:
    """Search, or record why not."""
    diagnosis = ctx.earlier["diagnostics"]
    if diagnosis["evidence"]["recommendation"] == "deploy":
        return _skip(ctx, diagnosis)
    return _search(ctx, diagnosis)


def _skip(ctx: Context, diagnosis: dict[str, Any]) -> Result:
    config = ctx.planned_config()
    rule = "the baseline meets every acceptance criterion, so there is nothing that tuning must reach"
    ctx.note(f"skipped: {rule}")
    evidence = {"skipped": True, "rule": rule, "acceptance": diagnosis["evidence"]["acceptance"], "config": config.model_dump()}
    return Result(evidence, diagnosis["source"], [_write_config(ctx, config.model_dump())], [])


def _write_config(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    path = ctx.folder / CONFIG_FILE
    write_atomic(path, config_text(values).encode())
    return file_row(ctx.project, path, "config")


def _template(ctx: Context) -> dict[str, Any]:
    """Return the tuning template with the command line's changes.

    Raises:
        InputError: A change does not fit the template.
    """
    template = tuning_template(ctx.project.root)
    for assignment in ctx.assignments:
        template = set_dotted(template, assignment)
    own = {key: value for key, value in template.items() if key != "comparison"}
    try:
        TuningTemplate.model_validate(own)
    except ValueError as error:
        raise InputError(str(error).split("\n")[1].strip() if "\n" in str(error) else str(error), where=TUNING) from error
    return template


def _search(ctx: Context, diagnosis: dict[str, Any]) -> Result:
    config = ctx.planned_config()
    template = _template(ctx)
    trial_config = TrainingConfig.model_validate(overlay(config.model_dump(), template["trial"])).model_dump()
    space = applicable_space(template["space"], trial_config)
    baseline = ctx.earlier["baseline"]["evidence"]["run"]
    settings = next(item.settings for item in ctx.page.items if item.id == "improvement_validated")
    contract = contract_of(ctx, config)
    study = {"space": space, "trials": template["trials"], "strategy": template["strategy"], "config": trial_config}
    study_id = digest({**study, **contract})[:12]
    job = {
        "schema": 1,
        "run": study_id,
        "phase": "optimization",
        "folder": f".mltrainer/studies/{study_id}",
        **study,
        "seeds": int(settings["seeds"]),
        "contract": {key: value for key, value in contract.items() if key != "config_sha256"},
        "code_files": ctx.earlier["planning"]["source"]["files"],
        "gate": ctx.previous,
        "parent": baseline["id"],
        "threads": config.threads,
    }
    launch(ctx.project, TUNER, job, ctx.tell)
    study_result = read_json(ctx.project.root / job["folder"] / "result.json")
    return _collect(ctx, diagnosis, study_result, job)


def _collect(ctx: Context, diagnosis: dict[str, Any], found: dict[str, Any], job: dict[str, Any]) -> Result:
    best = next((trial for trial in found["trials"] if trial["nr"] == found["best"]), None)
    replay = reproduce(ctx.project, best["run"], ctx.tell) if best else None
    better = best is not None and is_better(ctx, found["comparison"])
    config = _promoted(ctx, best["values"]) if best and better else ctx.planned_config().model_dump()
    evidence = {
        "skipped": False,
        "strategy": job["strategy"],
        "space": job["space"],
        "planned_trials": job["trials"],
        "metric": config["metric"],
        "trials": found["trials"],
        "best": found["best"],
        "baseline": {"run": job["parent"], "value": diagnosis["evidence"]["metrics"].get(config["metric"]["name"])},
        "replay": {
            "run": best["run"] if best else None,
            "identical": bool(replay) and replay is not None and replay["first_divergence"] is None,
        },
        "comparison": found["comparison"],
        "promoted": "candidate" if best and better else "baseline",
        "acceptance": diagnosis["evidence"]["acceptance"],
        "config": config,
    }
    rows = [_write_config(ctx, config)]
    return Result(evidence, run_source(ctx, replay) if replay else diagnosis["source"], rows, [TUNING])


def is_better(ctx: Context, comparison: dict[str, Any]) -> bool:
    """Return whether the candidate beats the baseline by the stated test, as the gate will recompute it."""
    settings = next(item.settings for item in ctx.page.items if item.id == "improvement_validated")
    differences = comparison["differences"]
    finite = all(isinstance(value, float) and math.isfinite(value) for value in differences)
    return finite and math.fsum(differences) > 0 and sign_flip_p_value(differences) <= float(settings["level"])


def _promoted(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """Return the planned config with the winner's values; the trials' shorter budget is not part of it."""
    config = ctx.planned_config().model_dump()
    for key, value in values.items():
        config = _with(config, key.split("."), value)
    return TrainingConfig.model_validate(config).model_dump()


def _with(values: dict[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    return {**values, keys[0]: value if len(keys) == 1 else _with(values[keys[0]], keys[1:], value)}
