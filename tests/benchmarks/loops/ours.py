"""mltrainer's loop with everything on: fingerprints, gradient norms, event log, checkpoints, seeding of every step."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch

from mltrainer.configs.project import TrainingConfig
from mltrainer.records.job import TrainingJob
from mltrainer.tools.program import Events
from mltrainer.trainers.native.session import Session
from tests.benchmarks.loops.work import CLIP, DEVICE, LR, WORKS


def config(work: str, epochs: int | None = None, signals: bool = True) -> TrainingConfig:
    """Return the config of a work, whose model is observed beside its training or not."""
    return TrainingConfig.model_validate(
        {
            "name": "bench",
            "task": {"use": "tests.benchmarks.loops.work:Timed", "options": {"work": work}},
            "metric": {"name": "accuracy", "mode": "max"},
            "epochs": epochs or WORKS[work].epochs,
            "batch_size": WORKS[work].batch,
            "optimizer": {"name": "adamw", "lr": LR},
            "schedule": {"name": "constant"},
            "clip": {"norm": CLIP},
            "early_stopping": None,
            "checkpoint": {"every_n_epochs": 1, "keep": 1},
            "signals": signals,
            "device": DEVICE,
        }
    )


def open_session(work: str, folder: Path, epochs: int | None = None, signals: bool = True) -> Session:
    """Return a session that is ready to train, in a folder of its own."""
    values = config(work, epochs, signals).model_dump()
    job = {"run": "bench", "phase": "none", "purpose": "train", "folder": ".", "config": values, "contract": {}, "threads": 1}
    session = Session(TrainingJob.model_validate(job), folder, Events(os.open(os.devnull, os.O_WRONLY)), lambda: None, Path.cwd())
    session.prepare()
    return session


def seconds(work: str) -> float:
    """Return how long the training took, without the time to get ready."""
    before = torch.get_deterministic_debug_mode()
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(work, Path(folder))
        started = time.perf_counter()
        session.train()
        took = time.perf_counter() - started
    torch.set_deterministic_debug_mode(before)
    assert session.trainer.step == WORKS[work].steps
    return took
