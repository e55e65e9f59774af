"""The input and output of rules: a frozen view over a run's result, and a finding.

Numbers that are not finite stand in a result as the strings "nan", "inf" and "-inf"; here they are floats.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Literal, NamedTuple

from mltrainer.checkpointing.ranking import rank
from mltrainer.configs.project import Metric
from mltrainer.records.partial import known, partial
from mltrainer.records.references import Reference, References
from mltrainer.records.run import (
    UNDECLARED,
    DataSeen,
    HistoryRow,
    NonFinite,
    Plain,
    RowSignals,
    Seen,
    SeenAtStart,
    Spike,
    TrainingResult,
)

State = Literal["fired", "clear", "not_applicable"]
Standing = Literal["ahead", "level", "behind"]  # compared with another model
Split = Literal["train", "validation", "trained"]  # "trained": the weights that are not averaged

# Metrics between 0 and 1, so that a difference of two values is a number of percentage points.
BOUNDED = frozenset(
    (
        *("accuracy", "balanced_accuracy", "top5_accuracy", "f1", "f1_macro", "f1_micro", "f1_weighted"),
        *("precision", "recall", "precision_macro", "recall_macro", "auc", "roc_auc", "average_precision"),
        *("dice", "iou", "jaccard"),
    )
)
R2 = "r2"
SHOWN_BY_SAMPLES = BOUNDED | {R2}  # metrics whose lead over a constant answer chance may explain
SURE = 2.0  # standard errors: about 95 % of a normal distribution
SETTLED_ROWS = 3  # evaluations whose median is the end of a curve: one noisy evaluation is no trend
T_LIMIT = 1.75  # the 95 % quantile of Student's t with 15 degrees of freedom: losses come in 16 blocks
NAN = float("nan")
UNKNOWN = "not known"


@dataclass(frozen=True)
class Finding:
    """One rule's finding on one run.

    Attributes:
        state: Whether the rule fired, was clear, or could not apply.
        reason: One sentence with the measured numbers and the threshold.
        evidence: The measured values, plain.
        figures: File names of the figures that show it.
        is_elsewhere: Whether its cause is outside the config, so that no config change is suggested.
        targets: The kind of targets that were judged, which some of a page's suggestions are for; None where all of them fit.
    """

    state: State
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    figures: tuple[str, ...] = ()
    is_elsewhere: bool = False
    targets: Literal["classes", "quantities"] | None = None


NO_TARGETS = "The loss is the same whatever the targets are: how good it may become is not known."
NO_SIGNAL = (
    "; nor is any plain model better than a constant answer on these rows: check whether the inputs can predict the target at all"
)


def judged(fired: bool, reason: str, evidence: Mapping[str, Any], figures: tuple[str, ...] = (), **fired_only: Any) -> Finding:
    """Return a finding that fired, with its figures and further evidence, or a clear one."""
    return Finding("fired", reason, {**evidence, **fired_only}, figures) if fired else Finding("clear", reason, evidence)


def number(value: Any) -> float:
    """Return a recorded value as a float; NaN for anything but a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return NAN
    try:
        return float(value)
    except ValueError:
        return NAN


def finite(values: Iterable[float]) -> list[float]:
    """Return the values that are finite."""
    return [value for value in values if math.isfinite(value)]


def median(values: Iterable[float]) -> float:
    """Return the median of the finite values, NaN if there is none."""
    kept = finite(values)
    return statistics.median(kept) if kept else NAN


def settled(values: Sequence[float]) -> float:
    """Return a curve's final level: the median of its last few evaluations."""
    return median(values[-SETTLED_ROWS:])


def ratio(part: float, whole: float) -> float:
    """Return part / whole; infinite if only the whole is zero, NaN if both are."""
    if whole != 0:
        return part / whole
    return NAN if part == 0 or math.isnan(part) else math.copysign(math.inf, part)


def share_error(share: float, samples: int | None) -> float:
    """Return the standard error of a share; 0 if the number of samples is unknown."""
    if samples is None or not 0 <= share <= 1:
        return 0.0
    return math.sqrt(share * (1 - share) / samples)


def text(value: float) -> str:
    """Return a number for a sentence, in three significant digits; NaN is an unmeasured one."""
    return UNKNOWN if math.isnan(value) else f"{value:.3g}"


