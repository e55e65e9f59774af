"""The samples of an iterable data set by their place, so that a run can begin, resume and evaluate anywhere in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds


def _nothing(_epoch: int) -> None:
    """Replace the `set_epoch` of an iterable that gives the same in every epoch."""


class Stream:
    """Reads an iterable in order, from its beginning in each epoch; a later place is reached by reading up to it.

    The sample at a position is the iterable's there, after `set_epoch(epoch)` where it has that, with the generators of
    Python, NumPy and torch seeded at (seed, purpose, epoch, position) for each sample. So it does not depend on other reads
    from the iterable, as long as each `iter` starts over.

    Args:
        iterable: The user's iterable.
        samples: Number of samples of an epoch.
        has_length: Whether the iterable has that length; else it may give more.
    """

    def __init__(self, iterable: Iterable[Any], samples: int, has_length: bool = True) -> None:
        self.iterable, self.samples, self.has_length = iterable, samples, has_length
        self._place: tuple[Any, ...] | None = None
        self._next = 0
        self._rows: Iterator[Any] = iter(())

    def __len__(self) -> int:
        return self.samples

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: without an open iterator."""
        return {**vars(self), "_place": None, "_rows": iter(())}

    def read(self, seed: int, purpose: str, epoch: int, position: int) -> Any:
        """Return the sample at a position of an epoch.

        Raises:
            InputError: The iterable ends before it.
        """
        place = (seed, purpose, epoch, os.getpid())  # a forked process must not read on in its parent's open files
        if place != self._place or position < self._next:
            self._begin(place)
        while True:
            found, sample = self._advance()
            if found == position:
                return sample

    def refuse_more(self) -> None:
        """Refuse an iterable that gives a sample beyond its length.

        Raises:
            InputError: There is such a sample.
        """
        if self.has_length and next(self._rows, self) is not self:
            what = f"your iterable gives more samples than the {self.samples} of its __len__"
            raise InputError(what, where="task.use", hint="return the number of samples of an epoch from __len__")

    def _begin(self, place: tuple[Any, ...]) -> None:
        seed, purpose, epoch, _ = place
        # Before iter(), in which an iterable takes its epoch's order.
        getattr(self.iterable, "set_epoch", _nothing)(epoch)
        seeds.seed_everything(seeds.key(seed, f"{purpose}-begin", epoch))
        self._rows, self._next, self._place = iter(self.iterable), 0, place

    def _advance(self) -> tuple[int, Any]:
        assert self._place is not None
        seed, purpose, epoch, _ = self._place
        position = self._next
        seeds.seed_everything(seeds.key(seed, purpose, epoch, position))
        for sample in self._rows:
            self._next += 1
            return position, sample
        raise InputError(
            f"your iterable ended after {position} samples of epoch {epoch + 1}; {self.samples} were expected",
            where="task.use",
            hint="set __len__, or task.samples_per_epoch, to a number of samples that every epoch has",
        )


def stream_of(given: Iterable[Any], what: str, samples: int | None) -> Stream:
    """Return an iterable as a stream of the number of samples that its length or the config gives.

    Raises:
        InputError: The number of samples is not given, or is given twice, or the iterable can be read only once.
    """
    # An iterator gives itself and is used up after one pass.
    if iter(given) is given:
        hint = "return an object whose __iter__ starts over, such as a torch.utils.data.IterableDataset"
        raise InputError(f"{what} gave a {type(given).__name__}, which can be read only once", where="task.use", hint=hint)
    try:
        count = len(given)  # type: ignore[arg-type]  # it may have no length
    except (TypeError, NotImplementedError):
        count = None
    if count is not None and samples is not None:
        what = f"{what} gave an iterable of {count} samples, and {samples} are asked for"
        raise InputError(what, where="task.samples_per_epoch", hint="leave the key out, or __len__")
    if count is None and samples is None:
        hint = "add __len__; for the training split, task.samples_per_epoch in mltrainer.yaml works too"
        raise InputError(f"{what} gave an iterable without a length", where="task.use", hint=hint)
    return Stream(given, count if count is not None else samples or 0, count is not None)
