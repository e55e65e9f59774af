"""Every optimizer learns the digits with its defaults."""

from __future__ import annotations

import os

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.records.job import TrainingJob
from mltrainer.tools.program import Events
from mltrainer.trainers.native.job import run_job
from tests.trainers.native.optimization.test_optimizers import NAMES

LARGE_BATCH = {"lamb": 128, "lars": 128}  # what they were made for; a tenth of these samples
WRAPPED = {"sam": {"name": "sgd", "sam": {}}, "lookahead": {"name": "adamw", "lookahead": {}}}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*NAMES, *WRAPPED])
def test_an_optimizer_with_its_defaults_learns_the_digits(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    optimizer = WRAPPED.get(case, {"name": case})
    config = TrainingConfig.model_validate(
        {
            "name": "digits",
            "task": {"kind": "image_classification"},
            "data": {"source": "sklearn:digits"},
            "split": {"validation": 0.2, "test": 0.0},
            "model": {"name": "mlp", "hidden": [256, 256]},
            "metric": {"name": "accuracy", "mode": "max"},
            "batch_size": LARGE_BATCH.get(case, 32),
            "optimizer": optimizer,
            "schedule": {"name": "constant"},
            "early_stopping": None,
            "evaluate": {"every_n_epochs": 20},
            "checkpoint": {"every_n_epochs": 20, "save_best": False},
        }
    )
    folder = f".mltrainer/runs/{case}"
    job = TrainingJob(run=case, phase="test", purpose="train", folder=folder, config=config, contract={}, threads=1)
    with open(os.devnull, "w") as nowhere:
        result = run_job(job, tmp_path, Events(nowhere.fileno()), lambda: None)
    assert result.epochs == 20
    assert float(result.final.validation["accuracy"]) >= 0.93
