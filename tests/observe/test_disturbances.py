"""The list of what is changed between two runs."""

from __future__ import annotations

import importlib

from mltrainer.observe.disturbances import ALL, DISTURBANCES, Perturbations, alone, chosen, words_of
from mltrainer.programs import checking
from mltrainer.reproducibility.causes import KINDS
from mltrainer.runs import localize


def test_each_one_has_a_kind_of_cause_of_its_own_and_a_module_that_begins_it():
    kinds = [row.kind for row in DISTURBANCES]
    assert len({*kinds}) == len(kinds)
    assert {*kinds} <= {*KINDS}
    assert all(callable(importlib.import_module(f"mltrainer.observe.{name}").begin) for name in ALL.modules)


def test_programs_and_planning_are_disturbed_by_the_same_list():
    kinds = [row.kind for row in DISTURBANCES]
    assert [*checking.ONE_BY_ONE] == ["chance", *kinds]
    assert [change.kind for change in localize.ONE_BY_ONE] == kinds
    assert [name for change in localize.ONE_BY_ONE for name in change.job["disturbances"]] == ALL.names


def test_one_alone_changes_nothing_else():
    assert alone("clock") == Perturbations(date=True)
    assert chosen(["listing", "pause"]).modules == ["listing_order", "pace"]
    assert words_of(Perturbations(folder=True, memory=True)) == ["memory", "folders"]
