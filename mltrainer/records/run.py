"""One run's result: its progress, its metrics, its files, and the digests that its bits are a function of."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError

from mltrainer.errors import MltrainerError
from mltrainer.records.common import Call, Cause, Cost, Divergence, FileRow, Measured, MetricChoice, Metrics, Number, Part
from mltrainer.records.equations import FLOAT32, ROUNDING, Between, Equal, not_negative, shares
from mltrainer.records.faults import fault_lines
from mltrainer.records.partial import partial
from mltrainer.redaction import redacted
from mltrainer.workspace import digest, plain, read_json, seal, without_none

TRAIN = "train"  # the purpose of a run that a phase started
CONTRACT = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "inputs_sha256")
WITHOUT_STEPS = "no step of a PyTorch optimizer was seen"  # why the entries about steps do not apply
TargetKind = Literal["classes", "values", "tokens"]
UNDECLARED = 'the task does not say what its targets are; write targets = "classes", "values" or "tokens" in its class'
OUTPUTS = "outputs"  # in a run's folder: the files that a program left


class Determinism(Part):
    """The switches of determinism in the process, after the user's code ran."""

    PYTHONHASHSEED: str
    hash_randomization: bool
    CUBLAS_WORKSPACE_CONFIG: str
    deterministic_algorithms: bool
    warn_only: bool
    cudnn_benchmark: bool
    cudnn_deterministic: bool
    tf32: bool
    matmul_precision: str
    threads: int
    cpu_capability: str
    device: str
    fp32_precision: dict[str, str] | None = None
    tensorflow: str | None = None
    tensorflow_op_determinism: bool | None = None
    tensorflow_threads: int | None = None
    jax: str | None = None
    jax_backend: str | None = None
    jax_deterministic_ops: bool | None = None


class GradientNorms(Part):
    """Norms of all gradients together over the steps of an interval, before clipping; None where no step has one."""

    median: Measured | None
    max: Measured | None
    min: Measured | None

    equations = (Between("median", "min", "max"), *not_negative("min"))


class OutputSeen(Part):
    """Shape, range and spread of a batch's outputs, and the share of the most frequent answer."""

    shape: list[int]
    lowest: Measured
    largest: Measured
    spread: Measured
    sums_to_one: bool
    zero: Measured
    top: Measured | None

    equations = (Between("lowest", None, "largest"), *not_negative("spread", "shape.*"), *shares("zero", "top"))


class TargetSeen(Part):
    """Shape and range of a batch's targets; of classes, their number and the entropy of their shares."""

    shape: list[int]
    classes: int | None
    entropy: Measured | None
    top: Measured | None
    lowest: Measured
    largest: Measured
    spread: Measured

    equations = (
        Between("lowest", None, "largest"),
        Between("entropy", 0, lambda seen: math.log(seen.classes) if seen.classes else None),
        *not_negative("spread", "shape.*", "classes"),
        *shares("top"),
    )


class Histogram(Part):
    """Counts of equal bins from `low` to `high`, which leave out the outermost values on either side."""

    low: Measured
    high: Measured
    counts: list[int]

    equations = (Between("low", None, "high"), *not_negative("counts.*"))


class Distributions(Part):
    """Histograms of some layers, by layer: of their weights, and of their outputs."""

    weights: dict[str, Histogram]
    activations: dict[str, Histogram]


class Plain(Part):
    """Losses of plain answers, fitted to training samples, by the loss of a custom task.

    Attributes:
        floor: The loss of answers that were fitted to each sample by itself; below zero it is the loss of a density.
        losses: The losses of each plain answer by its name, in blocks of the validation samples on which the model is observed;
            `constant` is among them.
        wanted: The ends of the range of nine tenths of the answers that were fitted to each sample; None where none were.
        fitted: The task's metric of the answers fitted to each sample; None where it cannot be computed.
    """

    floor: Measured | None
    losses: dict[str, list[Measured]]
    wanted: list[Measured] | None = None
    fitted: Measured | None = None


def _recall(by_class: Sequence[Sequence[int]] | None) -> float | None:
    """Return the share of correct answers; None where they are not counted by class."""
    answers = sum(row[0] for row in by_class or [])
    return sum(row[1] for row in by_class or []) / answers if answers else None


def _largest(seen: "Seen") -> list[float]:
    """Return the largest absolute output of each module with a histogram; infinity where it is not known."""
    found = (seen.modules.get(name, {}).get("largest") for name in (seen.distributions.activations if seen.distributions else []))
    return [end if isinstance(end, int | float) else math.inf for end in found]


def _class_shares(seen: "Seen") -> list[float]:
    """Return each class's share of a batch's targets; empty where the targets are no classes, or were not counted."""
    counts = [row[0] for row in seen.by_class or []] if seen.target and seen.target.classes else []
    return [count / sum(counts) for count in counts] if sum(counts) else []


def _least_largest(seen: "Seen") -> list[float]:
    """Return the least that the largest output of each module can be: its deviation divides by n - 1, and n is 2 or more."""
    return [math.sqrt(0.5) * float(row.get("std", 0)) for row in seen.modules.values() if "largest" in row]


