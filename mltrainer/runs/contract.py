"""Runs: named by what determines their bits, answered at once when they exist, resumed when they were interrupted."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from mltrainer.configs.loading import differences
from mltrainer.configs.project import TrainingConfig, bits_config
from mltrainer.errors import DifferenceError, InputError
from mltrainer.phases.context import Context
from mltrainer.reproducibility.environment import capture, difference, environment_digest
from mltrainer.reproducibility.witnesses import RESULT_FILE as RESULT_FILE
from mltrainer.reproducibility.witnesses import has_ended, set_aside, sound_result
from mltrainer.runs.launcher import launch
from mltrainer.workspace import Project, digest, read_json, sha256_file

JOB_FILE = "job.json"
ERROR_FILE = "error.json"  # why a run ended without a result
ORCHESTRATOR = "training_orchestrator"


def contract_of(planning: dict[str, Any], config: TrainingConfig) -> dict[str, str]:
    """Return what a run's bits are a function of, as planning's record holds it.

    Raises:
        DifferenceError: This machine's environment is not the recorded one.
    """
    evidence = planning["evidence"]
    check_environment(evidence["environment"])
    return {
        "config_sha256": digest(bits_config(config.model_dump())),
        "data_sha256": evidence["data"]["sha256"],
        "code_sha256": planning["source"]["sha256"],
        "environment_sha256": environment_digest(evidence["environment"]),
    }


def check_environment(recorded: dict[str, Any]) -> None:
    """Compare this machine's environment with a recorded one.

    Raises:
        DifferenceError: It differs; each difference is named.
    """
    changes = difference(recorded, capture(recorded["threads"]))
    if changes:
        lines = "\n".join(f"  {c['what']}: {c['expected']} -> {c['found']}" for c in changes)
        raise DifferenceError(
            f"the environment is not the one that planning recorded:\n{lines}",
            mend="restore it, or record this one with `mltrainer phase run planning`",
        )


def run_id(contract: dict[str, str]) -> str:
    """Return the name of the run that a contract determines: 12 hex digits."""
    return digest(contract)[:12]


def train(ctx: Context, config: TrainingConfig, parent: str | None = None) -> dict[str, Any]:
    """Return the result of the run that a config determines: found, resumed, or trained now.

    Raises:
        MltrainerError: Training was refused, failed or was stopped.
    """
    contract = contract_of(ctx.earlier["planning"], config)
    run = run_id(contract)
    folder = ctx.project.runs_dir / run
    if not folder.exists():
        for line in left_behind(ctx.project, ctx.page.phase, contract, config):
            ctx.note(line)
    known = existing_result(ctx.project, run, contract)
    if known is not None:
        ctx.note(f"run {run} exists and verifies: not trained again")
        return _evidence(known, ctx.page.phase)
    if has_ended(folder):
        ctx.note(f"run {run} is not what it was: kept as {set_aside(folder).name}, and trained again")
    job = {
        "schema": 1,
        "run": run,
        "phase": ctx.page.phase,
        "purpose": "train",
        "folder": ctx.project.relative(folder),
        "config": ctx.with_workers(config).model_dump(),
        "gate": ctx.previous,
        "contract": contract,
        "code_files": ctx.earlier["planning"]["source"]["files"],
        "parent": parent,
        "threads": config.threads,
    }
    launch(ctx.project, ORCHESTRATOR, job, ctx.tell)
    return _evidence(read_json(folder / RESULT_FILE), ctx.page.phase)


def left_behind(project: Project, phase: str, contract: dict[str, str], config: TrainingConfig) -> list[str]:
    """Return a line for each interrupted run of a phase that cannot be gone on with, because its contract is another."""
    lines = []
    for path in sorted(project.runs_dir.glob(f"*/{JOB_FILE}")):
        with contextlib.suppress(InputError, KeyError, TypeError, AttributeError, OSError):
            job = read_json(path)
            if job["phase"] == phase and not has_ended(path.parent) and any((path.parent / "checkpoints").iterdir()):
                changes = "; ".join(contract_changes(job, contract, config)) or "an earlier run"
                lines.append(f"run {job['run']} was interrupted under another contract ({changes}): mltrainer fork {job['run']}")
    return lines


def contract_changes(job: dict[str, Any], contract: dict[str, str], config: TrainingConfig) -> list[str]:
    """Return what differs between a job's contract and another, the config key by key."""
    found = differences(bits_config(job["config"]), bits_config(config.model_dump()))
    changes = [f"{row['key']}: {row['before']} -> {row['after']}" for row in found]
    digests = [key for key in contract if key != "config_sha256" and job["contract"].get(key) != contract[key]]
    return changes + [f"{key}: {str(job['contract'].get(key))[:12]} -> {contract[key][:12]}" for key in digests]


def _evidence(result: dict[str, Any], phase: str) -> dict[str, Any]:
    """Return a result as a phase's record holds it, which has a seal of its own."""
    return {key: value for key, value in result.items() if key != "seal"} | {"phase": phase}


def existing_result(project: Project, run: str, contract: dict[str, str]) -> dict[str, Any] | None:
    """Return a finished run's result when it and all files that it names are what the run wrote, or None."""
    result = sound_result(project.runs_dir / run, contract)
    if result is None or result["state"] != "finished":
        return None
    files = [row for checkpoint in result["checkpoints"] for row in checkpoint["files"]]
    return result if all(_is(project.root / row["path"], row["sha256"]) for row in files) else None


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_file(path) == sha256
