"""One export job, from a run's checkpoint to a folder that can be deployed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import mltrainer
from mltrainer.checkpointing.calling import as_called
from mltrainer.checkpointing.deployment import CHECKSUMS_FILE, MANIFEST_FILE, PREPROCESS, preprocess_of, write_deployment
from mltrainer.checkpointing.export import export, format_of, units_of
from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import delivered, weights_sha256, weights_tree_sha256
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.exporters import adapters
from mltrainer.exporters.calls import Calls, real_calls
from mltrainer.exporters.combining import combine, combined_model
from mltrainer.exporters.importing import import_weights
from mltrainer.exporters.quantized import quantization
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.common import Export, digests_by_name
from mltrainer.records.finalization import Conformal, Intervals
from mltrainer.records.job import CombineJob, ExportJob, ImportJob, TestOpening
from mltrainer.records.openings import identity, merged
from mltrainer.reproducibility.evidence import RESULT_FILE, TEST_FILE
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.user_code import user_code
from mltrainer.tools.loading import check_data, open_untrained, recorded_files
from mltrainer.tools.program import Events
from mltrainer.trainers.native import conformal
from mltrainer.trainers.native.evaluation import Evaluated, accumulates, evaluate, measured, needs_outputs, writes
from mltrainer.trainers.native.intervals import Interval, intervals, no_intervals
from mltrainer.workspace import MODEL_SIGNATURE, SUPERSEDED_FILE, digest, locked, machine_faults, plain, read_json, write_json


def work(job: ExportJob | CombineJob | ImportJob, root: Path, events: Events) -> int:
    """Run one job; the tool's entry point."""
    if isinstance(job, CombineJob):
        combine(job, root)
        return 0
    if isinstance(job, ImportJob):
        import_weights(job, root)
        return 0
    exports = rehearse(job, root) if job.checkpoint is None else export_run(job, root, job.checkpoint)
    for row in exports:
        agrees = f"agrees within {row.relative_difference:.2g}" if row.relative_difference else "agrees exactly"
        outcome = agrees if row.agrees else row.reason
        events.send("note", text=f"{row.format}: {row.state}, {outcome}")
    return 0


def export_run(job: ExportJob, root: Path, checkpoint: str) -> list[Export]:
    """Export a run's checkpoint, and write the job's result.

    The result holds `exports`; `inference`, the task's description of its inputs and outputs; `conformal`, where the config asks
    for it; `test` (as `measure_test`); `weights_sha256` and `weights_tree_sha256`.

    Args:
        job: The export.
        root: The project's folder.
        checkpoint: The folder of the run's checkpoint.

    Raises:
        GateError: The checkpoint is damaged, or not the one of the run's result; or the data is another.
        InputError: The task calls its model with something else than tensors.
    """
    with locked(root / job.folder / "lock", f"the export of run {job.run}"):
        return _export(job, checkpoint, root)


def _export(job: ExportJob, checkpoint: str, root: Path) -> list[Export]:
    config = job.config
    tree, manifest = load(root / checkpoint, _expected(job, checkpoint, root))
    task, model = open_untrained(config, root)
    check_data(task, manifest)
    if job.combined is not None:
        model = combined_model(job.combined, task, model, root)
    state = delivered(tree, trained=job.trained and not task.strategies.adapts)
    model.load_state_dict(state, strict=True)
    model.to(config.device).eval()
    # Before anything is removed: a model that cannot be exported leaves the earlier export whole.
    calls = real_calls(task, model, config, job.samples)
    inference = task.task.inference()
    doubt = _calibrated(task, model, config, inference)
    model.cpu().eval()
    out = root / job.out
    _remove_earlier(out)
    preprocess = preprocess_of(inference, root)
    exports = _all_formats(job, task, model, calls, out)
    # A combination has no adapters of its own: its weights are those of merged models.
    beside, row = ({}, []) if job.combined else adapters.deliver(task, model, tree["model"], calls, job.tolerance)
    exports += row
    weights = weights_sha256(state)
    tree = {"weights_tree_sha256": weights_tree_sha256(state, threads=config.threads)}
    names = {} if calls.all.inputs == ["input"] else {"model_inputs": calls.all.inputs}
    extra = {} if doubt is None else {conformal.KEY: doubt.written()}
    files = {**task.task.delivered(), **beside}
    origin = {**_origin(job, manifest, weights), **tree}
    write_deployment(out, exports, {**inference, **names, **extra}, job.config.model_dump(), origin, files, preprocess)
    # Again: changes that an exporter made to the model must not show in the test's metrics.
    model.load_state_dict(state, strict=True)
    model.to(config.device)
    test = measure_test(job, root, task, model, config, exports, weights, doubt)  # last: an opening is not undone
    _write_result(job, root, exports, {"inference": inference, **extra, "test": test, "weights_sha256": weights, **tree})
    return exports