class Seen(Part):
    """Signals of a model on one batch; `modules` has mean, deviation, dead and saturated shares by module.

    `losses`: the loss in blocks of the batch, to compare it with plain answers; None where it is not computed for parts.
    `by_class`: for each class the number of its answers, the number of correct ones, and that of the largest class beside it;
    None where the targets are no classes. `answered`: for each class the most frequent answer to its samples, and its count.
    """

    loss: Measured
    accuracy: Measured | None
    output: OutputSeen | None
    target: TargetSeen | None
    modules: dict[str, Metrics]
    first: str
    last: str
    distributions: Distributions | None = None
    losses: list[Measured] | None = None
    by_class: list[list[int]] | None = None
    answered: list[list[int]] | None = None

    equations = (
        *shares("accuracy", "modules.*.dead", "modules.*.zero"),
        *not_negative("modules.*.std", "modules.*.bits", "by_class.*.*", "answered.*.*"),
        Between("modules.*.largest", lambda seen: _least_largest(seen)),
        Between("distributions.activations.*.low", lambda seen: [-end for end in _largest(seen)]),
        Between("distributions.activations.*.high", None, lambda seen: _largest(seen)),
        Between("by_class.*.1", 0, "by_class.*.0"),
        Equal("accuracy", lambda seen: _recall(seen.by_class) if seen.target and seen.target.classes else None, FLOAT32),
        Equal("target.top", lambda seen: max(_class_shares(seen), default=None), FLOAT32),
        Equal(
            "target.entropy", lambda seen: -sum(part * math.log(part) for part in _class_shares(seen) if part) or None, FLOAT32
        ),
    )


class Overlooked(Part):
    """Answers that the loss of a task ignores though its metric counts them.

    Attributes:
        share: The share of the answers that the loss ignores.
        metrics: The names of the metrics that change with them.
        classes: The classes all of whose answers the loss ignores; empty where the classes do not explain it.
        seen: The classes of whose answers the loss uses some.
    """

    share: Measured
    metrics: list[str]
    classes: list[int]
    seen: list[int]

    equations = shares("share")


class Structure(Part):
    """Properties of the inputs that the answers of a model cannot depend on, whatever it learns.

    Attributes:
        repeats: Whether it answers the same to the same samples.
        ignored: The share of the positions that no answer depends on, by dimension of the inputs.
        rank: The number of directions in which the answers of some samples differ; None where they are not one row each.
        layers: The number of layers with weights.
        linear: Whether these layers together are one linear layer.
        orderless: The dimensions of the inputs whose order changes no answer.
        same_answers: The number of outputs in an answer that are always equal to an earlier one.
        batch_norms: The number of its batch-norm modules.
        levelless: Whether a constant added to all inputs of a sample changes no answer.
        unregistered: The number of tensors that require gradients and are no parameters of the model.
    """

    repeats: bool
    ignored: dict[str, Measured]
    rank: int | None
    layers: int
    linear: bool
    orderless: list[int]
    same_answers: int
    batch_norms: int
    levelless: bool
    unregistered: int

    equations = (
        *not_negative("layers", "orderless.*", "same_answers", "rank", "batch_norms", "unregistered"),
        *shares("ignored.*"),
    )


class SeenAtStart(Seen):
    """The untrained model.

    Attributes:
        target_kind: The kind of the targets; None where the task does not declare it, and types and shapes leave it open.
        shuffled_loss: The loss with the targets in another order, which must not be the same.
        as_probabilities: The cross-entropy of the outputs taken as probabilities.
        as_logits: The cross-entropy of the outputs taken as logits.
        symmetric: The layers whose units all begin with the same weights.
        weights: The standard deviation of each layer's weights times the root of the number of its inputs.
        constant_loss: The loss with the first sample's target for all, which is the same where the loss ignores the targets.
        shifted_loss: The loss with all outputs larger by one, which is the same where the loss takes them as logits of classes.
        as_binary: The binary cross-entropy of the outputs taken as logits, as many as there are targets.
        training_loss: The loss of the same samples in training mode.
        training_calls: The calls in evaluation mode that are for training alone, in words; None where that was not observed.
        uses_targets: Whether the loss changes with the targets; None where that could not be tested.
        plain: The losses of plain answers; None of a built-in task, and where the loss cannot be computed for them.
        trained_share: The share of all parameters that are trained.
        reached: The parameters that have a nonzero gradient in fp32, of a run in fp16; None of other runs.
        held: The matrices that are not trained, the largest first.
        dropped: The largest share that a dropout drops in training mode; None where that was not observed.
        part: The largest change of an answer, relative to the answers' spread, when half of the batch is left out; None where
            that could not be tested.
        overlooks: The answers that the loss ignores, though a metric counts them; None where there are none, and of a built-in
            task.
        structure: The properties that its answers cannot depend on; None where that could not be tested.
    """

    shuffled_loss: Measured | None
    as_probabilities: Measured | None
    as_logits: Measured | None
    symmetric: list[str]
    weights: Metrics
    target_kind: TargetKind | None = None
    constant_loss: Measured | None = None
    as_binary: Measured | None = None
    shifted_loss: Measured | None = None
    training_loss: Measured | None = None
    training_calls: list[str] | None = None
    uses_targets: bool | None = None
    plain: Plain | None = None
    trained_share: Measured | None = None
    reached: list[str] | None = None
    held: list[str] = Field(default_factory=list)
    dropped: Measured | None = None
    part: Measured | None = None
    overlooks: Overlooked | None = None
    structure: Structure | None = None

    equations = (*Seen.equations, *shares("trained_share", "dropped"), *not_negative("weights.*", "part"))


