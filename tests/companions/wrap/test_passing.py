"""What a line computes by itself, and what it only hands to functions that ran in it."""

from __future__ import annotations

import ast

import pytest

from mltrainer.companions.wrap.passing import Function, computed, given, may_change, run_by


def names(text: str, entered: tuple[str, ...] = ()) -> set[str]:
    return {name for name, _ in computed(ast.parse(text).body, entered).reads}


@pytest.mark.parametrize(
    ("text", "entered", "expected"),
    [
        ("x = f(a) + b", (), {"f", "a", "b"}),
        ("x = f(a) + b", ("f",), {"b"}),
        ("x = f(g(a), b) + c", ("g",), {"f", "b", "c"}),
        ("x = model.f(a)", ("f",), set()),
        ("x += f(a)", ("f",), {"x"}),
        ("x = [a for a in rows if a < b]", ("<listcomp>",), {"rows"}),
        ("x = sorted(a, key=lambda one: b)", (), {"sorted", "a"}),
    ],
)
def test_what_functions_are_handed_that_ran_is_not_read(text, entered, expected):
    assert names(text, entered) == expected


def test_results_count_but_for_those_that_are_handed_on():
    assert computed(ast.parse("x = f(g(a)) + h(b)").body, ("f", "g", "h")).calls == {"f", "h"}


@pytest.mark.parametrize(
    ("text", "function", "parameter", "expected"),
    [
        ("x = f(a, b)", Function("f", ("one", "two")), "two", {"b"}),
        ("x = f(a, two=b)", Function("f", ("one", "two")), "two", {"b"}),
        ("x = thing.f(a, b)", Function("Thing.f", ("self", "one", "two")), "one", {"a"}),
        ("x = thing.f(a)", Function("Thing.f", ("self", "one")), "self", {"thing"}),
        ("x = Thing(a, b)", Function("Thing.__init__", ("self", "one", "two")), "two", {"b"}),
        ("x = f(*a, b)", Function("f", ("one", "two")), "two", {"f", "a", "b"}),
        ("x = call(a, b)", Function("f", ("one", "two")), "two", {"call", "a", "b"}),
        ("x = [one for one in a if b]", Function("<listcomp>", (".0",)), ".0", {"a"}),
    ],
)
def test_of_what_a_function_is_given_the_argument_is_found(text, function, parameter, expected):
    found = given(ast.parse(text).body, function, parameter)
    assert found is not None
    assert {name for name, _ in computed(found).reads} == expected


def test_a_parameter_that_is_not_given_has_its_default():
    assert given(ast.parse("x = f(a)").body, Function("f", ("one", "two")), "two") is None


def test_a_comprehension_runs_all_but_what_it_goes_through():
    text = "x = [a * one for one in rows for two in b if c] + d"
    parts = run_by(ast.parse(text).body, "f.<locals>.<listcomp>")
    assert {name for name, _ in computed(parts).reads} == {"a", "one", "b", "c"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = thing.held[2]", False),
        ("x = thing.held + 1", False),
        ("thing.held[2] = 1", True),
        ("thing.held.append(1)", True),
        ("thing.held += 1", True),
        ("f(thing.held)", True),
        ("f(other)", False),
    ],
)
def test_a_line_that_only_reads_a_variable_does_not_change_it(text, expected):
    assert may_change(ast.parse(text).body, "held") == expected
