"""Faults planted in `mltrainer/wrap`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "the digest of all weights is compared at no step",
        "mltrainer/wrap/chains.py",
        "return entry.optimizer, entry.gradients, entry.weights, entry.whole",
        'return entry.optimizer, entry.gradients, entry.weights, "-"',
        "tests/wrap/test_chains.py",
    ),
    Fault(
        "what a model holds beside its weights is not compared at the end",
        "mltrainer/wrap/chains.py",
        "if not one.end or not other.end or one.end == other.end:",
        "if not one.end or not other.end or one.end[0] == other.end[0]:",
        "tests/wrap/test_chains.py",
    ),
    Fault(
        "another run has the same hash seed",
        "mltrainer/wrap/starting.py",
        '"PYTHONHASHSEED": program.hash_seeds[perturbations.hashes],',
        '"PYTHONHASHSEED": program.hash_seeds[0],',
        "tests/wrap/test_starting.py::test_what_is_changed_reaches_the_program_and_nothing_else_is",
    ),
    Fault(
        "folders are said to be changed in place",
        "mltrainer/wrap/checking.py",
        'if program.in_place and what == "folders"',
        'if False and what == "folders"',
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
        "mltrainer/wrap/data_flow.py",
        "return None if fate is None else min(fate, Fate.UNSEEN)",
        "return fate",
        "tests/wrap/test_suspects.py",
    ),
    Fault(
        "of several uses of a value the most harmless counts",
        "mltrainer/wrap/data_flow.py",
        "return max((fate for fate in found if fate is not None), default=None)",
        "return min((fate for fate in found if fate is not None), default=None)",
        "tests/wrap/test_suspects.py",
    ),
    Fault(
        "processes that share nothing are blamed as surely as threads",
        "mltrainer/wrap/suspects.py",
        'return "threads", "", not is_process or self._shares',
        'return "threads", "", True',
        "tests/wrap/test_suspects.py",
    ),
    Fault(
        "certain suspects are not listed first",
        "mltrainer/wrap/blame.py",
        "rows.sort(key=lambda row: (not row[1].certain, kinds.index(row[1].kind), ran.get(row[0], NOT_YET)[0]))",
        "rows.sort(key=lambda row: (kinds.index(row[1].kind), ran.get(row[0], NOT_YET)[0]))",
        "tests/wrap/test_blame.py",
    ),
)