class InMode(Part):
    """Loss and accuracy of the same training samples in one of the two modes."""

    loss: Measured
    accuracy: Measured | None

    equations = shares("accuracy")


class RowSignals(Part):
    """Signals of the model at an evaluation.

    Attributes:
        validation: The signals on validation samples.
        evaluating: The loss on training samples, in evaluation mode.
        training: The loss on the same samples in training mode.
        memory_mb: The memory that the process held, in MiB.
        cosines: The cosine between the gradients of each two terms of a loss, by both names; None where no gradients were
            compared.
    """

    validation: Seen
    evaluating: InMode
    training: InMode
    memory_mb: Measured
    cosines: Metrics | None = None


class DataSeen(Part):
    """Statistics of the training samples in memory, or of some of a data set; of built-in tasks (encoded inputs) only three.

    Attributes:
        not_finite: The number of input values that are NaN or infinite.
        features: The number of features of one sample.
        counts: The number of samples of each class; of a data set, among those that were read.
        largest: The largest absolute value.
        spread: The standard deviation of all values.
        shared: The share of validation samples that are training samples, too.
        repeated: The share of training samples that repeat another one.
        telling: The predictive power of the best single feature for the class, far beyond chance; 0 where none has any.
        neighbours: The share of samples whose nearest samples vote for their own class.
        neighbour_r2: The R2 of the mean of the nearest samples' targets, where targets are one number.
        outliers: The number of targets far outside of the others, where targets are one number.
        outlying: The outliers' share of the targets' variance.
        constant: The share of a sample's values that are the same in all samples; of a data set, and of tokens.
    """

    not_finite: int
    features: int
    counts: list[int] | None = None
    largest: Measured | None = None
    spread: Measured | None = None
    shared: Measured | None = None
    repeated: Measured | None = None
    telling: Measured | None = None
    neighbours: Measured | None = None
    neighbour_r2: Measured | None = None
    outliers: int | None = None
    outlying: Measured | None = None
    constant: Measured | None = None

    equations = (
        *not_negative("not_finite", "features", "counts.*", "largest", "spread", "outliers"),
        *shares("shared", "repeated", "neighbours", "outlying", "constant"),
    )


class Start(Part):
    """Signals before the first step.

    `clip_norm`: the norm that all gradients are clipped to, where an optimizer's steps grow with the gradients. `as_given`: the
    share of samples whose nearest samples vote for their own class, by the model's inputs, of training and of validation samples.
    """

    model: SeenAtStart
    data: DataSeen | None
    clip_norm: Measured | None = None
    as_given: list[Measured] | None = None

    equations = shares("as_given.*")


class Early(Part):
    """The first steps: step and update ratios, median and largest over the layers; statistics of the first batches' targets.

    `labels`: the entropy of each batch's classes; `counts`: the number of samples of each class in all of them; `numbers`: mean
    and standard deviation of each batch's targets that are no classes.
    """

    updates: list[list[Measured]]
    labels: list[Measured]
    counts: list[int] = Field(default_factory=list)
    numbers: list[list[Measured]] = Field(default_factory=list)

    equations = not_negative("labels.*", "counts.*", "updates.*.*")


class SpikeSample(Part):
    """A sample of a step with a loss spike: its own loss there, in training mode, and its share of the batch's loss."""

    sample: int
    loss: Measured
    share: Measured


class Spike(Part):
    """A loss spike, with the usual loss and the largest one before it.

    Attributes:
        step: The step with the largest loss among the averaged batches.
        samples: The samples with the largest losses of that step, the largest first; empty where they are not known.
    """

    step: int
    loss: Measured
    usual: Measured
    largest_before: Measured
    samples: list[SpikeSample] = Field(default_factory=list)

    equations = not_negative("step")


class Signals(Part):
    """Signals observed beside the history; `stop`: those of the step where a number that was not finite ended the run."""

    start: Start
    early: Early
    spikes: list[Spike]
    stop: RowSignals | None = None


class Evaluation(Part):
    """An evaluation: its epoch and step, and the metrics by split; `trained` are those of the weights before averaging."""

    epoch: Number
    step: int
    validation: Metrics
    train: Metrics
    trained: Metrics | None = None

    @classmethod
    def at(cls, epoch: float, step: int, validation: Mapping[str, Any]) -> "Evaluation":
        """Return an evaluation of the validation split alone, not validated."""
        return cls.model_construct(epoch=epoch, step=step, validation=dict(validation), train={})

    @property
    def flat(self) -> Metrics:
        """The metrics by name; the names of the training split's begin with `train_`."""
        return {**self.validation, **{f"train_{name}": value for name, value in self.train.items()}}

    def alone(self) -> "Evaluation":
        """Return the evaluation without the statistics of the steps before it."""
        return Evaluation(**{name: getattr(self, name) for name in Evaluation.model_fields})


