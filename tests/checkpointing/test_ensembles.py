"""Several models as one: means of weights and of predictions, beside the same by NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from mltrainer.checkpointing.ensembles import Ensemble, average, mean_logits, mean_of, unlike
from tests.refusals import refused


def test_the_mean_of_logits_has_the_mean_of_the_probabilities():
    outputs = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1)) * 4
    raised = np.exp(outputs.double().numpy())
    expected = (raised / raised.sum(-1, keepdims=True)).mean(0)
    found = mean_logits(outputs)
    assert np.allclose(found.softmax(-1).numpy(), expected, atol=1e-6)
    # Log-probabilities already: the task's cross-entropy reads them as any logits.
    assert np.allclose(found.exp().numpy(), expected, atol=1e-6)


def test_the_mean_of_one_output_is_the_logit_of_the_mean_probability():
    outputs = torch.tensor([[[2.0], [-9.0]], [[-1.0], [-8.0]]])
    expected = (1 / (1 + np.exp(-outputs.double().numpy()))).mean(0)
    assert np.allclose(mean_logits(outputs).sigmoid().numpy(), expected, atol=1e-7)


def test_predictions_that_are_sure_and_wrong_stay_finite():
    assert bool(mean_logits(torch.tensor([[[900.0, -900.0]], [[900.0, -900.0]]])).isfinite().all())


def test_an_ensemble_of_values_gives_their_mean_and_reads_arguments_by_name():
    models = [nn.Linear(2, 1), nn.Linear(2, 1)]
    x = torch.randn(4, 2)
    expected = (models[0](x) + models[1](x)) / 2
    assert torch.allclose(Ensemble(models, "value")(input=x), expected)


def test_of_several_targets_each_has_a_mean_of_its_own():
    models, x = [nn.Linear(2, 6) for _ in range(3)], torch.randn(5, 2)
    targets = [{"classes": ["a", "b"]}, {"classes": None}, {"classes": ["x", "y", "z"]}]
    mean = mean_of({"output": "targets", "targets": targets}, None)
    found, each = Ensemble(models, mean)(x), torch.stack([model(x) for model in models])
    assert torch.allclose(found[:, :2].softmax(1), each[..., :2].softmax(2).mean(0), atol=1e-6)
    assert torch.allclose(found[:, 2], each[..., 2].mean(0), atol=1e-6)
    assert torch.allclose(found[:, 3:].softmax(1), each[..., 3:].softmax(2).mean(0), atol=1e-6)


def test_weights_are_averaged_in_double_precision_and_counters_are_the_firsts():
    states = [{"w": torch.tensor([value]), "n": torch.tensor(nr)} for nr, value in enumerate((2.0**24, 1.0, 1.0))]
    found = average(states)
    # In single precision 2**24 + 1 is 2**24.
    assert found["w"].tolist() == [np.float32((2**24 + 2) / 3)]
    assert (found["w"].dtype, int(found["n"])) == (torch.float32, 0)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"w": torch.zeros(2)}, None),
        ({"w": torch.zeros(3)}, "[2] of float32"),
        ({"w": torch.zeros(2).half()}, "float16"),
        ({}, "only one of the models has w"),
    ],
)
def test_what_cannot_be_averaged_is_told(other, told):
    found = unlike({"w": torch.zeros(2)}, other)
    assert found is None if told is None else told in str(found)


def test_an_ensemble_of_outputs_that_nobody_explained_is_refused_with_a_way_on():
    with refused(hint='return {"output": "logits"}'):
        mean_of({}, "my_task:Rings")
