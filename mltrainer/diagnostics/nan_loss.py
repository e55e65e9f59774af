"""NaN loss: a loss or gradient that is not a finite number (page: `diagnostics/nan_loss.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, finite, number, text

ID = "nan_loss"
SHOWN_SAMPLES = 16  # ids in the evidence; a batch may hold thousands
SHOWN_PLACE = ("kind", "tensor", "operation", "module", "line", "holds", "sample")  # of where it arose
ORDINARY = {"float16": 2.0**8, "float64": 2.0**512}  # of numbers up to here no product of two leaves the type's range
OF_MOST = 2.0**64  # the same of float32, whose exponents bfloat16 has too
CURVES = (("train_loss",), ("train", "loss"), ("validation", "loss"), ("grad_norm", "max"))


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire on the first loss or gradient norm that is not finite."""
    if run.nonfinite is not None:
        return _stopped(run.nonfinite)
    broken = _in_history(run)
    if broken is not None:
        reason = f"{broken['what']} was {broken['value']} at epoch {broken['epoch']:g}."
        return Finding(ID, "fired", reason, broken, ("learning_curves.svg",))
    if not run.history:
        return Finding(ID, "not_applicable", "The run recorded no evaluation and no non-finite number.")
    values = sum(_recorded(row, path) is not None for row in run.history for path in CURVES)
    return Finding(ID, "clear", f"All {values} recorded losses and gradient norms of {len(run.history)} evaluations are finite.")


def _stopped(found: Mapping[str, Any]) -> Finding:
    samples = list(found.get("samples") or [])
    what = str(found.get("what", "loss"))
    evidence = {
        "what": what,
        "step": found.get("step"),
        "epoch": found.get("epoch"),
        "samples": samples[:SHOWN_SAMPLES],
        "batch_samples": len(samples),
    }
    place = f"step {found.get('step')} (epoch {found.get('epoch')})"
    reason = f"The {what} was not finite at {place}, on a batch of {len(samples)} samples."
    located = found.get("located") or {}
    if located:
        evidence |= {key: located[key] for key in SHOWN_PLACE if located.get(key) is not None}
        reason += f" First not finite: {located_text(located)}."
    if (mend := line_fix(located)) is not None:
        evidence["mend"] = mend
    return Finding(
        ID,
        "fired",
        reason,
        evidence,
        ("learning_curves.svg", "gradients.svg"),
        is_elsewhere=located.get("kind") == "data",
    )


def _in_history(run: Run) -> dict[str, Any] | None:
    """Return the first recorded value that is not finite; a value that is missing is not one."""
    for row, epoch in zip(run.history, run.epochs, strict=True):
        for path in CURVES:
            value = _recorded(row, path)
            if value is not None and not math.isfinite(number(value)):
                return {"what": ".".join(path), "value": str(value), "epoch": epoch, "step": row.get("step")}
    return None


def _recorded(row: Mapping[str, Any], path: tuple[str, ...]) -> float | str | None:
    value = row.get(path[0])
    inner = value.get(path[1]) if len(path) > 1 and isinstance(value, Mapping) else value
    return inner if isinstance(inner, (int, float, str)) else None


# --- where it arose -------------------------------------------------------------------------------


def located_text(found: Mapping[str, Any]) -> str:
    """Return the first non-finite value of a step in words, as a part of a sentence.

    Args:
        found: As `mltrainer.records.run.Located` holds it.
    """
    return _TEXTS[str(found["kind"])](found)


def line_fix(found: Mapping[str, Any]) -> str | None:
    """Return the fix of the line of code that made a non-finite number out of ordinary ones.

    None where no such line is known, or where what it was given had grown: then the steps were too large.

    Args:
        found: As `mltrainer.records.run.Located` holds it.
    """
    if not found.get("line") or not all(map(_is_ordinary, [*(found.get("inputs") or ()), *(found.get("incoming") or ())])):
        return None
    operation = f"the derivative of {found['operation']}" if found["kind"] == "backward" else found["operation"]
    return f"fix {found['line']}, where {operation} gave {found['holds']} of finite numbers, then mltrainer run"


def _is_ordinary(one: Mapping[str, Any]) -> bool:
    """Return True if a tensor's finite values are too small to overflow; infinities in it, as in a mask, do not count."""
    ends = finite(map(number, (one["lowest"], one["largest"])))
    return max(map(abs, ends), default=0.0) <= ORDINARY.get(one["dtype"], OF_MOST)


def _of_data(found: Mapping[str, Any]) -> str:
    return f"the data itself: {found['tensor']} {_holding(found)}"


def _of_weights(found: Mapping[str, Any]) -> str:
    return f"{found['tensor']} {_holding(found)} before the step; the update before it went too far"


def _of_forward(found: Mapping[str, Any]) -> str:
    narrow = "; float16 ends at 65504" if found["dtype"] == "float16" else ""
    return f"{_operation(found)}: its output {_holding(found)}{_given(found, 'inputs', 'its inputs')}{narrow}"


def _of_backward(found: Mapping[str, Any]) -> str:
    place = f"the derivative of {_operation(found)}"
    given = _given(found, "inputs", "in the forward pass its inputs") + _given(found, "incoming", "the incoming gradient")
    return f"{place}: the gradient {_holding(found)}{given}"


def _of_gradient(found: Mapping[str, Any]) -> str:
    return f"the gradient of {found['tensor']} {_holding(found)}"


def _of_norm(found: Mapping[str, Any]) -> str:
    largest = max(abs(number(found["lowest"])), abs(number(found["largest"])))
    return f"the norm of all gradients, each of them finite; the longest is that of {found['tensor']}, up to {text(largest)}"


_TEXTS = {
    "data": _of_data,
    "weights": _of_weights,
    "forward": _of_forward,
    "backward": _of_backward,
    "gradient": _of_gradient,
    "norm": _of_norm,
}


def _operation(found: Mapping[str, Any]) -> str:
    """Return the operation with its module and line of code."""
    module = f"{found['module']} ({found['module_kind']})" if found.get("module") else str(found.get("module_kind") or "")
    inside = module or f"the task's {found['part']}"
    operation = f"{found['operation']} in {inside}" if found.get("operation") else inside
    return operation + (f" ({found['line']})" if found.get("line") else "")


def _holding(found: Mapping[str, Any]) -> str:
    """Return a tensor's shape, dtype and non-finite values, with the place of the first."""
    told = f"{found['shape']} {found['dtype']} holds {found['holds']}"
    told += f" ({found['count']} of {math.prod(found['shape'])} numbers)" if found.get("count") else ""
    if found.get("sample") is not None:
        told += f", first in sample {found['sample']}"
        return told + (f", place {found['index'][1:]}" if found["index"][1:] else "")
    return told + (f", first at {found['index']}" if found.get("index") else "")


def _given(found: Mapping[str, Any], key: str, name: str) -> str:
    """Return the ranges of what an operation was given; nothing where nothing is known."""
    ranges = [_range(one) for one in found.get(key) or () if one["lowest"] is not None]
    return f"; {name} {'range' if len(ranges) > 1 else 'ranged'} {' and '.join(ranges)}" if ranges else ""


def _range(one: Mapping[str, Any]) -> str:
    return f"from {text(number(one['lowest']))} to {text(number(one['largest']))}"
