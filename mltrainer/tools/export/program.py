"""One export job, from a run's checkpoint to a folder that can be deployed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import mltrainer
from mltrainer.checkpointing.deployment import CHECKSUMS_FILE, MANIFEST_FILE, write_deployment
from mltrainer.checkpointing.export import FORMATS, Inputs, export
from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import delivered, weights_sha256
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.user_code import user_code, user_frame
from mltrainer.tools.loading import RESULT_FILE, check_data, open_untrained, recorded_files
from mltrainer.tools.program import Events
from mltrainer.trainer.data.addresses import Batch, evaluation_batches
from mltrainer.trainer.evaluation import as_numbers, outputs, writes
from mltrainer.trainer.intervals import Interval, intervals
from mltrainer.workspace import locked, machine_faults, plain, read_json, write_json

TEST_FILE = "test.json"


def work(job: dict[str, Any], events: Events) -> int:
    """Run one job; the tool's entry point."""
    result = export_run(job) if job["checkpoint"] else rehearse(job)
    for row in result["exports"]:
        told = f"agrees within {row['relative_difference']:.2g}" if row["agrees"] else row["reason"]
        events.send("note", text=f"{row['format']}: {row['state']}, {told}")
    return 0


def export_run(job: dict[str, Any]) -> dict[str, Any]:
    """Export a run's checkpoint.

    Args:
        job: `run`; `run_folder`; `checkpoint` (the folder of one); `config`; `out`, where the model goes; `formats`,
            `samples` and `tolerance` as in the production template; `test`, how the test split is measured, or None:
            `ledger`, the file of its openings, and `openings`, those before, beside `interval`; `trained`, whether the
            trained weights go out where averaged ones are delivered; `folder`, where `result.json` goes. Paths are
            relative to the project, which is the current folder.

    Returns:
        exports (rows of `export.export`), inference (what the task says of its inputs and outputs), test (as `measure_test`)
        and weights_sha256.

    Raises:
        GateError: The checkpoint is damaged, or not the one of the run's result; or the data is another.
        InputError: The task calls its model with something else than tensors.
    """
    root = Path.cwd()
    with locked(root / job["folder"] / "lock", f"the export of run {job['run']}"):
        result = _export(job, root)
        write_json(root / job["folder"] / RESULT_FILE, result)
    return result


def _export(job: dict[str, Any], root: Path) -> dict[str, Any]:
    config = TrainingConfig.model_validate(job["config"])
    tree, manifest = load(root / job["checkpoint"], recorded_files(root, job))
    task, model = open_untrained(config, root)
    check_data(task, manifest)
    state = tree["model"] if job.get("trained") else delivered(tree)
    model.load_state_dict(state, strict=True)
    model.to(config.device).eval()
    inputs = model_inputs(task, model, config, job["samples"])
    model.cpu()
    out = root / job["out"]
    _remove_earlier(out)
    exports = export(model, inputs, job["formats"], out, job["tolerance"], inputs)
    weights = weights_sha256(state)
    inference = task.task.inference()
    files = task.task.delivered() if isinstance(task.task, BuiltinTask) else {}
    write_deployment(out, exports, inference, job["config"], _origin(job, manifest, weights), files)
    model.load_state_dict(state, strict=True)
    test = measure_test(job, root, task, model.to(config.device), config, exports, weights)  # last: an opening is not undone
    return {"schema": 1, "exports": exports, "inference": inference, "test": test, "weights_sha256": weights}


def rehearse(job: dict[str, Any]) -> dict[str, Any]:
    """Try on an untrained model all that a finished training needs of a task, so that what is missing is known before it.

    Args:
        job: As of `export_run`, without a checkpoint; what is written to `out` is removed again.

    Returns:
        exports, as `export_run`; inference and evaluation, whether the task gave any; and fault: `what` failed, `where` and
        the `mend`, or None.
    """
    root = Path.cwd()
    with locked(root / job["folder"] / "lock", "the rehearsal of the export"):
        try:
            result = {**_rehearsed(job, root), "fault": None}
        except InputError as error:
            fault = {"what": error.message, "where": error.where, "mend": error.mend}
            result = {"exports": [], "inference": False, "evaluation": False, "fault": fault}
        finally:
            shutil.rmtree(root / job["out"], ignore_errors=True)
        write_json(root / job["folder"] / RESULT_FILE, {"schema": 1, **result})
    return result


def _rehearsed(job: dict[str, Any], root: Path) -> dict[str, Any]:
    config = TrainingConfig.model_validate(job["config"])
    task, model = open_untrained(config, root)
    model.to(config.device).eval()
    samples = task.split("validation")
    found, targets, _ = outputs(task.task, model, config, samples, "validation", _first(job, len(samples)))
    with user_code(root, "metrics of your task"):
        as_numbers(task.task.metrics(found, targets))
    with user_code(root, "evaluation of your task"):
        evaluation = task.task.evaluation(found, targets)
        json.dumps(plain(evaluation))
    with user_code(root, "inference of your task"):
        inference = task.task.inference()
        json.dumps(plain(inference))
    model.eval()
    inputs = model_inputs(task, model, config, job["samples"])
    rows = export(model, inputs, job["formats"], root / job["out"], job["tolerance"], inputs)
    return {"exports": rows, "inference": bool(inference), "evaluation": evaluation is not None}


def _first(job: dict[str, Any], available: int) -> np.ndarray:
    return np.arange(min(job["samples"], available))


