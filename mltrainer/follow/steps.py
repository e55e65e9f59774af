"""Loss and gradient norm of every step, read from the run's chain, and thinned without losing a spike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.follow.tail import Tail
from mltrainer.reproducibility.fingerprint import CHAIN_FILE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

# The positions of the bits of loss and norm in a step's line, in characters before its newline: a digest of 32 follows them.
LOSS_AT, NORM_AT, BITS = 50, 41, 8
PIECE = 1 << 21  # bytes that fit a processor's cache
NAMED_NONFINITE = 50


@dataclass(frozen=True)
class Band:
    """Mean, lowest and highest value of each bucket; None where no step of a bucket is finite."""

    mean: list[float | None] = field(default_factory=list)
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class StepsView:
    """Steps in buckets.

    Attributes:
        width: The width of a bucket in steps.
        step: The middle step of each bucket.
        loss: The loss of each bucket.
        norm: The gradient norm of each bucket.
        nonfinite: The first steps with a loss or norm that is not finite, at most `NAMED_NONFINITE`.
    """

    width: int = 1
    step: list[float] = field(default_factory=list)
    loss: Band = Band()
    norm: Band = Band()
    nonfinite: list[int] = field(default_factory=list)


class Steps:
    """The steps in a run's chain so far, with loss and gradient norm of each.

    Args:
        folder: The run's folder.

    Attributes:
        first: The number of the first step: 1, except for a fork.
        count: The number of steps.
    """

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder / CHAIN_FILE, PIECE)
        self._loss: Floats | None = None
        self._norm: Floats | None = None
        self.first, self.count = 1, 0

    def poll(self) -> tuple[bool, bool]:
        """Read the new steps; return whether the run went back before steps already read, and whether there is anything new."""
        before, went_back = self.count, False
        while True:
            has_restarted, data = self._tail.read()
            if has_restarted:
                self.first, self.count, went_back = 1, 0, True
            if not data:
                return went_back, went_back or self.count > before
            self._take(*parsed(data))

    def _take(self, loss: Floats, norm: Floats, first: int) -> None:
        self.first = first if self.count == 0 else self.first
        self._loss, self._norm = self._grown(self._loss, loss), self._grown(self._norm, norm)
        self.count += len(loss)

    @property
    def last(self) -> int:
        """The number of the last step; one less than `first` where there is none."""
        return self.first + self.count - 1

    def _grown(self, held: Floats | None, new: Floats) -> Floats:
        """Return an array with more values; it has spare room, so that a long run is not copied at each look."""
        import numpy as np

        if held is None or self.count + len(new) > len(held):
            grown = np.empty(max(4096, 2 * (self.count + len(new))), np.float32)
            if held is not None:
                grown[: self.count] = held[: self.count]
            held = grown
        held[self.count : self.count + len(new)] = new
        return held

    def _range(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return loss and gradient norm of the steps of a range that has at least one."""
        assert self._loss is not None
        assert self._norm is not None
        place = slice(first - self.first, last - self.first + 1)
        return self._loss[place], self._norm[place]

    def exact(self, first: int, last: int) -> list[tuple[int, float, float]]:
        """Return number, loss and gradient norm of the existing steps of a range."""
        begin, end = max(first, self.first), min(last, self.last)
        if not self.count or end < begin:
            return []
        loss, norm = self._range(begin, end)
        return list(zip(range(begin, end + 1), loss.tolist(), norm.tolist(), strict=True))

    def view(
        self, first: int | None = None, last: int | None = None, points: int = 1000, left_out: Iterable[tuple[int, int]] = ()
    ) -> StepsView:
        """Return the steps of a range in about `points` points.

        Args:
            first: The first step; by default the run's.
            last: The last step; by default the run's.
            points: The largest number of points; a range of more steps is thinned to buckets of a power of two steps, which stay
                the same as the run grows.
            left_out: The first and the last step of each range that was not taken, whose recorded numbers are 0 and say nothing.
        """
        begin = max(self.first if first is None else first, self.first)
        end = min(self.last if last is None else last, self.last)
        if not self.count or end < begin:
            return StepsView()
        loss, norm = self._range(begin, end)
        return thinned(begin, width_for(begin, end, points), loss, norm, _taken(begin, end, left_out))


