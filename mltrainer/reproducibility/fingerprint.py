"""The chain of fingerprints: one line per step, each covering the one before.

A line holds the digest of the step's sample ids, the bits of its loss and of its gradient norm, and the
head of the chain up to it; a line that begins with `w` holds the digest of all weights after that step, one over chunks with
`tree:` before it. A custom tool has one digest of its model at the end, without it.
Two runs with equal heads did the same thing, and unequal lines name the first step that differed.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mltrainer.errors import GateError
from mltrainer.records.common import Divergence
from mltrainer.workspace import RESTORE, machine_faults, read_whole

GENESIS = "0" * 32
CHAIN_FILE = "chain.txt"
MOST_CHAIN_BYTES = 1 << 27  # 1.8 million steps, for commands that only look
TREE = "tree:"  # prefix of a digest of weights over chunks, which differs from one over all bytes
_NOTED_TREE = re.compile(rf"w ([0-9]{{1,15}}) {TREE}([0-9a-f]{{64}}) ")
NO_IDS = "0" * 16  # digest of a step whose samples are unknown


@dataclass(frozen=True)
class Head:
    """The end of a chain.

    Attributes:
        entries: Number of lines.
        value: 32 hex digits that cover all of them.
    """

    entries: int = 0
    value: str = GENESIS


def ids_digest(raw: bytes) -> str:
    """Return the digest of a step's sample ids, given as little-endian int64 bytes."""
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def bits(value: float) -> str:
    """Return the bits of a float32 in hex; NaN and infinity keep theirs."""
    return struct.pack(">f", value).hex()


def float_of(text: str) -> float:
    """Return the float32 whose bits these are."""
    return float(struct.unpack(">f", bytes.fromhex(text))[0])


def step_entry(step: int, ids: str, loss: float, norm: float) -> str:
    """Return the chain's entry of one step: its number, the digest of its sample ids, the bits of loss and gradient norm."""
    return f"{step} {ids} {bits(loss)} {bits(norm)}"


def weights_entry(step: int, sha256: str, *, is_tree: bool = False) -> str:
    """Return the chain's entry of the weights after a step; `is_tree`: the digest is one over chunks."""
    return f"w {step} {TREE if is_tree else ''}{sha256}"


def trees_of(lines: Iterable[str]) -> dict[int, str]:
    """Return the chain's digests of weights over chunks, by step; digests of the other form are left out."""
    return {int(match[1]): match[2] for line in lines if (match := _NOTED_TREE.match(line))}


def last_tree(lines: Iterable[str]) -> str:
    """Return the last of a chain's digests of weights over chunks, its step before it; empty without that form."""
    trees = trees_of(lines)
    return f"{max(trees)} {trees[max(trees)]}" if trees else ""


def tree_fault(last: str, steps: int, sha256: str | None) -> str | None:
    """Return the contradiction between a result and its chain in the final weights' digest over chunks, or None.

    Args:
        last: The chain's `last_tree`.
        steps: Steps of the run; final weights after other steps than an evaluation's are in no line.
        sha256: Digest in the result; None without one.
    """
    step, _, expected = last.partition(" ")
    if bool(last) == bool(sha256) and (not last or step != str(steps) or expected == sha256):
        return None
    return f"weights_tree_sha256 is {sha256}, the chain has {last or 'no digest of that form'}"


def extend(head: Head, entries: Iterable[str]) -> tuple[Head, list[str]]:
    """Return the chain's new head and the lines to append."""
    lines, value, count = [], head.value, head.entries
    for entry in entries:
        # Over the text in the file, so that anybody can recompute the chain without parsing a number.
        value = hashlib.sha256(f"{value} {entry}".encode()).hexdigest()[:32]
        count += 1
        lines.append(f"{entry} {value}")
    return Head(count, value), lines


def append(path: Path, lines: list[str]) -> None:
    """Append lines to a chain's file."""
    with machine_faults(str(path)), open(path, "a", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in lines)


def read(path: Path) -> list[str]:
    """Return the whole lines of a chain's file; a torn last line is left out."""
    try:
        text = read_whole(path, MOST_CHAIN_BYTES, MOST_CHAIN_BYTES // 32).decode("ascii", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines() if text.endswith("\n") else text.splitlines()[:-1]


def verify(lines: list[str], name: str) -> Head:
    """Return the head of a chain's lines.

    Raises:
        GateError: A line does not follow from the line before; the message names it.
    """
    head = Head()
    for number, line in enumerate(lines, 1):
        entry, _, value = line.rpartition(" ")
        head, (expected,) = extend(head, [entry])
        if expected != line:
            raise GateError("the chain breaks", expected=head.value, found=value, where=f"{name}:{number}", hint=RESTORE)
    return head


def cut(path: Path, head: Head) -> None:
    """Cut a chain's file back to a head that a checkpoint recorded.

    Raises:
        GateError: The file does not lead to that head.
    """
    # Verified up to the head alone: later lines were not yet part of the checkpoint, and may be torn.
    lines = read(path)[: head.entries]
    head_found = verify(lines, path.name)
    if head_found != head:
        raise GateError(
            "the chain of the checkpoint",
            expected=f"{head.entries} entries ending in {head.value}",
            found=f"{head_found.entries} ending in {head_found.value}",
            where=str(path),
            hint=RESTORE,
        )
    size = sum(len(line) + 1 for line in lines)
    with machine_faults(str(path)), open(path, "r+b") as file:  # cut in place: needs no space, and a kill loses nothing
        file.truncate(size)


def first_divergence(expected: list[str], found: list[str]) -> Divergence | None:
    """Return the first step at which two chains differ, or None if one continues the other."""
    for left, right in zip(expected, found, strict=False):
        if left != right:
            return _divergence(left.split(), right.split())
    return None


def _divergence(left: list[str], right: list[str]) -> Divergence:
    if left[0] == "w" or right[0] == "w":
        step = int(left[1 if left[0] == "w" else 0])
        return Divergence(step=step, what="weights", expected=left[-2], found=right[-2])
    for place, what in ((1, "samples"), (2, "loss"), (3, "gradient norm")):
        if left[place] != right[place]:
            return Divergence(step=int(left[0]), what=what, expected=left[place], found=right[place])
    return Divergence(step=int(left[0]), what="order of entries", expected=left[0], found=right[0])
