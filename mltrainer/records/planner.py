"""What the planner traces of a config's step, without computing it: bytes and operations, before any memory is taken."""

from __future__ import annotations

from typing import Literal

from mltrainer.records.common import Number, Part

Precise = Literal["fp32", "bf16", "fp16"]


class Variant(Part):
    """What of a config changes a step's graph: its precision, and the patterns of the modules that are computed again."""

    precision: Precise
    recomputed: list[str]


class TracedBatch(Part):
    """One micro-batch's step. All bytes are those of tensors, and beyond what stays from step to step.

    Attributes:
        batch: Samples.
        step_bytes: The most that lives during forward and backward: activations, temporary tensors, and gradients so far.
        update_bytes: The most that lives during the update: gradients, and what the optimizer computes with.
        flops: Of matrix products, convolutions and attention, forward and backward.
        moved_bytes: What all operations read and write.
        operations: Their number.
        update_moved_bytes: The update's share of them, which a step has once however many micro-batches it has.
        update_operations: Likewise.
    """

    batch: int
    step_bytes: int
    update_bytes: int
    flops: int
    moved_bytes: int
    operations: int
    update_moved_bytes: int
    update_operations: int


class TracedVariant(Part):
    """A variant at rising batch sizes; `not_known` is the reason where it cannot be traced, and there are no rows then.

    `evaluation_bytes`: the most that lives while a batch of an evaluation is measured, beyond what stays: gradients of the last
    step and what the forward pass holds; an evaluation's batch is not the training's.
    """

    variant: Variant
    rows: list[TracedBatch]
    evaluation_bytes: int
    not_known: str | None


class Rates(Part):
    """What a device does at best: floating-point operations and bytes in a second, and seconds for an operation of nothing."""

    flops_per_s: Number
    bytes_per_s: Number
    overhead_s: Number


class Sizes(Part):
    """A model's own bytes, which the batch does not change.

    Attributes:
        parameters: Numbers in all parameters.
        parameter_bytes: Of all parameters.
        trainable_bytes: Of those that are trained.
        layer_bytes: Of trained matrices, of which the trainer keeps a copy to measure an update by.
        buffer_bytes: Of buffers.
        optimizer_bytes: Of the optimizer's state, by the config's own optimizer.
        largest_block_bytes: Of the parameters that one block of the model has, which FSDP makes whole together.
        shared_bytes: Of parameters large enough that ZeRO-1 and FSDP cut them.
        blocks: Patterns of the names of the blocks that repeat, which can be computed again in the backward pass.
    """

    parameters: int
    parameter_bytes: int
    trainable_bytes: int
    layer_bytes: int
    buffer_bytes: int
    optimizer_bytes: int
    largest_block_bytes: int
    shared_bytes: int
    blocks: list[str]


class Traced(Part):
    """What a config's step takes, by its tensors.

    Attributes:
        sizes: Of the model; None where no variant could be traced.
        samples: Training samples.
        resident_bytes: Of the process with torch loaded and the data opened, before a model was made.
        rates: Of this machine, with the config's threads.
        variants: The config's own first.
    """

    sizes: Sizes | None
    samples: int
    resident_bytes: int
    rates: Rates
    variants: list[TracedVariant]

    @property
    def own(self) -> Sizes:
        """The model's sizes, which are known where a variant has rows."""
        assert self.sizes is not None, "no variant could be traced"
        return self.sizes
