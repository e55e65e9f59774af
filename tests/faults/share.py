"""A worker of `python -m tests.faults`: tries its share of the points, and prints a line of JSON for each."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.faults import commands, writers
from tests.faults.injector import WAYS, Call, Injector
from tests.faults.worker import Worker

CUTS = 12  # power cuts in a command, each after a drawn call
TWICE = 2  # of two equal commands at once
Case = tuple[list[Any], Callable[[], tuple[list[str], str]]]  # what is disturbed how, and a function that tries it


def points(found: list[Call], drawn: int, luck: random.Random, anyway: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return the calls to disturb, each with the way: one of each kind and place that changes files, and some of all calls.

    Their order is drawn, too: the first ones are tried where fewer are asked for, and more of the same seed go on after them.

    Args:
        found: The calls of the command.
        drawn: The number of the others that are drawn.
        luck: The generator.
        anyway: Ways that fit every call.
    """
    places: dict[tuple[str, str], list[Call]] = {}
    for call in found:
        if call.op != "read":
            places.setdefault((call.op, call.site), []).append(call)
    ordered = [*map(luck.choice, places.values()), *luck.sample(found, min(drawn, len(found)))]
    chosen = [*dict.fromkeys((call.number, luck.choice((*WAYS[call.op], *WAYS[call.op], *anyway))) for call in ordered)]
    return luck.sample(chosen, len(chosen))


class Share:
    """A worker's share."""

    def __init__(self, asked: SimpleNamespace) -> None:
        self.asked, self.base, self.done = asked, Path(asked.base), {*asked.done}
        self.worker, self.injector = Worker(self.base), Injector()
        self.folder = self.base / "writer"

    def run(self) -> None:
        """Try everything that is asked for, in the tables' order."""
        if self.asked.writers or not self.asked.only:
            self.write()
        rows = commands.COMMANDS
        wanted = {name for name in rows if self.is_asked(name)}
        while more := {rows[name].after for name in wanted if rows[name].after} - wanted:
            wanted |= more
        for name in rows:
            if name in wanted:
                self.command(name, rows[name])

    def is_asked(self, name: str) -> bool:
        """Return whether a command is to be disturbed."""
        return not self.asked.only or any(re.search(word, name) for word in self.asked.only)

    def write(self) -> None:
        """Disturb each writer at each call in each way, and look at images of its disk after each call."""
        for title, writer in writers.WRITERS.items():
            found = writers.counted(writer, self.injector, self.folder)
            cases: list[Case] = [
                ([call.number, way], partial(writers.tried, writer, self.worker, self.injector, self.folder, call.number, way))
                for call in found
                for way in WAYS[call.op]
            ]
            cases += [
                ([number, "power cut", draw], partial(writers.cut_off, writer, self.folder, found, number, draw))
                for number in range(1, len(found) + 1)
                for draw in range(self.asked.images)
            ]
            self.tried(f"writer: {title}", found, cases)

    def command(self, name: str, row: commands.Command) -> None:
        """Disturb a command at chosen calls."""
        reference = commands.build(self.worker, self.injector, self.base, row)
        if not self.is_asked(name):
            return
        luck = random.Random(f"{self.asked.seed} {name}")
        chosen = points(reference.calls, self.asked.drawn, luck, () if row.is_dated else ("clock",))
        cases: list[Case] = [
            ([number, way], partial(commands.disturbed, self.worker, self.injector, self.base, row, reference, number, way))
            for number, way in chosen[: self.asked.most]
        ]
        numbers = range(1, len(reference.calls) + 1)
        cuts = luck.sample(numbers, len(numbers))[: min(CUTS, self.asked.most)]
        cases += [
            ([number, "power cut"], partial(commands.cut_off, self.worker, self.base, row, reference, number)) for number in cuts
        ]
        cases += [(["at once", nr], partial(commands.at_once, self.worker, self.base, row, reference)) for nr in range(TWICE)]
        self.tried(name, reference.calls, cases)

    def tried(self, name: str, found: list[Call], cases: list[Case]) -> None:
        """Try the share of some cases that were not tried before."""
        places = len({(call.op, call.site) for call in found})
        mine = [(f"{name} {point}", point, work) for point, work in cases[self.asked.share :: self.asked.jobs]]
        mine = [case for case in mine if case[0] not in self.done]
        tell(name=name, calls=len(found), places=places, points=len(mine))
        for key, point, work in mine:
            begun = time.monotonic()
            faults, fired = work()
            tell(key=key, name=name, point=point, fired=fired, faults=faults, seconds=round(time.monotonic() - begun, 2))


def tell(**row: Any) -> None:
    """Print a row for the process that started this one."""
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    Share(SimpleNamespace(**json.loads(sys.argv[1]))).run()
