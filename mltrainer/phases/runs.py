"""Runs: named by what determines their bits, answered at once when they exist, resumed when they were interrupted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig, bits_config
from mltrainer.errors import DifferenceError, GateError, InputError
from mltrainer.phases.context import Context
from mltrainer.reproducibility.environment import capture, difference, environment_digest
from mltrainer.tools.launcher import launch
from mltrainer.workspace import Project, digest, locked, read_json, sha256_file

RESULT_FILE = "result.json"
ORCHESTRATOR = "training_orchestrator"


def contract_of(ctx: Context, config: TrainingConfig) -> dict[str, str]:
    """Return what a run's bits are a function of, as planning recorded it.

    Raises:
        DifferenceError: This machine's environment is not the recorded one.
    """
    evidence = ctx.earlier["planning"]["evidence"]
    check_environment(evidence["environment"])
    return {
        "config_sha256": digest(bits_config(config.model_dump())),
        "data_sha256": evidence["data"]["sha256"],
        "code_sha256": ctx.earlier["planning"]["source"]["sha256"],
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
    contract = contract_of(ctx, config)
    run = run_id(contract)
    folder = ctx.project.runs_dir / run
    known = existing_result(ctx.project, run, contract)
    if known is not None:
        ctx.note(f"run {run} exists and verifies: not trained again")
        return {**known, "phase": ctx.page.phase}
    job = {
        "schema": 1,
        "run": run,
        "phase": ctx.page.phase,
        "purpose": "train",
        "folder": ctx.project.relative(folder),
        "config": config.model_dump(),
        "gate": ctx.previous,
        "contract": contract,
        "code_files": ctx.earlier["planning"]["source"]["files"],
        "parent": parent,
        "threads": config.threads,
    }
    launch(ctx.project, ORCHESTRATOR, job, ctx.tell)
    return dict(read_json(folder / RESULT_FILE))


def existing_result(project: Project, run: str, contract: dict[str, str]) -> dict[str, Any] | None:
    """Return a finished run's result when its files verify, or None; a damaged run is set aside and trained again."""
    folder = project.runs_dir / run
    try:
        result = dict(read_json(folder / RESULT_FILE))
    except InputError:
        return None
    if result.get("state") != "finished":
        return None
    fits = all(result.get(key) == value for key, value in contract.items())
    files = [row for checkpoint in result["checkpoints"] for row in checkpoint["files"]]
    sound = all(_is(project.root / row["path"], row["sha256"]) for row in files)
    if fits and sound:
        return result
    set_aside(folder)
    return None


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_file(path) == sha256


def set_aside(folder: Path) -> None:
    """Move a damaged run out of the way, keeping it for whoever wants to know."""
    number = 1
    while (target := folder.with_name(f"{folder.name}.damaged-{number}")).exists():
        number += 1
    folder.rename(target)


def reproduce(project: Project, run: str, tell: Any, max_steps: int | None = None) -> dict[str, Any]:
    """Train a recorded run again in a fresh process and compare the two chains while it trains.

    Returns:
        The reproduction's result; `divergence` is the first difference, or None.

    Raises:
        InputError: There is no such finished run.
        GateError: The run's own files are damaged.
        DifferenceError: The environment is not the recorded one.
    """
    original = project.runs_dir / run
    result = read_json(original / RESULT_FILE)
    if result["state"] not in ("finished", "failed"):
        raise InputError(f"run {run} is {result['state']}, not finished", mend="finish it first: mltrainer run")
    job = read_json(original / "job.json")
    if digest(bits_config(job["config"])) != result["config_sha256"]:
        raise GateError(f"{project.relative(original)}/job.json is not the config of run {run}")
    folder = project.state_dir / "reproductions" / run
    with locked(project.state_dir / "reproductions" / f"{run}.lock", f"the reproduction of {run}"):
        shutil.rmtree(folder, ignore_errors=True)
        again = {
            **job,
            "purpose": "reproduction",
            "folder": project.relative(folder),
            "compare": project.relative(original),
            "max_steps": max_steps,
        }
        launch(project, ORCHESTRATOR, again, tell)
        return dict(read_json(folder / RESULT_FILE))
