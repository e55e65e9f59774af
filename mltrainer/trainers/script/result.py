"""The record of a program's run: the digests of its inputs, weights and outputs, and the measurements of its steps.

Values that only the program knows stay empty, and gate items that need them do not apply.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.observe.file_rows import rows_of_paths
from mltrainer.programs.leftover_files import first_unlike
from mltrainer.records.common import Divergence, FileRow, dumped
from mltrainer.records.job import TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.run import OUTPUTS, Memory, NonFinite, Percentiles, Program, Rehearsal, RunResult
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.trainers import result as parts
from mltrainer.trainers.script.history import Steps, first_nonfinite, history, steps_of
from mltrainer.trainers.script.metrics import ReportedEvaluation, callback_evaluations, ended_by, read_metrics
from mltrainer.trainers.script.observed import Observed, data_of
from mltrainer.workspace import digest, plain, read_json

PROBE = "probe"
NO_SAMPLES = {"train": 0, "validation": 0, "test": 0}
OF_LIBRARIES = (
    "all_results.json",
    "eval_results.json",
    "trainer_state.json",
)  # transformers writes them, and no source names them


def judged_table(job: TrainingJob, root: Path) -> dict[str, Any]:
    """Return planning's record of a program's table; {} if the task names none or the job does not check data.

    Raises:
        InputError: The table cannot be read or split.
    """
    name = job.config.task.table
    if job.data_limits is None or name is None:
        return {}
    from mltrainer.tables import open_described  # which brings torch: no other program needs it here

    facts = open_described(root / name).facts(DataLimits.model_validate(job.data_limits))
    # The table's own description has the settings that the findings name.
    findings = [{**row, "what": row["what"].replace("mltrainer.yaml", name)} for row in facts["findings"]]
    return {**facts, "findings": findings, "files": [*facts["files"], *dumped(rows_of_paths([name], root))]}


def result_of(job: TrainingJob, found: Observed, root: Path, folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Return a whole result, and keep the files that the program left.

    Args:
        job: The job.
        found: The observations of the program.
        root: The project's folder.
        folder: The run's folder.
        table: Planning's record of the program's table; {} without one.

    Raises:
        InputError: The program left no metrics, or not the files that its task names.
    """
    config = job.config
    seen, is_whole = steps_of(found.signals, found.reports), not job.max_steps or found.left is not None
    evaluations = _evaluations(config, found) if is_whole else []
    opened = data_of(found.judged, config.task.reads, root)
    outputs = _kept(config, found.place, folder / OUTPUTS, root) if is_whole else []
    rows = history(evaluations, seen, found.steps)
    last = rows[-1] if evaluations else None  # the last evaluation describes the run, because the program leaves its final state
    facts = _facts(config, found, opened, table, root) if job.purpose == PROBE else None
    program = Program(
        command=found.command,
        processes=found.processes,
        evaluations=len(evaluations),
        losses=len(seen.losses),
        outputs=outputs,
        read=opened,
        resumed=None,
        **({} if found.left is None else {"left": found.left}),  # records of programs with steps have no such entry
    )
    result = parts.built(
        job,
        code_files=found.code,
        **_identity(job, found),
        data_sha256=digest(dumped(_contracted(job, opened, root))),
        data=facts,
        **_course(job, found, seen, rows, root),
        history=rows,
        best=last,
        final=last,
        layers=seen.names,
        first_loss=seen.losses.get(1),
        parameters=seen.parameters,
        **_costs(found, seen),
        program=program,
    )
    return dict(plain(result))


def _course(job: TrainingJob, found: Observed, seen: Steps, rows: list[dict[str, Any]], root: Path) -> parts.Row:
    """Return the run's progress and end; the batch size stays 0, because only the program knows it."""
    bad, epochs = first_nonfinite(seen), max(1, math.ceil(rows[-1]["epoch"]))
    head, divergence = _chain(job, found, seen, root)
    return {
        "stop_reason": "nonfinite" if bad else "max_steps" if job.max_steps and found.left is None else "epochs",
        "steps": found.steps,
        "epochs": epochs,
        "planned_steps": found.steps,
        "planned_epochs": epochs,
        "batch_size": 0,
        "head": head,
        "first_divergence": divergence,
        "nonfinite": NonFinite(step=bad[0], epoch=epochs, what=bad[1], samples=[]) if bad else None,
    }


def _evaluations(config: TrainingConfig, found: Observed) -> list[ReportedEvaluation]:
    """Return the program's evaluations: its metrics file's; if that has only the last one, a callback's come before it."""
    if config.task.metrics is None:
        return callback_evaluations(found.evaluations, config.metric.name)
    rows = read_metrics(found.place / config.task.metrics, config.task.metrics, config.metric.name)
    return ended_by(found.evaluations, rows[0], found.steps) if len(rows) == 1 else rows


def _kept(config: TrainingConfig, place: Path, folder: Path, root: Path) -> list[FileRow]:
    """Keep the files that the program left, and return their rows.

    Raises:
        InputError: A file is missing.
    """
    # Otherwise an earlier attempt's file that is no longer named would stay among this one's.
    shutil.rmtree(folder, ignore_errors=True)
    for name in config.task.outputs:
        _require_output(place, name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place / name, folder / name)
    return rows_of_paths([str((folder / name).relative_to(root)) for name in config.task.outputs], root)


