"""A training's result, built alike for every trainer of what it knows: identity, data, course, quality and costs.

What a trainer cannot show stays empty, and the gates' items that need it do not apply.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.ranking import flat_metrics
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError
from mltrainer.records.common import Divergence, Part
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import CheckpointRow, Gpu, Group, Interruption, Memory, NonFinite, Percentiles, Precision, Rehearsal
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.code import imported_files
from mltrainer.reproducibility.environment import capture, environment_digest

Row = dict[str, Any]
STATES = {"signal": "interrupted", "nonfinite": "failed", "diverged": "failed", "pruned": "pruned"}
SUMMARY = ("epoch", "step", "validation", "train", "trained")  # of an evaluation, as the best and the last one are described


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a run's bits are a function of, and what they are at both ends.

    Attributes:
        code: The files that were imported, with their digests.
        numerics_class: Digest of what decides the arithmetic.
        determinism: The switches of deterministic operations.
        precision: What was asked for, what was chosen, and why.
        libraries: Versions by name.
        weights_sha256: Digest of all weights at the end.
        init_sha256: At the start.
        draws: For each random generator a digest of its first numbers.
        rehearsal: The evaluation before the first step.
    """

    code: Sequence[Row]
    numerics_class: str
    determinism: Mapping[str, Any]
    precision: Precision
    libraries: dict[str, str]
    weights_sha256: str
    init_sha256: str = ""
    draws: dict[str, str] = field(default_factory=dict)
    rehearsal: Rehearsal


@dataclass(frozen=True, kw_only=True)
class Data:
    """The samples: their digest, planning's record of them, how many train, and how many were measured by split."""

    sha256: str
    facts: Row | None
    train: int = 0
    measured: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Course:
    """How far a run came and how it ended; a batch size of 0 is not known.

    Attributes:
        stop_reason: Why it ended.
        head: Of the chain of fingerprints.
        first_divergence: From the run that it is compared with.
        nonfinite: The first number that was not finite.
    """

    stop_reason: str
    steps: int
    epochs: int
    planned_steps: int
    planned_epochs: int
    batch_size: int
    accumulate: int = 1
    head: fingerprint.Head
    interruptions: list[Interruption] = field(default_factory=list)
    first_divergence: Divergence | None
    nonfinite: NonFinite | None


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What was learned: the evaluations, the one that is judged, the last one, and what was kept."""

    history: Sequence[Row]
    best: Row | None
    last: Row | None
    layers: list[str] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    first_loss: float | None
    parameters: int
    checkpoints: list[CheckpointRow] = field(default_factory=list)
    evaluation: Any = None


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Times in seconds, of a step in microseconds, None where no step was seen, and memory in MiB."""

    time_s: dict[str, float]
    wall_s: float
    step_time_us: Percentiles | None
    step_pace_us: float | None
    shortest_step_us: float | None
    memory: Memory
    gpu: Gpu | None = None


def built(
    job: TrainingJob, identity: Identity, data: Data, course: Course, quality: Quality, costs: Costs, **more: Any
) -> dict[str, Any]:
    """Return a run's result; `more` is what only some trainers can show."""
    config, now = job.config, {row["path"]: row["sha256"] for row in identity.code}
    of_course = {key: value for key, value in vars(course).items() if key != "head"}
    result = {
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
        **{key: value for key, value in vars(identity).items() if key != "code"},
        "code_files": identity.code,
        # A file that was not imported here cannot contradict the contract; one that was must be the one planned.
        "code_as_contracted": all(now.get(row.path, row.sha256) == row.sha256 for row in job.code_files or []),
        "data_sha256": data.sha256,
        "data": data.facts,
        "train_samples": data.train,
        "measured_samples": data.measured,
        "state": STATES.get(course.stop_reason, "finished"),
        **of_course,
        "chain": {"entries": course.head.entries, "head": course.head.value},
        "metric": config.metric.model_dump(),
        "saved": config.checkpoint.model_dump(),
        "best": _summary(quality.best),
        "final": _summary(quality.last),
        "metrics": flat_metrics(quality.best),
        **{key: value for key, value in vars(quality).items() if key not in ("best", "last")},
        **vars(costs),
        **more,
    }
    return {key: _written(value) for key, value in result.items()}