def _taken(first: int, last: int, left_out: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return a mask of a range's steps without those that were left out."""
    import numpy as np

    mask = np.ones(last - first + 1, dtype=bool)
    for begin, end in left_out:
        mask[max(begin - first, 0) : max(end - first + 1, 0)] = False
    return mask


def width_for(first: int, last: int, points: int) -> int:
    """Return the smallest power of two steps that divides a range into at most `points` buckets, give or take one."""
    width = 1
    while (last - first + 1) / width > points:
        width *= 2
    return width


def thinned(first: int, width: int, loss: Floats, norm: Floats, taken: NDArray[np.bool_]) -> StepsView:
    """Return the taken ones of some steps as buckets with mean, lowest and highest; `first` is the number of the first step."""
    import numpy as np

    last = first + len(loss) - 1
    edges = np.arange(first // width * width, last + 1, width)
    starts = np.maximum(edges, first) - first
    ends = np.append(starts[1:], len(loss))
    found = np.flatnonzero(taken & ~(np.isfinite(loss) & np.isfinite(norm)))[:NAMED_NONFINITE]
    return StepsView(
        width=width,
        step=[float(x) if x % 1 else int(x) for x in (starts + ends - 1) / 2 + first],
        loss=_buckets(loss, taken, starts),
        norm=_buckets(norm, taken, starts),
        nonfinite=(found + first).tolist(),
    )


def _buckets(values: Floats, taken: NDArray[np.bool_], starts: Any) -> Band:
    import numpy as np

    good = taken & np.isfinite(values)
    kept = np.add.reduceat(good, starts, dtype=np.int64)
    # In float64: for a bucket of many steps a sum of float32 would lose digits.
    total = np.add.reduceat(np.where(good, values, 0.0), starts, dtype=np.float64)
    low = np.minimum.reduceat(np.where(good, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(good, values, -np.inf), starts)
    mean = total / np.maximum(kept, 1)
    return Band(*(_numbers(found, kept > 0) for found in (mean, low, high)))


def _numbers(values: Any, known: Any) -> list[float | None]:
    """Return numbers with six digits, enough for a screen; None where a bucket has none."""
    return [float(f"{value:.6g}") if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True)]


def parsed(data: bytes) -> tuple[Floats, Floats, int]:
    """Return loss and gradient norm of each step in whole lines of a chain, and the number of the first step.

    A million lines take a third of a second, as no line is converted to a string.
    """
    import numpy as np

    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    # A shorter line is no step's: counted back from its end, the positions would be in the line before it.
    is_step = (text[starts] != ord("w")) & (ends - starts > LOSS_AT)
    starts, ends = starts[is_step], ends[is_step]
    if not len(ends):
        return np.empty(0, np.float32), np.empty(0, np.float32), 1
    first = int(data[int(starts[0]) : int(ends[0])].split(b" ", 1)[0])
    return _floats(text, ends - LOSS_AT), _floats(text, ends - NORM_AT), first


def _floats(text: Any, places: Any) -> Floats:
    """Return the float32 numbers whose bits are written as eight hex digits at some positions.

    The eight characters are read as one number of 64 bits, whose halves are joined in three steps.
    """
    import numpy as np

    eights = np.lib.stride_tricks.sliding_window_view(text, BITS)[places].view(">u8")[:, 0].astype(np.uint64)
    digits = (eights & np.uint64(0x0F0F0F0F0F0F0F0F)) + np.uint64(9) * ((eights >> np.uint64(6)) & np.uint64(0x0101010101010101))
    for shift, kept in ((4, 0x00FF00FF00FF00FF), (8, 0x0000FFFF0000FFFF), (16, 0x00000000FFFFFFFF)):
        digits = (digits | (digits >> np.uint64(shift))) & np.uint64(kept)
    found: Floats = digits.astype(np.uint32).view(np.float32)
    return found