def _require_output(place: Path, name: str) -> None:
    if not (place / name).is_file():
        is_folder = (place / name).is_dir()
        message = f"the program left a folder {name}" if is_folder else f"the program left no file {name}"
        hint = "name each of its files" if is_folder else "let it write the file, or take the name away"
        raise InputError(message, where="task.outputs", hint=hint)


def _contracted(job: TrainingJob, opened: list[FileRow], root: Path) -> list[FileRow]:
    """Return the rows of the data in the run's contract: a probe's own files, else planning's files in their present state."""
    planned = job.data_files
    return opened if planned is None else rows_of_paths([row.path for row in planned], root)


def _identity(job: TrainingJob, found: Observed) -> parts.Row:
    about = found.judged.about
    with_torch = {"PyTorch": about["torch"]} if found.left is None or "torch" in about else {}
    known = parts.identity_of(job, "program")
    return {
        **known,
        "determinism": {**known["determinism"], **found.switches},
        "libraries": {"mltrainer": mltrainer.__version__, "Python": about.get("python", ""), **with_torch},
        "weights_sha256": found.weights_sha256,
        "draws": found.draws,
        "rehearsal": Rehearsal(samples=0, seconds=0.0),
    }


def _facts(config: TrainingConfig, found: Observed, opened: list[FileRow], table: dict[str, Any], root: Path) -> dict[str, Any]:
    """Return planning's record of the data: its files, and the table's findings; only the program knows other samples."""
    findings = [*(table.get("findings") or _findings(opened)), *metrics_findings(config, found, root)]
    facts = parts.facts_of("program", config.task.script, digest(dumped(opened)), dumped(opened), NO_SAMPLES, findings)
    return {**facts, "not_looked_at": table.get("not_looked_at", facts["not_looked_at"])}


def _findings(opened: list[FileRow]) -> Iterator[dict[str, str]]:
    yield {"severity": "info", "what": "which samples train and which validate, only the program knows: none were compared"}
    if not opened:
        message = "it was seen to open no file of data: name those that a library's C code opens in task.reads"
        yield {"severity": "warning", "what": message}


def metrics_findings(config: TrainingConfig, found: Observed, root: Path) -> Iterator[dict[str, str]]:
    """Yield a warning if a program may write no metrics: otherwise only the end of the whole run would show it.

    Args:
        config: The config, which names the metrics file.
        found: The observations of the program's first steps.
        root: The project's folder; a metrics file there is an earlier run's.
    """
    name = config.task.metrics
    if name is None or (root / name).exists() or (found.place / name).exists() or Path(name).name in OF_LIBRARIES:
        return
    sources = (found.place / row.path for row in found.judged.code)  # an absolute path stays so
    texts = [*found.command, *(path.read_text("utf-8", "replace") for path in sources if path.is_file())]
    if not any(Path(name).name in text for text in texts):
        what = f"no source of the program names {Path(name).name}, the file of task.metrics"
        yield {"severity": "warning", "what": f"{what}, without which the baseline fails at its end"}


def require_left(config: TrainingConfig, place: Path) -> None:
    """Refuse the folder of a program that has ended if metrics or outputs are missing.

    Args:
        config: The config, which names them.
        place: The folder that the program ran in.

    Raises:
        InputError: A file is missing, or lacks the metrics.
    """
    if config.task.metrics is not None:
        read_metrics(place / config.task.metrics, config.task.metrics, config.metric.name)
    for name in config.task.outputs:
        _require_output(place, name)


def _chain(job: TrainingJob, found: Observed, seen: Steps, root: Path) -> tuple[fingerprint.Head, Divergence | None]:
    """Write the chain of fingerprints; return its head, and the first step that differs from the compared run's, or None.

    The chain of a program without steps has one entry, the digest of the files that it left.
    """
    if found.left is not None:
        head, _ = parts.write_chain(job, root, [fingerprint.weights_entry(0, found.weights_sha256)])
        compared = partial(RunResult, read_json(root / job.compare / RESULT_FILE)).program if job.compare else None
        return head, first_unlike(compared.left or {}, found.left) if compared else None
    entries = []
    for entry in found.entries:
        ids = found.samples.get(entry.step, fingerprint.NO_IDS)
        loss = seen.losses.get(entry.step, math.nan)
        bits = digest([entry.optimizer, entry.gradients, entry.weights, entry.whole])
        # Without the norm, the observer's own sum: its last bit depends on the place in memory of the same gradients.
        entries += [fingerprint.step_entry(entry.step, ids, loss, math.nan), fingerprint.weights_entry(entry.step, bits)]
    entries += [fingerprint.weights_entry(found.steps, other) for other in (*found.others, found.weights_sha256)]
    # The final entries of a run that was ended early match none of the whole run.
    return parts.write_chain(job, root, entries, 2 * len(found.entries) if job.max_steps else None)


def _costs(found: Observed, seen: Steps) -> parts.Row:
    times = [seen.times[step] for step in sorted(seen.times)]
    paces = [(after - before) / 1000 for before, after in itertools.pairwise(times)]
    if not paces and found.steps:
        paces = [found.seconds / found.steps * 1e6]
    percentiles = Percentiles.of(paces) if paces else None
    return {
        "time_s": {"train": found.seconds},
        "wall_s": found.seconds,
        "step_time_us": percentiles,
        "step_pace_us": statistics.fmean(paces) if paces else None,
        "shortest_step_us": min(paces, default=None),
        "memory": Memory(peak_rss_mb=parts.peak_of_children_mb(), device_peak_mb=None),
    }