class HistoryRow(Evaluation):
    """An evaluation with statistics of the steps since the last one.

    `loss_scale`, and the share of 0 among the last step's gradients, are known where the loss is scaled. `memory_mb`: the memory
    of the process in MiB, before the model was observed; None where nothing is observed. `allocated_mb`: the memory in use of C's
    heap and of the GPU; None where the C library does not report it. `terms`: the means of the loss's terms over the steps, by
    name.
    """

    lr: Measured
    train_loss: Measured | None
    grad_norm: GradientNorms
    layer_norms: list[Measured | None]
    update_ratios: list[Measured | None]
    seconds: Measured
    samples_per_s: Measured
    data_wait: Measured
    clipped: Measured | None
    skipped: Measured = 0
    loss_scale: Measured | None = None
    zero_gradients: Measured | None = None
    memory_mb: Measured | None = None
    allocated_mb: Measured | None = None
    terms: Metrics | None = None
    signals: RowSignals | None = None

    equations = (
        *not_negative("epoch", "seconds", "samples_per_s", "layer_norms.*", "update_ratios.*", "memory_mb", "allocated_mb"),
        *shares("data_wait", "clipped", "skipped", "zero_gradients"),
    )


class CheckpointRow(Part):
    """A kept checkpoint; `verified`: it was read back intact, and the best one gave its recorded metrics again."""

    step: int
    epoch: Number
    roles: list[str]
    path: str
    verified: bool
    files: list[FileRow]


class Chain(Part):
    """A chain of lines, each covering the one before, by its last link: of fingerprints, one for each step, or of checkpoints."""

    entries: int
    head: str


class RepeatDifference(Part):
    """A micro-batch of a step, from 1, that was computed twice and gave other bits, before the update.

    `parameter` is the last one in the model's order whose gradient differs, which the backward pass reaches first; None where
    no gradient differs. `parameters` of them differ, and `loss`: whether the loss does. `processes` and `devices`: those of the
    step itself, then of the repetition.
    """

    step: int
    micro_batch: int
    parameter: str | None
    parameters: int
    loss: bool
    processes: list[int]
    devices: list[str]


class Replay(Part):
    """The steps of which a micro-batch was computed twice.

    `every`: the steps from one to the next; None where the last process did it no more. `compared`: the steps of all processes,
    of a killed one up to its last evaluation.
    """

    every: int | None
    compared: int
    differed: list[RepeatDifference]


class Split(Part):
    """A step from which on a run has `accumulate` micro-batches a step, because memory ran out there, in `place`."""

    step: int
    place: str
    accumulate: int


class SkippedStep(Part):
    """A step that changed nothing, because its `loss` or the `norm` of its gradients was a spike; `what`: which one.

    `first`, `last`: the steps that were left out because of it, after the run had gone back; None where only it was skipped.
    """

    step: int
    loss: Measured
    norm: Measured
    what: Literal["loss", "gradient"]
    first: int | None = None
    last: int | None = None

    equations = (Between("first", 1, "step"), Between("last", "step"))

    def leaves_out(self, step: int) -> bool:
        """Return True if a step was left out because of it."""
        return self.first is not None and self.last is not None and self.first <= step <= self.last


class Interruption(Part):
    """The step at which a process ended before the run did, and the cause.

    `run`: another run, which made the steps up to this one before some of its samples were forgotten; None: the run itself.
    """

    step: int
    cause: str
    run: str | None = None


class Ranged(Part):
    """A tensor by its shape, type and range; `holds`: `nan`, `inf` or `-inf` where not all of it is finite."""

    shape: list[int]
    dtype: str
    lowest: Measured | None
    largest: Measured | None
    holds: str | None


class Outlier(Part):
    """A sample of a batch far beyond the others: its largest number, and the median of the samples' largest numbers."""

    sample: int
    tensor: str
    reach: Measured
    usual: Measured


class Located(Ranged):
    """The origin of a number that was not finite, found by repeating its step; the tensor's own range is that of `Ranged`.

    Attributes:
        kind: The step's part: `data`, `weights`, `forward`, `backward`; `gradient` or `norm` where only a parameter is known.
        replayed_from: The step from which the repetition began.
        tensor: The name of the part of the batch, the weight or the parameter.
        index: The index of the first such number, by dimension.
        count: The number of such numbers.
        sample: The id of its sample, where the first dimension is that of the samples.
        operation: The operation, such as `log`; None where only the module is known.
        module: The name of the module of the operation, empty outside of the model.
        module_kind: The module's class.
        part: The part of the task: `forward` or `loss`.
        line: The line of the project that called it, as `file:line`.
        inputs: The inputs of the operation.
        node: The node of autograd's graph, in the backward pass.
        incoming: The gradients that the node was given, in the backward pass.
        outlier: A sample of the batch whose inputs are far beyond those of the others.
    """

    kind: str
    replayed_from: int
    tensor: str | None = None
    index: list[int] | None = None
    count: int | None = None
    sample: int | None = None
    operation: str | None = None
    module: str | None = None
    module_kind: str | None = None
    part: str | None = None
    line: str | None = None
    inputs: list[Ranged] = Field(default_factory=list)
    node: str | None = None
    incoming: list[Ranged] = Field(default_factory=list)
    outlier: Outlier | None = None


