"""The trainer's step on fake tensors, which shows its memory and operations without using them. A separate process.

The data is opened and read; the model is made, goes forward and backward and is updated in torch's `FakeTensorMode`, in which
tensors have a shape and no content. Steps are those of one process on the CPU, of one micro-batch each.
"""

from __future__ import annotations

import contextlib
import gc
import re
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.job import ExplorationJob
from mltrainer.records.planner import Rates, Sizes, Traced, TracedBatch, TracedVariant, Variant
from mltrainer.reproducibility import determinism, seeds
from mltrainer.tasks.opening import OpenTask, make_model
from mltrainer.tasks.structures import mapped, tensors_in
from mltrainer.tasks.updating import Length
from mltrainer.tools.program import Events
from mltrainer.trainers.native.data.addresses import (
    EVALUATION_BATCH,
    Plan,
    Step,
    altered,
    evaluation_batches,
    plan_for,
    training_steps,
)
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.optimization.custom import own_updates
from mltrainer.trainers.native.optimization.gradients import is_measured_by_rows
from mltrainer.trainers.native.optimization.precision import full
from mltrainer.trainers.native.preparing import prepare_model
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.stepping import Stepper
from mltrainer.trainers.result import resident_mb
from mltrainer.workspace import write_json


class Ledger(TorchDispatchMode):
    """Counts the bytes of storages from their creation until they are freed; a view counts once with its storage.

    Attributes:
        live: Bytes of live storages.
        peak: Largest `live` since `reset`.
        moved: Bytes that operations read and wrote since `reset`.
        operations: Number of operations since `reset`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types for its modes
        self.live = self.peak = self.moved = self.operations = 0
        self._sizes: dict[int, int] = {}

    def reset(self) -> None:
        """Restart the counts from the live storages."""
        self.peak, self.moved, self.operations = self.live, 0, 0

    def note(self, tensors: Iterator[Tensor]) -> None:
        """Count tensors that were created outside."""
        for tensor in tensors:
            self._note(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count its results."""
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if not func.is_view:
            self.operations += 1
            read = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
            self.moved += sum(tensor.nbytes for tensor in (*read, *made))
        self.note(iter(made))
        return result

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if self._sizes.get(key) == size:
            return
        if key not in self._sizes:
            weakref.finalize(storage, self._gone, key)
        self.live += size - self._sizes.get(key, 0)  # a resized storage counts with its new size
        self._sizes[key] = size
        self.peak = max(self.peak, self.live)

    def _gone(self, key: int) -> None:
        self.live -= self._sizes.pop(key)


RATE = 1e-3  # learning rate of the traced steps: it changes no shape
STEPS = 2  # the first one makes the optimizer's state, the second one is like all that follow
LONGEST_REASON = 200  # characters
REPEATS = 20  # repetitions of each timing of the machine's rates


def work(job: ExplorationJob, root: Path, events: Events) -> int:
    """Trace the variants that a job asks for; the answer goes to `result.json` in the job's folder."""
    write_json(root / job.folder / "result.json", traced(job, root, events).written())
    return 0


def traced(job: ExplorationJob, root: Path, events: Events) -> Traced:
    """Return the trace of each asked variant of a job's config, at half its batch, its batch, and twice that.

    Raises:
        InputError: The data cannot be opened, or the config's own variant cannot be built.
    """
    config = job.config
    determinism.switch_on(config.threads)
    seeds.seed_everything(seeds.key(config.data_seed, "task"))
    opened = Session(job, root / job.folder, events, lambda: None, root).open()
    # With all imports of a training's process: this module imports its session.
    resident = round(resident_mb() * 2**20)
    todo = [Variant.model_validate(one) for one in job.asked["variants"]]
    samples = len(opened.split("train"))
    traced_variants: list[TracedVariant] = []
    sizes: Sizes | None = None
    while todo:
        variant = todo.pop(0)
        events.send("note", text=f"tracing {variant.precision}{', blocks computed again' if variant.recomputed else ''}")
        own, row = _variant(opened, config, variant, batches_of(config.batch_size, samples))
        sizes = sizes or own
        traced_variants.append(row)
        if own is not None and not variant.recomputed and own.blocks:
            todo.insert(0, variant.model_copy(update={"recomputed": own.blocks}))
    return Traced(sizes=sizes, samples=samples, resident_bytes=resident, rates=rates(), variants=traced_variants)


