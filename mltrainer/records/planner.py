"""The planner's trace of a config's step, without computing it: bytes and operations, before any memory is taken."""

from __future__ import annotations

from typing import Literal

from mltrainer.records.common import Number, Part

Precise = Literal["fp32", "bf16", "fp16"]


class Variant(Part):
    """The settings of a config that change a step's graph: its precision, and the patterns of the recomputed modules."""

    precision: Precise
    recomputed: list[str]


class TracedBatch(Part):
    """One micro-batch's step. All bytes are those of tensors, beyond the tensors that stay from step to step.

    Attributes:
        batch: The number of samples.
        step_bytes: The peak bytes during forward and backward: activations, temporary tensors, and gradients so far.
        update_bytes: The peak bytes during the update: gradients, and the optimizer's temporary tensors.
        flops: The floating-point operations of matrix products, convolutions and attention, forward and backward.
        moved_bytes: The bytes that all operations read and write.
        operations: The number of all operations.
        update_moved_bytes: The update's share of the moved bytes, once a step whatever the number of micro-batches.
        update_operations: The update's share of the operations, once a step.
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
    """A variant at rising batch sizes; `not_known` is the reason where it cannot be traced, and then there are no rows.

    `evaluation_bytes`: the peak bytes while a batch of an evaluation is measured, beyond the tensors that stay: gradients of the
    last step and the tensors of the forward pass; an evaluation's batch is not the training's.
    """

    variant: Variant
    rows: list[TracedBatch]
    evaluation_bytes: int
    not_known: str | None


class Rates(Part):
    """A device's best rates: floating-point operations and bytes in a second, and the seconds of an empty operation."""

    flops_per_s: Number
    bytes_per_s: Number
    overhead_s: Number


class Sizes(Part):
    """A model's own bytes, which the batch does not change.

    Attributes:
        parameters: The number of values in all parameters.
        parameter_bytes: The bytes of all parameters.
        trainable_bytes: The bytes of the trained parameters.
        layer_bytes: The bytes of trained matrices, of which the trainer keeps a copy to measure an update by.
        buffer_bytes: The bytes of buffers.
        optimizer_bytes: The bytes of the optimizer's state, by the config's own optimizer.
        largest_block_bytes: The bytes of the parameters of the model's largest block, which FSDP gathers together.
        shared_bytes: The bytes of parameters large enough that ZeRO-1 and FSDP shard them.
        blocks: The patterns of the names of the blocks that repeat, which can be computed again in the backward pass.
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
    """The memory and operations of a config's step, by its tensors.

    Attributes:
        sizes: The model's sizes; None where no variant could be traced.
        samples: The number of training samples.
        resident_bytes: The bytes of the process with torch loaded and the data opened, before a model was made.
        rates: The rates of this machine, with the config's threads.
        variants: The traced variants, the config's own first.
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
