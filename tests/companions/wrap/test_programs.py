"""The programs that measure which line is named: each with three faults or one, of which nothing is told to who reads them."""

from __future__ import annotations

from tests.benchmarks.wrap.programs import HELD_OUT, variants


def test_each_program_stands_without_fault_and_with_its_faults():
    found = variants()
    faults = {variant.program: sum(other.program == variant.program for other in found) - 1 for variant in found}
    assert [*faults.values()].count(3) == 60
    assert {name for name, count in faults.items() if count == 1} == {v.program for v in found if v.group == "sixth"}
    assert [*faults.values()].count(1) == 20
    assert set(HELD_OUT) < faults.keys()


def test_each_fault_has_lines_and_kinds_and_no_mark_is_left():
    for variant in variants():
        compile(variant.source, variant.program, "exec")
        assert bool(variant.number) == bool(variant.guilty) == bool(variant.kinds), variant
        assert "# guilty" not in variant.source
        assert "# [" not in variant.source


def test_a_fault_changes_the_program():
    plain = {variant.program: variant.source for variant in variants() if not variant.number}
    assert all(variant.source != plain[variant.program] for variant in variants() if variant.number)
