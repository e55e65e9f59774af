"""Causes of a bad training that its config and its record already hold: one table, each row a pure function of a run.

A diagnostic says what is wrong with a run; a cause says why, with its figures and a cure. Some are wrong in themselves, and are
reported by planning and by the diagnostic `wrong_setup` even where the run looks healthy. The limits are chosen by us, so that
no healthy run of the labelled sets is told one.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from mltrainer.configs.project import is_opaque
from mltrainer.configs.schedules import Schedule, preview
from mltrainer.diagnostics.signals import BOUNDED, R2, Run, finite, number, percent, ratio, text
from mltrainer.diagnostics.unusual import unusual
from mltrainer.records.diagnostics import Diagnosis, Suggestion

ALONE = "wrong_setup"  # the diagnostic of causes that are wrong in themselves
SYMPTOMS = frozenset(  # diagnostics that say how a run looks, and leave open why
    (
        *("underfitting", "undertrained", "convergence_stall", "constant_predictions", "learning_rate_low", "learning_rate_high"),
        *("loss_oscillation", "loss_spike", "divergence", "exploding_gradients", "vanishing_gradients", "overfitting"),
        *("label_noise", "bad_initialization", "train_eval_mismatch", ALONE),
    )
)
GONE, EARLY = 0.01, 0.25  # a rate below this share of its peak trains nothing; a schedule may be so after this share of a run
LONG_WARMUP = 0.5  # share of the run; 0.05 is usual
OWN_PARTS = ("own", "plateau")  # schedules of which the config does not tell the rates
AS_LONG_AS_LARGE = ("sgd", "own")  # optimizers whose steps are as long as the gradients are large
SCALED = 8  # times as large or small as a mean
HELD_SKILL = 0.7  # of weights that are held on purpose as much is learned
DROPPED = 0.9  # share of the units
LEAST_RIGHT = 0.5  # of the smoothed label: less is left for the right class than for all others
LEARNABLE = 0.25  # of a constant answer's loss, at least so much must be gone in answers that fit each sample
# Ten times what is usual: inside the gradient (Adam, SGD; PyTorch's examples have 1e-4 to 5e-4), or apart from it (0.01 to 0.1).
LARGE_DECAY = {"sgd": 0.05, "adam": 0.05, "adamw": 1.0, "lion": 5.0}
IGNORED = 0.25  # of the places along a dimension; the border of a picture, or pixels that are always blank, are fewer
FAR_TARGETS, TINY = 100, 0.01  # times the answers of an untrained model, which are about 1, or this
LARGER = BOUNDED | {R2}
SMALLER = frozenset(("loss", "log_loss", "mse", "rmse", "mae", "perplexity", "error"))
FEW_STEPS, LEAST_PER_EPOCH = 100, 4  # updates of a run, and of an epoch; batches that leave fewer are large
SOLVED = 0.9  # skill
FEW_SAMPLES = 4  # of a batch; Wu and He, 2018, Group Normalization, figure 1: errors of batch norm rise steeply from 8 down
SAME_LOSS = 1e-5  # a relative difference that rounding makes
RANGES = {  # of what activations give
    **dict.fromkeys(("ReLU", "Softplus", "ReLU6"), (0.0, math.inf)),
    **dict.fromkeys(("Sigmoid", "Softmax"), (0.0, 1.0)),
    "Tanh": (-1.0, 1.0),
}
BEYOND = 0.1  # of the range of the answers that the loss wants
LITTLE = 0.1  # of the constant answer's loss, which is left to answers that fit
FITS = 0.8  # of a metric whose best value is 1, by answers that were fitted to each sample
MOSTLY = 0.9  # of the answers
PADDED = 0.5  # of the places
BY_BATCH = 0.01  # of the spread of the answers; rounding is below 1e-4
REPEATED = 0.5  # share of the training rows
ALIKE, LOST = 0.3, 3  # the skill of neighbours, and so many times as much as is left
OUTLYING, MOST_OUTLIERS = 0.8, 0.1  # of the variance, and of the samples


class Found(NamedTuple):
    """A cause that a run has: a sentence with its figures, and what to set, by dotted key."""

    sentence: str
    set: dict[str, Any] = {}  # noqa: RUF012 - read only


class Cause(NamedTuple):
    """A row of the table.

    Attributes:
        name: What it is called.
        find: Returns what a run shows of it, or None.
        cure: What to do, in words.
        is_wrong: Whether it is wrong in itself, however well the run went.
    """

    name: str
    find: Callable[[Run], Found | None]
    cure: str
    is_wrong: bool


class Told(NamedTuple):
    """A cause with what a run shows of it."""

    cause: Cause
    found: Found

    @property
    def suggestion(self) -> Suggestion:
        """Its cure, as a page suggests one."""
        return Suggestion(why=self.cause.cure, set=self.found.set)


# --- the learning rate ----------------------------------------------------------------------------


@functools.cache
def _schedules() -> TypeAdapter[Schedule]:
    return TypeAdapter(Schedule)


def _rates(run: Run) -> list[tuple[float, float]]:
    """Return share of the run and learning rate: of the config's schedule, else as the evaluations recorded it."""
    planned, config = run.result.planned_steps, run.config
    if not planned or is_opaque(config):
        return []
    values = config.get("schedule") or {}
    if values and values["name"] not in OWN_PARTS:
        per_epoch = planned // run.result.planned_epochs
        rates = preview(_schedules().validate_python(values), config["optimizer"]["lr"], planned, per_epoch)
        return [(epoch * per_epoch / planned, rate) for epoch, rate in rates]
    first = [(0.0, max(group.lr for group in run.result.groups))] if run.result.groups and values.get("name") == "own" else []
    return first + [(row.step / planned, number(row.lr)) for row in run.history if row.step]