def evaluations_of(count: int) -> str:
    """Return a number of evaluations with its noun."""
    return f"{count} evaluation{'' if count == 1 else 's'}"


def percent(value: float) -> str:
    """Return a fraction as a percentage; NaN is an unmeasured one."""
    return UNKNOWN if math.isnan(value) else f"{100 * value:.3g} %"


def verdict(own: Sequence[float], other: Sequence[float]) -> Standing:
    """Return the standing of losses in blocks of samples beside others of the same blocks, by a paired t-test (Student, 1908)."""
    leads = [theirs - ours for ours, theirs in zip(own, other, strict=True)]
    error = statistics.stdev(leads) / math.sqrt(len(leads))
    lead = statistics.fmean(leads)
    if abs(lead) <= T_LIMIT * error:
        return "level"
    return "ahead" if lead > 0 else "behind"


class BesideConstant(NamedTuple):
    """A run's metric on validation compared with the best constant answer's, which it must clearly beat."""

    metric: str
    value: float
    constant: float
    lead: float
    verdict: Standing

    def __str__(self) -> str:
        chance = "; chance explains so small a lead" if self.verdict == "level" and self.lead > 0 else ""
        return f"{self.metric} on validation is {text(self.value)}, and a constant answer reaches {text(self.constant)}{chance}"


class Trend(NamedTuple):
    """A loss's fall in all and in about the last third, as shares of the first; that third's share of it; how often it fell."""

    fall: float
    late: float
    late_fall: float
    late_share: float
    steady: float


