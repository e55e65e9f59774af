"""Adapters that are delivered beside a model: their files, and the row that compares base and adapters with the whole model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mltrainer import plugins
from mltrainer.checkpointing.calling import as_called
from mltrainer.checkpointing.export import compare, leaves, units_of
from mltrainer.exporters.calls import Calls
from mltrainer.records.common import Export
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import OpenTask, make_model
from mltrainer.workspace import plain

FORMAT = "adapter"
WEIGHTS_FILE, CONFIG_FILE, BASE_FILE = "adapter_model.safetensors", "adapter_config.json", "adapter_base.json"
FILES = (WEIGHTS_FILE, CONFIG_FILE, BASE_FILE)
DRAWN = 0.1  # deviation of the draws that take the place of a training, so that adapters add something


def deliver(
    task: OpenTask, model: nn.Module, trained: dict[str, Tensor], calls: Calls, tolerance: float
) -> tuple[dict[str, bytes], list[Export]]:
    """Return the files of a model's adapters and their row; nothing if no strategy has adapters.

    Args:
        task: The task with its strategies.
        model: The task's own, with the adapters added to its weights.
        trained: The state of the model that was trained.
        calls: The task's calls of its model on real samples.
        tolerance: The relative tolerance, as in `export.compare`.
    """
    if not task.strategies.adapts:
        return {}, []
    with seeds.kept():
        adapted = make_model(task)
    adapted.load_state_dict(trained, strict=True)
    files = task.strategies.delivered(adapted)
    if WEIGHTS_FILE not in files:
        return files, []
    plugins.part("adapters", "reread")(adapted.eval(), files[WEIGHTS_FILE])
    batches = [calls.all.tensors, *calls.others]
    with torch.no_grad():
        whole, apart = ([leaves(as_called(one, calls.all)(*batch)) for batch in batches] for one in (model.eval(), adapted))
    compared = plain(compare(whole, apart, tolerance, units_of(task.task.inference())))
    samples = len(calls.all.tensors[0])
    row = Export(format=FORMAT, file=WEIGHTS_FILE, state="written", reason=None, agrees=None)
    return files, [row.model_copy(update={**compared, "samples": samples, "batch_sizes": [samples]})]


def rehearse(task: OpenTask, model: nn.Module, calls: Calls, tolerance: float) -> list[Export]:
    """Return the row of randomly drawn adapters, which reveals a model that ignores adapters; the model then has them."""
    if not task.strategies.adapts:
        return []
    with seeds.kept():
        adapted = make_model(task)
        for parameter in filter(lambda p: p.requires_grad, adapted.parameters()):
            with torch.no_grad():  # new adapters add nothing, whatever the model makes of them
                parameter.add_(DRAWN * torch.randn_like(parameter))
    model.load_state_dict(task.strategies.plain(adapted) or {}, strict=True)
    return deliver(task, model, {name: t.clone() for name, t in adapted.state_dict().items()}, calls, tolerance)[1]
