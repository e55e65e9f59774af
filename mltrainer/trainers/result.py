"""A training's result, built in the same way for every trainer: identity, data, course, quality and costs.

Values that a trainer cannot give stay empty, and gate items that need them do not apply.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError
from mltrainer.records.common import Divergence, Part
from mltrainer.records.job import TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.run import Evaluation, Precision, RunResult, sealed
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.code import imported_files
from mltrainer.reproducibility.environment import capture, environment_digest
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.workspace import write_json

Row = dict[str, Any]
EXPLORE = "explore"
RSS_PER_MIB = 1 << (20 if sys.platform == "darwin" else 10)  # of the unit in which getrusage counts memory: macOS counts bytes
STATES = {
    "signal": "interrupted",
    "budget": "interrupted",
    "nonfinite": "failed",
    "spikes": "failed",
    "diverged": "failed",
    "pruned": "pruned",
}


# Entries that a trainer may leave out.
EMPTY: Row = {
    "init_sha256": "",
    "draws": {},
    "train_samples": 0,
    "measured_samples": {},
    "accumulate": 1,
    "interruptions": [],
    "layers": [],
    "groups": [],
    "checkpoints": [],
    "evaluation": None,
    "gpu": None,
}


def built(
    job: TrainingJob,
    *,
    code_files: Sequence[Row],
    head: fingerprint.Head,
    best: Row | None,
    final: Row | None,
    stop_reason: str,
    **entries: Any,
) -> Row:
    """Return a run's result: a trainer's entries of `RunResult`, and those that follow from them and from the job.

    Args:
        job: The training.
        code_files: The imported files, with their digests.
        head: The head of the chain of fingerprints.
        best: The evaluation that describes the run.
        final: The last evaluation.
        stop_reason: The reason for the run's end.
        **entries: The trainer's other entries.
    """
    config, now = job.config, {row["path"]: row["sha256"] for row in code_files}
    result = {
        **EMPTY,
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
        **({"claim": job.claim} if job.claim else {}),
        "code_files": code_files,
        # Files that were not imported cannot contradict the contract; imported ones must be those planned.
        "code_as_contracted": all(now.get(row.path, row.sha256) == row.sha256 for row in job.code_files or []),
        "stop_reason": stop_reason,
        "state": STATES.get(stop_reason, "finished"),
        "chain": {"entries": head.entries, "head": head.value},
        "metric": config.metric.model_dump(),
        "saved": config.checkpoint.model_dump(),
        "best": best and partial(Evaluation, best),
        "final": final and partial(Evaluation, final),
        "metrics": partial(Evaluation, best).flat if best else {},
        **entries,
    }
    return {key: _written(value) for key, value in result.items()}


def write_result(result: Row, folder: Path, *, is_launched: bool) -> RunResult:
    """Write a sealed result to the run's folder, and return it.

    Args:
        result: The result from `built` or `unsound_data`.
        folder: The run's folder.
        is_launched: Whether the workflow started the run, after it checked the gates; else no phase accepts it as evidence.

    Raises:
        MltrainerError: The result is not a valid run's.
    """
    whole = sealed(result if is_launched else {**result, "purpose": EXPLORE})
    write_json(folder / RESULT_FILE, whole)
    return partial(RunResult, whole)


def _written(value: Any) -> Any:
    """Return an entry of a result in its file's form."""
    if isinstance(value, list):
        return [_written(one) for one in value]
    return value.written() if isinstance(value, Part) else value


def resident_mb() -> float:
    """Return the resident memory of this process now, in MiB."""
    import psutil  # here: most processes that read a result do not need it, and its import is slow

    try:
        return float(psutil.Process().memory_info().rss) / 2**20
    except psutil.NoSuchProcess:  # a closed-off process has no /proc: the most that it held so far
        return peak_rss_mb()


def peak_rss_mb() -> float:
    """Return the peak memory of this process, in MiB; its memory now where Python has no `resource`, as on Windows."""
    try:
        import resource
    except ImportError:
        return resident_mb()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / RSS_PER_MIB


