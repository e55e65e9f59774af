"""A run's contract, which determines its bits and so its name; and the finished run of a contract, verified."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.retention import segment_ends
from mltrainer.configs.loading import differences
from mltrainer.configs.project import TrainingConfig, bits_config, config_digest, is_opaque
from mltrainer.errors import DifferenceError, FaultAt, InputError
from mltrainer.records.common import Difference, FileRow, KeyChange
from mltrainer.records.job import TrainingJob
from mltrainer.records.planning import Environment, Planning
from mltrainer.records.reading import Record
from mltrainer.records.run import RunResult
from mltrainer.records.run import run_id as run_id
from mltrainer.reproducibility.environment import capture, difference, environment_digest
from mltrainer.reproducibility.evidence import JOB_FILE as JOB_FILE
from mltrainer.reproducibility.evidence import RESULT_FILE as RESULT_FILE
from mltrainer.reproducibility.evidence import has_ended, sound_result
from mltrainer.reproducibility.needed import reached
from mltrainer.reproducibility.packs import restore
from mltrainer.workspace import Project, digest, read_json, sha256_file

OTHERS_RECORD = re.compile(r"/phases/\d\d_\w+/record\.json$")
ERROR_FILE = "error.json"  # why a run ended without a result


def contract_of(planning: Record, config: TrainingConfig, root: Path) -> dict[str, str]:
    """Return a run's contract by planning's record: the digests of config, data, code, environment and opened inputs.

    Args:
        planning: The record.
        config: The config to train.
        root: The project's folder.

    Raises:
        DifferenceError: This machine's environment is not the recorded one.
    """
    evidence, source = planning.trusted.evidence, planning.trusted.source
    # Here, so that nobody can name a run by an environment that it is not trained in.
    check_environment(evidence.environment, root, source.files)
    return {
        "config_sha256": config_digest(config),
        "data_sha256": evidence.data.sha256,
        "code_sha256": source.sha256,
        "environment_sha256": environment_digest(evidence.environment),
        **_inputs_digest(evidence.opened or []),
    }


def _inputs_digest(opened: Iterable[FileRow]) -> dict[str, str]:
    """Return the digest of the files that planning saw opened beside data and code; a run that opens none has no such digest.

    Another project's record counts by the weights that it names: the record also has times, which decide nothing.
    """
    contents = sorted({row.sha256 for row in opened if not OTHERS_RECORD.search(row.path)})
    return {"inputs_sha256": digest(contents)} if contents else {}


def planned_files(planning: Planning) -> dict[str, Any]:
    """Return a job's entry for the files that planning saw opened: `data_files` of an opaque task, else `input_files`.

    An opaque task's samples are read by its trainer alone.
    """
    if is_opaque(planning.config):
        return {"data_files": planning.data.files}
    return {"input_files": planning.opened} if planning.opened else {}


def check_environment(recorded: Environment, root: Path, files: Iterable[FileRow]) -> None:
    """Compare this machine's environment with a recorded one, as far as a project's code can reach it.

    Args:
        recorded: The environment.
        root: The project's folder.
        files: The files that the project's code imported.

    Raises:
        DifferenceError: It differs; each difference is named.
    """
    changes = environment_changes(recorded, capture(recorded.threads), root, files)
    if changes:
        faults = [FaultAt(row.what, row.expected, row.found) for row in changes]
        raise DifferenceError(
            "\n  ".join(["the environment differs from the one that planning recorded:", *map(str, faults)]),
            hint="restore it, or record this one with `mltrainer phase run planning`",
            faults=faults,
        )


def environment_changes(recorded: Environment, found: Environment, root: Path, files: Iterable[FileRow]) -> list[Difference]:
    """Return the differences of an environment from a recorded one, as far as a project's code can reach them."""
    packages = {row.name for environment in (recorded, found) for row in environment.distributions}
    return reached(difference(recorded, found), packages, root, files)


def left_behind(project: Project, phase: str, contract: dict[str, str], config: TrainingConfig) -> list[str]:
    """Return a line for each interrupted run of a phase that cannot be resumed, because its contract is another."""
    lines = []
    for path in sorted(project.runs_dir.glob(f"*/{JOB_FILE}")):
        # A folder of another version, or one being written, is no reason to refuse the run that was asked for.
        with contextlib.suppress(InputError, KeyError, TypeError, AttributeError, ValueError, OSError):
            job = TrainingJob.model_validate(read_json(path))
            # Without a checkpoint there is nothing to go on from.
            if job.phase == phase and not has_ended(path.parent) and any((path.parent / "checkpoints").iterdir()):
                changes = "; ".join(contract_changes(job, contract, config)) or "an earlier run"
                lines.append(f"run {job.run} was interrupted under another contract ({changes}): mltrainer fork {job.run}")
    return lines


def contract_changes(job: TrainingJob, contract: dict[str, str], config: TrainingConfig) -> list[str]:
    """Return the differences between a job's contract and another as `key: before -> after`, the config key by key."""
    changes = [f"{row.key}: {row.before} -> {row.after}" for row in key_changes(bits_config(job.config), bits_config(config))]
    digests = [key for key in contract if key != "config_sha256" and job.contract.get(key) != contract[key]]
    return changes + [f"{key}: {str(job.contract.get(key))[:12]} -> {contract[key][:12]}" for key in digests]


def key_changes(before: dict[str, Any], after: dict[str, Any]) -> list[KeyChange]:
    """Return the keys, dotted, in which two nested configs differ."""
    return [KeyChange(**row) for row in differences(before, after)]


def existing_result(project: Project, run: str, contract: dict[str, str]) -> RunResult | None:
    """Return a finished run's result if it and all files that it names are unchanged, or None.

    A packed run gets its folder back.
    """
    restore(project.runs_dir, run)
    result = sound_result(project.runs_dir / run, contract)
    if result is None or result.state != "finished":
        return None
    files = [*(row for checkpoint in result.checkpoints for row in checkpoint.files), *result.outputs, *result.read]
    known = ((project.root / row.path, row.sha256) for row in files)
    return result if all(path.is_file() and sha256_file(path) == sha256 for path, sha256 in known) else None


def keeps(result: RunResult, config: TrainingConfig) -> bool:
    """Return True if a run kept the checkpoints that a config asks for; these settings do not decide the run's name."""
    wanted = {role for role, on in (("best", config.checkpoint.save_best), ("last", config.checkpoint.save_last)) if on}
    evaluations = (row.step for row in result.history)
    ends = segment_ends(result.planned_steps, config.checkpoint.segments if result.ledger else None, evaluations)
    has_segments = {step for step in ends if step <= result.steps} <= {row.step for row in result.checkpoints}
    return has_segments and wanted <= {role for row in result.checkpoints for role in row.roles}
