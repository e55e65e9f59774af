"""Verified weights in the task's model, for programs and notebooks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from mltrainer.checkpointing.ensembles import ensemble
from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.manifest import read_verified
from mltrainer.checkpointing.weights import delivered
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import open_task


def from_checkpoint(
    config: TrainingConfig, root: Path, folder: Path, expected: Mapping[str, str], *, trained: bool = False
) -> nn.Module:
    """Return the task's model with a checkpoint's weights.

    Args:
        config: The run's config.
        root: The project's folder.
        folder: The checkpoint.
        expected: File name to SHA-256, as the run's result has them.
        trained: The trained weights, where averaged ones are delivered.

    Raises:
        GateError: A file differs from the manifest or the result.
        InputError: The task's model has other tensors.
    """
    tree, _ = load(folder, expected)
    return _with_weights(config, root, delivered(tree, trained=trained), folder)


def from_safetensors(
    config: TrainingConfig, root: Path, path: Path, row: FileRow, members: Sequence[TrainingConfig] = ()
) -> nn.Module:
    """Return the task's model with the weights of an exported file.

    Args:
        config: The run's config.
        root: The project's folder.
        path: The file.
        row: The file's row in the record.
        members: The configs of the models of an ensemble, which the file then holds.

    Raises:
        InputError: The file is not here, or the task's model has other tensors.
        GateError: The file differs from its row.
    """
    if not path.is_file():
        raise InputError("the weights are missing: they are not in git", where=str(path), hint="restore the file")
    return _with_weights(config, root, safetensors.torch.load(read_verified(path, row)), path, members)


def _with_weights(
    config: TrainingConfig, root: Path, state: Mapping[str, Tensor], origin: Path, members: Sequence[TrainingConfig] = ()
) -> nn.Module:
    with seeds.kept(), contextlib.chdir(root):  # relative paths of the task's files begin here, as in training
        seeds.seed_everything(seeds.key(config.data_seed, "task"))
        opened = open_task(config, root)
        seeds.seed_everything(seeds.key(config.seed, "model"))
        model: nn.Module = ensemble(opened, members, root) if members else opened.task.model()
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise InputError(
            f"the task's model has other tensors: {error}", where=str(origin), hint="bring code and data back"
        ) from error
    return model.eval()