def peak_of_children_mb() -> float:
    """Return the largest peak memory of this process's ended child processes, in MiB."""
    import resource  # here: Windows lacks it

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / RSS_PER_MIB


# --- results of a training in another process ---------------------------------------------------------------------------


def identity_of(job: TrainingJob, left_to: str) -> Row:
    """Return the entries on a run's arithmetic as far as they are known; `left_to`: the program that chose the precision."""
    asked = job.config.precision
    return {
        "numerics_class": _environment_of(job),  # the only known fact of its arithmetic
        "determinism": _switches(job.config),
        "precision": Precision(asked=asked, chosen=asked, reason=f"left to the {left_to}"),
    }


def _environment_of(job: TrainingJob) -> str:
    """Return the digest of this machine's environment; a phase's run has it in its contract, compared with planning's before."""
    known = job.contract.get("environment_sha256") if job.purpose == "train" else None
    return str(known or environment_digest(capture(job.threads)))


def _switches(config: TrainingConfig) -> dict[str, Any]:
    """Return the present switches of deterministic operations; without torch in this process, all are off."""
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


def facts_of(kind: str, source: str | None, sha256: str, files: list[Row], counts: dict[str, int], findings: list[Row]) -> Row:
    """Return planning's record of data that only the trainer reads; `counts`: the number of samples of each split."""
    samples = sum(counts.values())
    return {
        "sha256": sha256,
        "samples": samples,
        "source": source,
        "kind": kind,
        "files": files,
        "fingerprinted": samples,
        "splits": {name: {"samples": count, "sha256": sha256} for name, count in counts.items()},
        **dict.fromkeys(("classes", "class_counts", "columns", "target", "shape")),
        "findings": findings,
        "duplicates_across_splits": None,
        "not_looked_at": ["the samples, and duplicates across splits: only what trains reads them"],
    }


class UnsoundDataError(Exception):
    """The data has an error: nothing is trained on it."""


def has_error(facts: Row) -> bool:
    """Return True if planning's record of the data has an error."""
    return any(found["severity"] == "error" for found in facts.get("findings", ()))


def unsound_data(job: TrainingJob, facts: Row, root: Path) -> Row:
    """Return the result of a probe that trained nothing, because its data has an error.

    Args:
        job: The probe's job.
        facts: Planning's record of the data.
        root: The project's folder.
    """
    return {"purpose": job.purpose, "state": "unsound_data", "data": facts, "code_files": imported_files(root)}


def require_planned_data(job: TrainingJob, sha256: str) -> None:
    """Refuse data other than the contract's; a reproduction goes on, and shows the other data's effect.

    Raises:
        GateError: The data changed since planning.
    """
    expected = job.contract.get("data_sha256")
    if expected not in (None, sha256) and job.purpose != "reproduction":
        raise GateError(
            "the data differs from planning's record",
            expected=expected[:12],
            found=sha256[:12],
            hint="bring the data back, or record the new data with `mltrainer phase run planning`",
        )


def write_chain(
    job: TrainingJob, root: Path, entries: Iterable[str], compared: int | None = None
) -> tuple[fingerprint.Head, Divergence | None]:
    """Write the chain of fingerprints, replacing an earlier one.

    Args:
        job: The training; if it names a run to compare with, the chains are compared.
        root: The project's folder.
        entries: The chain's entries, in order.
        compared: The number of compared entries; None: all.

    Returns:
        The chain's head, and the first step that differs from the other run's, or None.
    """
    head, lines = fingerprint.extend(fingerprint.Head(), entries)
    path = root / job.folder / fingerprint.CHAIN_FILE
    path.unlink(missing_ok=True)
    fingerprint.append(path, lines)
    if job.compare is None:
        return head, None
    return head, fingerprint.first_divergence(fingerprint.read(root / job.compare / fingerprint.CHAIN_FILE), lines[:compared])