class Initial(Part):
    """A model before training: a digest of each tensor, and the trained parameters, both by name in the model's order."""

    tensors: dict[str, str]
    trainable: list[str]


class NonFinite(Part):
    """The first loss or gradient norm that was not finite, with the samples of its step and the numbers before it."""

    step: int
    epoch: int
    what: str
    samples: list[int]
    recent: dict[str, list[Measured]] | None = None
    located: Located | None = None


class Saved(Part):
    """The config's settings for saving checkpoints."""

    every_n_epochs: int
    every_n_steps: int | None = None
    every_minutes: Number | None = None
    save_best: bool
    save_last: bool
    keep: int
    segments: int | Literal["evaluations"] | None = None


class Group(Part):
    """Parameters that share a rate and a weight decay; `lr` is a share of the learning rate."""

    lr: Number
    weight_decay: Number
    parameters: list[str]

    equations = not_negative("lr", "weight_decay")


class Percentiles(Part):
    """Times of the steps, in microseconds."""

    median: Number
    p95: Number

    equations = (Between("median", 0, "p95"),)

    @classmethod
    def of(cls, times: Iterable[float]) -> Self:
        """Return the percentiles of some times, at least one; the 95th by nearest rank, which is never below the median."""
        ordered = sorted(times)
        return cls(median=statistics.median(ordered), p95=ordered[math.ceil(0.95 * len(ordered)) - 1])


class MemoryParts(Part):
    """Memory of a training at its end, in MiB: the tensors of model and optimizer, and the process before a model was made."""

    weights_mb: Number
    buffers_mb: Number
    gradients_mb: Number
    optimizer_mb: Number
    start_mb: Number

    equations = not_negative("weights_mb", "buffers_mb", "gradients_mb", "optimizer_mb", "start_mb")


class Memory(Part):
    """Peak memory in MiB: of the process, and of the GPU where there is one; `parts` of a probe."""

    peak_rss_mb: Number
    device_peak_mb: Number | None
    device_total_mb: Number | None = None
    parts: MemoryParts | None = None

    equations = not_negative("peak_rss_mb", "device_peak_mb", "device_total_mb")


class Gpu(Part):
    """The GPU's utilization while steps ran: the median in percent after warm-up; None where it could not be read."""

    name: str | None
    utilization: Number | None
    samples: int

    equations = (Between("utilization", 0, 100), *not_negative("samples"))


class Speed(Part):
    """The speed of a training: a measurement of its machine, which decides no bit and is compared with nothing.

    Attributes:
        samples_per_s: The median of the history's rates; None without an evaluation.
        tokens_per_sample: The tokens that a sample predicts; None where samples differ in it, or have none.
        flops_per_sample: The floating-point operations of a sample's matrix products, convolutions and attention, forward and
            backward, by PyTorch's counter, counted after the training; None where they were not counted.
        peak_flops_per_s: The operations in a second that the devices of all processes can do at most; None where no page says.
    """

    samples_per_s: Number | None
    tokens_per_sample: int | None = None
    flops_per_sample: Number | None = None
    peak_flops_per_s: Number | None = None

    equations = not_negative("samples_per_s", "tokens_per_sample", "flops_per_sample", "peak_flops_per_s")

    @property
    def tokens_per_s(self) -> float | None:
        """The tokens in a second."""
        return self._times(self.tokens_per_sample)

    @property
    def flops_per_s(self) -> float | None:
        """The operations in a second."""
        return self._times(self.flops_per_sample)

    @property
    def utilization(self) -> float | None:
        """The share of the peak rate (MFU: Chowdhery et al., 2022, arXiv 2204.02311, appendix B)."""
        rate, peak = self.flops_per_s, self.peak_flops_per_s
        return rate / peak if rate is not None and peak else None

    def _times(self, of_sample: float | None) -> float | None:
        return None if of_sample is None or self.samples_per_s is None else of_sample * self.samples_per_s


class Precision(Part):
    """The requested precision, the one that was used, and the reason."""

    asked: str
    chosen: str
    reason: str


class Rehearsal(Part):
    """The evaluation before the first step, from which time and memory of the others are estimated.

    `held_bytes`: the bytes of outputs and targets, which a whole evaluation holds of every sample; None where the task uses none.
    """

    samples: int
    seconds: Number
    held_bytes: int | None = None

    equations = not_negative("samples", "seconds", "held_bytes")


class CalibrationBin(Part):
    """Samples of about one probability, the frequency of correct answers, and the ends of its 95 % interval."""

    probability: Measured
    frequency: Measured
    low: Measured
    high: Measured
    samples: int

    equations = (*shares("probability", "frequency"), Between("frequency", "low", "high"), Between("samples", 1))


def _mean(bins: Sequence[CalibrationBin], name: str) -> float:
    """Return the mean over the samples of all bins."""
    return float(sum(getattr(row, name) * row.samples for row in bins) / sum(row.samples for row in bins))