def _calibrated(task: OpenTask, model: nn.Module, config: TrainingConfig, inference: dict[str, Any]) -> Conformal | None:
    """Return the threshold of the model's sets or intervals; None if it answers without."""
    if config.conformal is None:
        return None
    return conformal.calibrated(task.task, model, config, task.split("validation"), inference)


def _expected(job: ExportJob, checkpoint: str, root: Path) -> dict[str, str]:
    """Return the digests of the checkpoint's files, as the run or the combination recorded them."""
    if job.combined is not None:
        return digests_by_name(job.combined.files)
    return recorded_files(root, job.run_folder, checkpoint)


def _write_result(job: ExportJob, root: Path, exports: list[Export], others: dict[str, Any]) -> None:
    rows = [row.written() for row in exports]
    write_json(root / job.folder / RESULT_FILE, {"schema": 1, "exports": rows, **others})


def _all_formats(job: ExportJob, task: OpenTask, model: nn.Module, calls: Calls, out: Path) -> list[Export]:
    """Return the rows of the model's exports, written as its task calls it."""
    inputs = calls.all.tensors
    plain_model = as_called(model, calls.all)
    beside = quantization(job, task, model)
    units = units_of(task.task.inference())
    return export(plain_model, inputs, job.formats, out, job.tolerance, inputs, calls.all.inputs, calls.others, beside, units)


def rehearse(job: ExportJob, root: Path) -> list[Export]:
    """Try an export on an untrained model, so that faults of the task show before the training; write the job's result.

    The result holds `exports`; `inference` and `evaluation`, whether the task gave any; and `fault`: `what` failed, `where` and
    the `mend`, or None.

    Args:
        job: The job, as in `export_run`, without a checkpoint; files written to `out` are removed again.
        root: The project's folder.
    """
    exports: list[Export] = []
    fault, gives = None, {"inference": False, "evaluation": False}
    with locked(root / job.folder / "lock", "the rehearsal of the export"):
        try:
            exports, gives = _rehearsed(job, root)
        except InputError as error:
            fault = {"what": error.message, "where": error.where, "mend": error.hint}
        finally:
            shutil.rmtree(root / job.out, ignore_errors=True)
        _write_result(job, root, exports, {**gives, "fault": fault})
    return exports


def _rehearsed(job: ExportJob, root: Path) -> tuple[list[Export], dict[str, bool]]:
    """Return the exports, and whether the task gave an inference description and an evaluation."""
    config = job.config
    task, model = open_untrained(config, root)
    model.to(config.device).eval()
    samples = task.split("validation")
    with user_code(root, "metrics of your task"):
        hold = writes(task.task, "evaluation")
        evaluated = evaluate(task.task, model, config, samples, "validation", _first(job, len(samples)), hold=hold)
    with user_code(root, "evaluation of your task"):
        evaluation = task.task.evaluation(evaluated.outputs, evaluated.targets) if hold else None
        # Tried now: what cannot be written would otherwise fail when the model is trained.
        json.dumps(plain(evaluation))
    with user_code(root, "inference of your task"):
        inference = task.task.inference()
        json.dumps(plain(inference))
    if config.conformal is not None:
        conformal.require(task.task, model, config, samples, inference)
    preprocess_of(inference, root)
    # Again, as code of the task's ran since.
    model.eval()
    calls = real_calls(task, model, config, job.samples)
    rows = _all_formats(job, task, model, calls, root / job.out) + adapters.rehearse(task, model, calls, job.tolerance)
    return rows, {"inference": bool(inference), "evaluation": evaluation is not None}


def _first(job: ExportJob, available: int) -> np.ndarray:
    return np.arange(min(job.samples, available))


def _remove_earlier(out: Path) -> None:
    """Remove the models that an earlier export's manifest names; first checksums, signature and mark, which say what they are."""
    try:
        manifest = read_json(out / MANIFEST_FILE)
        named, preprocess = {row["format"] for row in manifest["exports"]}, manifest.get(PREPROCESS)
    except (InputError, KeyError, TypeError):  # nothing was exported here, and another's model of such a name is left alone
        named, preprocess = set(), None
    with machine_faults(str(out)):
        for claim in (CHECKSUMS_FILE, MODEL_SIGNATURE, SUPERSEDED_FILE):
            (out / claim).unlink(missing_ok=True)
        if preprocess is not None:
            # The name alone: a manifest must not lead out of the folder.
            (out / Path(preprocess["file"]).name).unlink(missing_ok=True)
        for file in adapters.FILES if adapters.FORMAT in named else ():
            (out / file).unlink(missing_ok=True)
        for file in filter(None, map(_file_of, named)):
            (out / file).unlink(missing_ok=True)
            (out / f"{file}.data").unlink(missing_ok=True)


