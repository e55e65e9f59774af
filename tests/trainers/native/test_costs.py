"""What models cost that do the same, measured on the same samples."""

from __future__ import annotations

from typing import Any

from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import open_task
from mltrainer.trainers.native.costs import REPEATS, costs


def test_each_pass_reads_the_samples_as_they_are(tmp_path, monkeypatch):
    # A task's forward pass may change its batch in place.
    values = {
        "name": "costs",
        "seed": 1,
        "task": {"kind": "image_classification"},
        "data": {"source": "sklearn:digits"},
        "model": {"name": "mlp", "hidden": [8]},
        "metric": {"name": "accuracy", "mode": "max"},
        "batch_size": 8,
    }
    task, seen = open_task(TrainingConfig.model_validate(values), tmp_path), list[float]()

    def forward(_model: nn.Module, batch: Any) -> None:
        seen.append(float(batch[0].sum()))
        batch[0].zero_()

    monkeypatch.setattr(task.task, "forward", forward)
    costs(task, task.config, [nn.Linear(1, 1), nn.Linear(1, 1)])
    one, batch = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert len(one) == len(batch) == 2 * (REPEATS + 1)
    assert len({*one}) == len({*batch}) == 1
    assert one[0] > 0
