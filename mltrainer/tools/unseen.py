"""Records of a training that this process did not do itself: its environment, and the switches as far as they are known."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.records.job import TrainingJob
from mltrainer.reproducibility.environment import capture, environment_digest


def of_job(job: TrainingJob, code: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a result's entries from its job, with the code files of its process.

    Args:
        job: The training.
        code: The files that were imported, with their digests.
    """
    now = {row["path"]: row["sha256"] for row in code}
    config = job.config
    return {
        "schema": 1,
        "id": job.run,
        "phase": job.phase,
        "purpose": job.purpose,
        "parent": job.parent,
        "gate": job.gate,
        "seed": config.seed,
        "device": config.device,
        "threads": config.threads,
        "numerics": config.numerics,
        **job.contract,
        "code_files": code,
        "code_as_contracted": all(now.get(row.path, row.sha256) == row.sha256 for row in job.code_files or []),
    }


def environment_of(job: TrainingJob) -> str:
    """Return the digest of this machine's environment; of a run of a phase it was compared with planning's just before."""
    known = job.contract.get("environment_sha256") if job.purpose == "train" else None
    return str(known or environment_digest(capture(job.threads)))


def identity(job: TrainingJob, code: Sequence[Mapping[str, Any]], weights_sha256: str, left_to: str) -> dict[str, Any]:
    """Return a run's identity, and the inputs that its bits are a function of, as far as they are known.

    Args:
        job: Its job.
        code: The files that were imported, with their digests.
        weights_sha256: Digest of all weights at the end.
        left_to: Who chose the precision.
    """
    return {
        **of_job(job, code),
        "numerics_class": environment_of(job),  # all that is known of its arithmetic
        "weights_sha256": weights_sha256,
        "init_sha256": "",
        "determinism": switches(job.config),
        "precision": {"asked": job.config.precision, "chosen": job.config.precision, "reason": f"left to the {left_to}"},
    }


def switches(config: TrainingConfig) -> dict[str, Any]:
    """Return the switches of deterministic operations as they stand; where torch was not used here, none of them is on."""
    if "torch" in sys.modules:
        from mltrainer.reproducibility.determinism import read_back

        return dict(read_back(config.device))
    names = ("deterministic_algorithms", "warn_only", "cudnn_benchmark", "cudnn_deterministic", "tf32")
    return {
        **{name: os.environ.get(name, "not set") for name in ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG")},
        "hash_randomization": bool(sys.flags.hash_randomization),
        **dict.fromkeys(names, False),
        **dict.fromkeys(("matmul_precision", "cpu_capability"), "not known"),
        "threads": config.threads,
        "device": config.device,
    }
