"""Which line is the cause, decided over traces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.companions.wrap.blame import (
    UNCHANGED,
    UNEXPLAINED,
    Judged,
    LikelyCause,
    _innocent,
    first_difference,
    joined,
    judged,
)
from mltrainer.companions.wrap.suspects import suspects
from mltrainer.programs.causes import KINDS
from mltrainer.records.common import Cause
from mltrainer.reproducibility.causes import sentence

Rows = list[list[Any]]
SOURCE = {
    "t.py": """import time, random
start = time.time()
random.shuffle(x)
rng = random.Random()
loss.backward()
times.append(time.time() - start)
"""
}


def op(time: int, name: str, inputs: str, outputs: str, line: int = 5, unwritten: bool = False) -> list[Any]:
    given, gives = ([f"{word}@1" for word in words.split()] for words in (inputs, outputs))
    return [time, "op", 1, f"aten.{name}.default", "head (Linear)", given, gives, "t.py", line, "main", unwritten]


def likely_causes(*arguments: Any, is_cut: bool = False) -> list[LikelyCause]:
    return judged(*arguments, is_cut=is_cut).causes


def lines(*numbers: int) -> Rows:
    return [[number, "line", "t.py", number, "main"] for number in numbers]


def trace(*rows: list[Any]) -> dict[tuple[str, int], Rows]:
    return {("a", 0): sorted(rows, key=lambda row: row[0])}


def test_equal_traces_show_nothing():
    one = trace(*lines(1, 2), op(10, "add", "i", "o"))
    assert first_difference(one, trace(*lines(2), op(11, "add", "i", "o"))) is None


def test_other_inputs_that_give_the_same_are_no_difference():
    assert first_difference(trace(op(1, "uniform_", "memory", "o")), trace(op(1, "uniform_", "other memory", "o"))) is None


def test_an_operation_with_equal_inputs_is_the_cause_itself():
    one, other = trace(*lines(2, 4), op(10, "index_put", "i", "o")), trace(op(10, "index_put", "i", "p"))
    shown = first_difference(one, other)
    assert (shown.kind, shown.what, shown.module) == ("operation", "the result of index_put for equal inputs", "head (Linear)")
    assert likely_causes(shown, UNCHANGED, one, other, SOURCE.__getitem__) == [LikelyCause(("t.py", 5), "operation", shown.what)]


def test_memory_that_nobody_wrote_names_the_line_that_asked_for_it():
    one, other = trace(op(10, "add", "i", "o", 3, True)), trace(op(10, "add", "i", "p", 3, True))
    shown = first_difference(one, other)
    assert shown is not None
    assert likely_causes(shown, UNCHANGED, one, other, SOURCE.__getitem__)[0][:2] == (("t.py", 3), "unwritten memory")


def test_lines_that_ran_before_are_blamed_the_certain_first():
    one = trace(*lines(2, 4), [6, "line", "t.py", 6, "main"], op(5, "add", "i", "o"))
    other = trace(op(5, "add", "j", "p"))
    found = likely_causes(first_difference(one, other), UNCHANGED, one, other, SOURCE.__getitem__)
    assert [(row.place[1], row.kind) for row in found] == [(4, "random draw"), (2, "clock")]


def test_lines_that_had_not_run_by_the_end_of_the_traces_count_where_these_were_cut():
    one = trace(*lines(2))
    found = [likely_causes(None, UNCHANGED, one, one, SOURCE.__getitem__, is_cut=is_cut) for is_cut in (False, True)]
    assert [[row.place[1] for row in rows] for rows in found] == [[2], [4, 2, 6]]


def test_a_certain_line_of_an_unlikelier_kind_comes_before_an_uncertain_one():
    text = "import time, threading\nstart = time.time()\nthreading.Thread(target=f).start()\ntimes.append(time.time() - start)"
    one, other = trace(*lines(2, 3), op(5, "add", "i", "o")), trace(op(5, "add", "j", "p"))
    found = likely_causes(first_difference(one, other), UNCHANGED, one, other, lambda _: text)
    assert [(row.place[1], row.kind) for row in found] == [(3, "threads"), (2, "clock")]


def test_a_shared_generator_is_blamed_only_where_nobody_seeded_it():
    for state, expected in (("s", []), ("t", [3])):
        one = trace(*lines(3), [4, "generators", 1, {"random": "s"}], op(5, "add", "i", "o"))
        other = trace([4, "generators", 1, {"random": state}], op(5, "add", "j", "p"))
        found = likely_causes(first_difference(one, other), ("random draw",), one, other, SOURCE.__getitem__)
        assert [row.place[1] for row in found if row.call != "what add is given"] == expected


def test_a_draw_of_torch_with_equal_inputs_is_a_draw_at_its_line():
    one, other = trace(op(5, "randn", "i", "o")), trace(op(5, "randn", "i", "p"))
    shown = first_difference(one, other)
    found = likely_causes(shown, UNCHANGED, one, other, SOURCE.__getitem__)
    assert (found[0].place, found[0].kind) == (("t.py", 5), "random draw")


def test_another_operation_is_told_by_both_names():
    shown = first_difference(trace(op(5, "add", "i", "o")), trace(op(5, "mul", "i", "o")))
    assert shown.what == "what is computed: add in one run, mul in the other"


def test_a_tensor_without_operations_of_its_own_is_told_by_name():
    one, other = (trace([5, "gradient", 2, "head.weight", [digest]]) for digest in "ab")
    shown = first_difference(one, other)
    assert (shown.step, shown.what) == (2, "the gradient of head.weight")


def test_a_line_that_only_a_loading_process_ran_is_not_certain():
    forked = {("a", 0): [op(9, "add", "i", "o")], ("a.1", 0): lines(3)}
    other = {("a", 0): [[4, "generators", 1, {"random": "t"}], op(9, "add", "j", "p")]}
    forked["a", 0].insert(0, [4, "generators", 1, {"random": "s"}])
    found = likely_causes(first_difference(forked, other), ("random draw",), forked, other, SOURCE.__getitem__)
    assert [row.place[1] for row in found] == [5, 3]  # where it shows comes first


def test_cells_take_their_imports_from_one_another():
    cells = {"t.py": "import os", "2.py": "names = os.listdir('data')"}
    one = trace([1, "line", "t.py", 1, "m"], [2, "line", "2.py", 1, "m"], op(5, "add", "i", "o"))
    other = trace(op(5, "add", "j", "p"))
    found = likely_causes(first_difference(one, other), ("listing order",), one, other, cells.__getitem__)
    assert (found[0].place, found[0].call) == (("2.py", 1), "os.listdir")


@pytest.mark.parametrize("kind", KINDS)
def test_planning_has_words_for_every_kind_of_cause(kind):
    told = sentence(Cause(kind=kind, step=1, what="it", calls=[]))
    assert told.startswith("it first differs at step 1: ")


def test_memory_that_was_read_unwritten_is_told_where_it_held_the_same_by_chance():
    one = trace(*lines(2, 3), op(5, "mul_", "i", "o", 3, True))
    found = likely_causes(None, (*UNCHANGED, "unwritten memory"), one, one, SOURCE.__getitem__)
    assert found[0] == LikelyCause(("t.py", 3), "unwritten memory", "what mul_ reads")


def test_a_line_that_asks_for_no_set_comes_after_those_that_do(monkeypatch):
    text = "names = list({'a', 'b'})\nrows = written(names)\nloss.backward()\n"
    one, other = trace(*lines(1, 2, 3), op(10, "add", "i", "o", 3)), trace(*lines(1, 2, 3), op(10, "add", "j", "p", 3))
    traced = LikelyCause(("t.py", 2), "hash order", "its result for equal values")
    monkeypatch.setattr("mltrainer.companions.wrap.blame._origins", lambda *_arguments: [traced])
    found = likely_causes(first_difference(one, other), ("hash order",), one, other, lambda _: text)
    assert [line.place[1] for line in found] == [1, 2]
    plain = "names = given\nrows = written(names)\nloss.backward()\n"
    found = likely_causes(first_difference(one, other), ("hash order",), one, other, lambda _: plain)
    assert found[0] == traced


def step(drawn: str, noise: str) -> Rows:
    """Return a step: line 1 draws for a log, line 4 draws what the gradient hangs on."""
    given = [f"{noise}@4", "w@9"]
    rows = [op(1, "randn", "i", drawn, 1), op(4, "randn", "i", noise, 4), op(5, "mul", "", f"l-{noise}", 5)]
    rows[1][6], rows[2][5], rows[2][6] = [given[0]], given, [f"l-{noise}@5"]
    return [*rows, [6, "gradient", 1, "head.weight", [f"l-{noise}@5"]]]


def test_a_draw_before_the_guilty_one_that_reaches_no_gradient_is_innocent():
    one, other = trace(*lines(1, 4), *step("a", "b")), trace(*step("c", "d"))
    shown = first_difference(one, other)
    assert (shown.place, shown.what) == (("t.py", 4), "the result of randn for equal inputs")
    found = judged(shown, UNCHANGED, one, other, {"t.py": "log = torch.randn(2)\n"}.__getitem__)
    assert [line.place[1] for line in found.causes] == [4]
    assert found.shown == shown


def test_a_line_that_only_differs_beside_the_training_is_listed_apart():
    source = "import os\nlog = os.urandom(4)\nrng = os.urandom(4)\nx = torch.randn(8, generator=rng)\n"
    here = LikelyCause(("t.py", 3), "random draw", "os.urandom")
    one, other = trace(*lines(2, 3, 4), *step("a", "b")), trace(*step("c", "d"))
    shown = first_difference(one, other)
    assert shown is not None
    ways: Any = lambda _key: SimpleNamespace(of_computed=lambda *_: [], differing={("t.py", 2), ("t.py", 3)})  # noqa: E731
    suspected = [(("t.py", row.line), row) for row in suspects(source)]
    assert [line.place[1] for line in _innocent(shown, [here], suspected, ways)] == [1, 2]
    unexplained = here._replace(call=UNEXPLAINED)
    assert [line.place[1] for line in _innocent(shown, [unexplained], suspected, ways)] == [1]  # the way may have ended too early


def test_where_both_ways_back_end_unexplained_the_line_of_the_first_difference_in_time_comes_first():
    at = {number: LikelyCause(("t.py", number), "outside", UNEXPLAINED) for number in (2, 7)}
    suspect = LikelyCause(("t.py", 5), "random draw", "random.Random")
    found, by_time = Judged([at[7], suspect], [at[2]], None, False), Judged([at[2]], [at[7]], None, False)
    assert joined(found, by_time) == Judged([at[2], at[7], suspect], [], None, False)
    by_source = Judged([suspect], [at[2]], None, False)  # no way back was found at all
    assert joined(by_source, by_time) == by_source
    assert joined(found, by_source) == found


@pytest.mark.parametrize("by", ["aten.uniform_.default", "aten.eye.m_out"])
def test_memory_that_is_asked_for_empty_and_written_at_once_is_no_suspect(by):
    source = {"t.py": "import torch, numpy\nx = torch.empty(4)\ny = torch.empty(4)\nz = numpy.empty(4)\nloss.backward()\n"}
    asked, written = op(2, "empty", "i", "e", 2), op(3, "uniform_", "e", "u", 2)
    written[3] = by
    unseen = op(3, "empty", "i", "f", 3)
    unseen[6] = ["f@8"]
    one = trace(*lines(2, 3, 4), asked, written, unseen, op(5, "mul", "i", "o", 5))
    other = trace(asked, written, unseen, op(5, "mul", "j", "p", 5))
    found = likely_causes(first_difference(one, other), ("unwritten memory",), one, other, source.__getitem__)
    assert [line.place[1] for line in found] == [3, 4]
