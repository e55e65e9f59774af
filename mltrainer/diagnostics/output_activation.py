"""Output activation: outputs that do not suit loss or targets (page: `diagnostics/output_activation.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mltrainer.diagnostics.signals import Finding, Row, Run, judged, number, text

ID = "output_activation"
FIGURES = ("learning_curves.svg",)


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire on probabilities that the loss takes for logits, rectified logits, and outputs whose range leaves out the targets."""
    start = run.start or {}
    output, target = start.get("output"), start.get("target")
    if not output or not target:
        return Finding(ID, "not_applicable", "The outputs of the untrained model were not observed beside targets.")
    fault = _of_classes(start, output, thresholds) if target.get("classes") else _of_numbers(start, output, target)
    evidence = {
        "last_module": start.get("last"),
        "outputs": [output.get("lowest"), output.get("largest")],
        "targets": [target.get("lowest"), target.get("largest")],
    }
    shown = f"from {text(number(output.get('lowest')))} to {text(number(output.get('largest')))}"
    if fault is None:
        return Finding(ID, "clear", f"The untrained model's outputs lie {shown}, and nothing speaks against them.", evidence)
    return judged(ID, True, f"{fault} (outputs {shown}).", {**evidence, "since_step": 0}, FIGURES)


def _of_classes(start: Row, output: Row, thresholds: Mapping[str, float]) -> str | None:
    """Return the fault of a classifier's outputs, or None."""
    loss = number(start.get("loss"))
    if len(output.get("shape") or []) != 1 or output["shape"][0] < 2:
        return None
    if output.get("sums_to_one"):
        is_logits = abs(loss - number(start.get("as_logits"))) <= thresholds["difference"] * abs(loss)
        return "The outputs are probabilities already, and the loss normalizes them once more" if is_logits else None
    is_rectified = thresholds["zero"] < number(output.get("zero")) < 1 and number(output.get("lowest")) >= 0
    return "No output is below zero: a rectifier stands behind the last layer, where logits belong" if is_rectified else None


def _of_numbers(start: Row, output: Row, target: Row) -> str | None:
    """Return the fault of a regression's outputs, a last activation whose range excludes targets, or None."""
    ends = RANGES.get(str(start.get("last")))
    if ends is None or output.get("shape") == []:
        return None
    low, high = ends
    if number(target.get("lowest")) < low or number(target.get("largest")) > high:
        reach = f"from {text(number(target.get('lowest')))} to {text(number(target.get('largest')))}"
        return f"{start.get('last')}, the last module, gives {text(low)} to {text(high)}, and the targets lie {reach}"
    return None


RANGES = {"ReLU": (0.0, math.inf), "ReLU6": (0.0, 6.0), "Softplus": (0.0, math.inf), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