class Calibration(Part):
    """Probabilities of the answers beside the frequency of correct ones, in bins of equal width; empty bins are left out.

    `error` is the metric `calibration_error`, `by_luck` the error to expect of true probabilities with this number of samples.
    """

    error: Measured
    by_luck: Measured
    probability: Measured
    frequency: Measured
    bins: list[CalibrationBin]

    equations = (
        *shares("error", "by_luck"),
        Equal("frequency", lambda found: _mean(found.bins, "frequency"), FLOAT32),
        Equal("probability", lambda found: _mean(found.bins, "probability"), FLOAT32),
    )


class ResidualBin(Part):
    """Samples of about one prediction: quantiles of their residuals, and the share within the half width."""

    prediction: Measured
    quantiles: list[Measured]
    covered: Measured
    samples: int

    equations = (*shares("covered"), Between("samples", 1))


class Along(Part):
    """Residuals along the predictions; a share of `level` of all is within `half_width`."""

    half_width: Measured
    level: Number
    bins: list[ResidualBin]

    equations = (*shares("level"), *not_negative("half_width"))


class Segment(Part):
    """Samples with one value of a column, whose errors are larger than those of the rest; `p` is corrected."""

    column: str
    value: str
    samples: int
    error: Measured
    low: Measured
    high: Measured
    rest: Measured
    p: Measured

    equations = (Between("error", "low", "high"), *shares("p"), Between("samples", 1))


class Segments(Part):
    """The number of segments that were tested and found to be worse, and the worst of them."""

    measure: str
    overall: Measured
    samples: int
    tested: int
    level: Number
    fewest: int
    found: int
    rows: list[Segment]

    equations = (
        Between("found", lambda found: len(found.rows), "tested"),
        Between("rows.*.samples", "fewest", "samples"),
        *shares("level"),
        *not_negative("tested", "fewest"),
    )


class Errors(Part):
    """The errors of the best checkpoint of a built-in task on validation."""

    calibration: Calibration | None = None
    along: Along | None = None
    segments: Segments | None = None


class LackingClasses(Part):
    """The classes of which a split has no sample, so that no metric of that split covers them."""

    train: list[str] = Field(default_factory=list)
    validation: list[str] = Field(default_factory=list)
    test: list[str] = Field(default_factory=list)


class TargetEvaluation(Part):
    """A built-in task's findings on validation; of a classification `labels` and `confusion`, of a regression the last two.

    Attributes:
        kind: The kind: `classification`, `regression`, `targets` (several) or `generation`; a custom task has others.
        labels: The classes, in the order of the matrix.
        confusion: The counts of the confusion matrix, a row for each true class; empty where an output was NaN.
        pairs: Targets beside predictions.
        residual_quantiles: The quantiles of the residuals at 5, 25, 50, 75 and 95 %.
        name: The column's name, of one of several targets; else None.
        word: The ending of its metrics' names, of one of several targets; else None.
    """

    kind: str
    labels: list[str]
    confusion: list[list[int]]
    pairs: list[list[Measured]]
    residual_quantiles: list[Measured]
    name: str | None
    word: str | None

    equations = not_negative("confusion.*.*")


class TaskEvaluation(TargetEvaluation):
    """A built-in task's findings on validation; those of several targets are in `targets`, one by one."""

    targets: list[TargetEvaluation]


class Resumed(Part):
    """The test of a program killed and resumed: whether it ends in the bits of the undisturbed run, else the difference."""

    same: bool
    steps: int
    killed_after: int
    went_on_after: int
    step: int | None
    what: str | None

    equations = (Between("killed_after", 0, "steps"), Between("went_on_after", 0, "steps"))


class Taught(Part):
    """The teacher that a model learned from, beside it.

    Attributes:
        teacher: The teacher in a few words.
        metrics: The teacher's metrics on the validation split.
        cost: The teacher's cost.
        own_cost: The cost of the model that learned; the two were timed in turns.
        untaught_sha256: The digest of the data in a training without the teacher.
    """

    teacher: str
    metrics: Metrics
    cost: Cost
    own_cost: Cost
    untaught_sha256: str


def output_name(path: str) -> str:
    """Return a program's own name for an output file, from the path of the kept copy."""
    return path.partition(f"/{OUTPUTS}/")[2]


class Program(Part):
    """A program of the user's that trained by itself.

    Attributes:
        command: The words of its command.
        processes: The number of its processes that trained.
        evaluations: The number of evaluations that it wrote down.
        losses: The number of steps whose loss was seen.
        outputs: The files that it left, as they were kept.
        read: The data files that it read.
        resumed: The test of killing and resuming it; None where that was not tried.
        left: The digests of its files and the values of its metrics, compared in place of weights where no step of a PyTorch
            optimizer was seen; None where steps were seen.
    """

    command: list[str]
    processes: int
    evaluations: int
    losses: int
    outputs: list[FileRow]
    read: list[FileRow]
    resumed: Resumed | None
    left: dict[str, str] | None = None

    equations = not_negative("processes", "evaluations", "losses")


def _steps_per_epoch(run: "TrainingResult") -> int:
    """Return the steps of an epoch, whose last one may be smaller."""
    return math.ceil(run.slots / (run.batch_size * run.accumulate))