def _file_of(name: str) -> str | None:
    """Return the file of a format; None for a format that is no longer installed."""
    try:
        return format_of(name).file
    except InputError:
        return None


def _origin(job: ExportJob, manifest: Manifest, weights: str) -> dict[str, Any]:
    """Return the origin for the model's manifest: version, run, checkpoint, weights' digest, metrics and contract."""
    kept = manifest.model_dump(include={"step", "epoch", "metrics", "contract"})
    made = {"mltrainer": mltrainer.__version__, "run": job.run, "checkpoint": job.checkpoint}
    if job.combined is not None:
        made["combined"] = job.combined.how
    return {**made, "weights_sha256": weights, **kept}


# --- the test split -----------------------------------------------------------------------------


def measure_test(
    job: ExportJob,
    root: Path,
    task: OpenTask,
    model: nn.Module,
    config: TrainingConfig,
    exports: list[Export],
    weights: str,
    doubt: Conformal | None = None,
) -> dict[str, Any]:
    """Open the test split and measure it, unless it stays sealed: it is not asked for, or a format differs from the model.

    Returns:
        `samples` (0 while it is sealed), `metrics`, `intervals` (as `intervals.intervals`) and `sealed`, why it was not opened;
        `coverage` of the sets or intervals where there are some, `lacking` the classes of which it has no sample.
    """
    sealed = "it was not asked for" if job.test is None else _unfit(exports)
    if sealed or job.test is None:
        return {"samples": 0, "metrics": {}, "intervals": None, "sealed": sealed}
    rows = task.test_rows(job.test.salt)
    _note_opening(job, job.test, root, task.data_sha256, weights, rows)
    samples = task.open_test()
    evaluated = measured(task, model, samples, "test", hold=_interval_of_loss(task, config))
    measurement = {"samples": len(samples), "metrics": plain(evaluated.metrics)}
    if doubt is not None:
        answers = conformal.answers_of(task.task, model, config, samples, "test", task.task.inference())
        measurement["coverage"] = conformal.covered(answers, doubt, job.test.interval["level"]).written()
    write_json(root / job.run_folder / TEST_FILE, {**measurement, "weights_sha256": weights, "rows": rows})
    bounds = _intervals(job.test, task, evaluated, len(samples), config)
    lacking = task.lacking_classes("test")
    return {**measurement, **({"lacking": lacking} if lacking else {}), "intervals": bounds and bounds.written(), "sealed": None}


def _interval_of_loss(task: OpenTask, config: TrainingConfig) -> bool:
    """Return True if outputs are held for the loss's interval alone; never where metrics are accumulated without them."""
    return "loss" in config.acceptance and not accumulates(task.task)


def _intervals(opening: TestOpening, task: OpenTask, test: Evaluated, samples: int, config: TrainingConfig) -> Intervals | None:
    """Return the metrics' intervals; None where there is only a loss without an acceptance criterion."""
    asked = Interval(**opening.interval)
    if accumulates(task.task):
        return no_intervals(asked, "the metrics are accumulated, and no outputs are held to resample")
    if not (needs_outputs(task.task) or _interval_of_loss(task, config)):
        return None
    return intervals(task.task, test.outputs, test.targets, samples, config.seed, asked)


def _unfit(exports: list[Export]) -> str | None:
    """Return the reason against opening the test split: formats that failed or disagree with the trained model; else None."""
    bad = [row.format for row in exports if row.state == "failed" or row.agrees is False]
    return f"{', '.join(bad)} cannot be delivered" if bad else None


def _note_opening(job: ExportJob, opening: TestOpening, root: Path, data: str, weights: str, rows: dict[str, Any]) -> None:
    """Record an opening before it happens, beside the run and in the ledger, so that a crash counts too.

    The same weights on the same data show nothing new when they are measured again, whichever run they came from.
    """
    noted = {"samples": None, "metrics": {}, "weights_sha256": weights, "rows": rows}
    write_json(root / job.run_folder / TEST_FILE, noted)
    before = opening.openings
    row = {"run": job.run, "data_sha256": data, "weights_sha256": weights, "purpose": "final evaluation"}
    if identity(row) not in set(map(identity, before)) and job.run not in {seen["run"] for seen in before}:
        name = digest(rows)
        splits = {**opening.splits, name: rows}
        write_json(root / opening.ledger, {"openings": merged(before, [{**row, "rows_sha256": name}]), "splits": splits})
