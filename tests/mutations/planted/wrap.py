"""Faults planted in `mltrainer/wrap`."""

from __future__ import annotations

from tests.mutations.fault import Fault

CHAIN, BY_HAND = "tests/wrap/test_chain.py", "tests/wrap/test_starting.py -k by_hand"
FAULTS = (
    Fault(
        "the digest of all weights is compared at no step",
        "mltrainer/wrap/lines.py",
        "return entry.optimizer, entry.gradients, entry.weights, entry.whole",
        'return entry.optimizer, entry.gradients, entry.weights, "-"',
        "tests/wrap/test_lines.py",
    ),
    Fault(
        "what a model holds beside its weights is not compared at the end",
        "mltrainer/wrap/lines.py",
        "if not one.end or not other.end or one.end == other.end:",
        "if not one.end or not other.end or one.end[0] == other.end[0]:",
        "tests/wrap/test_lines.py",
    ),
    Fault(
        "of several groups of an optimizer only the first one's weights are summed",
        "mltrainer/observe/chain.py",
        "found += [start + min(part, key=sizes.__getitem__) for part in parts]",
        "found += [min(part, key=sizes.__getitem__) for part in parts]",
        CHAIN,
    ),
    Fault(
        "weights of a second group take the places of the first group's",
        "mltrainer/observe/chain.py",
        "order += [start + number for number in numbers]",
        "order += numbers",
        CHAIN,
    ),
    Fault(
        "weights stand in the order of their optimizer",
        "mltrainer/observe/chain.py",
        'in_model = sorted(own, key=lambda number: roots[root][id(group["params"][number])])',
        "in_model = own",
        CHAIN,
    ),
    Fault(
        "the update that no backward follows is no step",
        "mltrainer/observe/byhand.py",
        "        atexit.register(self._look)  # the last",
        "        # the last",
        BY_HAND,
    ),
    Fault(
        "of weights that are updated by hand the first one alone is watched",
        "mltrainer/observe/byhand.py",
        "if self._hand is not None and (found := self._digest(self._leaves)) != self._last:",
        "if self._hand is not None and (found := self._digest(self._leaves[:1])) != self._last:",
        BY_HAND,
    ),
    Fault(
        "another run has the same hash seed",
        "mltrainer/wrap/starting.py",
        "seed = program.hash_seeds[surroundings.hashes]",
        "seed = program.hash_seeds[0]",
        "tests/wrap/test_starting.py::test_what_is_changed_reaches_the_program_and_nothing_else_is",
    ),
    Fault(
        "folders are listed in their own order",
        "mltrainer/observe/listing.py",
        'os.listdir = lambda path=".": listdir(path)[::-1]',
        'os.listdir = lambda path=".": listdir(path)',
        "tests/wrap/test_starting.py::test_a_listing_is_whole_in_either_order",
    ),
    Fault(
        "folders are said to be changed in place",
        "mltrainer/wrap/checking.py",
        '"folders": not program.in_place,',
        '"folders": True,',
        "tests/wrap/test_checking.py",
    ),
    Fault(
        "a time left that grows is told",
        "mltrainer/wrap/checking.py",
        "if now - first[1] < LEAST_S or (steps - done) / found > left:",
        "if now - first[1] < LEAST_S:",
        "tests/wrap/test_checking.py",
    ),
    Fault(
        "the step before the clock began counts for the rate",
        "mltrainer/wrap/checking.py",
        "found = (done - first[0]) / max(now - first[1], 1e-9)",
        "found = done / max(now - first[1], 1e-9)",
        "tests/wrap/test_checking.py",
    ),
    Fault(
        "a clock in the name of a file is blamed as surely as one that seeds",
        "mltrainer/wrap/flows.py",
        "return None if fate is None else min(fate, Fate.UNSEEN)",
        "return fate",
        "tests/wrap/test_suspects.py",
    ),
    Fault(
        "of several uses of a value the most harmless counts",
        "mltrainer/wrap/flows.py",
        "return max((fate for fate in found if fate is not None), default=None)",
        "return min((fate for fate in found if fate is not None), default=None)",
        "tests/wrap/test_suspects.py",
    ),
    Fault(
        "processes that share nothing are blamed as surely as threads",
        "mltrainer/wrap/suspects.py",
        'return "threads", "", name not in PROCESSES or self._shares',
        'return "threads", "", True',
        "tests/wrap/test_suspects.py",
    ),
    Fault(
        "certain suspects are not listed first",
        "mltrainer/wrap/blame.py",
        "rows.sort(key=lambda row: (not row[1].certain, kinds.index(row[1].kind), ran[row[0]][0]))",
        "rows.sort(key=lambda row: (kinds.index(row[1].kind), ran[row[0]][0]))",
        "tests/wrap/test_blame.py",
    ),
)
