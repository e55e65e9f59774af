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
    if _is_binary(start, target, difference):
        fault = _of_logits(run, output, zero)
    else:
        is_class = bool(target.classes) or is_softmaxed(start, difference)
        fault = _of_classes(run, start, output, difference, zero) if is_class else _of_numbers(start.last, output, target)
    evidence = {
        "last_module": start.last,
        "outputs": [output.lowest, output.largest],
        "targets": [target.lowest, target.largest],
    }
    shown = _range(output)
    if fault is None:
        return Finding("clear", f"The untrained model's outputs lie {shown}, and nothing speaks against them.", evidence)
    return Finding("fired", f"{fault} (outputs {shown}).", {**evidence, "since_step": 0}, FIGURES)


def _is_binary(start: SeenAtStart, target: TargetSeen, difference: float) -> bool:
    """Return True if the loss is the binary cross-entropy of one logit for each target from 0 to 1."""
    loss, as_binary = number(start.loss), number(start.as_binary)
    is_probability = number(target.lowest) >= 0 and number(target.largest) <= 1
    return is_probability and abs(loss - as_binary) <= difference * abs(loss)


def is_softmaxed(start: SeenAtStart, difference: float) -> bool:
    """Return True if the loss takes outputs for logits of classes: it is their cross-entropy, or no constant added changes it."""
    loss = number(start.loss)
    is_plain = abs(loss - number(start.as_logits)) <= difference * abs(loss)
    # A loss that ignores the outputs, or is 0, never changes.
    is_shifted = loss > 0 and start.shuffled_loss != start.loss and abs(loss - number(start.shifted_loss)) <= difference * loss
    return is_plain or is_shifted


def _of_logits(run: Run, output: OutputSeen, zero: float) -> str | None:
    """Return the fault of outputs that the loss takes for logits of two classes, or None."""
    if _are_probabilities(run, output):
        return SQUASHED
    is_rectified = zero < number(output.zero) < 1 and number(output.lowest) >= 0
    return "No output is below zero: a rectifier stands behind the last layer, where logits belong" if is_rectified else None


def _are_probabilities(run: Run, output: OutputSeen) -> bool:
    """Return True if all outputs are from 0 to 1, to the end: a trained logit leaves that range, an untrained one perhaps not."""
    seen = [output, *(signals.validation.output for _, signals in run.seen)]
    return len(seen) > 1 and all(one is not None and number(one.lowest) >= 0 and number(one.largest) <= 1 for one in seen)


def _of_classes(run: Run, start: SeenAtStart, output: OutputSeen, difference: float, zero: float) -> str | None:
    """Return the fault of a classifier's outputs, or None."""
    if not is_softmaxed(start, difference) and (len(output.shape) != 1 or output.shape[0] < 2):
        return None
    # Probabilities are no fault by themselves, only a loss that takes them for logits.
    is_logits = is_softmaxed(start, difference)
    if output.sums_to_one:
        return "The outputs are probabilities already, and the loss normalizes them once more" if is_logits else None
    # Several logits may be from 0 to 1 in a model that learns nothing: a sigmoid's outputs reach an end.
    reached = [number(signals.validation.output.largest) for _, signals in run.seen if signals.validation.output]
    is_sigmoid = start.last == "Sigmoid" or max(reached, default=0.0) > NEAR_ONE
    if is_logits and is_sigmoid and _are_probabilities(run, output):
        return SQUASHED
    # A rectifier gives many exact zeros, a logit none.
    is_rectified = zero < number(output.zero) < 1 and number(output.lowest) >= 0
    return "No output is below zero: a rectifier stands behind the last layer, where logits belong" if is_rectified else None


def _of_numbers(last: str, output: OutputSeen, target: TargetSeen) -> str | None:
    """Return the fault of a regression's outputs, a last activation whose range excludes targets, or None."""
    ends = RANGES.get(last)
    if ends is None or output.shape == []:
        return None
    low, high = ends
    if number(target.lowest) < low or number(target.largest) > high:
        return f"{last}, the last module, gives {text(low)} to {text(high)}, and the targets lie {_range(target)}"
    return None


def _range(seen: OutputSeen | TargetSeen) -> str:
    return f"from {text(number(seen.lowest))} to {text(number(seen.largest))}"


NEAR_ONE = 0.95  # chosen by us: beyond it a sigmoid's output is that of a class it is sure of
SQUASHED = "The outputs lie from 0 to 1 throughout, as probabilities do, and the loss takes them for logits"
RANGES = {"ReLU": (0.0, math.inf), "ReLU6": (0.0, 6.0), "Softplus": (0.0, math.inf), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