def trend_of(losses: Sequence[float]) -> Trend:
    """Return the trend of a run's losses, the first of which is that of its first step."""
    fall, first = losses[0] - losses[-1], abs(losses[0])
    late = max(1, (len(losses) - 1) // 3)  # evaluations
    late_fall = losses[-1 - late] - losses[-1]
    pairs = list(itertools.pairwise(losses[1:]))
    return Trend(
        fall=ratio(fall, first),
        late=late / (len(losses) - 1),
        late_fall=ratio(late_fall, first),
        late_share=ratio(late_fall, fall),
        steady=sum(after < before for before, after in pairs) / len(pairs),
    )


@dataclass(frozen=True)
class Run:
    """The rules' view of a run.

    Args:
        result: The run's result, which may lack anything.
        references: Plain models that it was compared with, as a point of reference; None without a comparison.
        config: Training config as nested plain values; empty if unknown.
    """

    result: TrainingResult
    references: References | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        result: Mapping[str, Any],
        references: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Run:
        """Return the view of a result, and of references, as in a file, complete or not."""
        beside = None if references is None else partial(References, references)
        return cls(partial(TrainingResult, result), beside, config or {})

    # --- plain parts ---

    @property
    def history(self) -> list[HistoryRow]:
        """The evaluations in order."""
        return self.result.history

    @property
    def nonfinite(self) -> NonFinite | None:
        """The place at which the run met a number that is not finite."""
        return self.result.nonfinite

    @property
    def is_broken_by_data(self) -> bool:
        """Whether a number of the data ended the run: one that is not finite, or is far beyond those of the other samples."""
        located = self.nonfinite.located if self.nonfinite is not None else None
        return located is not None and (located.kind == "data" or located.outlier is not None)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.result.state == "finished"

    @property
    def layers(self) -> list[str]:
        """Names of the weights with two or more dimensions, in order of definition."""
        return self.result.layers

    @property
    def first_loss(self) -> float:
        """The loss of the first step."""
        return number(self.result.first_loss)

    @functools.cached_property
    def epochs(self) -> list[float]:
        """The epoch of each evaluation, counted from 1."""
        return [number(row.epoch) for row in self.history]

    # --- curves ---

    def series(self, split: Split, name: str) -> list[float]:
        """Return a metric of every evaluation, NaN if missing."""
        if (split, name) not in self._curves:
            self._curves[split, name] = [number((getattr(row, split) or {}).get(name)) for row in self.history]
        return self._curves[split, name]

    @functools.cached_property
    def _curves(self) -> dict[tuple[str, str], list[float]]:
        """Cache of curves: a rule requests one at each of thousands of evaluations."""
        return {}

    @property
    def train_loss(self) -> list[float]:
        """Mean loss of the training steps before each evaluation."""
        return [number(row.train_loss) for row in self.history]

    @property
    def validation_loss(self) -> list[float]:
        """Loss on the validation set."""
        return self.series("validation", "loss")

    @property
    def metric_name(self) -> str:
        """The metric that chose the best checkpoint; `loss` if none is named."""
        return self.result.metric.name or "loss"

    @property
    def larger_is_better(self) -> bool:
        """The direction of that metric."""
        return self.result.metric.mode == "max"

    def has_metric(self, name: str) -> bool:
        """Return True if both splits have a finite value of a metric."""
        return bool(finite(self.series("validation", name)) and finite(self.series("train", name)))

    @functools.cached_property
    def score(self) -> str | None:
        """A metric with a known best value of 1: the chosen one if it is bounded, R2 for a regression, else any bounded one."""
        named = [self.metric_name, "accuracy", R2, *sorted(BOUNDED)]
        return next((name for name in named if (name in BOUNDED or name == R2) and self.has_metric(name)), None)

    @functools.cached_property
    def best_row(self) -> int | None:
        """The place in the history of the evaluation by which the run is described; None if no metric is finite."""
        name = self.metric_name
        mode: Literal["max", "min"] = "max" if self.larger_is_better else "min"
        metric = Metric.model_construct(name=name, mode=mode, ties=self.result.metric.ties)
        values, losses = self.series("validation", name), self.series("validation", "loss")
        places = (place for place, value in enumerate(values) if math.isfinite(value))
        return max(places, key=lambda place: rank({"loss": losses[place], name: values[place]}, metric), default=None)

    # --- what was learned ---

    @functools.cached_property
    def confusion(self) -> list[list[int]]:
        """The confusion matrix of the validation set, a row for each true class; empty without one."""
        return [[int(number(count)) for count in row] for row in self.result.task_evaluation.confusion]

    @functools.cached_property
    def class_counts(self) -> list[int]:
        """Validation samples of each class, from the confusion matrix; empty without one."""
        return [sum(row) for row in self.confusion]

    @property
    def known_counts(self) -> list[int]:
        """Samples of each class: of the validation set, else of the training samples in memory; empty without both."""
        return self.class_counts or self.train_counts

    @property
    def train_counts(self) -> list[int]:
        """Training samples of each class, counted over some samples or the first batches if not over all.

        Empty where they were not counted, or the whole numbers are counts or ids.
        """
        counts = (self.start_data and self.start_data.counts) or []
        if sum(count > 0 for count in counts) < 2:  # some hundred samples may have none of a rare class
            counts = self._fairly_drawn or counts
        output = self.start.output if self.start else None
        # A classifier has an output for each class, of two classes perhaps one for both.
        is_named = output is None or len(counts) <= max([2, *output.shape])
        return counts if is_named else []

    @property
    def _fairly_drawn(self) -> list[int]:
        """Samples of each class in the first batches; empty where each has far fewer classes, as of a sorted order."""
        early = self.result.signals.early if self.result.signals else None
        if early is None or not early.counts or not sum(early.counts):
            return []
        shares = [count / sum(early.counts) for count in early.counts if count]
        whole = -sum(share * math.log(share) for share in shares)
        # Not the median, which is 0 for a class that is so rare that most batches have none of it.
        return early.counts if statistics.fmean(map(number, early.labels)) >= whole / 2 else []

    @property
    def validation_samples(self) -> int | None:
        """Number of validation samples, from the run's record or the confusion matrix."""
        recorded = self.result.validation_samples
        return recorded if recorded is not None else sum(self.class_counts) or None

    @property
    def chance(self) -> float:
        """The accuracy of always naming the most frequent class; NaN if the classes are not known.

        Without a confusion matrix, as in a custom task or a run that goes on, the counts of the training samples are taken.
        """
        counts = self.known_counts
        return max(counts) / sum(counts) if sum(counts) else NAN

    def skill_of(self, split: Literal["train", "validation"], place: int) -> float:
        """Return the skill of the model at an evaluation: 0 is a constant answer, 1 is perfect.

        Accuracy is taken relative to the most frequent class, and balanced accuracy, where that is more, to one class for all:
        rare classes that are found at the cost of common ones are learned too. R2 is its own skill; where none can be used, the
        share of the first step's loss that is gone, of what can go. NaN where nothing can be said, as of a loss that looks at no
        target or has no lower end.
        """
        # With a single class nothing is better than chance: 0 / 0.
        if self.has_metric("accuracy") and self.chance < 1:
            skill = (self.series(split, "accuracy")[place] - self.chance) / (1 - self.chance)
            return max(finite([skill, self._balanced_skill(split, place)]), default=NAN)
        if self.has_metric(R2):
            return self.series(split, R2)[place]
        first, floor = self.first_loss, self.floor
        if self.has_no_scale:
            return NAN
        return 1 - (self.series(split, "loss")[place] - floor) / (first - floor) if first > floor else NAN

    def _balanced_skill(self, split: Literal["train", "validation"], place: int) -> float:
        by_chance = ratio(1, sum(count > 0 for count in self.class_counts))
        return ratio(self.series(split, "balanced_accuracy")[place] - by_chance, 1 - by_chance)

    @functools.cached_property
    def skill(self) -> float:
        """Skill on the validation set at the best evaluation."""
        return NAN if self.best_row is None else self.skill_of("validation", self.best_row)

    @functools.cached_property
    def train_skill(self) -> float:
        """Skill on the training set at the end: high without validation skill, the samples were memorized."""
        return settled([self.skill_of("train", place) for place in range(len(self.history))])

    # --- beside plain models, where they were measured on the same rows ---

    @functools.cached_property
    def compared(self) -> list[Reference]:
        """The plain models beside which the run was judged; a `verdict` is the run's: ahead, level or behind."""
        return [row for row in self.references.rows if row.verdict] if self.references else []

    @property
    def beaten_by(self) -> list[str]:
        """The plain models that the run is behind."""
        return [row.title for row in self.compared if row.verdict == "behind"]

    @functools.cached_property
    def verdicts(self) -> dict[str, Standing]:
        """Comparison of the run with each plain model, or with plain answers to a custom task: ahead, level or behind."""
        if self.compared:
            return {row.name: row.verdict for row in self.compared if row.verdict}
        own = min(filter(None, (self._losses(row) for _, row in self.seen)), key=statistics.fmean, default=None)
        if self.plain is None or own is None or self.has_no_targets:
            return {}
        losses = {name: list(map(number, found)) for name, found in self.plain.losses.items()}
        return {name: verdict(own, found) for name, found in losses.items() if len(found) == len(own)}

    @staticmethod
    def _losses(row: RowSignals) -> list[float]:
        """Return the losses in blocks at an observation; nothing where one is not finite."""
        losses = list(map(number, row.validation.losses or []))
        return losses if all(map(math.isfinite, losses)) else []

    @functools.cached_property
    def beside_constant(self) -> BesideConstant | None:
        """Comparison of the chosen metric with a constant answer's on the same validation samples; None if unknown.

        It comes from a measured plain model, else from the shares of the classes, or from the metric's definition; for a custom
        metric from the loss.
        """
        constant, name = self._constant_answer, self.metric_name
        if self.best_row is None or not (math.isfinite(constant) or self._is_compared):
            return self._losses_beside_constant
        value = self.series("validation", name)[self.best_row]
        lead = value - constant if self.larger_is_better else constant - value
        # No R2 of one feature is shown to be above 0 by fewer samples: its t-value is the root of R2 times their number.
        error = ratio(SURE, self.validation_samples or math.inf) if name == R2 else share_error(constant, self.validation_samples)
        apart: Standing = "ahead" if lead > 0 else "behind"
        is_apart = abs(lead) > SURE * error if name in SHOWN_BY_SAMPLES else lead != 0
        by_samples = apart if is_apart else "level"
        return BesideConstant(name, value, constant, lead, self.verdicts["constant"] if self._is_compared else by_samples)

    @property
    def _measured_constant(self) -> Reference | None:
        """The constant answer among the plain models."""
        return next((row for row in self.references.rows if row.name == "constant"), None) if self.references else None

    @property
    def _is_compared(self) -> bool:
        return bool(self.compared) and "constant" in self.verdicts

    @property
    def _constant_answer(self) -> float:
        """A constant answer's value of the chosen metric, NaN if unknown."""
        measured, name, target = self._measured_constant, self.metric_name, self.last_seen.target
        if measured is not None:
            return number(measured.metrics.get(name))
        if name == "accuracy":
            return self.chance if self.class_counts else number(target.top) if target and target.classes else NAN
        classes = sum(count > 0 for count in self.class_counts)
        return {R2: 0.0, "roc_auc": 0.5, "auc": 0.5, "balanced_accuracy": ratio(1, classes or NAN)}.get(name, NAN)

    @property
    def _losses_beside_constant(self) -> BesideConstant | None:
        """The loss compared with that of the best constant answer to a custom task."""
        if "constant" not in self.verdicts or self.compared:
            return None
        own = min(statistics.fmean(losses) for _, row in self.seen if (losses := self._losses(row)))
        return BesideConstant("loss", own, self.constant_loss, self.constant_loss - own, self.verdicts["constant"])

    @property
    def beats_constant(self) -> bool | None:
        """Whether the chosen metric is better than a constant answer's; None if unknown.

        False as well where chance explains its lead and the loss has none; None where the loss alone is shown to be better.
        """
        standing = self.beside_constant
        if standing is None:
            return None
        is_open = standing.verdict == "level" and standing.lead > 0 and standing.metric != "loss" and self._is_better_by_loss
        return None if is_open else standing.verdict == "ahead"

    @property
    def _is_better_by_loss(self) -> bool:
        """Whether the loss on validation is below that of a constant answer."""
        measured = self._measured_constant
        if measured is None or self.best_row is None:
            return self.verdicts.get("constant") == "ahead"
        return self.series("validation", "log_loss")[self.best_row] < number(measured.metrics.get("log_loss"))

    @functools.cached_property
    def keeps_up(self) -> bool:
        """Whether the run learned as much as plain models did: better than a constant answer, and behind none of the others."""
        return len(self.verdicts) > 1 and self.verdicts.get("constant") == "ahead" and "behind" not in self.verdicts.values()

    @functools.cached_property
    def shows_no_signal(self) -> bool:
        """Whether the run is level with a constant answer, and no plain model is better than it: nothing was seen to learn."""
        return len(self.verdicts) > 1 and self.verdicts.get("constant") == "level" and "behind" not in self.verdicts.values()

    @property
    def has_no_targets(self) -> bool:
        """Whether the loss is the same whatever the targets are, as of two players: its best value is unknown."""
        return self.start is not None and self.start.uses_targets is False

    def without_classes(self, reason: str) -> Finding:
        """Return the finding of a rule that saw no classes: the reason, or how a task says that its targets are some."""
        is_own = bool((self.config.get("task") or {}).get("use"))
        is_undeclared = is_own and self.start is not None and self.start.target_kind is None
        return Finding("not_applicable", f"Not judged: {UNDECLARED}." if is_undeclared else reason)

    @property
    def floor(self) -> float:
        """The loss of answers that fit each sample; 0 if not measured, NaN if it cannot be known, below 0 for a density."""
        return number(self.plain.floor) if self.plain else 0.0

    @property
    def plain(self) -> Plain | None:
        """The loss of plain answers to a custom task."""
        return self.start.plain if self.start else None

    @property
    def has_no_scale(self) -> bool:
        """Whether a loss does not show how much was learned: it ignores the targets, or 0 is not its end, as for a density."""
        return self.has_no_targets or not self.floor >= 0

    @property
    def constant_loss(self) -> float:
        """The loss of the best constant answer on validation samples, NaN if unknown."""
        losses = self.plain.losses.get("constant") if self.plain else None
        return statistics.fmean(map(number, losses)) if losses else NAN

    def size(self, loss: float) -> float:
        """Return the size by which a difference to a loss is judged: the loss, or without a known end its lead on a constant."""
        return abs(self.constant_loss - loss) if self.has_no_scale and not math.isnan(self.constant_loss) else abs(loss)

    @property
    def is_unjudged(self) -> bool:
        """Whether the learnable rest is unknown, and no plain answer does better."""
        is_behind = "behind" in self.verdicts.values() or self.verdicts.get("constant") == "level"
        return self.has_no_scale and math.isnan(self.reached_skill) and (self.has_no_targets or not is_behind)

    @property
    def reached_skill(self) -> float:
        """The larger of both skills, NaN if neither is known."""
        return max(finite([self.skill, self.train_skill]), default=NAN)

    def learned(self, at_least: float) -> bool:
        """Return True if the model learned, even by memorizing, or keeps up with plain models; unknown skill counts as none."""
        return self.reached_skill >= at_least or self.keeps_up

    # --- observations beside the history ---

    @property
    def start(self) -> SeenAtStart | None:
        """Observations of the untrained model."""
        return known(self.result.signals.start.model) if self.result.signals else None

    @property
    def start_data(self) -> DataSeen | None:
        """Observations of the training samples in memory, or of some samples of a data set."""
        return self.result.signals.start.data if self.result.signals else None

    @functools.cached_property
    def seen(self) -> list[tuple[HistoryRow, RowSignals]]:
        """The evaluations with observations of the model, and these."""
        return [(row, row.signals) for row in self.history if row.signals is not None]

    @functools.cached_property
    def last_seen(self) -> Seen:
        """Observations of validation samples at the last look: at the number that is not finite and ended the run, or before."""
        stop = self.result.signals and self.result.signals.stop
        last = self.seen[-1][1].validation if self.seen else self.start
        return (known(stop.validation) if stop else None) or last or partial(Seen, {})

    @property
    def dead_share(self) -> tuple[str, float]:
        """The module with the largest share of dead units at the last observation, and that share; NaN without any."""
        shares = {name: number(shown["dead"]) for name, shown in self.last_seen.modules.items() if "dead" in shown}
        return max(shares.items(), key=lambda one: one[1], default=("", NAN))

    # --- steps, time, memory ---

    @functools.cached_property
    def first_updates(self) -> list[float]:
        """|update| / |weight| of the middle layer at the first steps 1, 2, 4, ... 32; empty if not recorded."""
        rows = self.result.signals.early.updates if self.result.signals else []
        return finite(number(row[1]) for row in rows if len(row) > 1)

    @functools.cached_property
    def updates(self) -> list[float]:
        """|update| / |weight| of the middle layer at each evaluation's last step, NaN if not recorded."""
        return [median(map(number, row.update_ratios)) for row in self.history]

    @property
    def spikes(self) -> list[Spike] | None:
        """The losses that stood out, None if no step was examined."""
        signals = self.result.signals
        return signals.spikes if signals and "spikes" in signals.model_fields_set else None

    @functools.cached_property
    def data_wait(self) -> float:
        """The usual share of time spent waiting for data, NaN if unknown.

        The first interval starts the loader processes and does not count, unless it was all of a run that ended.
        """
        shares = [number(row.data_wait) for row in self.history]
        return median(shares[1:] or (shares if self.finished else []))

    @functools.cached_property
    def waited_s(self) -> float:
        """The seconds spent waiting in the whole run, NaN if durations were not recorded."""
        return sum(number(row.data_wait) * number(row.seconds) for row in self.history)

    def step_at(self, place: int) -> int | None:
        """Return the step of an evaluation, None if it was not recorded."""
        return self.history[place].step

    # --- gradients ---

    def norms(self, which: Literal["median", "max", "min"]) -> list[float]:
        """Return the gradient norm before clipping, over the steps before each evaluation."""
        if ("grad_norm", which) not in self._curves:
            self._curves["grad_norm", which] = [number(getattr(row.grad_norm, which)) for row in self.history]
        return self._curves["grad_norm", which]

    @property
    def clip_norm(self) -> float:
        """The norm to which gradients are clipped, NaN without clipping, or if it changes no step's length."""
        return number(self.result.signals.start.clip_norm) if self.result.signals else NAN

    @functools.cached_property
    def layer_norms(self) -> list[list[float]]:
        """Median gradient norm of each layer, for every evaluation that recorded them."""
        return [[number(norm) for norm in row.layer_norms] for row in self.history if row.layer_norms]

    @functools.cached_property
    def silent(self) -> list[str]:
        """The layers whose gradient was exactly zero at every evaluation that recorded gradients."""
        rows = self.layer_norms
        count = min([len(self.layers), *map(len, rows)]) if rows else 0
        return [self.layers[place] for place in range(count) if all(row[place] == 0 for row in rows)]

    @functools.cached_property
    def underflowed(self) -> list[str]:
        """The layers of a run in fp16 whose gradient was exactly zero at every evaluation, and is not in fp32."""
        reached = self.start.reached if self.start is not None else None
        return [name for name in self.silent if name in (reached or ())]

    @functools.cached_property
    def layer_updates(self) -> list[list[float]]:
        """|update| / |weight| of each layer, for every evaluation that recorded them."""
        return [[number(update) for update in row.update_ratios] for row in self.history if row.update_ratios]


# A rule's keyword arguments are the thresholds of its page, whose front matter gives each its value, unit and source.
Rule = Callable[Concatenate[Run, ...], Finding]
