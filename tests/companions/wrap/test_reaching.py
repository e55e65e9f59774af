"""Which differences between two traces reach the training, by traces that are written by hand."""

from __future__ import annotations

from typing import Any

from mltrainer.companions.wrap.reaching import paired, reach

Rows = list[list[Any]]


def op(name: str, given: str, gives: str, line: int, step: int = 1) -> list[Any]:
    return [line, "op", step, f"aten.{name}.default", "", given.split(), gives.split(), "/run/t.py", line, "main", False]


def gradient(value: str, step: int = 1) -> list[Any]:
    return [99, "gradient", step, "head.weight", [value]]


def found(one: Rows, other: Rows) -> tuple[list[int], list[int]]:
    """Return the lines at which differences begin: those that reach a gradient, and the others."""
    both = reach(one, other)
    return [row.left[8] for row in both.entries], [row.left[8] for row in both.beside]


def training(jitter: str, noise: str) -> Rows:
    """Return a step: an innocent draw on line 1, which line 2 logs, and a guilty one on line 3."""
    drawn, logged, x, loss = (
        f"{word}@{place}" for word, place in ((jitter, 1), (f"log-{jitter}", 2), (noise, 3), (f"l-{noise}", 4))
    )
    return [
        op("randn", "4", drawn, 1),
        op("mean", drawn, logged, 2),
        op("randn", "8", x, 3),
        op("mul", f"w@9 {x}", loss, 4),
        gradient(loss),
    ]


def test_only_the_draw_from_which_the_gradient_hangs_is_an_entry():
    assert found(training("a", "b"), training("c", "d")) == ([3], [1])


def test_without_a_gradient_that_differs_nothing_is_an_entry_and_the_first_difference_is_kept():
    both = reach(training("a", "b"), training("c", "b"))
    assert (both.entries, both.beside) == ((), ())
    assert both.first.left[8] == 1


def test_equal_values_at_another_address_are_another_tensor():
    def rows(value: str) -> Rows:
        return [op("randint", "9", f"{value}@1", 1), op("mul", f"w@9 {value}@5", f"l-{value}@6", 4), gradient(f"l-{value}@6")]

    assert found(rows("a"), rows("b")) == ([4], [1])  # what line 4 is given comes from no operation: its own line leads on


def test_a_tensor_that_python_holds_comes_from_no_operation_though_memory_is_used_again():
    def rows(value: str) -> Rows:
        first, second = (op("lift_fresh", f"{value}@1", f"{value}@1", line) for line in (1, 2))
        return [first, second, op("mul", f"{value}@1", f"l-{value}@3", 3), gradient(f"l-{value}@3")]

    assert found(rows("a"), rows("b"))[0] == [2]


def test_a_tensor_that_was_written_through_a_view_leads_to_who_wrote():
    def rows(value: str) -> Rows:
        written = op("copy_", f"old@1 {value}@7", f"part-{value}@1", 2)
        return [
            op("randn", "3", f"{value}@7", 1),
            written,
            op("mul", f"whole-{value}@1", f"l-{value}@3", 3),
            gradient(f"l-{value}@3"),
        ]

    assert found(rows("a"), rows("b"))[0] == [1]


def test_runs_that_take_different_ways_beside_the_training_meet_again():
    log = [op("topk", "x@1", "t@2", 21), op("mean", "t@2", "m@2", 22)]
    one, other = training("a", "b"), training("c", "d")
    assert found([*log, *one], other)[0] == found(one, [*log, *other])[0] == [3]


def test_a_way_that_one_run_alone_takes_and_that_reaches_the_gradient_is_an_entry():
    start, flip = op("relu", "x@1", "y@2", 1), op("flip", "y@2", "z@3", 2)
    one = [start, flip, op("mul", "z@3", "l1@4", 3), op("sum", "l1@4", "s1@5", 4), op("neg", "s1@5", "n1@6", 5), gradient("n1@6")]
    other = [start, op("mul", "y@2", "l2@4", 3), op("sum", "l2@4", "s2@5", 4), op("neg", "s2@5", "n2@6", 5), gradient("n2@6")]
    both = reach(one, other)
    assert [(row.left[8], row.is_parted) for row in both.entries] == [(2, True)]


def test_the_same_lines_run_beside_the_training_and_in_it_are_told_apart_by_what_they_are_given():
    def forward(word: str) -> Rows:
        return [op(name, f"{word}{n}@1", f"{word}{n + 1}@1", n) for n, name in enumerate(("conv", "relu", "mul", "sum"), 1)]

    batch = op("slice", "all@1", "x1@1", 10)
    sides = list(paired([*forward("log"), batch, *forward("x"), gradient("a")], [batch, *forward("x"), gradient("b")]))
    assert [row.is_parted for row in sides] == [True] * 4 + [False] * 6
    assert [row.left[5] for row in sides[4:9]] == [row.right[5] for row in sides[4:9]]


def test_memory_that_one_run_alone_used_before_is_no_maker_once_both_used_it_again():
    log = op("relu", "a@7", "seen@1", 1)
    chosen = [op("relu", "b@7", "seen@1", 2), op("relu", "c@7", "other@2", 3)]
    one = [log, *chosen, op("stack", "seen@1", "s1@4", 4), op("sum", "s1@4", "l1@5", 5), gradient("l1@5")]
    other = [*chosen, op("stack", "other@2", "s2@4", 4), op("sum", "s2@4", "l2@5", 5), gradient("l2@5")]
    assert found(one, other) == ([4], [1])


def test_steps_are_never_mixed():
    one = [op("mul", "x@1", "y@1", 1), op("mul", "x@1", "y@1", 1, step=2)]
    assert [(row.left[2], row.right[2]) for row in paired(one, one[1:]) if not row.is_parted] == [(2, 2)]