def _remove_earlier(out: Path) -> None:
    """Remove the models that an earlier export's manifest names; first the checksums, which claim that files are complete."""
    try:
        named = {row["format"] for row in read_json(out / MANIFEST_FILE)["exports"]}
    except (InputError, KeyError, TypeError):  # nothing was exported here, and another's model of such a name is left alone
        named = set()
    with machine_faults(str(out)):
        (out / CHECKSUMS_FILE).unlink(missing_ok=True)
        for made in (made for name, made in FORMATS.items() if name in named):
            (out / made.file).unlink(missing_ok=True)
            (out / f"{made.file}.data").unlink(missing_ok=True)


def _origin(job: dict[str, Any], manifest: dict[str, Any], weights: str) -> dict[str, Any]:
    """Return where the model comes from, for its own manifest."""
    kept = {key: manifest.get(key) for key in ("step", "epoch", "metrics", "contract")}
    made = {"mltrainer": mltrainer.__version__, "run": job["run"], "checkpoint": job["checkpoint"]}
    return {**made, "weights_sha256": weights, **kept}


# --- the test split -----------------------------------------------------------------------------


def measure_test(
    job: dict[str, Any],
    root: Path,
    task: OpenTask,
    model: nn.Module,
    config: TrainingConfig,
    exports: list[dict[str, Any]],
    weights: str,
) -> dict[str, Any]:
    """Open the test split and measure it, unless it stays sealed: it is not asked for, or a format does not give the model.

    Returns:
        `samples` (0 while it is sealed), `metrics`, `intervals` (as `intervals.intervals`) and `sealed`, why it was not opened.
    """
    sealed = "it was not asked for" if not job["test"] else _unfit(exports)
    if sealed:
        return {"samples": 0, "metrics": {}, "intervals": None, "sealed": sealed}
    _note_opening(job, root, task.data_sha256, weights)
    samples = task.open_test()
    keep = writes(task.task, "metrics") or "loss" in config.acceptance
    found, targets, loss = outputs(task.task, model, config, samples, "test", keep=keep)
    metrics = {"loss": loss, **as_numbers(task.task.metrics(found, targets))}
    measured = {"samples": len(samples), "metrics": plain(metrics)}
    write_json(root / job["run_folder"] / TEST_FILE, {**measured, "weights_sha256": weights})
    asked = Interval(**job["test"]["interval"])
    spread = plain(intervals(task.task, found, targets, len(samples), config.seed, asked)) if keep else None
    return {**measured, "intervals": spread, "sealed": None}


def _unfit(exports: list[dict[str, Any]]) -> str | None:
    """Return which formats do not give the trained model's outputs, or None."""
    bad = [row["format"] for row in exports if row["state"] == "failed" or row["agrees"] is False]
    return f"{', '.join(bad)} cannot be delivered" if bad else None


def _note_opening(job: dict[str, Any], root: Path, data: str, weights: str) -> None:
    """Write an opening down before it happens, so that a crash counts too: beside the run, and in the ledger.

    The same weights on the same data show nothing new when they are measured again, whichever run they came from.
    """
    write_json(root / job["run_folder"] / TEST_FILE, {"samples": None, "metrics": {}, "weights_sha256": weights})
    before = job["test"]["openings"]
    row = {"run": job["run"], "data_sha256": data, "weights_sha256": weights, "purpose": "final evaluation"}
    known = {(seen.get("data_sha256"), seen.get("weights_sha256")) for seen in before}
    if (data, weights) not in known and job["run"] not in {seen["run"] for seen in before}:
        write_json(root / job["test"]["ledger"], {"openings": [*before, {"nr": len(before) + 1, **row}]})


# --- real inputs --------------------------------------------------------------------------------


def model_inputs(task: OpenTask, model: nn.Module, config: TrainingConfig, count: int) -> Inputs:
    """Return what the task calls its model with for the first validation samples, on the CPU.

    Raises:
        InputError: It calls it with something else than tensors whose first dimension is the samples, or only parts of it.
    """
    samples = task.split("validation")
    positions = np.arange(min(count, len(samples)))
    calls = list(_calls(task, model, evaluation_batches(samples, positions, config, "validation")))
    if not calls:
        what = "your task's forward() never calls the model itself, only parts of it: there is nothing to export as one"
        mend = "give the model a forward() of its own, and let your task's call model(...)"
        raise InputError(what, where=config.task.use, mend=mend)
    columns = [torch.cat(parts).cpu() for parts in zip(*calls, strict=True)]
    if not columns or any(len(column) != len(positions) for column in columns):
        shapes = [list(column.shape) for column in columns]
        raise InputError(f"expected a model that reads tensors with samples first; for {len(positions)} samples it got {shapes}")
    return tuple(columns)


@torch.no_grad()
def _calls(task: OpenTask, model: nn.Module, batches: Iterable[Batch]) -> list[Inputs]:
    """Return the arguments of the model's first call for each batch."""
    seen: list[Inputs] = []

    def note(_module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if named or not all(isinstance(x, Tensor) and x.dim() for x in arguments):
            found = [type(x).__name__ for x in arguments] + [f"{key}=" for key in named]
            mend = "let your task's forward() call the model with positional tensors"
            raise InputError(f"a model that is exported is called with tensors only, found {', '.join(found)}", mend=mend)
        seen.append(arguments)

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        calls = []
        for batch in batches:
            seen.clear()
            _forward(task, model, batch)
            calls += seen[:1]
    finally:
        handle.remove()
    return calls


def _forward(task: OpenTask, model: nn.Module, batch: Batch) -> None:
    """Run a task's forward pass; a call that cannot be exported is told with the user's line."""
    try:
        with user_code(task.root, "forward of your task"):
            task.task.forward(model, batch)
    except InputError as error:
        error.where = error.where or user_frame(error, task.root)
        raise