def _epoch(run: "TrainingResult", step: int) -> int:
    return (step - 1) // _steps_per_epoch(run) + 1


class TrainingResult(Part):
    """The result of any training, its entries as in `Run`; of a probe no contract is known. `processes`: None for one process.

    Of a program without steps `steps` is 0, the times of a step are None, and `weights_sha256` is the digest of its outputs.
    `weights_tree_sha256`: the digest over chunks of the weights; None of a program and of a custom tool.
    `delivered_sha256`: the digest over all bytes of the delivered weights, where a reproduction was asked for it.
    `ledger`: the end of the ledger of its checkpoints, one line for each; None where mltrainer's trainer saved none.
    `replay`: the steps that were computed twice; None where the config asked for none.
    `skipped`: the spikes, which changed nothing; None where the config has no rule for them.
    `speed`: a measurement of the machine; None of a program and of a custom tool.
    `forgotten`: the number of forgotten training samples, whose slots in an epoch are empty; None where there are none.
    """

    schema_number: int = Field(alias="schema")
    id: str
    phase: str | None
    purpose: str
    parent: str | None
    gate: str | None
    config_sha256: str | None = None
    data_sha256: str
    code_sha256: str | None = None
    environment_sha256: str | None = None
    numerics_class: str
    code_files: list[FileRow]
    code_as_contracted: bool
    weights_sha256: str
    weights_tree_sha256: str | None = None
    delivered_sha256: str | None = None
    init_sha256: str
    draws: dict[str, str]
    determinism: Determinism
    seed: int
    device: str
    threads: int
    numerics: str
    precision: Precision
    libraries: dict[str, str]
    rehearsal: Rehearsal
    data: dict[str, Any] | None
    state: str
    stop_reason: str
    steps: int
    epochs: int
    planned_steps: int
    planned_epochs: int
    batch_size: int
    accumulate: int
    processes: int | None = None
    train_samples: int
    forgotten: int | None = None
    measured_samples: dict[str, int]
    chain: Chain
    ledger: Chain | None = None
    replay: Replay | None = None
    skipped: list[SkippedStep] | None = None
    splits: list[Split] | None = None
    interruptions: list[Interruption]
    first_divergence: Divergence | None
    nonfinite: NonFinite | None
    metric: MetricChoice
    saved: Saved
    best: Evaluation | None
    final: Evaluation | None
    metrics: Metrics
    history: list[HistoryRow]
    layers: list[str]
    groups: list[Group]
    first_loss: Measured | None
    parameters: int
    checkpoints: list[CheckpointRow]
    evaluation: Any
    time_s: dict[str, Number]
    wall_s: Number
    earlier_s: Number | None = None
    step_time_us: Percentiles | None
    step_pace_us: Number | None
    shortest_step_us: Number | None
    speed: Speed | None = None
    memory: Memory
    gpu: Gpu | None
    signals: Signals | None = None
    errors: Errors | None = None
    program: Program | None = None
    opened: list[FileRow] | None = None
    inputs_sha256: str | None = None
    taught: Taught | None = None

    equations = (
        Equal("final", lambda run: run.history[-1].alone().model_dump() if run.history else None),
        Equal("metrics", lambda run: run.best.flat if run.best else None),
        Between("history.*.step", lambda run: [1, *(row.step + 1 for row in run.history)]),
        Between("history.*.epoch", lambda run: [0, *(row.epoch for row in run.history)], "planned_epochs"),
        Between("steps", lambda run: 0 if run.is_without_steps or not run.history else run.history[-1].step, "planned_steps"),
        Equal("steps", lambda run: run.planned_steps if run.stop_reason == "epochs" else None),
        # Only where mltrainer's trainer makes the steps: a program's batches, and another tool's, are not known so exactly.
        Equal("planned_steps", lambda run: run.planned_epochs * _steps_per_epoch(run) if run.groups else None),
        Equal("history.*.epoch", lambda run: [_epoch(run, row.step) for row in run.history] if run.groups else None),
        Equal("checkpoints.*.epoch", lambda run: [_epoch(run, row.step) for row in run.checkpoints] if run.groups else None),
        Between("epochs", lambda run: run.history[-1].epoch if run.groups and run.history else 0, "planned_epochs"),
        Between("checkpoints.*.step", 0, "steps"),
        Between("checkpoints.*.epoch", 0, "planned_epochs"),
        Between("chain.entries", "steps"),
        Between("ledger.entries", lambda run: len(run.checkpoints)),
        Equal(
            "measured_samples.train",
            lambda run: min(run.train_samples, run.measured_samples["validation"]) if run.groups else None,
        ),
        Between("rehearsal.samples", 0, lambda run: run.measured_samples["validation"] if run.groups else None),
        Between("shortest_step_us", 0, "step_time_us.p95"),
        Equal("speed.samples_per_s", lambda run: run.samples_per_s if run.speed else None),
        Equal("schema_number", 1),
        Equal("determinism.threads", "threads"),
        Equal("wall_s", lambda run: sum(run.time_s.values()) + (run.earlier_s or 0), ROUNDING),
        Between("accumulate", 1),
        Between("processes", 1),
        Between("replay.every", 1),
        Between("forgotten", 1),
        Between("interruptions.*.step", 0, "planned_steps"),
        Between("replay.compared", lambda run: len(run.replay.differed) if run.replay else None),
        Between("replay.differed.*.step", 1, "planned_steps"),
        Between("splits.*.step", 1, "planned_steps"),
        Between("splits.*.accumulate", "accumulate", lambda run: run.batch_size * run.accumulate),
        Between("skipped.*.step", lambda run: [1, *(row.step + 1 for row in run.skipped or ())], "planned_steps"),
        Between("skipped.*.last", 1, "planned_steps"),
        *not_negative("threads", "batch_size", "parameters", "train_samples", "wall_s", "time_s.*", "measured_samples.*"),
        Equal("errors.segments.samples", "measured_samples.validation"),
    )

    @property
    def slots(self) -> int:
        """The number of slots of an epoch, the empty ones of forgotten samples among them."""
        return self.train_samples + (self.forgotten or 0)

    @property
    def task_evaluation(self) -> TaskEvaluation:
        """The evaluation of a built-in task; empty entries for any other."""
        return partial(TaskEvaluation, self.evaluation if isinstance(self.evaluation, Mapping) else {})

    @property
    def validation_samples(self) -> int | None:
        """The number of validation samples; None where it was not recorded."""
        return self.measured_samples.get("validation")

    @property
    def outputs(self) -> list[FileRow]:
        """The files that the trained code left."""
        return self.program.outputs if self.program else []

    @property
    def samples_per_s(self) -> float | None:
        """The median of the history's rates; None where none was measured."""
        rates = [row.samples_per_s for row in self.history if not isinstance(row.samples_per_s, str)]
        return statistics.median(rates) if rates else None

    @property
    def is_without_steps(self) -> bool:
        """Whether the run is of a program without any seen step: its outputs are compared in place of weights."""
        return self.program is not None and self.program.left is not None

    @property
    def read(self) -> list[FileRow]:
        """The data that the trained code was seen to read."""
        return self.program.read if self.program else []

    @property
    def best_checkpoint(self) -> CheckpointRow | None:
        """The checkpoint with the best metric, where it was verified."""
        return next((row for row in self.checkpoints if "best" in row.roles and row.verified), None)


