"""Broadcast in the loss: every output compared with every target (page: `diagnostics/loss_broadcast.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, judged, number
from mltrainer.records.run import SeenAtStart

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, difference: float, spread: float) -> Finding:
    """Fire where the loss does not notice that the targets were shuffled; a loss may bring equal shapes apart, too."""
    start, shuffled = run.start, number(run.start and run.start.shuffled_loss)
    if start is None or start.output is None or start.target is None or shuffled != shuffled:
        return Finding("not_applicable", "The untrained model's loss was not measured with shuffled targets.")
    output, target, loss = start.output, start.target, number(start.loss)
    evidence = {"outputs": output.shape, "targets": target.shape, "loss": loss, "shuffled_loss": shuffled}
    shapes = f"an output has shape {output.shape}, a target {target.shape}"
    if target.classes:
        return Finding("clear", f"The shapes go together: {shapes}.", evidence)
    # Constant outputs have the same loss with shuffled targets as well.
    tells_apart = number(output.spread) > spread * number(target.spread)
    # Not equal to the bit: the shuffled sum is added up in another order.
    same = abs(loss - shuffled) <= difference * abs(loss)
    if same and _looks_at_none(start, loss, difference):
        blind = "the loss is the same whatever the targets are, as that of two players or of inputs alone"
        return Finding("clear", f"{shapes[0].upper()}{shapes[1:]}; {blind}.", evidence)
    reason = f"{shapes[0].upper()}{shapes[1:]}; with the targets in another order the loss is {'the same' if same else 'another'}"
    what = ": every output is compared with every target." if same and tells_apart else "."
    return judged(same and tells_apart, reason + what, {**evidence, "since_step": 0}, FIGURES)


def _looks_at_none(start: SeenAtStart, loss: float, difference: float) -> bool:
    """Return True if the loss is the same with one target for all samples; of broadcast ones that changes the sum."""
    return start.constant_loss is not None and abs(loss - number(start.constant_loss)) <= difference * abs(loss)
