"""The files that a task opens beside data and code: a teacher's weights, a vocabulary, a table that its code reads.

In: the files that the probes opened, and earlier runs of the same task and code. Out: the rows that planning binds, on which
gates and runs' names depend; of a run, the opened files that training does not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from mltrainer.configs.project import TrainingConfig
from mltrainer.observe.file_rows import gathered, rows_of_paths
from mltrainer.phases.context import Context
from mltrainer.records.common import FileRow, dumped
from mltrainer.records.reading import sound_record
from mltrainer.records.run import ProbeResult, RunResult
from mltrainer.workspace import digest


def opened_by(
    ctx: Context, config: TrainingConfig, probes: Sequence[ProbeResult]
) -> tuple[list[FileRow] | None, list[str] | None]:
    """Return the files to bind, and those that one probe changed for the other, which have no single digest.

    Args:
        ctx: Planning's context.
        config: The config that was probed.
        probes: The probes' results.
    """
    # The files of one probe alone would pass for all: where one was not observed, nothing is known.
    if any(probe.opened is None for probe in probes):
        return None, None
    probed = [row for probe in probes for row in probe.opened or ()]
    unsteady = {row.path for row in probed if any(row.path == r.path and row.sha256 != r.sha256 for r in probed)}
    rows = {row.path: row for row in probed if row.path not in unsteady}
    later = [path for path in _of_runs(ctx, config, probes[0]) if path not in rows and path not in unsteady]
    # A file of an earlier run may be gone by now: it cannot be bound.
    rows |= {row.path: row for row in rows_of_paths(later, ctx.project.root) if row.sha256}
    if unsteady:
        ctx.note(f"not bound, because training changes them: {', '.join(sorted(unsteady))}")
    return gathered([rows[path] for path in sorted(rows)], ctx.project.root), sorted(unsteady)


def _of_runs(ctx: Context, config: TrainingConfig, probe: ProbeResult) -> list[str]:
    """Return the files that the last baseline of the same task and code opened: a probe's few steps do not open all."""
    record = sound_record(ctx.project, "baseline")
    if record is None or ctx.last is None:
        return []
    run, planned = record.evidence.run, ctx.last.config["task"]
    if run.code_sha256 != digest(dumped(probe.code_files)) or planned != config.task.model_dump():
        return []
    return [row.path for row in run.opened or []]


def steady(ctx: Context, result: RunResult) -> list[FileRow]:
    """Return the files that a run opened, less those that training itself changes."""
    unsteady = ctx.planning.evidence.unsteady or []
    return [row for row in result.opened or [] if row.path not in unsteady]