def rates() -> Rates:
    """Return this machine's best rates with the threads that are set: of a product of matrices, a copy, tiny operations."""
    size = 512
    left, right, small = torch.ones(size, size), torch.ones(size, size), torch.ones(8)
    large = torch.ones(8 * 2**20)
    return Rates(
        flops_per_s=2 * size**3 / _shortest(lambda: torch.mm(left, right)),
        bytes_per_s=2 * large.nbytes / _shortest(large.clone),
        overhead_s=_shortest(lambda: small + small),
    )


def _shortest(call: Callable[[], object]) -> float:
    """Return the shortest of several times of a call, in seconds."""
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def batches_of(batch: int, samples: int) -> list[int]:
    """Return the traced batch sizes, rising: half the config's, its own and twice that, as far as there are samples."""
    return sorted({min(size, samples) for size in (max(1, batch // 2), batch, 2 * batch)})


def _variant(
    opened: OpenTask, config: TrainingConfig, variant: Variant, batches: list[int]
) -> tuple[Sizes | None, TracedVariant]:
    sizes: Sizes | None = None
    rows: list[TracedBatch] = []
    evaluation = 0
    for batch in batches:
        try:
            changed = traceable(config, variant, batch)
            step = _first_step(opened, changed)
            sizes, row, evaluation = _one(opened, changed, step)
        except Exception as error:  # the user's code or torch may fail on a tensor without content in any way
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:LONGEST_REASON]
            return sizes, TracedVariant(variant=variant, rows=[], evaluation_bytes=0, not_known=reason)
        rows.append(row)
    return sizes, TracedVariant(variant=variant, rows=rows, evaluation_bytes=evaluation, not_known=None)


def traceable(config: TrainingConfig, variant: Variant, batch: int) -> TrainingConfig:
    """Return a config whose steps have the shapes of a variant's, are those of one process, and read no value.

    What several processes share is the arithmetic of `memory`, from the sizes that one holds. Clipping by a norm looks at it and
    takes no memory; a compiler and the 8-bit optimizer want real tensors.
    """
    changes: dict[str, Any] = {
        "batch_size": batch,
        "accumulate": 1,
        "precision": variant.precision,
        "gradient_checkpointing": variant.recomputed,
        "compile": False,
        "device": "cpu",
        "launch": {},
        "tensor_parallel": 1,
    }
    if config.clip is not None and config.clip.norm is not None:
        changes["clip"] = None
    if config.optimizer.name == "adamw_8bit":
        changes["optimizer"] = {"name": "adamw", "lr": config.optimizer.lr}
    return validate_values(TrainingConfig, {**config.model_dump(), **changes}, "the traced config")


def _first_step(opened: OpenTask, config: TrainingConfig) -> Step:
    """Return the first step of a config's training."""
    plan: Plan = plan_for(config, opened.split("train"))
    steps = training_steps(opened.split("train"), plan, config, 0)
    return next(iter(altered(steps, plan, 0, opened.alterations)))


def _one(opened: OpenTask, config: TrainingConfig, step: Step) -> tuple[Sizes, TracedBatch, int]:
    """Return a model's sizes, a step's memory and operations, and the bytes of an evaluation's batch."""
    # Copied: they are views of a block of many steps, whose whole storage would count.
    micro_batches = [mapped(torch.clone, micro) for micro in step.micro_batches]
    mode, ledger = FakeTensorMode(allow_non_fake_inputs=True), Ledger()
    with mode, ledger, _converting():
        batch = [mapped(mode.from_tensor, micro) for micro in micro_batches]
        stepper = _stepper(opened, config)
        ledger.note(tensors_in(batch))
        fake = replace(step, micro_batches=batch)
        for number in range(1, STEPS):
            stepper.take(number, RATE, fake)
        sizes = _sizes(stepper)
        own = sizes.parameter_bytes + sizes.buffer_bytes + sizes.optimizer_bytes
        gc.collect()  # reference cycles of the first step come from torch's first use, and are not part of later steps
        with _sections(stepper, ledger) as peaks:
            stepper.take(STEPS, RATE, fake)
        evaluation = _evaluation_peak(opened, config, stepper, mode, ledger)
        # A separate step: the counter's hooks hold tensors.
        with FlopCounterMode(display=False) as counted:
            stepper.take(STEPS + 1, RATE, fake)
    row = TracedBatch(
        batch=len(step.ids),
        step_bytes=max(0, peaks["step"] - own),
        update_bytes=max(0, peaks["update"] - own),
        flops=counted.get_total_flops(),
        moved_bytes=peaks["moved"],
        operations=peaks["operations"],
        update_moved_bytes=peaks["moved"] - peaks["moved_before"],
        update_operations=peaks["operations"] - peaks["operations_before"],
    )
    return sizes, row, max(0, evaluation - own)


def _evaluation_peak(opened: OpenTask, config: TrainingConfig, stepper: Stepper, mode: FakeTensorMode, ledger: Ledger) -> int:
    """Return the largest live bytes during the first batch of the validation samples."""
    samples = opened.split("validation")
    positions = np.arange(min(len(samples), EVALUATION_BATCH))
    with _disable_current_modes():
        batch = next(iter(evaluation_batches(samples, positions, config, "validation")))
    ledger.reset()
    with torch.no_grad(), evaluating(stepper.model), stepper.objective.autocast:
        outputs, targets = opened.task.forward(stepper.model, mapped(mode.from_tensor, batch))
        opened.task.loss(full(outputs), targets)
    return ledger.peak


def _stepper(opened: OpenTask, config: TrainingConfig) -> Stepper:
    """Return the stepper of a new model, made as a session makes it."""
    seeds.seed_everything(seeds.key(config.seed, "model"))
    model = make_model(opened)
    prepare_model(model, config)
    opened.strategies.begin(opened.training(model))
    model.train()
    length = Length(1, 1)
    own = own_updates(opened.task, model, config, length, opened.root)
    stepper = Stepper(Objective(opened.task, model, config, opened.strategies), own=own)
    stepper.looks = False
    return stepper


@contextlib.contextmanager
def _sections(stepper: Stepper, ledger: Ledger) -> Iterator[dict[str, int]]:
    """Note the peaks of a step's parts for the length of a block: until its update, and from there on."""
    peaks: dict[str, int] = {}
    taken: Any = stepper
    update = taken._update

    def noted(number: int, step: Step, gradients: list[torch.Tensor], total: torch.Tensor) -> None:
        peaks.update({"step": ledger.peak, "moved_before": ledger.moved, "operations_before": ledger.operations})
        ledger.peak = ledger.live
        update(number, step, gradients, total)

    taken._update = noted
    ledger.reset()
    yield peaks
    peaks |= {"update": ledger.peak, "moved": ledger.moved, "operations": ledger.operations}
    taken._update = update


@contextlib.contextmanager
def _converting() -> Iterator[None]:
    """Let modules be converted, as by `.to(device)`: torch swaps tensors without content, and a weak reference forbids that."""

    def convert(module: nn.Module, call: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for child in module.children() if recurse else ():
            convert(child, call)
        for name, p in module._parameters.items():
            if p is not None and (converted := call(p)) is not p:
                module._parameters[name] = nn.Parameter(converted.detach(), p.requires_grad)
        module._buffers.update({name: call(buffer) for name, buffer in module._buffers.items() if buffer is not None})
        return module

    own = nn.Module._apply
    nn.Module._apply = convert  # type: ignore[method-assign]  # for the length of a trace, in a separate process
    try:
        yield
    finally:
        nn.Module._apply = own  # type: ignore[method-assign]  # the original again


def _sizes(stepper: Stepper) -> Sizes:
    model: nn.Module = stepper.model
    trained = [p for p in model.parameters() if p.requires_grad]
    blocks = [sum(p.nbytes for p in module.parameters(recurse=False)) for module in model.modules()]
    states = {id(t.untyped_storage()): t for entry in stepper.optimizer.state.values() for t in tensors_in(entry)}
    return Sizes(
        parameters=sum(p.numel() for p in model.parameters()),
        parameter_bytes=sum(p.nbytes for p in model.parameters()),
        trainable_bytes=sum(p.nbytes for p in trained),
        layer_bytes=sum(p.nbytes for p in trained if p.dim() >= 2),
        buffer_bytes=sum(b.nbytes for b in model.buffers()),
        optimizer_bytes=sum(state.nbytes for state in states.values()),
        largest_block_bytes=max(blocks, default=0),
        shared_bytes=sum(p.nbytes for p in trained if is_measured_by_rows(p)),
        blocks=repeated_blocks(model),
    )


def repeated_blocks(model: nn.Module) -> list[str]:
    r"""Return patterns of the names of a model's outermost repeated blocks, such as `^blocks\.\d+$`; empty without any."""
    patterns: list[str] = []
    for name, module in model.named_modules():
        numbered = {place: child for place, child in module.named_children() if place.isdigit()}
        children = [child for child in numbered.values() if any(True for _ in child.parameters())]
        is_alike = len({type(child) for child in children}) == 1 and all([*child.children()] for child in children)
        is_repeated = isinstance(module, nn.ModuleList | nn.Sequential) and len(children) > 1 and is_alike
        if is_repeated and not any(re.search(pattern, name.rpartition(".")[0]) for pattern in patterns):
            patterns.append(rf"^{re.escape(name)}\.\d+$" if name else r"^\d+$")
    return patterns
