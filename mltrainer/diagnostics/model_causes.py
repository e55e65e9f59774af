"""Causes in the model: inputs that its answers cannot depend on, and untrained parts."""

from __future__ import annotations

import math

from mltrainer.diagnostics.cause import HELD_SKILL, Cause, Found, listed
from mltrainer.diagnostics.signals import Run, finite, number, percent, text
from mltrainer.records.run import Structure

DROPPED = 0.9  # share of the units
IGNORED = 0.25  # of the places along a dimension; the border of a picture, or pixels that are always blank, are fewer
BY_BATCH = 0.01  # share of the answers' spread; rounding is below 1e-4


def _dropped(run: Run) -> Found | None:
    set_to = number((run.config.get("model") or {}).get("dropout"))
    most = max(finite([set_to, number(run.start and run.start.dropped)]), default=math.nan)
    if not most >= DROPPED:
        return None
    return Found(f"Dropout of {text(most)} leaves {percent(1 - most)} of the units in a step.", {"model.dropout": "x0.2"})


def _held(run: Run) -> Found | None:
    start = run.start
    # Adapters beside held weights train as few by intent.
    if start is None or not start.held or run.config.get("strategies") or run.reached_skill >= HELD_SKILL:
        return None
    return Found(
        f"{percent(number(start.trained_share))} of the parameters are trained: {listed(start.held)} "
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


def _form(run: Run) -> Structure | None:
    """Return the form of a model; None if all weights of a layer begin equal, which explains anything."""
    return run.start.structure if run.start and not run.start.symmetric else None


def _linear(run: Run) -> Found | None:
    form = _form(run)
    if not form or not form.linear or form.layers < 2 or run.reached_skill >= HELD_SKILL:
        return None
    return Found(
        f"The model is linear: nothing is between its {form.layers} layers with weights (no activation, such as ReLU), and "
        "together they can do no more than one of them."
    )


def _orderless(run: Run) -> Found | None:
    form = _form(run)
    if not form or not form.orderless or run.skill >= HELD_SKILL:
        return None
    return Found(
        f"The order of the inputs along dimension {listed(form.orderless)} changes no answer: the model has no "
        "positions there, or takes a mean over it (pooling) before anything looks at neighbours."
    )


def _same_answers(run: Run) -> Found | None:
    form = _form(run)
    if not form or not form.same_answers:
        return None
    return Found(
        f"{form.same_answers} of the numbers of each answer are always equal to another one: these outputs share their weights, "
        "as heads of a list that was multiplied do."
    )


def _one_direction(run: Run) -> Found | None:
    start = run.start
    form, classes = _form(run), (start and start.target and start.target.classes) or 0
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
    form = _form(run)
    most = max((form.ignored if form else {}).items(), key=lambda one: number(one[1]), default=None)
    if most is None or not number(most[1]) >= IGNORED or run.skill >= HELD_SKILL:
        return None
    return Found(
        f"No answer looks at {percent(number(most[1]))} of the places along dimension {most[0]} of the inputs: a slice, an index "
        "or a mask leaves them out."
    )


def _stateful(run: Run) -> Found | None:
    form = _form(run)
    if not form or form.repeats:
        return None
    return Found(
        "In evaluation mode the same samples get other answers when they are asked again: the model keeps a state, such as a "
        "hidden one, from batch to batch."
    )


def _unregistered(run: Run) -> Found | None:
    form = _form(run)
    if not form or not form.unregistered:
        return None
    return Found(
        f"{form.unregistered} tensors that want gradients are not among the model's parameters, so that the optimizer never gets "
        "them: layers in a Python list are not registered."
    )


def _levelless(run: Run) -> Found | None:
    form = _form(run)
    if not form or not form.levelless or run.skill >= HELD_SKILL:
        return None
    return Found(
        "The answers are the same where a number is added to all inputs of a sample: each sample is normalized by itself (layer "
        "norm, or a mean over its own features), which takes its level away."
    )


MODEL_CAUSES = (
    Cause(
        "batch_dependent",
        _of_the_batch,
        "Look for a softmax, a norm or a mean over dimension 0, which is the batch, or a reshape where a transpose is meant",
        True,
    ),
    Cause("linear_model", _linear, "Put an activation such as ReLU between the layers", True),
    Cause("same_answers", _same_answers, "Make each output, or each head, with weights of its own", True),
    Cause("not_registered", _unregistered, "Put the layers into a ModuleList, or make them attributes", True),
    Cause("one_direction", _one_direction, "Widen the layer of one unit", True),
    Cause("answers_change", _stateful, "Begin each batch with a fresh state", True),
    Cause("order_blind", _orderless, "Where order matters: positions, or a convolution or recurrence before the mean", False),
    Cause("units_dropped", _dropped, "A fifth of the dropout", True),
    Cause("level_lost", _levelless, "Normalize by the training split's mean and deviation, for each feature", False),
    Cause("inputs_ignored", _ignored, "Look at what forward takes of its inputs: slices, an index such as [:, 0], masks", False),
    Cause("weights_held", _held, "Train these weights too, or begin with trained ones", False),
)
