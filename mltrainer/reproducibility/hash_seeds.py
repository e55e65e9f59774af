"""Hash seeds under which small sets of strings have different orders: under any two seeds, half of the sets of two agree.

Orders are asked of the interpreter that runs the program, as only it knows how it hashes: a child of it for each seed that is
considered prints them, which takes some hundredths of a second.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mltrainer.errors import MachineError
from mltrainer.executors.executor import Command
from mltrainer.executors.local import answered
from mltrainer.reproducibility.causes import HASH_SEEDS
from mltrainer.reproducibility.short_strings import Group, Named

FEWEST, MOST = 3, 6  # numbers of chosen seeds: each is a run
CANDIDATES, AT_ONCE = range(1, 26), 6  # candidates, and the number that is tried before the best may be chosen
SMALL = 4  # strings: up to here a set's table has eight places, and subsets of a group are sets of the same make
MOST_SETS = 3000
ANSWER_S = 30.0
BETWEEN, BEHIND = "\0", "\1"  # separators of a set's strings, and of sets, in a child's input
PRINT = r"""import sys
for line in sys.stdin.buffer.read().decode().split("\1"):
    print(line.split("\0").index(next(iter(set(line.split("\0"))))))
"""
Firsts = tuple[int, ...]  # number of the first string, by set
Asked = Callable[[str, Sequence[Group]], Firsts]


class Chosen(NamedTuple):
    """The chosen hash seeds.

    Attributes:
        seeds: Chosen seeds, the undisturbed run's first.
        alike: Groups of strings with a set that begins with the same string under all seeds.
    """

    seeds: tuple[str, ...]
    alike: tuple[Group, ...] = ()


def hash_seeds(groups: Named, python: str = sys.executable, asked: Asked | None = None) -> Chosen:
    """Return seeds, 0 the first of them, so that each small set of a program begins with another string under two of them.

    The second one parts most of the sets, so that two runs show what more would.

    Which string comes first is asked, as it decides `next(iter(...))`, and where it differs the order does. Sets of up to four
    strings of a group are looked at with each order of insertion, on which collisions depend. Seeds beyond the third
    are taken for likely groups alone.

    Args:
        groups: The program's groups of strings.
        python: The interpreter that runs the program.
        asked: Function that returns the first string of each set under a seed; by default it asks a child of the interpreter.

    Raises:
        MachineError: No interpreter can be started.
    """
    of = asked or (lambda seed, sets: firsts(python, seed, sets))
    likely = list(itertools.islice(_sets(groups.likely), MOST_SETS))
    sets = [*likely, *itertools.islice(_sets(groups.other), MOST_SETS - len(likely))]
    taken, alike = [HASH_SEEDS[0]], {*range(len(sets))}
    begin = of(taken[0], sets)
    pool = _Pool(lambda seed: _unlike(begin, of(seed, sets)), len(likely))
    while len(taken) < FEWEST or (len(taken) < MOST and any(n < len(likely) for n in alike)):
        seed, parted = pool.best(alike)
        taken.append(seed)
        alike -= parted
    return Chosen(tuple(taken), _groups_of([sets[n] for n in sorted(alike) if n < len(likely)], groups.likely))


class _Pool:
    """Candidate seeds, tried a few at a time, as each costs the start of an interpreter.

    Args:
        parted: Function that returns the sets that begin differently under a seed than under the first one.
        likely: Number of likely sets, which come first.
    """

    def __init__(self, parted: Callable[[str], set[int]], likely: int) -> None:
        self._parted, self._likely = parted, likely
        self._left = [str(number) for number in CANDIDATES]
        self._sets_by_seed: dict[str, set[int]] = {}

    def best(self, alike: set[int]) -> tuple[str, set[int]]:
        """Return the seed that separates most sets that are still alike, likely ones first, and the separated sets.

        One that parts all that are likely ends the search.
        """
        while True:
            self._ask()
            seed = max(self._sets_by_seed, key=lambda seed: self._count(alike & self._sets_by_seed[seed]))
            is_enough = self._count(alike)[0] == self._count(alike & self._sets_by_seed[seed])[0]
            if is_enough or not self._left:
                return seed, self._sets_by_seed.pop(seed)

    def _ask(self) -> None:
        asked, self._left = self._left[:AT_ONCE], self._left[AT_ONCE:]
        self._sets_by_seed.update({seed: self._parted(seed) for seed in asked})

    def _count(self, sets: set[int]) -> tuple[int, int]:
        """Return the number of likely sets among some, and the number of all of them."""
        return sum(number < self._likely for number in sets), len(sets)


def _unlike(one: Firsts, other: Firsts) -> set[int]:
    return {number for number, (left, right) in enumerate(zip(one, other, strict=True)) if left != right}


def _sets(groups: Iterable[Group]) -> Iterable[Group]:
    """Return the examined sets in insertion order: pairs and triples of small groups, and each whole group."""
    sets: dict[Group, None] = {}
    for group in groups:
        sizes = {2, 3, len(group)} if len(group) <= SMALL else {len(group)}
        for size in sorted(sizes):
            orders = itertools.permutations(group, size) if size <= SMALL - 1 else [group, group[::-1]]
            sets.update(dict.fromkeys(tuple(order) for order in orders))
    return sets


def _groups_of(sets: Iterable[Group], groups: Iterable[Group]) -> tuple[Group, ...]:
    """Return the groups of which some sets are a part."""
    parts = [set(each) for each in sets]
    return tuple(group for group in groups if any(part <= set(group) for part in parts))


def firsts(python: str, seed: str, sets: Sequence[Group]) -> Firsts:
    """Return the index of each set's first string, as a child of an interpreter orders it under a hash seed.

    Where that interpreter cannot be asked, this one's is: all of CPython from 3.11 on hash alike.
    """
    question = BEHIND.join(BETWEEN.join(each) for each in sets).encode()
    # Without Python's own variables, which could have the child import or print something else.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for interpreter in (python, sys.executable):
        command, own = [interpreter, "-S", "-c", PRINT], {**environment, "PYTHONHASHSEED": seed}
        with contextlib.suppress(OSError, ValueError):
            answer = answered(Command(arguments=command, folder=Path(), environment=own), question, ANSWER_S)
            if answer.code == 0:
                return tuple(int(line) for line in answer.out.split())
    what = "no interpreter could be started to measure the order of a set"
    raise MachineError(what, where=python, hint=f"see why: {python} -c pass")
