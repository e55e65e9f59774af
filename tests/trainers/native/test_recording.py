"""What a recorder has when a number is not finite, and the times of a few steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mltrainer.records.run import Percentiles
from mltrainer.trainers.native.recording import NonFiniteError, Recorder


def test_a_spike_just_before_a_loss_that_is_not_finite_is_told(tmp_path):
    recorder = Recorder(tmp_path, 1, 40, batch_size=32)
    for step, loss in enumerate([*[1.0 + 0.01 * (n % 3) for n in range(20)], 50.0, math.nan], 1):
        recorder.note(step, np.arange(32), torch.tensor(loss), torch.ones(1), torch.tensor(1.0))
    with pytest.raises(NonFiniteError) as caught:
        recorder.fetch()
    assert (caught.value.step, caught.value.what) == (22, "loss")
    assert [(spike["step"], spike["loss"]) for spike in recorder.losses.spikes] == [(21, 50.0)]


@pytest.mark.parametrize("count", [1, 2, 3, 19, 20, 21])
def test_no_number_of_steps_has_a_95th_percentile_below_its_median(count):
    found = Percentiles.of(range(1, count + 1))
    assert found.median <= found.p95 <= count
