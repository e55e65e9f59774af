"""The rows that calibrate a model in 8 bits, and the metric by which it is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mltrainer.checkpointing.export import Inputs
from mltrainer.configs.project import TrainingConfig
from mltrainer.exporters import quantized as quantizing
from mltrainer.exporters.quantized import answering, calibration_rows
from mltrainer.reproducibility.drawn import drawn
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.trainers.native.evaluation import Evaluated, evaluate
from mltrainer.workspace import digest
from tests.exporters.test_program import export_run, job, rehearse
from tests.toys import Wired

__all__ = ["job"]
pytest.importorskip("onnxruntime")

INT8 = ["safetensors", "onnx_int8_dynamic", "onnx_int8_static"]
ASKED = {"formats": INT8, "metric_loss": 0.5, "calibration_samples": 20}


def opened(job: dict[str, Any]) -> OpenTask:
    return open_task(TrainingConfig.model_validate(job["config"]), Path())


def test_it_is_calibrated_on_training_rows_that_the_seed_draws(job):
    task = opened(job)
    samples = task.split("train")
    assert samples.tensors is not None
    batches, row = calibration_rows(task, task.task.model(), task.config, 20)
    places = drawn(len(samples), 20, task.config.seed, "calibrate")
    assert torch.equal(torch.cat([batch[0] for batch in batches]), samples.tensors[0][places])
    assert (row.samples, row.of, row.places_sha256) == (20, len(samples), digest(places))


def test_where_there_are_fewer_rows_all_calibrate(job):
    task = opened(job)
    batches, row = calibration_rows(task, task.task.model(), task.config, 10_000)
    assert row.samples == row.of == len(task.split("train")) == sum(len(batch[0]) for batch in batches)


@pytest.mark.slow
def test_a_stream_is_refused_with_what_to_take_instead(job, monkeypatch):
    monkeypatch.setattr("mltrainer.tasks.samples.Samples.is_stream", True)
    result = rehearse({**job, **ASKED, "checkpoint": None})
    dynamic, static = result["exports"][1:]
    assert (dynamic["state"], static["state"]) == ("written", "failed")
    assert static["reason"].endswith("take onnx_int8_dynamic in place of onnx_int8_static: it needs no calibration")


@pytest.mark.slow
def test_a_run_is_exported_in_8_bits_and_measured_beside_its_model(job):
    result = export_run({**job, **ASKED})
    task = opened(job)
    for row in result["exports"][1:]:
        assert (row["state"], row["agrees"]) == ("written", True), row["reason"]
        told = row["quantized"]
        assert told["metric"] == "accuracy"
        assert told["loss"] == pytest.approx((told["original"] - told["value"]) / told["original"])
        assert told["allowed"] == 0.5
    assert result["exports"][2]["quantized"]["calibration"]["of"] == len(task.split("train"))
    model = task.task.model()
    from safetensors.torch import load_file

    model.load_state_dict(load_file(Path(job["out"]) / "model.safetensors"))
    expected = evaluate(task.task, model, task.config, task.split("validation"), "validation").metrics["accuracy"]
    assert result["exports"][1]["quantized"]["original"] == expected
    assert result["test"]["samples"] == 8


@pytest.mark.slow
def test_exported_again_the_folder_has_the_same_bytes(job):
    export_run({**job, **ASKED, "test": None})
    sums = (Path(job["out"]) / "SHA256SUMS").read_bytes()
    export_run({**job, **ASKED, "test": None})
    assert (Path(job["out"]) / "SHA256SUMS").read_bytes() == sums
    assert "latency_ms" not in (Path(job["out"]) / "manifest.json").read_text()


@pytest.mark.slow
def test_one_whose_metric_fell_too_far_leaves_the_test_split_sealed(job, monkeypatch):
    values = iter([0.9, 0.8])
    monkeypatch.setattr(quantizing, "_metric", lambda *_: next(values))
    result = export_run({**job, "formats": ["safetensors", "onnx_int8_static"], "metric_loss": 0.1, "calibration_samples": 20})
    row = result["exports"][1]
    assert row["agrees"] is False
    assert row["reason"] == "accuracy on validation went from 0.9 to 0.8, by 0.111 of it, and 0.1 is allowed"
    assert result["test"]["sealed"] == "onnx_int8_static cannot be delivered"


@pytest.mark.slow
def test_a_metric_that_needs_gradients_is_named(job, monkeypatch):
    """As of inputs that are attacked, which a strategy measures beside the task's metrics."""
    monkeypatch.setattr(quantizing, "evaluate", lambda *_: Evaluated({"loss": 1.0}, None, None))
    result = export_run({**job, **ASKED, "formats": ["safetensors", "onnx_int8_dynamic"], "test": None})
    assert result["exports"][1]["state"] == "failed"
    assert result["exports"][1]["reason"].startswith("accuracy is measured by a strategy")


def test_planning_tries_it_without_a_metric(job):
    result = rehearse({**job, **ASKED, "checkpoint": None})
    assert [row["agrees"] for row in result["exports"]] == [True] * 3
    assert "metric" not in result["exports"][1]["quantized"]


@pytest.mark.slow
def test_formats_after_it_are_made_of_a_model_in_evaluation_mode(job):
    """An evaluation leaves a model in training mode, where dropout would answer."""
    config = {**job["config"], "model": {**job["config"]["model"], "dropout": 0.5}}
    formats = ["onnx_int8_static", "torchscript", "torch_export"]
    result = export_run({**job, **ASKED, "config": config, "formats": formats})
    assert [row["agrees"] for row in result["exports"]] == [True] * 3


# --- answers in the model's place ---------------------------------------------------------------


def test_answers_take_their_places_in_the_models_outputs():
    seen: list[Inputs] = []

    def call(inputs: Inputs) -> list[Tensor]:
        seen.append(inputs)
        return [torch.full((3,), 1.0), torch.full((3, 2), 2.0), torch.full((3,), 3.0)]  # the main output first

    model = Wired(lambda _, x, scale=None: {"hidden": x, "logits": x.sum(1), "more": (x.mean(1), None)})
    with answering(model, call):
        found = model(torch.zeros(3, 2), scale=torch.ones(3))
    assert [float(part.flatten()[0]) for part in (found["logits"], found["hidden"], found["more"][0])] == [1.0, 2.0, 3.0]
    assert found["more"][1] is None
    assert len(seen[0]) == 2
    assert np.all(model(torch.zeros(3, 2))["logits"].numpy() == 0)
