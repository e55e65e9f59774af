import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import Samples
from mltrainer.trainer.data.addresses import plan_for, training_steps

CONFIG = {
    "name": "x",
    "task": {"use": "a:B"},
    "metric": {"name": "loss", "mode": "min"},
    "epochs": 3,
    "batch_size": 4,
    "loader": {"workers": 0},
}
X = torch.arange(10.0)[:, None]
HELD = {
    "in memory": Samples(np.arange(10) + 100, (X, X)),
    "a data set": Samples(np.arange(10) + 100, dataset=TensorDataset(X, X)),
}


def epochs_of(samples, config):
    """Return the sample ids of each epoch, in the order in which they were trained on."""
    plan = plan_for(config, len(samples))
    ids = [step.ids for step in training_steps(samples, plan, config, 0)]
    return np.concatenate(ids).reshape(plan.epochs, -1)


@pytest.mark.parametrize("held", HELD)
def test_each_epoch_has_an_order_of_its_own_that_its_number_addresses(held):
    settings = TrainingConfig.model_validate(CONFIG)
    found = epochs_of(HELD[held], settings)
    for epoch, ids in enumerate(found):
        assert sorted(ids.tolist()) == list(range(100, 110))
        assert ids.tolist() == (seeds.epoch_order(settings.seed, epoch, np.arange(10)) + 100).tolist()
    assert len({tuple(ids) for ids in found.tolist()}) == 3
