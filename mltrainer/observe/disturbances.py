"""Perturbations between two runs that must not matter to a training: one list, for programs and for planning's probes.

A change within a process is made by the function `begin` of a module of this room, before the user's own code is imported; the
others are made by whoever starts the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Perturbations:
    """A run's differences from the undisturbed one, none of which may matter.

    Attributes:
        hashes: Another hash seed: sets of strings come in another order.
        memory: New memory is filled; of a program, it needs the C library glibc.
        listing: Folders list their entries in the opposite order.
        folder: The folder has another name, the one for temporary files too.
        pause: Every second fork and thread begins late, so that they meet in another order.
        date: The user's own code reads an earlier date and another time zone.
    """

    hashes: bool = False
    memory: bool = False
    listing: bool = False
    folder: bool = False
    pause: bool = False
    date: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the chosen perturbations."""
        return [row.name for row in DISTURBANCES if getattr(self, row.name)]

    @property
    def modules(self) -> list[str]:
        """The modules of this room that make the perturbations within a process."""
        return [row.module for row in DISTURBANCES if row.module and getattr(self, row.name)]


class Disturbance(NamedTuple):
    """One perturbation.

    Attributes:
        name: The field of `Perturbations`.
        kind: The kind of cause, where this change alone makes two runs differ.
        words: The change, as reports list it.
        module: The module of this room that changes it within a process; empty where it is changed before the process starts.
    """

    name: str
    kind: str
    words: str
    module: str = ""


DISTURBANCES = (
    Disturbance("hashes", "hash order", "hash seed"),
    Disturbance("memory", "unwritten memory", "memory"),
    Disturbance("listing", "listing order", "order of listings", "listing_order"),
    Disturbance("folder", "folder", "folders"),
    Disturbance("pause", "threads", "pace", "pace"),
    Disturbance("date", "clock", "date and time zone", "date"),
)
ALL = Perturbations(**{row.name: True for row in DISTURBANCES})
NOT_CHANGED = (
    *("machine", "number of threads of an operation", "name of the host and the user", "locale", "dates of files"),
    *("other environment variables", "what is fetched from a network"),
)


def chosen(names: Iterable[str]) -> Perturbations:
    """Return the perturbations of some names."""
    return Perturbations(**dict.fromkeys(names, True))


def words_of(perturbations: Perturbations) -> list[str]:
    """Return the perturbations, in words."""
    return [row.words for row in DISTURBANCES if getattr(perturbations, row.name)]


def alone(kind: str) -> Perturbations:
    """Return the perturbation that belongs to one kind of cause alone."""
    return chosen(row.name for row in DISTURBANCES if row.kind == kind)
