"""Output activation: outputs that do not suit loss or targets (page: `diagnostics/output_activation.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, number, text
from mltrainer.records.run import OutputSeen, SeenAtStart, TargetSeen

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, difference: float, zero: float) -> Finding:
    """Fire on probabilities that the loss takes for logits, rectified logits, and outputs whose range leaves out the targets."""
    start = run.start
    if start is None or start.output is None or start.target is None:
        return Finding("not_applicable", "The outputs of the untrained model were not observed beside targets.")
    output, target = start.output, start.target
    if _is_binary(start, difference):
        fault = SQUASHED if _are_probabilities(run, output) else _rectified(output, zero)
    elif is_softmaxed(start, difference):
        fault = _of_logits(run, output, zero)
    else:
        fault = None if target.classes else _of_numbers(start.last, target)
    evidence = {
        "last_module": start.last,
        "outputs": [output.lowest, output.largest],
        "targets": [target.lowest, target.largest],
    }
    shown = _range(output)
    if fault is None:
        return Finding("clear", f"The untrained model's outputs lie {shown}, and nothing speaks against them.", evidence)
    return Finding("fired", f"{fault} (outputs {shown}).", {**evidence, "since_step": 0}, FIGURES)


def _is_binary(start: SeenAtStart, difference: float) -> bool:
    """Return True if the loss is the binary cross-entropy of one logit for each target."""
    loss, as_binary = number(start.loss), number(start.as_binary)
    return abs(loss - as_binary) <= difference * abs(loss)


def is_softmaxed(start: SeenAtStart, difference: float) -> bool:
    """Return True if the loss takes outputs for logits of classes: it is their cross-entropy, or no constant added changes it."""
    loss = number(start.loss)
    return any(abs(loss - number(other)) <= difference * abs(loss) for other in (start.as_logits, start.shifted_loss))


def _are_probabilities(run: Run, output: OutputSeen) -> bool:
    """Return True if all outputs are from 0 to 1, to the end: a trained logit leaves that range, an untrained one perhaps not."""
    seen = [output, *(signals.validation.output for _, signals in run.seen)]
    return all(one is not None and number(one.lowest) >= 0 and number(one.largest) <= 1 for one in seen)


def _rectified(output: OutputSeen, zero: float) -> str | None:
    """Return the fault of logits with many exact zeros, as a rectifier gives them, or None."""
    return RECTIFIED if zero < number(output.zero) < 1 else None


def _of_logits(run: Run, output: OutputSeen, zero: float) -> str | None:
    """Return the fault of outputs that the loss takes for logits of classes, or None."""
    if output.sums_to_one:
        return "The outputs are probabilities already, and the loss normalizes them once more"
    # Several logits may be from 0 to 1 in a model that learns nothing: a sigmoid's outputs reach an end.
    reached = [number(signals.validation.output.largest) for _, signals in run.seen if signals.validation.output]
    if max(reached, default=0.0) > NEAR_ONE and _are_probabilities(run, output):
        return SQUASHED
    return _rectified(output, zero)


def _of_numbers(last: str, target: TargetSeen) -> str | None:
    """Return the fault of a regression's outputs, a last activation whose range excludes targets, or None."""
    low, high = RANGES.get(last, (-math.inf, math.inf))
    if number(target.lowest) < low or number(target.largest) > high:
        return f"{last}, the last module, gives {text(low)} to {text(high)}, and the targets lie {_range(target)}"
    return None


def _range(seen: OutputSeen | TargetSeen) -> str:
    return f"from {text(number(seen.lowest))} to {text(number(seen.largest))}"


NEAR_ONE = 0.95  # chosen by us: beyond it a sigmoid's output is that of a class it is sure of
RECTIFIED = "No output is below zero: a rectifier follows the last layer, where logits belong"
SQUASHED = "The outputs lie from 0 to 1 throughout, as probabilities do, and the loss takes them for logits"
RANGES = {"ReLU": (0.0, math.inf), "ReLU6": (0.0, 6.0), "Softplus": (0.0, math.inf), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
