"""The kinds of parallelism, by their names in the config."""

from __future__ import annotations

from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.trainers.native.optimization.gradients import is_measured_by_rows
from mltrainer.trainers.native.parallel.fsdp import FSDP
from mltrainer.trainers.native.parallel.parallelism import Parallelism
from mltrainer.trainers.native.parallel.pipeline.pipeline import Pipeline
from mltrainer.trainers.native.parallel.zero1 import Zero1
from mltrainer.trainers.native.ranks import Ranks

KINDS: dict[str, type[Parallelism]] = {"ddp": Parallelism, "zero1": Zero1, "fsdp": FSDP, "pipeline": Pipeline}


def parallelism_for(config: TrainingConfig, model: nn.Module, ranks: Ranks) -> Parallelism:
    """Return the config's parallelism for a model and its processes.

    Raises:
        InputError: The model cannot be shared in this way.
    """
    if not ranks.shares_steps:
        from mltrainer.trainers.native.parallel.tensor import TensorParallel  # whose own imports take most of a second

        return TensorParallel(model, ranks)
    kind = config.launch.parallel
    # A task's own optimizer reads whole parameters, and a model without large parameters has no rows to share.
    is_whole = ranks.size == 1 or config.optimizer.name == "own"
    has_rows = kind == "pipeline" or any(is_measured_by_rows(p) for p in model.parameters() if p.requires_grad)
    return (Parallelism if is_whole or not has_rows else KINDS[kind])(model, ranks)
