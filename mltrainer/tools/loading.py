"""A run's task and model opened again from its checkpoint, by tools that measure or export it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError
from mltrainer.records.checkpoint import Manifest
from mltrainer.reproducibility import determinism, seeds
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.workspace import read_json


def recorded_files(root: Path, run_folder: str, checkpoint: str) -> dict[str, str]:
    """Return the SHA-256 digests that the run's result recorded for the checkpoint's files, by file name; {} without a result."""
    path = root / run_folder / RESULT_FILE
    checkpoints = read_json(path)["checkpoints"] if path.exists() else []
    rows: list[dict[str, Any]] = next((row["files"] for row in checkpoints if row["path"] == checkpoint), [])
    return {Path(row["path"]).name: row["sha256"] for row in rows}


def open_untrained(config: TrainingConfig, root: Path) -> tuple[OpenTask, nn.Module]:
    """Return the task and a new, untrained model, made with the same seeds as in training."""
    # Before the task's code runs: its operations must be deterministic too.
    determinism.switch_on(config.threads)
    seeds.seed_everything(seeds.key(config.data_seed, "task"))
    task = open_task(config, root)
    seeds.seed_everything(seeds.key(config.seed, "model"))  # again: no random draw of the task may decide the model's weights
    return task, task.task.model()


def check_data(task: OpenTask, manifest: Manifest) -> None:
    """Refuse data that differs from the checkpoint's: its preprocessing and the compared samples would differ too.

    Raises:
        GateError: The data's digest differs; the message has both digests.
    """
    expected = manifest.contract.get("data_sha256")
    if expected is not None and expected != task.data_sha256:
        raise GateError(
            "the data is not what the checkpoint was trained on",
            expected=expected[:12],
            found=task.data_sha256[:12],
            hint="bring the data back, or train again from planning on",
        )
