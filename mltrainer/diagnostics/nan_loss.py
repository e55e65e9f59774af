"""NaN loss: a loss or gradient that is not a finite number (page: `diagnostics/nan_loss.md`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mltrainer.diagnostics.signals import Finding, Run, finite, number, text
from mltrainer.records.common import Metrics
from mltrainer.records.run import WITHOUT_STEPS, HistoryRow, Located, NonFinite, Ranged

SHOWN_SAMPLES = 16  # ids in the evidence; a batch may hold thousands
SHOWN_PLACE = ("kind", "tensor", "operation", "module", "line", "holds", "sample")  # shown keys of its place
ORDINARY = {"float16": 2.0**8, "float64": 2.0**512}  # products of two numbers up to this stay in the type's range
OF_MOST = 2.0**64  # the same of float32, whose exponents bfloat16 has too


def find(run: Run) -> Finding:
    """Fire on the first loss or gradient norm that is not finite."""
    if run.nonfinite is not None:
        return _stopped(run.nonfinite, run.is_broken_by_data)
    broken = _in_history(run)
    if broken is not None:
        return broken
    if not run.history:
        return Finding("not_applicable", "The run recorded no evaluation and no non-finite number.")
    if run.result.is_without_steps:
        return Finding("not_applicable", f"Of the program, {WITHOUT_STEPS}, so that it has no losses and no gradients.")
    values = sum(len(_losses(row)) for row in run.history)
    return Finding("clear", f"All {values} recorded losses and gradient norms of {len(run.history)} evaluations are finite.")


def _stopped(first: NonFinite, is_elsewhere: bool) -> Finding:
    what, located = first.what or "loss", first.located
    evidence = {
        "what": what,
        "step": first.step,
        "epoch": first.epoch,
        "samples": first.samples[:SHOWN_SAMPLES],
        "batch_samples": len(first.samples),
    }
    reason = f"The {what} was not finite at step {first.step} (epoch {first.epoch}), on a batch of {len(first.samples)} samples."
    if located:
        evidence |= {key: value for key in SHOWN_PLACE if (value := getattr(located, key)) is not None}
        reason += f" First not finite: {located_text(located)}."
    if located and (far := located.outlier):
        evidence |= {"culprit": far.sample}
        reason += (
            f" Sample {far.sample} of that batch reaches {text(number(far.reach))} in {far.tensor}, where half of the samples "
            f"stay below {text(number(far.usual))}: look at it first."
        )
    if located and (fix := line_fix(located)) is not None:
        evidence |= {"mend": fix}
    return Finding("fired", reason, evidence, ("learning_curves.svg", "gradients.svg"), is_elsewhere)


def _in_history(run: Run) -> Finding | None:
    """Return a finding of the first recorded value that is not finite; a value that is missing is not one."""
    for row, epoch in zip(run.history, run.epochs, strict=True):
        for what, value in _losses(row).items():
            if not math.isfinite(number(value)):
                evidence = {"what": what, "value": str(value), "epoch": epoch, "step": row.step}
                return Finding("fired", f"At epoch {epoch:g} {what} was {value}.", evidence, ("learning_curves.svg",))
    return None


def _losses(row: HistoryRow) -> Metrics:
    """Return the losses and the largest gradient norm of an evaluation, those that were recorded."""
    losses = {"train_loss": row.train_loss, "train.loss": row.train.get("loss"), "validation.loss": row.validation.get("loss")}
    metrics = {**losses, "grad_norm.max": row.grad_norm.max}
    return {what: value for what, value in metrics.items() if value is not None}


# --- where it arose -------------------------------------------------------------------------------


def located_text(located: Located) -> str:
    """Return the first non-finite value of a step in words, as a part of a sentence."""
    return _TEXTS[located.kind](located)


def line_fix(located: Located) -> str | None:
    """Return the fix of the line of code that made a non-finite number out of ordinary ones.

    None if no such line is known, or if its inputs had grown: then the steps were too large.
    """
    if not located.line or not all(map(_is_ordinary, [*located.inputs, *located.incoming])):
        return None
    operation = f"the derivative of {located.operation}" if located.kind == "backward" else located.operation
    return f"fix {located.line}, where {operation} gave {located.holds} of finite numbers, then mltrainer run"


def _is_ordinary(one: Ranged) -> bool:
    """Return True if a tensor's finite values are too small to overflow; infinities in it, as in a mask, do not count."""
    ends = finite(map(number, (one.lowest, one.largest)))
    return max(map(abs, ends), default=0.0) <= ORDINARY.get(one.dtype, OF_MOST)


def _of_data(located: Located) -> str:
    return f"the data itself: {located.tensor} {_holding(located)}"


def _of_weights(located: Located) -> str:
    return f"{located.tensor} {_holding(located)} before the step; the update before it went too far"


def _of_forward(located: Located) -> str:
    narrow = "; float16 ends at 65504" if located.dtype == "float16" else ""
    return f"{_operation(located)}: its output {_holding(located)}{_input_ranges(located.inputs, 'its inputs')}{narrow}"


def _of_backward(located: Located) -> str:
    place = f"the derivative of {_operation(located)}"
    given = _input_ranges(located.inputs, "in the forward pass its inputs") + _input_ranges(
        located.incoming, "the incoming gradient"
    )
    return f"{place}: the gradient {_holding(located)}{given}"


def _of_gradient(located: Located) -> str:
    return f"the gradient of {located.tensor} {_holding(located)}"


def _of_norm(located: Located) -> str:
    largest = max(abs(number(located.lowest)), abs(number(located.largest)))
    return f"the norm of all gradients, each of them finite; the longest is that of {located.tensor}, up to {text(largest)}"


_TEXTS = {
    "data": _of_data,
    "weights": _of_weights,
    "forward": _of_forward,
    "backward": _of_backward,
    "gradient": _of_gradient,
    "norm": _of_norm,
}


def _operation(located: Located) -> str:
    """Return the operation with its module and line of code."""
    module = f"{located.module} ({located.module_kind})" if located.module else located.module_kind
    inside = module or f"the task's {located.part}"
    operation = f"{located.operation} in {inside}" if located.operation else inside
    return operation + (f" ({located.line})" if located.line else "")


def _holding(located: Located) -> str:
    """Return a tensor's shape, dtype and non-finite values, with the place of the first."""
    text_of_tensor, index = f"{located.shape} {located.dtype} holds {located.holds}", located.index or []
    text_of_tensor += f" ({located.count} of {math.prod(located.shape)} numbers)" if located.count else ""
    if located.sample is None:
        return text_of_tensor + (f", first at {index}" if index else "")
    return f"{text_of_tensor}, first in sample {located.sample}" + (f", place {index[1:]}" if index[1:] else "")


def _input_ranges(tensors: Sequence[Ranged], name: str) -> str:
    """Return the ranges of an operation's inputs; empty if unknown."""
    ranges = [f"from {text(number(one.lowest))} to {text(number(one.largest))}" for one in tensors if one.lowest is not None]
    return f"; {name} {'range' if len(ranges) > 1 else 'ranged'} {' and '.join(ranges)}" if ranges else ""
