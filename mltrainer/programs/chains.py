"""The lines of observed processes: a chain of steps each, and traces; matched from run to run by the processes' names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.observe.logs import Key, files_of, rows_of

TAIL_BYTES = 1 << 17  # of a chain, in which its last line ends: zeros may follow it


class Entry(NamedTuple):
    """A step of an optimizer.

    Attributes:
        step: Its number in its process, from 1.
        optimizer: The number of the process's optimizer, in the order of their first steps.
        gradients: The sum of the gradients' bits.
        weights: The sum of the weights' bits after it.
        whole: The digest of all weights, at some steps; else "-".
        thread: The number of the process's thread that made it, in the order of their first steps.
    """

    step: int
    optimizer: int
    gradients: str
    weights: str
    whole: str
    thread: int = 0


@dataclass(frozen=True)
class Chain:
    """A process's steps.

    Attributes:
        entries: One per step.
        end: Digests of the weights and of what the models hold beside them, where the process was not killed.
    """

    entries: tuple[Entry, ...]
    end: tuple[str, ...]


class ChainDifference(NamedTuple):
    """The first step in which two runs differ.

    Attributes:
        step: Its number, from 1; 0 where a process trained in one of them alone, or where none was seen in either.
        what: The difference, in words.
        process: The process's name.
        expected: The first run's output; empty for a step.
        found: The other run's output; empty for a step.
    """

    step: int
    what: str
    process: str
    expected: str = ""
    found: str = ""


def chains(folder: Path) -> dict[Key, Chain]:
    """Return the chain of each process that made a step."""
    return {key: _chain(path) for key, path in files_of(folder, "chain").items()}


def _chain(path: Path) -> Chain:
    entries: list[Entry] = []
    end: tuple[str, ...] = ()
    whole_lines, _, _ = path.read_text("utf-8").rpartition("\n")  # what follows are zeros, or half of one
    for line in whole_lines.splitlines():
        _, *parts = line.split(" ")
        if parts[0] == "end":
            end = tuple(parts[1:])
        else:
            step, optimizer, thread, gradients, weights, whole = parts
            entries.append(Entry(int(step), int(optimizer), gradients, weights, whole, int(thread)))
    return Chain(tuple(entries), end)


def steps_in(folder: Path) -> int:
    """Return the number of steps so far of the process with most."""
    return max((path.read_bytes().count(b"\n") for path in files_of(folder, "chain").values()), default=0)


def last_step(folder: Path) -> int:
    """Return the last step of the process that is furthest, by the ends of the processes' lines."""
    return max((_last_step(path) for path in files_of(folder, "chain").values()), default=0)


def _last_step(path: Path) -> int:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        whole = file.read().split(b"\n")[:-1]
    words = [line.split(b" ") for line in whole]
    return next((int(word[1]) for word in reversed(words) if len(word) > 2 and word[1].isdigit()), 0)


def aligned(one: dict[Key, Any], other: dict[Key, Any]) -> dict[Key, Any]:
    """Return another run's values by process, under the names of this run's.

    Processes that only one of them knows by name, as many as only the other does, were given other arguments, such as the
    time: they are paired in the order in which they were begun.
    """
    missing, extra = ([key for key in a if key not in b] for a, b in ((one, other), (other, one)))
    names = dict(zip(extra, missing, strict=True)) if len(extra) == len(missing) else {}
    return {names.get(key, key): value for key, value in other.items()}


def first_divergence(one: dict[Key, Chain], other: dict[Key, Chain], steps: int = 0) -> ChainDifference | None:
    """Return the first step in which two runs differ, or None if all observed values are the same.

    Args:
        one: A run's chains.
        other: Another run's.
        steps: After how many a process was ended; 0 for never.
    """
    other = aligned(one, other)
    divergences = [
        divergence
        for key in {**one, **other}
        if (divergence := _divergence(key[0], one.get(key), other.get(key), steps)) is not None
    ]
    return min(divergences, default=None)


def compared(one: dict[Key, Chain], other: dict[Key, Chain], steps: int = 0) -> int:
    """Return the number of compared steps of the process with most, in two runs that `first_divergence` finds the same."""
    other = aligned(one, other)
    return max(_compared(chain, other[key], steps) for key, chain in one.items())