class Run(TrainingResult):
    """A run as its phase's record holds it.

    `wall_s` is the time of all processes that worked on it, `earlier_s` that of those before the last one, to which `time_s`
    belongs. `metrics` are those of the best checkpoint, measured again as read from the disk; `evaluation` is the task's own
    result, such as a confusion matrix. `opened`: the files that were read beside data and code; None where that was not observed.
    `inputs_sha256`: the digest of the opened files that planning bound. `claim`: the seal of the claim that planning had
    bound when the run was trained; None where there was none.
    """

    phase: str
    config_sha256: str
    code_sha256: str
    environment_sha256: str
    claim: str | None = None

    @property
    def contract(self) -> dict[str, str]:
        """The digests that decide its bits; a run that opened no other files has no `inputs_sha256`."""
        return without_none(**{key: getattr(self, key) for key in CONTRACT})


def run_id(contract: Mapping[str, str]) -> str:
    """Return the name of the run that a contract determines: 12 hex digits."""
    return digest(contract)[:12]


class RunResult(Run):
    """The sealed result that a run writes in its own folder; `parent_sha256`: the digest of the state that a fork began with."""

    seal: str
    parent_sha256: str | None = None
    loader: dict[str, Any] | None = None


class ProbeResult(TrainingResult):
    """The result of a probe, a training of a few steps.

    Attributes:
        loader: The measurements of reading the data.
        cause: The cause of steps that do not repeat, where the trainer finds it.
        not_restored: The attributes that steps before an interruption changed and that were not restored after it.
    """

    seal: str
    parent_sha256: str | None = None
    loader: dict[str, Any] | None = None
    cause: Cause | None = None
    not_restored: list[Call] = Field(default_factory=list)


class UnsoundDataResult(Part):
    """The result of a probe on data with an error: planning's record of the data, and the imported code."""

    seal: str
    purpose: str
    state: Literal["unsound_data"]
    data: dict[str, Any]
    code_files: list[FileRow]


R = TypeVar("R", RunResult, ProbeResult, UnsoundDataResult)


def read_result(path: Path, kind: type[R]) -> R:
    """Return the result in a file.

    Raises:
        InputError: The file is missing, or is no JSON.
        MltrainerError: The file holds no result of that kind.
    """
    return parsed_result(read_json(path), kind)


def parsed_result(content: Any, kind: type[R]) -> R:
    """Return a result's content as a model.

    Raises:
        MltrainerError: The content is no result of that kind.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise MltrainerError(f"no result of a run: {'; '.join(fault_lines(error)[:5])}") from error


def sealed(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a training's result as its file holds it; a run's result, which a phase may use as evidence, is validated.

    Raises:
        MltrainerError: It is no valid result of a run.
    """
    # In this order: a secret taken out later would break the seal, and JSON holds no number that is not finite.
    found = seal(redacted(plain(result)))
    if found["purpose"] != TRAIN:
        return found
    parsed_result(found, RunResult)
    return found