def _gone(run: Run) -> Found | None:
    rates = _rates(run)
    peak = max((rate for _, rate in rates), default=math.nan)
    places = [share for share, rate in rates if rate >= GONE * peak]
    if not places or places[-1] > EARLY or rates[-1][1] >= GONE * peak:
        return None
    schedule = run.config["schedule"]["name"]
    return Found(
        f"After {percent(places[-1])} of the run the learning rate is below {percent(GONE)} of its peak of {text(peak)}, and "
        f"{text(rates[-1][1])} at the end: the schedule ({schedule}) is over before the training is.",
        {} if schedule == "own" else {"schedule.name": "cosine"},
    )


def _rising(run: Run) -> Found | None:
    rates, planned = _rates(run), run.result.planned_steps
    if not rates or not planned:
        return None
    schedule, last = run.config.get("schedule") or {}, rates[-1][1]
    if schedule.get("name") == "own":
        middle = rates[len(rates) // 2][1]
        rises = all(one <= other for (_, one), (_, other) in itertools.pairwise(rates)) and last > middle > rates[0][1]
        sentence = f"The learning rate rose to the end of the run, from {text(rates[0][1])} to {text(last)}."
        return Found(f"{sentence} The warm-up is longer than the run.") if rises and len(rates) > 2 else None
    by_epochs = schedule.get("warmup_epochs") or 0
    steps = schedule.get("warmup_steps") or by_epochs * planned / run.result.planned_epochs
    if steps <= LONG_WARMUP * planned:
        return None
    key = "schedule.warmup_epochs" if by_epochs else "schedule.warmup_steps"
    return Found(
        f"The warm-up takes {steps:,.0f} steps and the run has {planned:,}: the learning rate rises in "
        f"{percent(min(1.0, steps / planned))} of it.",
        {key: f"x{0.05 * planned / steps:.3g}"},
    )


def _unusual(run: Run) -> Found | None:
    found = [] if is_opaque(run.config) else [*unusual(run.config)]
    if not found:
        return None
    told = [f"{one.key} is {text(one.value)} (usual: {text(one.usual.common)})" for one in found]
    return Found(f"{'; '.join(told)}.", {one.key: one.usual.common for one in found if "groups" not in one.key})


def _few_steps(run: Run) -> Found | None:
    planned, config = run.result.planned_steps, run.config
    if not planned or not run.history or planned >= FEW_STEPS or run.reached_skill >= SOLVED or is_opaque(config):
        return None
    if "behind" not in run.verdicts.values() and run.reached_skill >= HELD_SKILL:
        return None
    batch, epochs = number(config.get("batch_size")) * number(config.get("accumulate", 1)), run.result.planned_epochs
    is_large = batch >= number(run.result.train_samples) / LEAST_PER_EPOCH
    return Found(
        f"The run has only {planned} steps, in {epochs} epoch{'' if epochs == 1 else 's'}"
        f"{f' of large batches ({batch:.0f} samples)' if is_large else ''}: too few updates for most models.",
        {"batch_size": "x0.1"} if is_large else {"epochs": "x5"},
    )


def _small_batches(run: Run) -> Found | None:
    form, batch = run.start and run.start.structure, number(run.config.get("batch_size"))
    if not form or not form.batch_norms or not batch <= FEW_SAMPLES:
        return None
    return Found(
        f"Batch norm takes mean and deviation of batches of {batch:.0f} samples, which are too small for it.",
        {"batch_size": "x16"},
    )


def _attacked(run: Run) -> Found | None:
    spread = number(run.start_data and run.start_data.spread)
    sizes = [number(one.get("epsilon")) for one in run.config.get("strategies") or [] if one.get("name") == "adversarial"]
    if not sizes or not max(sizes) >= spread:
        return None
    return Found(
        f"The attack of adversarial training moves inputs by {text(max(sizes))}, and these differ by {text(spread)} only."
    )


# --- the loss -------------------------------------------------------------------------------------


def _scaled(run: Run) -> Found | None:
    if (run.config.get("optimizer") or {}).get("name") not in AS_LONG_AS_LARGE:
        return None
    seen = run.seen[0][1].validation if run.seen else None
    parts = finite(map(number, (seen and seen.losses) or []))
    times = ratio(number(seen.loss), statistics.fmean(parts)) if seen and parts and min(parts) > 0 else 1.0
    if times >= SCALED or 0 < times <= 1 / SCALED:
        kind = "a sum over the samples" if times > 1 else "a mean that is divided by the number of samples once more"
        return Found(f"The loss of all samples that were looked at is {text(times)} times that of a part of them: it is {kind}.")
    start = run.start
    share = ratio(number(start.loss), number(start.as_logits)) if start and start.plain else math.nan
    if not 0 < share <= 1 / SCALED:
        return None
    return Found(
        f"The loss of the untrained model is {text(number(start and start.loss))}, {text(share)} of the cross-entropy of its "
        f"outputs ({text(number(start and start.as_logits))}): it is divided by {text(1 / share)}, and so is each step."
    )


def _smoothed(run: Run) -> Found | None:
    share, classes = number(run.config.get("label_smoothing")), sum(count > 0 for count in run.known_counts)
    right = 1 - share + share / classes if classes > 1 else math.nan
    if not right < LEAST_RIGHT:
        return None
    return Found(
        f"label_smoothing: {text(share)} leaves the right one of {classes} classes {text(right)}, and each other one "
        f"{text(share / classes)}.",
        {"label_smoothing": 0.1},
    )


def _unlearnable(run: Run) -> Found | None:
    start = run.start
    floor, constant = run.floor, run.constant_loss
    if start is None or start.as_logits is None or not floor > max(0.0, (1 - LEARNABLE) * constant):
        return None
    if constant < LEARNABLE * number(start.loss):  # one answer is right for all that the loss looks at
        return None
    return Found(
        f"Answers that were fitted to each sample reach a loss of {text(floor)}, and one constant answer {text(constant)}: the "
        "loss hardly tells a right answer from a wrong one, as with strong label smoothing or scaled outputs."
    )


# --- the model ------------------------------------------------------------------------------------


def _dropped(run: Run) -> Found | None:
    set_to = number((run.config.get("model") or {}).get("dropout"))
    most = max(finite([set_to, number(run.start and run.start.dropped)]), default=math.nan)
    if not most >= DROPPED:
        return None
    return Found(f"Dropout of {text(most)} leaves {percent(1 - most)} of the units in a step.", {"model.dropout": "x0.2"})


def _held(run: Run) -> Found | None:
    start = run.start
    # Of adapters beside held weights as few are trained by intent.
    if start is None or not start.held or run.config.get("strategies") or run.reached_skill >= HELD_SKILL:
        return None
    return Found(
        f"{percent(number(start.trained_share))} of the parameters are trained: {_listed(start.held)} "
        f"{'are' if len(start.held) > 1 else 'is'} held (requires_grad is False)."
    )


def _of_the_batch(run: Run) -> Found | None:
    part = number(run.start and run.start.part)
    if not part >= BY_BATCH:
        return None
    return Found(
        f"Without half of their batch the same samples get other answers, in evaluation mode: they differ by {text(part)} times "
        "the spread of the answers, so that no sample is judged by itself."
    )


def _linear(run: Run) -> Found | None:
    form = run.start and run.start.structure
    if not form or not form.linear or form.layers < 2 or run.reached_skill >= HELD_SKILL:
        return None
    return Found(
        f"The model is linear: nothing stands between its {form.layers} layers with weights (no activation, such as ReLU), and "
        "together they can do no more than one of them."
    )


def _orderless(run: Run) -> Found | None:
    form = run.start and run.start.structure
    if not form or not form.orderless or run.skill >= HELD_SKILL:
        return None
    return Found(
        f"The order of the inputs along dimension {_listed(list(map(str, form.orderless)))} changes no answer: the model has no "
        "positions there, or takes a mean over it (pooling) before anything looks at neighbours."
    )


def _same_answers(run: Run) -> Found | None:
    form = run.start and run.start.structure
    if not form or not form.same_answers or (run.start and run.start.symmetric):
        return None
    return Found(
        f"{form.same_answers} of the numbers of each answer are always equal to another one: these outputs share their weights, "
        "as heads of a list that was multiplied do."
    )


def _one_direction(run: Run) -> Found | None:
    start = run.start
    form, classes = (start.structure, (start.target and start.target.classes) or 0) if start else (None, 0)
    if not start or not form or form.rank != 1 or form.same_answers or classes < 3 or run.reached_skill >= HELD_SKILL:
        return None
    if start.output and math.prod(start.output.shape) == 1:
        return Found(
            f"{classes} classes are answered by a single output, as in a regression: their numbers have no order. Give one "
            "output for each class, with a cross-entropy."
        )
    return Found(
        f"The answers to {classes} classes differ in one direction alone (their rank is 1): they pass through a single number, "
        "as a layer of one unit gives it."
    )


def _ignored(run: Run) -> Found | None:
    form = run.start and run.start.structure
    most = max((form.ignored if form else {}).items(), key=lambda one: number(one[1]), default=None)
    if most is None or not number(most[1]) >= IGNORED or run.skill >= HELD_SKILL:
        return None
    return Found(
        f"No answer looks at {percent(number(most[1]))} of the places along dimension {most[0]} of the inputs: a slice, an index "
        "or a mask leaves them out."
    )


def _stateful(run: Run) -> Found | None:
    form = run.start and run.start.structure
    if not form or form.repeats:
        return None
    return Found(
        "In evaluation mode the same samples get other answers when they are asked again: the model keeps a state, such as a "
        "hidden one, from batch to batch."
    )


def _far_targets(run: Run) -> Found | None:
    target, output = run.start and run.start.target, run.start and run.start.output
    if not target or not output or target.classes or run.reached_skill >= HELD_SKILL:
        return None
    reach, given = (max(abs(number(one.lowest)), abs(number(one.largest))) for one in (target, output))
    if not reach >= FAR_TARGETS * max(given, TINY):
        return None
    return Found(
        f"The targets reach {text(reach)}, and the answers of the untrained model {text(given)}: the targets are not scaled, and "
        "steps of a usual length take very long to come near them."
    )


def _turned(run: Run) -> Found | None:
    metric = run.config.get("metric") or {}
    name, mode = metric.get("name", ""), metric.get("mode")
    better = "max" if name in LARGER else "min" if name in SMALLER else mode
    if better == mode:
        return None
    return Found(
        f"metric.mode is {mode}, and {name} is better the {'larger' if better == 'max' else 'smaller'} it is: the worst weights "
        "are kept as the best.",
        {"metric.mode": better},
    )


def _exclusive(run: Run) -> Found | None:
    start = run.start
    target, output = (start.target, start.output) if start else (None, None)
    if not start or not target or not output or target.classes or output.shape != target.shape or not start.by_class:
        return None
    samples = sum(start.by_class[0][::2])
    held = sum(row[0] for row in start.by_class) / samples if samples else 1.0
    shifted, loss = number(start.shifted_loss), number(start.loss)
    if abs(held - 1) < 0.05 or len(start.by_class) < 2 or not abs(shifted - loss) <= SAME_LOSS * abs(loss):
        return None
    return Found(
        f"Of {len(start.by_class)} labels a sample has {text(held)} on average, and the loss takes a softmax over them, as if "
        "one excluded the others: several labels need a sigmoid each (binary cross-entropy)."
    )


def _beyond_activation(run: Run) -> Found | None:
    plain, last = run.plain, run.start.last if run.start else ""
    low, high = RANGES.get(last, (-math.inf, math.inf))
    if plain is None or plain.wanted is None:
        return None
    lowest, highest = map(number, plain.wanted)
    below, above = low - lowest, highest - high
    if not max(below, above) > BEYOND * max(highest - lowest, 1.0):
        return None
    end = f"below {text(low)}" if below >= above else f"above {text(high)}"
    return Found(
        f"The loss is least for answers from {text(lowest)} to {text(highest)}, and the activation at the end of the model "
        f"({last}) gives none {end}."
    )


def _disagreeing(run: Run) -> Found | None:
    plain = run.plain
    if plain is None or plain.fitted is None or run.metric_name not in LARGER or not number(plain.fitted) < FITS:
        return None
    # Else the answers do not fit, as those that were sought between 0 and 1 of quantities.
    if not run.floor <= LITTLE * run.constant_loss or (run.start and run.start.overlooks):
        return None
    return Found(
        f"Answers that fit each sample by the loss reach {run.metric_name} {text(number(plain.fitted))}, and 1 was expected: the "
        "metric reads the outputs otherwise than the loss, such as a threshold of 0 where they are probabilities, or quantities "
        "where the loss expects their logarithm."
    )


def _unregistered(run: Run) -> Found | None:
    form = run.start and run.start.structure
    if not form or not form.unregistered:
        return None
    return Found(
        f"{form.unregistered} tensors that want gradients are not among the model's parameters, so that the optimizer never gets "
        "them: layers in a Python list are not registered."
    )


def _levelless(run: Run) -> Found | None:
    form = run.start and run.start.structure
    if not form or not form.levelless or run.skill >= HELD_SKILL:
        return None
    return Found(
        "The answers are the same where a number is added to all inputs of a sample: each sample is normalized by itself (layer "
        "norm, or a mean over its own features), which takes its level away."
    )


def _padded(run: Run) -> Found | None:
    share = number(run.start_data and run.start_data.constant)
    if not share >= PADDED or run.skill >= HELD_SKILL:
        return None
    return Found(
        f"{percent(share)} of the places of the inputs hold the same number in all training samples, as padding does: an answer "
        "that is read behind it, not at the last real place, hardly knows what stands before."
    )


def _decayed(run: Run) -> Found | None:
    optimizer = run.config.get("optimizer") or {}
    decay, most = number(optimizer.get("weight_decay")), LARGE_DECAY.get(optimizer.get("name", ""), math.inf)
    if not decay >= most or run.reached_skill >= HELD_SKILL:
        return None
    usual = f"usual for {optimizer['name']} are {text(most / 10)} and less"
    return Found(f"A weight decay of {text(decay)} pulls the weights to zero: {usual}.", {"optimizer.weight_decay": most / 100})


def _overlooked(run: Run) -> Found | None:
    told = run.start and run.start.overlooks
    if not told:
        return None
    of = f", all those of class {_listed(list(map(str, told.classes)))}" if told.classes else ""
    one = (
        f" It looks at one answer (sample, place) in {1 / (1 - number(told.share)):.0f} alone."
        if MOSTLY <= number(told.share) < 1
        else ""
    )
    left = f" It looks at class {_listed(list(map(str, told.seen)))} alone." if 0 < len(told.seen) < len(told.classes) else ""
    return Found(
        f"The loss has no gradient at {percent(number(told.share))} of the answers{of}, which the metric "
        f"{_listed(told.metrics)} counts: it does not look there.{one}{left}"
    )


def _listed(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# --- the data -------------------------------------------------------------------------------------


def _repeated(run: Run) -> Found | None:
    share = number(run.start_data.repeated) if run.start_data else math.nan
    if not share >= REPEATED:
        return None
    return Found(
        f"{percent(share)} of the training samples that were looked at repeat another one: an epoch has few distinct rows."
    )


def _altered(run: Run) -> Found | None:
    given = [number(share) for share in ((run.result.signals and run.result.signals.start.as_given) or [])]
    if len(given) < 2 or not run.history or run.reached_skill >= HELD_SKILL or not 0 <= run.chance < 1:
        return None
    told, held_out = ((share - run.chance) / (1 - run.chance) for share in given)
    if held_out < ALIKE or told > held_out / LOST:
        return None
    return Found(
        f"Of validation samples the nearest ones name the class of {percent(given[1])}, of training samples, as the model gets "
        f"them, of {percent(given[0])}: what alters these (a crop, an augmentation), or their labels, takes the classes away."
    )


def _outlying(run: Run) -> Found | None:
    data = run.start_data
    if data is None or not data.outliers or not number(data.outlying) >= OUTLYING:
        return None
    if data.outliers > MOST_OUTLIERS * number(run.result.train_samples):
        return None
    return Found(
        f"{data.outliers} of the training targets that were looked at lie far outside of the others and make up "
        f"{percent(number(data.outlying))} of their variance: a squared loss is about these."
    )


# --- the table ------------------------------------------------------------------------------------

CAUSES = (
    Cause("rate_gone", _gone, "A schedule as long as the run; one that counts epochs takes a step after each epoch", True),
    Cause("rate_rising", _rising, "A warm-up of a twentieth of the run", True),
    Cause("labels_smoothed_away", _smoothed, "Less label smoothing", True),
    Cause("loss_unlearnable", _unlearnable, "Take label smoothing, or what scales the outputs, out of the loss", True),
    Cause(
        "loss_overlooks",
        _overlooked,
        "Look at ignore_index, class weights and mask of the loss, and at what the metric counts",
        True,
    ),
    Cause(
        "batch_dependent",
        _of_the_batch,
        "Look for a softmax, a norm or a mean over dimension 0, which is the batch, or a reshape where a transpose is meant",
        True,
    ),
    Cause("linear_model", _linear, "Put an activation such as ReLU between the layers", True),
    Cause("same_answers", _same_answers, "Make each output, or each head, with weights of its own", True),
    Cause("few_steps", _few_steps, "Smaller batches, or more epochs", True),
    Cause("labels_exclusive", _exclusive, "functional.binary_cross_entropy_with_logits", True),
    Cause("beyond_activation", _beyond_activation, "Take the activation at the end away, or the loss that expects it", True),
    Cause("metric_disagrees", _disagreeing, "Read the outputs in the metric as the loss does", True),
    Cause("not_registered", _unregistered, "Put the layers into a ModuleList, or make them attributes", True),
    Cause("one_direction", _one_direction, "Widen the layer of one unit", True),
    Cause("answers_change", _stateful, "Begin each batch with a fresh state", True),
    Cause("metric_turned", _turned, "The other metric.mode", True),
    Cause("weights_decayed", _decayed, "Little weight decay, or none", True),
    Cause("order_blind", _orderless, "Where order matters: positions, or a convolution or recurrence before the mean", False),
    Cause("inputs_destroyed", _altered, "Look at some training samples as the model gets them, with their labels", True),
    Cause("units_dropped", _dropped, "A fifth of the dropout", True),
    Cause("unusual_value", _unusual, "The usual values first, then one change at a time", False),
    Cause("small_batches", _small_batches, "Larger batches, or layer norm or group norm in place of batch norm", False),
    Cause("attack_too_strong", _attacked, "An epsilon well below the spread of the inputs", False),
    Cause("level_lost", _levelless, "Normalize by the training split's mean and deviation, for each feature", False),
    Cause("mostly_padding", _padded, "Read the answer at each sample's own length, or pack the sequences", False),
    Cause("inputs_ignored", _ignored, "Look at what forward takes of its inputs: slices, an index such as [:, 0], masks", False),
    Cause("targets_unscaled", _far_targets, "Standardize the targets by the training split's, and undo it for the metric", False),
    Cause("loss_scaled", _scaled, "Return the mean over the samples from the loss", False),
    Cause("weights_held", _held, "Train these weights too, or begin with trained ones", False),
    Cause(
        "target_outliers", _outlying, "Look at these targets; clip them, take their logarithm, or a loss such as Huber's", False
    ),
    Cause("rows_repeated", _repeated, "Look at how the data set, or its sampler, comes to its rows", False),
)


def causes_of(run: Run) -> list[Told]:
    """Return the causes that a run's config and record show, in the order of the table."""
    return list(_told(run))


def _told(run: Run) -> Iterator[Told]:
    for cause in CAUSES:
        if run.config and (found := cause.find(run)) is not None:
            yield Told(cause, found)


def with_causes(row: Diagnosis, told: list[Told]) -> Diagnosis:
    """Return a row that fired with the causes that explain it first, and their cures as its first suggestions."""
    told = [one for one in told if one.cause.is_wrong or row.id != ALONE]
    if row.state != "fired" or row.id not in SYMPTOMS or not told:
        return row
    causes, cures = [one.found.sentence for one in told], [one.suggestion for one in told]
    return row.model_copy(update={"causes": [*causes, *row.causes], "suggestions": [*cures, *row.suggestions]})
