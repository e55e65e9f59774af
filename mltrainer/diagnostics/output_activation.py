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
        fault = _of_classes(start, output, difference, zero) if target.classes else _of_numbers(start.last, output, target)
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


def _of_logits(run: Run, output: OutputSeen, zero: float) -> str | None:
    """Return the fault of outputs that the loss takes for logits of two classes, or None."""
    seen = [output, *(signals.validation.output for _, signals in run.seen)]
    # Also at the end: a trained logit leaves the range from 0 to 1, of which an untrained one may not yet.
    if all(one is not None and number(one.lowest) >= 0 and number(one.largest) <= 1 for one in seen) and len(seen) > 1:
        return "The outputs lie from 0 to 1 throughout, as probabilities do, and the loss takes them for logits"
    is_rectified = zero < number(output.zero) < 1 and number(output.lowest) >= 0
    return "No output is below zero: a rectifier stands behind the last layer, where logits belong" if is_rectified else None


def _of_classes(start: SeenAtStart, output: OutputSeen, difference: float, zero: float) -> str | None:
    """Return the fault of a classifier's outputs, or None."""
    loss = number(start.loss)
    if len(output.shape) != 1 or output.shape[0] < 2:
        return None
    if output.sums_to_one:
        # Probabilities are no fault by themselves, only a loss that takes them for logits.
        is_logits = abs(loss - number(start.as_logits)) <= difference * abs(loss)
        return "The outputs are probabilities already, and the loss normalizes them once more" if is_logits else None
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


RANGES = {"ReLU": (0.0, math.inf), "ReLU6": (0.0, 6.0), "Softplus": (0.0, math.inf), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
