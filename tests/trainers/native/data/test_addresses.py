import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import Samples
from mltrainer.trainers.native.data import addresses
from mltrainer.trainers.native.data.addresses import EVALUATION_BATCH, evaluation_batches, own_batches, plan_for, training_steps

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
    plan = plan_for(config, samples)
    ids = [step.ids for step in training_steps(samples, plan, config, 0)]
    return np.concatenate(ids).reshape(plan.epochs, -1)


@pytest.mark.parametrize("held", HELD)
def test_each_epoch_has_an_order_of_its_own_that_its_number_addresses(held):
    settings = TrainingConfig.model_validate(CONFIG)
    found = epochs_of(HELD[held], settings)
    for epoch, ids in enumerate(found):
        assert sorted(ids.tolist()) == list(range(100, 110))
        assert ids.tolist() == (seeds.epoch_order(settings.seed, epoch, 10) + 100).tolist()
    assert len({tuple(ids) for ids in found.tolist()}) == 3


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("steps_of_a_block", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 1, 2, 4])
def test_rows_that_are_gathered_in_blocks_are_each_seen_once_and_in_order(monkeypatch, accumulate, steps_of_a_block, start):
    rows = np.arange(22)
    x = torch.arange(22.0)[:, None]
    samples = Samples(rows + 100, (x, x * 2))
    settings = TrainingConfig.model_validate({**CONFIG, "batch_size": 2, "accumulate": accumulate})
    plan = plan_for(settings, samples)
    monkeypatch.setattr(addresses, "BLOCK_BYTES", steps_of_a_block * plan.step_samples * 8 + 7)
    expected = np.concatenate([seeds.epoch_order(settings.seed, epoch, len(rows)) for epoch in range(plan.epochs)])
    first, done = divmod(start, plan.steps_per_epoch)
    skipped = first * 22 + done * plan.step_samples
    steps = list(training_steps(samples, plan, settings, start))
    assert len(steps) == plan.steps - start
    assert np.concatenate([step.ids for step in steps]).tolist() == (expected[skipped:] + 100).tolist()
    seen = torch.cat([torch.cat(list(micro), 1) for step in steps for micro in step.micro_batches])
    assert seen.tolist() == [[row, 2 * row] for row in expected[skipped:].tolist()]
    # Kernels of few rows give other last bits at other addresses, as in a run that went on, or that several processes share.
    assert {part.data_ptr() % 64 for step in steps for micro in step.micro_batches for part in micro} == {0}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_processes_measure_each_batch_once_and_one_without_a_batch_none(size):
    count = EVALUATION_BATCH + 5  # two batches
    samples = Samples(np.arange(count), (torch.arange(float(count)),))
    seen: dict[int, list[float]] = {}
    for rank in range(size):
        numbers, own = own_batches(np.arange(count), rank, size)
        batches = evaluation_batches(samples, own, TrainingConfig.model_validate(CONFIG), "validation")
        seen |= {number: batch[0].tolist() for number, batch in zip(numbers, batches, strict=True)}
    assert [value for number in sorted(seen) for value in seen[number]] == list(range(count))
