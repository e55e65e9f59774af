"""Broadcast in the loss: every output compared with every target (page: `diagnostics/loss_broadcast.md`)."""

from __future__ import annotations

from collections.abc import Mapping

from mltrainer.diagnostics.signals import Finding, Run, judged, number

ID = "loss_broadcast"
FIGURES = ("learning_curves.svg",)


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where outputs and targets differ in shape and the loss does not notice that the targets were shuffled."""
    start = run.start or {}
    output, target = start.get("output"), start.get("target")
    loss, shuffled = number(start.get("loss")), number(start.get("shuffled_loss"))
    if not output or not target or shuffled != shuffled:
        return Finding(ID, "not_applicable", "The untrained model's loss was not measured with shuffled targets.")
    evidence = {"outputs": output.get("shape"), "targets": target.get("shape"), "loss": loss, "shuffled_loss": shuffled}
    shapes = f"an output has shape {output.get('shape')}, a target {target.get('shape')}"
    if output.get("shape") == target.get("shape") or target.get("classes"):
        return Finding(ID, "clear", f"The shapes go together: {shapes}.", evidence)
    tells_apart = number(output.get("spread")) > thresholds["spread"] * number(target.get("spread"))
    same = abs(loss - shuffled) <= thresholds["difference"] * abs(loss)
    reason = f"{shapes[0].upper()}{shapes[1:]}; with the targets in another order the loss is {'the same' if same else 'another'}"
    what = ": every output is compared with every target." if same and tells_apart else "."
    return judged(ID, same and tells_apart, reason + what, {**evidence, "since_step": 0}, FIGURES)