def _divergence(name: str, one: Chain | None, other: Chain | None, steps: int) -> ChainDifference | None:
    if one is None or other is None:
        return ChainDifference(0, "which processes train", name)
    divergence = _step_divergence(name, one.entries, other.entries)
    is_threaded, is_cut = _is_threaded(one, other), _is_cut(one, other, steps)
    if divergence is not None and is_threaded:
        return _training_divergence(name, one, other, is_cut)
    what = "" if is_threaded and is_cut else end_difference(one, other)
    return divergence or (ChainDifference(len(one.entries), what, name) if what else None)


def _step_divergence(name: str, one: Sequence[Entry], other: Sequence[Entry]) -> ChainDifference | None:
    for left, right in zip_longest(one, other):
        if left is None or right is None:
            return ChainDifference((left or right).step, "how many steps are made", name)
        if _of_step(left) != _of_step(right):
            what = "gradients" if left.gradients != right.gradients else "weights"
            return ChainDifference(
                left.step, f"the {what}" if left.optimizer == right.optimizer else "which optimizer steps", name
            )
    return None


def _of_step(entry: Entry) -> tuple[int, str, str, str]:
    return entry.optimizer, entry.gradients, entry.weights, entry.whole


# --- threads: which of them makes the next step is chance, and each training is compared for itself ---


def _is_threaded(*chains: Chain) -> bool:
    return any(entry.thread > 0 for chain in chains for entry in chain.entries)


def _training_divergence(name: str, one: Chain, other: Chain, is_cut: bool) -> ChainDifference | None:
    """Return the first step in which a training of one run is like none of the other run's."""
    pairs = _pairs(one, other, is_cut)
    mine = [training for training in _trainings(one) if training not in [left for left, _ in pairs]]
    theirs = [training for training in _trainings(other) if training not in [right for _, right in pairs]]
    if is_cut and not (mine and theirs):
        return None  # one run did not come to them
    divergences = (_step_divergence(name, left, right) for left, right in zip_longest(mine, theirs, fillvalue=()))
    return min((divergence for divergence in divergences if divergence is not None), default=None)


def _compared(one: Chain, other: Chain, steps: int) -> int:
    if _step_divergence("", one.entries, other.entries) is None:
        return len(one.entries)
    return sum(min(len(left), len(right)) for left, right in _pairs(one, other, _is_cut(one, other, steps)))


def _is_cut(one: Chain, other: Chain, steps: int) -> bool:
    """Return True if both processes were ended after `steps` in mid-run, whichever step each of their threads had reached."""
    return len(one.entries) == len(other.entries) == steps


def _trainings(chain: Chain) -> list[list[Entry]]:
    """Return the steps of each optimizer, as if it were the only one."""
    by_optimizer: dict[int, list[Entry]] = {}
    for entry in chain.entries:
        # Without the digest of all weights, which falls on every 50th step of the process, whichever training makes that one.
        by_optimizer.setdefault(entry.optimizer, []).append(entry._replace(optimizer=0, whole="-"))
    return list(by_optimizer.values())


def _pairs(one: Chain, other: Chain, is_cut: bool) -> list[tuple[list[Entry], list[Entry]]]:
    """Return the trainings that are the same in two runs; if they were cut, the longest matching parts."""
    left_over, pairs = _trainings(other), []
    for training in _trainings(one):
        fits = [each for each in left_over if _is_same(training, each, is_cut)]
        if fits:
            pairs.append((training, max(fits, key=len)))
            left_over.remove(pairs[-1][1])
    return pairs


def _is_same(one: list[Entry], other: list[Entry], is_cut: bool) -> bool:
    made = min(len(one), len(other)) if is_cut else None
    return [_of_step(entry) for entry in one[:made]] == [_of_step(entry) for entry in other[:made]]


def end_difference(one: Chain, other: Chain) -> str:
    """Return the difference between two processes' ends, in words; empty if there is none, or one was killed."""
    if not one.end or not other.end or one.end == other.end:
        return ""
    return "the weights at the end" if one.end[0] != other.end[0] else "the model's buffers or other parameters at the end"


def traces(folder: Path) -> dict[Key, list[list[Any]]]:
    """Return the rows of each traced process, in order."""
    return rows_of(folder, "trace")
