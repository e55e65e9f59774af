"""Calibration and judgement of a quantized export: training rows that the seed draws, and the metric on validation."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.calling import call_of
from mltrainer.checkpointing.export import Call, Inputs, Quantization
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.exporters.calls import calls_of
from mltrainer.records.common import CalibrationRows, lost_share
from mltrainer.records.job import ExportJob
from mltrainer.reproducibility.drawn import drawn
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.structures import main_output, mapped, tensors_in
from mltrainer.trainers.native.data.addresses import evaluation_batches
from mltrainer.trainers.native.evaluation import evaluate
from mltrainer.workspace import digest


def quantization(job: ExportJob, task: OpenTask, model: nn.Module) -> Quantization:
    """Return the calibration and the measurement that quantized formats need of a task.

    Args:
        job: The export; without a checkpoint no metric is measured, as an untrained model has none to lose.
        task: The task with its data.
        model: The model, whose answers a quantized one's take the place of.
    """
    config = job.config

    @functools.cache
    def calibration() -> tuple[list[Inputs], CalibrationRows]:
        return calibration_rows(task, model, config, job.calibration_samples)

    @functools.cache
    def original() -> float:
        return _metric(task, model, config)

    def measure(call: Call) -> dict[str, Any]:
        if job.checkpoint is None:
            return {}
        before = original()
        with answering(model, call):
            value = _metric(task, model, config)
        loss = lost_share(before, value, config.metric.mode)
        measured = {"metric": config.metric.name, "value": value, "original": before}
        return {**measured, "loss": loss, "allowed": job.metric_loss}

    return Quantization(calibration, measure)


def calibration_rows(task: OpenTask, model: nn.Module, config: TrainingConfig, most: int) -> tuple[list[Inputs], CalibrationRows]:
    """Return the model's inputs of training rows that the seed draws, in batches, and the record of these rows.

    Args:
        task: The task with its data.
        model: The model, on the CPU.
        config: The seed.
        most: The largest number of rows.

    Raises:
        InputError: The rows come as a stream, or the task calls its model with something else than tensors.
    """
    samples = task.split("train")
    if samples.is_stream:
        message = "the training rows are a stream, so no rows can be drawn for the calibration"
        raise InputError(message, hint="take onnx_int8_dynamic in place of onnx_int8_static: it needs no calibration")
    places = drawn(len(samples), most, config.seed, "calibrate")
    with _on_device(model, config):
        # By the evaluation's draws, not the training's: a deployed model is not given augmented rows.
        calls = calls_of(task, model, evaluation_batches(samples, np.array(places), config, "train"))
    batches = [tuple(x.cpu() for x in call.tensors) for call in calls]
    return batches, CalibrationRows(samples=len(places), of=len(samples), places_sha256=digest(places))


def _metric(task: OpenTask, model: nn.Module, config: TrainingConfig) -> float:
    """Return the metric that chooses the checkpoint, on the whole validation split.

    Raises:
        InputError: It is one that a strategy measures.
    """
    name = config.metric.name
    with _on_device(model, config):
        metrics = evaluate(task.task, model, config, task.split("validation"), "validation").metrics
    if name not in metrics:
        message = f"{name} is measured by a strategy, which needs more than a quantized model's answers"
        raise InputError(
            message, hint="take onnx_int8_dynamic and onnx_int8_static out of export.formats, or choose by another metric"
        )
    return metrics[name]


@contextmanager
def _on_device(model: nn.Module, config: TrainingConfig) -> Iterator[None]:
    """Move a model in evaluation mode to the config's device for the length of a block, and to the CPU again after it."""
    model.to(config.device).eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.cpu().eval()  # an evaluation leaves it in training mode


@contextmanager
def answering(model: nn.Module, call: Call) -> Iterator[None]:
    """Replace a model's answers by those of a call with the same inputs, for the length of a block."""

    def answer(_module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], outputs: Any) -> Any:
        given = call_of(arguments, named, outputs)
        assert given is not None  # the export refused such a model
        replacements = call(tuple(x.cpu() for x in given.tensors))
        return _replaced(outputs, replacements)

    handle = model.register_forward_hook(answer, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _replaced(outputs: Any, replacements: list[Tensor]) -> Any:
    """Return a model's outputs with other tensors, given with the main output first, as exported models return them."""
    main = main_output(outputs)
    order = [main, *(tensor for tensor in tensors_in(outputs) if tensor is not main)]
    others = {id(old): new.to(old.device) for old, new in zip(order, replacements, strict=True)}
    return mapped(lambda tensor: others[id(tensor)], outputs)
