"""A model in 8 bits from planning to its delivery, and what a gate says of one that is not as it was exported."""

from __future__ import annotations

import re

import pytest

from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.projects import evidence_of

pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tools_here")]

MODEL = "phases/05_finalization/final_model/model_int8_static.onnx"


def deliver(project: Project, cli: Cli, more: str = "") -> int:
    """Finalize a finished project again, with a model in 8 bits; its training is not repeated."""
    path = project.root / "configs/production_template.yaml"
    formats = "formats: [safetensors, onnx_int8_static]\n  calibration_samples: 16\n" + more
    path.write_text(re.sub(r"formats: .*\n", formats, path.read_text("utf-8")), "utf-8")
    return cli("phase", "run", "finalization", "--project", project.root).code


def test_it_is_delivered_beside_its_metric_and_a_byte_altered_later_is_told(cli, digits):
    assert deliver(digits, cli) == 0
    found = evidence_of(digits, "finalization")
    told = found["exports"][-1]["quantized"]
    assert told["original"] == found["run"]["best"]["validation"]["accuracy"]
    assert (told["metric"], told["allowed"], told["calibration"]["samples"]) == ("accuracy", 0.01, 16)
    path = digits.root / MODEL
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    said = cli("gate", "check", "finalization", "--project", digits.root, code=4)
    assert f"{MODEL} (model) changed" in said.out + said.err


def test_a_template_that_allows_more_does_not_decide_for_the_gate(cli, digits, monkeypatch):
    measured = iter([0.9, 0.8])
    monkeypatch.setattr("mltrainer.exporters.quantized._metric", lambda *_: next(measured))
    assert deliver(digits, cli, "  metric_loss: 0.5\n") == 4
    row = evidence_of(digits, "finalization")["exports"][-1]
    assert (row["agrees"], row["quantized"]["allowed"]) == (True, 0.5)
