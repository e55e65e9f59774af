"""The causes of a difference between two runs of the same config, in the words of messages and reports."""

from __future__ import annotations

from mltrainer.records.common import Cause

HASH_SEEDS = ("0", "1")  # the tool's page sets the first one; sets of strings come in another order under the second
Trace = list[tuple[int, str, str, str]]  # step, what, name, digest
KINDS = {
    "random draw": "a random draw that no seed decides",
    "clock": "the clock or the date",
    "threads": "threads that race with each other",
    "chance": "an operation without a deterministic form, or a race inside a library",
    "hash order": "the order of a set, or of hash values",
    "identity": "what names this process or this object alone (its number, its address, its folder)",
    "listing order": "the order in which a folder lists its files, which another file system changes",
    "operation": "an operation that gives other bits for the same input",
    "folder": "the folder that the program runs in, or the one for temporary files",
    "outside": "a line's input from outside the program, different in each run",
    "unwritten memory": "memory that is read before it is written",
    "workers": "which process loads a sample, or how many samples it has loaded before",
    "state": "state that a checkpoint does not hold",
}
NAMES = {
    "initial": "the initial value of {}",
    "data": "the samples that {} gives",
    "forward": "the forward pass of {}",
    "loss": "the loss of {}",
    "backward": "the gradient of {}",
}


def first_difference(expected: Trace, trace: Trace) -> tuple[int, str] | None:
    """Return step and name of the first line in which two traces differ, or None."""
    for left, right in zip(expected, trace, strict=False):
        if left != right:
            step, what, name, _ = right
            return step, NAMES[what].format(name)
    if len(expected) != len(trace):
        return max(expected, trace, key=len)[min(len(expected), len(trace))][0], "how much is computed"
    return None


def sentence(cause: Cause) -> str:
    """Return a cause in words: the first difference, the kind, and the lines to look at.

    Lines that were seen to use a clock, entropy or threads make a kind likely; a kind without them was shown by changing it.
    """
    lines = [f"{call.where}: {call.call} in {call.function}" for call in cause.calls]
    shown = f" ({'; '.join(lines[:5])})" if lines else ""
    differs = f"first differs at step {cause.step}" if cause.step else "differs"  # without a traced step there is no number
    return f"{cause.what} {differs}: {'likely ' if lines else ''}{KINDS[cause.kind]}{shown}"