def _written(value: Any) -> Any:
    """Return an entry of a result as its file holds it."""
    if isinstance(value, list):
        return [_written(one) for one in value]
    return value.written() if isinstance(value, Part) else value


def _summary(row: Row | None) -> Row | None:
    return None if row is None else {key: row[key] for key in SUMMARY if key in row}


def resident_mb() -> float:
    """Return the resident memory of this process now, in MiB."""
    import psutil  # here: its import takes longer than most processes that read a result need

    return float(psutil.Process().memory_info().rss) / 2**20


def peak_rss_mb(of: int = resource.RUSAGE_SELF) -> float:
    """Return the peak memory of this process, or of those that it started, in MiB."""
    return resource.getrusage(of).ru_maxrss / 1024


# --- of a training that this process did not do itself ------------------------------------------------------------------


def identity_of(
    job: TrainingJob, code: Sequence[Row], weights_sha256: str, left_to: str, libraries: dict[str, str], **more: Any
) -> Identity:
    """Return the identity as far as it is known; `left_to`: who chose the precision."""
    asked = job.config.precision
    return Identity(
        code=code,
        numerics_class=_environment_of(job),  # all that is known of its arithmetic
        determinism=_switches(job.config),
        precision=Precision(asked=asked, chosen=asked, reason=f"left to the {left_to}"),
        libraries=libraries,
        weights_sha256=weights_sha256,
        **more,
    )


def _environment_of(job: TrainingJob) -> str:
    """Return the digest of this machine's environment; of a run of a phase it was compared with planning's just before."""
    known = job.contract.get("environment_sha256") if job.purpose == "train" else None
    return str(known or environment_digest(capture(job.threads)))


def _switches(config: TrainingConfig) -> dict[str, Any]:
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


def facts_of(kind: str, source: str | None, sha256: str, files: list[Row], counts: dict[str, int], findings: list[Row]) -> Row:
    """Return planning's record of data whose samples only the trainer reads; `counts`: samples by split."""
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
    """Return the result of a probe that trained nothing, since its data has an error.

    Args:
        job: The probe's.
        facts: Planning's record of the data.
        root: The project's folder.
    """
    return {"purpose": job.purpose, "state": "unsound_data", "data": facts, "code_files": imported_files(root)}


def require_planned_data(job: TrainingJob, sha256: str) -> None:
    """Refuse data other than the contract's; a reproduction goes on, and shows what the other data changes.

    Raises:
        GateError: The data changed since planning.
    """
    expected = job.contract.get("data_sha256")
    if expected not in (None, sha256) and job.purpose != "reproduction":
        raise GateError(
            f"the data is not what planning recorded: expected {expected[:12]}, found {sha256[:12]}",
            hint="bring the data back, or record the new data with `mltrainer phase run planning`",
        )


def write_chain(
    job: TrainingJob, root: Path, entries: Iterable[str], compared: int | None = None
) -> tuple[fingerprint.Head, Divergence | None]:
    """Write the chain of fingerprints anew.

    Args:
        job: The training; where it names a run to compare with, the chains are compared.
        root: The project's folder.
        entries: The chain's, in order.
        compared: How many of them are compared; None: all.

    Returns:
        The chain's head, and the first step that differs from the other run's.
    """
    head, lines = fingerprint.extend(fingerprint.Head(), entries)
    path = root / job.folder / fingerprint.CHAIN_FILE
    path.unlink(missing_ok=True)
    fingerprint.append(path, lines)
    if job.compare is None:
        return head, None
    return head, fingerprint.first_divergence(fingerprint.read(root / job.compare / fingerprint.CHAIN_FILE), lines[:compared])
