"""Records that stay in their files, and the part of them in one split: each is found by its position, in a computed order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from mltrainer.configs.project import Split
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.reproducibility import seeds
from mltrainer.tasks.ids import HELD, ComputedIds, Ids
from mltrainer.tasks.splits import SPLITS, BySplit
from mltrainer.tasks.stored.lru_cache import LruCache
from mltrainer.tasks.stored.manifest import FileManifest
from mltrainer.workspace import digest

WINDOW_BYTES = 32 << 20  # the size of the slots that are shuffled together, which a process holds in memory
HELD_SLOTS = 64  # slots whose drawn orders are held


class Records(ABC):
    """All records of a source, slot by slot: a slot is a part that is read at once, such as a row group.

    Args:
        files: The manifests of their files, in order.
    """

    kind: str

    def __init__(self, files: list[FileManifest]) -> None:
        self.files = files

    @property
    def rows(self) -> list[FileRow]:
        """The rows of the files of this machine, for records; others are bound by the digest alone."""
        return [one.row for one in self.files if one.location.is_local]

    @property
    def holding_samples(self) -> list[FileManifest]:
        """The files whose content must be in one source alone."""
        return self.files

    @property
    def sha256(self) -> str:
        """The digest of all records in their order."""
        return digest([self.kind, [one.sha256 for one in self.files]])

    @property
    def slots(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of records of each slot, and of the bytes that they take, int64."""
        found = np.array([slot for one in self.files for slot in one.slots], dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    @property
    def total(self) -> int:
        """The number of records."""
        return int(self.slots[0].sum())

    def where(self, row: int) -> str:
        """Return the place of a record by its number among all."""
        counts = self.slots[0]
        slot = int(np.searchsorted(np.cumsum(counts), row, side="right"))
        return self.place(slot, row - int(counts[:slot].sum()))

    @abstractmethod
    def read(self, slot: int, row: int) -> Any:
        """Return a record by its place in a slot.

        Raises:
            InputError: The file differs from its manifest.
        """

    @abstractmethod
    def place(self, slot: int, row: int) -> str:
        """Return a record's place for messages: its file, and the place in it."""

    def parts(self, split: Split, seed: int, wanted: tuple[str, ...]) -> BySplit[Part]:
        """Return the part of each split that is drawn from these records: in every slot the split's share, drawn by its address.

        Args:
            split: The shares.
            seed: The split's seed.
            wanted: The splits without a separate source; the training split is among them.
        """
        counts, sizes = self.slots
        shares = {name: getattr(split, name) if name in wanted else 0.0 for name in SPLITS[1:]}
        dealt = _dealt(counts, shares)
        return BySplit({name: Part(self, *dealt[name], sizes, seed) for name in wanted})


def _dealt(counts: np.ndarray, shares: dict[str, float]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return for each split the first place in each slot's drawn order, and the number of records; test, validation, train.

    Fractions of a record in a slot are made up for by later slots, so that of all records each split has its share.
    """
    ends = np.cumsum(counts)
    found, low = {}, np.zeros_like(counts)
    for name in (SPLITS[2], SPLITS[1]):
        upto = np.floor(ends * shares[name] + 0.5).astype(np.int64)
        size = np.minimum(np.diff(upto, prepend=0), counts - low)
        found[name], low = (low, size), low + size
    found[SPLITS[0]] = (low, counts - low)
    return found


class Part(Dataset[Any]):
    """The records of one split, by position: slot after slot, in each by the order that the split drew.

    Args:
        records: The records that it is a part of.
        lows: The place of its first record in each slot's order, int64.
        counts: Number of its records in each slot, int64.
        sizes: The size of each slot in bytes.
        seed: The seed of the drawn order; None where the split has a separate source, and keeps the order of a slot's records.
        make: Makes a sample of a record.
    """

    def __init__(
        self,
        records: Records,
        lows: np.ndarray,
        counts: np.ndarray,
        sizes: np.ndarray,
        seed: int | None,
        make: Callable[[Any], Any] | None = None,
    ) -> None:
        self.records, self._lows, self.counts, self._sizes, self._seed = records, lows, counts, sizes, seed
        self.make = make
        self._ends = np.cumsum(counts)
        self._whole = records.slots[0]
        self._held: LruCache[int, np.ndarray] = LruCache(HELD_SLOTS)

    @classmethod
    def whole(cls, records: Records) -> Part:
        """Return all records as a part."""
        counts, sizes = records.slots
        return cls(records, np.zeros_like(counts), counts, sizes, None)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, position: int) -> Any:
        slot, row = self._place(position)
        record = self.records.read(slot, row)
        try:
            return record if self.make is None else self.make(record)
        except Exception as error:
            has = f", which has {', '.join(map(str, record))}" if isinstance(record, dict) else ""
            error.add_note(f"of the record {self.records.place(slot, row)}{has}")
            raise

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers of the records at some positions, counted through all slots, int64."""
        slots = np.searchsorted(self._ends, positions, side="right")
        begins = np.cumsum(self._whole) - self._whole
        found = np.empty(len(positions), dtype=np.int64)
        for slot in np.unique(slots).tolist():
            chosen = slots == slot
            found[chosen] = begins[slot] + self._drawn(slot, positions[chosen] - (self._ends[slot] - self.counts[slot]))
        return found

    def order(self, seed: int, epoch: int) -> seeds.Order:
        """Return an epoch's order: for one slot as for any samples; for several over the slots, then within windows of them."""
        if np.count_nonzero(self.counts) < 2:
            return seeds.addressed_order(seed, epoch, len(self))
        return _WindowedOrder(self.counts, self._sizes, seed, epoch)

    def _place(self, position: int) -> tuple[int, int]:
        slot = int(np.searchsorted(self._ends, position, side="right"))
        within = np.array([position - int(self._ends[slot] - self.counts[slot])])
        return slot, int(self._drawn(slot, within)[0])

    def _drawn(self, slot: int, places: np.ndarray) -> np.ndarray:
        """Return the rows of a slot at some places of this part of its order."""
        if self._seed is None:
            return places.astype(np.int64)
        if self.counts[slot] > seeds.SHUFFLED_WHOLE:
            return self._computed(slot, places)
        rows = self._held.get(slot, lambda: self._computed(slot, np.arange(self.counts[slot])))
        return np.asarray(rows[places])

    def _computed(self, slot: int, places: np.ndarray) -> np.ndarray:
        assert self._seed is not None
        return seeds.permuted(int(self._whole[slot]), places + self._lows[slot], self._seed, "split", slot)


class _WindowedOrder:
    """Positions in an order over the slots first, and then over the records of a few slots that follow one another in it.

    So few slots are read at a time, and each of them about once an epoch; any place of the order is computed from its address.
    """

    def __init__(self, counts: np.ndarray, sizes: np.ndarray, seed: int, epoch: int) -> None:
        self._seed, self._epoch = seed, epoch
        slots = seeds.generator(seed, "slots", epoch).permutation(np.flatnonzero(counts))
        self._starts = (np.cumsum(counts) - counts)[slots]
        self._slot_ends = np.cumsum(counts[slots])
        # A window ends with the slot that fills it: its number is that of the full windows before the slot.
        filled = np.cumsum(sizes[slots]) - sizes[slots]
        last = np.flatnonzero(np.diff(filled // WINDOW_BYTES, append=-1))
        self._window_ends = self._slot_ends[last]

    def __len__(self) -> int:
        return int(self._slot_ends[-1])

    def __getitem__(self, part: slice, /) -> np.ndarray:
        places = np.arange(*part.indices(len(self)))
        windows = np.searchsorted(self._window_ends, places, side="right")
        mixed = np.empty(len(places), dtype=np.int64)
        for window in np.unique(windows).tolist():
            end, start = int(self._window_ends[window]), int(self._window_ends[window - 1]) if window else 0
            chosen = windows == window
            mixed[chosen] = start + seeds.permuted(end - start, places[chosen] - start, self._seed, "window", self._epoch, window)
        slots = np.searchsorted(self._slot_ends, mixed, side="right")
        before = np.where(slots > 0, self._slot_ends[slots - 1], 0)
        return np.asarray(self._starts[slots] + mixed - before)


@dataclass(frozen=True)
class PartIds(ComputedIds):
    """The ids of a part's samples: the numbers of their records.

    Attributes:
        part: The part.
        base: The number of the source's first record.
    """

    part: Part
    base: int

    def __len__(self) -> int:
        return len(self.part)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids at some positions."""
        return self.base + self.part.rows_at(positions)

    @property
    def description(self) -> list[Any]:
        """The digest of the records, and the part's choice among them."""
        part = self.part
        return [part.records.sha256, self.base, part._seed, part._lows.tolist(), part.counts.tolist()]


def ids_of(part: Part, base: int) -> Ids:
    """Return the ids of a part, as an array where they are not too many."""
    ids = PartIds(part, base)
    return ids if len(part) > HELD else ids[:]


def refuse_columns(split: Split) -> None:
    """Refuse a split by a value that is not known before all records are read.

    Raises:
        InputError: The config has such a key, which the message names.
    """
    asked = [key for key in ("folds", "group", "time", "column") if getattr(split, key)]
    if asked:
        hint = "give the splits files of their own: data: {validation: ..., test: ...}"
        raise InputError("records that stay in their files are not split by it", where=f"split.{asked[0]}", hint=hint)
