"""Models in 8 bits: what is quantized, by which ranges, in which bits; and what is refused."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mltrainer.checkpointing import export as module
from mltrainer.checkpointing.export import FORMATS, ONNX_PACKAGES, Call, Inputs, Quantization, export
from mltrainer.configs.templates import DYNAMIC, QUANTIZED, STATIC
from mltrainer.records.common import CalibrationRows, Export
from tests.toys import Wired

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ONNX_PACKAGES), reason="needs the extra mltrainer[onnx]"
)

DRAW = torch.Generator().manual_seed(1)
X = torch.randn(60, 6, generator=DRAW)
ROWS = [(4.0 * X[:30] + 1.0,), (X[30:],)]  # what calibrates: in two batches, of another range than what is compared
CALIBRATION = CalibrationRows(samples=60, of=60, places_sha256="0" * 64)


def measured(value: float) -> dict[str, Any]:
    loss = (0.8 - value) / 0.8
    return {"metric": "accuracy", "value": value, "original": 0.8, "loss": loss, "allowed": 0.01}


def export_one(
    model: nn.Module, name: str, folder: Path, x: Tensor = X, rows: list[Inputs] = ROWS, value: float | None = 0.8
) -> Export:
    judge = Quantization(lambda: (rows, CALIBRATION), lambda _call: {} if value is None else measured(value))
    return export(model, (x[:3],), [name], folder, 1e-9, (x,), quantization=judge)[0]


@pytest.fixture
def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 3)).eval()


def tensors(path: Path) -> dict[str, np.ndarray]:
    import onnx

    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def operators(path: Path) -> Counter[str]:
    import onnx

    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_it_answers_about_as_the_trained_model_and_is_told_beside_it(name, mlp, tmp_path):
    row = export_one(mlp, name, tmp_path)
    assert (row.state, row.agrees, row.reason, row.tolerance) == ("written", True, None, None)
    assert row.quantized is not None
    assert 1e-4 < float(row.relative_difference or 0) < 0.05
    assert row.quantized.share == pytest.approx((6 * 64 + 64 * 3) / (6 * 64 + 64 + 64 * 3 + 3))
    assert row.quantized.size == (tmp_path / row.file).stat().st_size
    assert row.quantized.latency_ms > 0
    assert (row.quantized.calibration is None) == (name == DYNAMIC)
    assert [path.name for path in tmp_path.iterdir()] == [FORMATS[name].file]


@pytest.mark.parametrize("name", QUANTIZED)
def test_weights_are_rounded_channel_by_channel_to_seven_bits(name, mlp, tmp_path):
    export_one(mlp, name, tmp_path)
    found = tensors(tmp_path / FORMATS[name].file)
    weight = mlp.get_parameter("0.weight").detach().numpy()
    held, scale = found["0.weight_quantized"].astype(np.float64), found["0.weight_scale"].astype(np.float64)
    held = held if held.shape == weight.shape else held.T
    assert scale == pytest.approx(np.abs(weight).max(axis=1) / 64, rel=1e-6)
    assert np.abs(held * scale[:, None] - weight).max() <= scale.max() * 0.5001
    # The largest sum of two products with an unsigned activation, which CPUs without VNNI keep in 16 bits.
    assert 2 * 255 * np.abs(held).max() <= 2**15 - 1


@pytest.mark.slow
def test_ranges_are_those_of_the_rows_that_calibrate(mlp, tmp_path):
    export_one(mlp, STATIC, tmp_path)
    found = tensors(tmp_path / FORMATS[STATIC].file)
    rows = torch.cat([batch[0] for batch in ROWS]).numpy()
    assert found["input_scale"] == pytest.approx((rows.max() - rows.min()) / 255, rel=1e-6)
    with torch.no_grad():
        hidden = torch.relu(mlp.get_submodule("0")(torch.from_numpy(rows)))
    assert found["relu_scale"] == pytest.approx(float(hidden.max()) / 255, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_preprocessing_stays_in_fp32(name, tmp_path):
    torch.manual_seed(0)
    scale = nn.Buffer(torch.tensor([1e4, 1e-2, 1.0, 1.0, 1.0, 1.0]))
    layers = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    model = Wired(lambda model, x: model.layers(x / model.scale), scale=scale, layers=layers).eval()
    x = X * model.scale
    row = export_one(model, name, tmp_path, x, [(x,)])
    assert float(row.relative_difference or 1) < 0.05


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.slow
def test_the_same_model_gives_the_same_bytes_and_the_file_holds_no_row(name, mlp, tmp_path):
    for folder in ("a", "b"):
        export_one(mlp, name, tmp_path / folder)
    data = (tmp_path / "a" / FORMATS[name].file).read_bytes()
    assert data == (tmp_path / "b" / FORMATS[name].file).read_bytes()
    assert ROWS[1][0][0].numpy().tobytes() not in data
    assert str(tmp_path).encode() not in data


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).eval()


@pytest.mark.slow
def test_convolutions_are_quantized_statically(tmp_path):
    pictures = torch.randn(20, 1, 8, 8, generator=DRAW)
    row = export_one(convolutions(), STATIC, tmp_path, pictures, [(pictures,)])
    assert (row.state, row.agrees) == ("written", True)
    assert float(row.relative_difference or 1) < 0.05
    assert {"Conv", "ConvTranspose", "QuantizeLinear"} <= set(operators(tmp_path / row.file))


@pytest.mark.slow
def test_a_recurrent_net_is_quantized_dynamically(tmp_path):
    torch.manual_seed(0)
    parts = {"cells": nn.LSTM(6, 16, batch_first=True), "last": nn.Linear(16, 2)}
    recurrent = Wired(lambda model, x: model.last(model.cells(x)[0][:, -1]), **parts)
    row = export_one(recurrent.eval(), DYNAMIC, tmp_path, torch.randn(20, 5, 6, generator=DRAW))
    assert (row.state, row.agrees) == ("written", True)
    assert operators(tmp_path / row.file)["DynamicQuantizeLSTM"] == 1


class Members(nn.Module):
    """An ensemble's last layer: a matrix for each member."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.weight = nn.Linear(6, 32), nn.Parameter(torch.randn(4, 32, 2))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.relu(self.first(x))[None].expand(4, -1, -1) @ self.weight
        return found.transpose(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_products_with_several_matrices_at_once_stay_in_fp32(name, tmp_path):
    torch.manual_seed(0)
    row = export_one(Members().eval(), name, tmp_path)
    assert (row.state, row.agrees) == ("written", True), row.reason
    assert [key for key in tensors(tmp_path / row.file) if key.endswith("weight_quantized")] == ["first.weight_quantized"]


@pytest.mark.slow
def test_large_weights_lie_beside_the_file(mlp, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ONE_FILE_BYTES", 10)
    torch.manual_seed(0)
    row = export_one(nn.Sequential(nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 3)).eval(), STATIC, tmp_path)
    assert (row.state, row.agrees) == ("written", True)
    assert row.quantized.size == sum(path.stat().st_size for path in tmp_path.iterdir())


# --- what is refused ----------------------------------------------------------------------------


DISTANCES = Wired(lambda _, x: torch.matmul(x[:, :, None], x[:, None, :]).flatten(1))  # activations alone, and no weight


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "name", "told"),
    [
        (nn.Sigmoid(), DYNAMIC, "it has no MatMul, Gemm, Attention, LSTM with weights, only Sigmoid; take onnx_int8_dynamic out"),
        (
            nn.Sigmoid(),
            STATIC,
            "it has no Conv, ConvTranspose, MatMul, Gemm with weights, only Sigmoid; take onnx_int8_static out",
        ),
        (DISTANCES, DYNAMIC, "nothing in this model can be quantized"),
        (DISTANCES, STATIC, "nothing in this model can be quantized"),
    ],
)
def test_a_model_with_nothing_to_quantize_is_named_with_its_operators(model, name, told, tmp_path):
    row = export_one(model, name, tmp_path)
    assert (row.state, row.agrees) == ("failed", None)
    assert told in (row.reason or "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_where_the_other_format_would_do_it_is_named(tmp_path):
    row = export_one(convolutions(), DYNAMIC, tmp_path, torch.randn(4, 1, 8, 8))
    assert "or try onnx_int8_static, which quantizes Conv" in (row.reason or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_one_whose_metric_fell_too_far_does_not_agree(name, mlp, tmp_path):
    row = export_one(mlp, name, tmp_path, value=0.78)
    assert row.agrees is False
    assert row.reason == "accuracy on validation went from 0.8 to 0.78, by 0.025 of it, and 0.01 is allowed"
    assert export_one(mlp, name, tmp_path, value=float("nan")).agrees is False


@pytest.mark.slow
def test_the_metric_is_that_of_the_file_and_not_of_the_model(mlp, tmp_path):
    seen: list[list[Tensor]] = []

    def measure(call: Call) -> dict[str, Any]:
        seen.append(call((X,)))
        return measured(0.8)

    judge = Quantization(lambda: (ROWS, CALIBRATION), measure)
    export(mlp, (X[:3],), [STATIC], tmp_path, 1e-9, (X,), quantization=judge)
    with torch.no_grad():
        assert float((seen[0][0] - mlp(X)).abs().max()) > 1e-4


@pytest.mark.slow
def test_of_an_untrained_model_no_metric_is_measured(mlp, tmp_path):
    row = export_one(mlp, STATIC, tmp_path, value=None)
    assert (row.agrees, row.reason) == (True, None)
    assert row.quantized.value is None
    assert json.loads(json.dumps(row.written()))["quantized"]["size"] == row.quantized.size
