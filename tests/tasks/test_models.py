import warnings

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from mltrainer.configs.project import ModelConfig
from mltrainer.errors import InputError
from mltrainer.tasks.models import Standardize, build
from mltrainer.tasks.tables.encoder import Destandardize, TabularEncoder, fit_statistics

NAN = float("nan")
MATRIX = np.array([[1, 0, 10], [2, 1, NAN], [6, -1, 30]], dtype=np.float32)  # number, category of 2, number with a gap


def model_config(**values):
    return TypeAdapter(ModelConfig).validate_python(values)


def encoder(matrix=MATRIX, categories=None):
    return TabularEncoder(fit_statistics(matrix, {1: 2} if categories is None else categories))


def table_model(name="mlp"):
    entry = encoder()
    return build(model_config(name=name), entry, [entry.features], 2).eval()


def image_model(name="cnn", **values):
    torch.manual_seed(0)
    entry = Standardize(np.array([0.5]), np.array([0.25]))
    return build(model_config(name=name, **values), entry, [1, 8, 8], 3).eval()


def test_numbers_are_standardized_by_the_training_rows():
    features = encoder()(torch.from_numpy(MATRIX))[:, 0]
    assert features.tolist() == pytest.approx(((MATRIX[:, 0] - 3) / MATRIX[:, 0].std()).tolist())


def test_missing_numbers_become_the_median_and_are_indicated():
    entry = encoder()
    features = entry(torch.tensor([[3.0, 0, NAN], [3, 0, 20]]))
    assert features[0, 1] == features[1, 1]  # 20 is the median of 10 and 30
    assert features[:, 2].tolist() == [1, 0]


def test_only_columns_with_gaps_in_training_are_indicated():
    assert encoder().features == 2 + 1 + 3
    assert encoder(MATRIX[:1]).features == 2 + 0 + 3


def test_a_gap_that_training_has_not_seen_is_the_median_without_an_indicator():
    entry = encoder(MATRIX[[0, 2]])
    assert bool(entry(torch.tensor([[NAN, 0, NAN]])).isfinite().all())


def test_categories_are_one_hot_with_a_slot_for_unknown():
    slots = encoder()(torch.tensor([[1.0, 0, 1], [1, 1, 1], [1, -1, 1], [1, NAN, 1]]))[:, 3:]
    assert slots.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0]]


def test_the_unknown_slot_stays_0_where_training_has_no_unknown():
    slots = encoder(MATRIX[:2])(torch.tensor([[1.0, -1, 1]]))[:, -3:]
    assert slots.tolist() == [[0, 0, 0]]


def test_a_constant_column_is_0():
    assert encoder(np.full((3, 1), 7, dtype=np.float32), {})(torch.tensor([[7.0]])).tolist() == [[0]]


def test_categories_alone_make_a_model():
    assert encoder(np.array([[0.0], [1.0]], dtype=np.float32), {0: 2})(torch.tensor([[1.0]])).tolist() == [[0, 0, 1]]


def test_statistics_are_summed_in_float64():
    column = np.full((1000, 1), 16_777_216, dtype=np.float32)
    column[::2] += 2
    assert fit_statistics(column, {}).mean[0] == 16_777_217


def test_preprocessing_is_in_the_weights():
    model, other = table_model(), TabularEncoder(fit_statistics(MATRIX * 3, {1: 2}))
    state = model.state_dict()
    assert {"encoder.median", "encoder.mean", "encoder.std", "encoder.slot_codes"} <= set(state)
    other.load_state_dict({name.removeprefix("encoder."): value for name, value in state.items() if name.startswith("encoder.")})
    rows = torch.from_numpy(MATRIX)
    assert torch.equal(other(rows), model.encoder(rows))


def test_images_are_standardized_by_channel():
    images = torch.rand(50, 2, 4, 4) * torch.tensor([1.0, 9.0]).reshape(1, 2, 1, 1)
    pixels = images.double().numpy()
    found = Standardize(pixels.mean(axis=(0, 2, 3)), pixels.std(axis=(0, 2, 3)))(images)
    assert torch.allclose(found.mean((0, 2, 3)), torch.zeros(2), atol=1e-5)
    assert torch.allclose(found.std((0, 2, 3), correction=0), torch.ones(2), atol=1e-4)


def test_predictions_come_back_in_the_targets_units_even_from_bfloat16():
    found = Destandardize(1000.0, 10.0)(torch.tensor([[0.5], [-1]], dtype=torch.bfloat16))
    assert found.dtype == torch.float32
    assert found.tolist() == [1005, 990]


def test_the_mlp_for_digits_has_the_expected_parameters():
    model = build(model_config(name="mlp"), Standardize(np.zeros(1), np.ones(1)), [1, 8, 8], 10)
    assert sum(p.numel() for p in model.parameters()) == 85_002


def test_dropout_is_there_only_when_asked_for():
    assert not any(isinstance(m, nn.Dropout) for m in image_model("mlp").modules())
    assert sum(isinstance(m, nn.Dropout) for m in image_model("mlp", dropout=0.5).modules()) == 2
    assert sum(isinstance(m, nn.Dropout) for m in image_model("cnn", dropout=0.5).modules()) == 1


def test_a_cnn_needs_images_large_enough_for_its_layers():
    with pytest.raises(InputError, match="has 4 layers, but images of 8x8 pixels can be halved 3 times only"):
        image_model("cnn", channels=[2, 2, 2, 2])
    with pytest.raises(InputError, match=r"cnn needs images .* shape \[6\]"):
        table_model("cnn")


def test_a_cnn_trains_on_a_last_batch_of_one():
    model = image_model("cnn", channels=[2, 2, 2]).train()
    assert bool(model(torch.rand(1, 1, 8, 8)).isfinite().all())


MODELS = [(lambda: table_model("mlp"), torch.from_numpy(MATRIX)), (lambda: table_model("linear"), torch.from_numpy(MATRIX))]
MODELS += [(lambda name=name: image_model(name), torch.rand(3, 1, 8, 8)) for name in ("mlp", "cnn", "linear")]


@pytest.mark.parametrize(("make", "rows"), MODELS)
def test_the_same_rows_give_the_same_bits(make, rows):
    model = make()
    assert torch.equal(model(rows), model(rows))


@pytest.mark.parametrize(("make", "rows"), MODELS)
def test_models_export_with_a_batch_of_any_size(make, rows):
    model, more = make(), torch.cat([rows, rows.flip(0), rows])
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (rows,), dynamic_shapes=({0: batch},))
    assert torch.allclose(program.module()(more), model(more), atol=1e-6)


@pytest.mark.parametrize(("make", "rows"), MODELS)
def test_models_trace_to_torchscript(make, rows):
    model, more = make(), torch.cat([rows, rows.flip(0), rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of TorchScript
        traced = torch.jit.trace(model, rows)
    assert torch.allclose(traced(more), model(more), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "rows"), [MODELS[0], MODELS[3]])
def test_models_export_to_onnx(make, rows, tmp_path):
    runtime, _ = pytest.importorskip("onnxruntime"), pytest.importorskip("onnxscript")
    model, more = make(), torch.cat([rows, rows.flip(0), rows])
    path = str(tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        torch.onnx.export(
            model, (rows,), path, dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},), input_names=["x"], verbose=False
        )
        found = runtime.InferenceSession(path).run(None, {"x": more.numpy()})[0]
    assert np.allclose(found, model(more).detach().numpy(), atol=1e-5)
