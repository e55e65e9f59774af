"""Where a difference comes from, by the values of two runs of a small program, which really ran."""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import random
import sys
import threading
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from mltrainer.companions.wrap.origins import Origins
from mltrainer.companions.wrap.paired_values import PairedValues, Variable
from mltrainer.observe.values import Values

Rows = list[list[Any]]
FILE = "program.py"


class Pair(NamedTuple):
    first: int
    second: int


class Slots:
    __slots__ = ("held", "unset")

    def __init__(self, held: int) -> None:
        self.held = held


def sampler(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return iter(torch.utils.data.DataLoader([1, 2], shuffle=True, generator=generator))


class Lines:
    def __init__(self) -> None:
        self.rows: Rows = []
        self.clock = itertools.count()

    def write(self, *values: Any, flush: bool = True) -> None:
        self.rows.append([next(self.clock), *values])


def observer(lines: Lines, folders: list[str]) -> Values:
    return Values(lines, lambda frame: FILE, folders)


def rows_of(source: str, **given: Any) -> tuple[Rows, int]:
    """Return the rows of values of a program, and when it called `compute`."""
    lines, moments = Lines(), [0]
    values = observer(lines, ["/tmp/run-of-its-own"])

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != FILE:
            return None
        values.note(frame, event, argument)
        return trace

    def compute(*_arguments: Any) -> None:
        moments.append(next(lines.clock))

    code = compile(source, FILE, "exec")
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        exec(code, {"__name__": "__main__", "compute": compute, **given})
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # takes it back, which its stub does not know
    return lines.rows, moments[-1]


def origins(source: str, asks: tuple[int, ...] = (), ones: tuple[Any, Any] = (1, 2)) -> list[int]:
    """Return the lines at which a difference begins that reaches `compute`, where `ask()` gives another value to each run."""
    both = [rows_of(source, ask=lambda value=value: value) for value in ones]
    (one, time), (other, _) = both
    called = next(n for n, line in enumerate(source.splitlines(), 1) if "compute(" in line)
    values = Origins(one, other, lambda file: source)
    return [origin.place[1] for origin in values.of_computed((FILE, called), time, [(FILE, line) for line in asks])]


def test_what_differs_beside_the_way_is_not_named():
    assert origins("pid = ask()\nrate = ask() / 10\nprint(end='')\nshare = rate * 2\ncompute(share)") == [2]


def test_the_way_leads_through_calls_and_what_they_return():
    share = "def share(step):\n    now = ask()\n    return now / step\n"
    source = f"{share}def rate(step):\n    return 3 * share(step)\ncompute(rate(2))"
    assert origins(source) == [2]


def test_the_way_leads_through_what_a_function_is_given():
    assert origins("def train(rate):\n    twice = 2 * rate\n    compute(twice)\nfound = ask()\ntrain(found)") == [4]


def test_the_way_leads_through_attributes():
    source = """class Noise:
    def __init__(self):
        self.strength = ask()
    def add(self, x):
        return x + self.strength
noise = Noise()
x = noise.add(1)
compute(x)
"""
    assert origins(source) == [3]


def test_of_an_object_only_the_attribute_that_is_read_is_followed():
    source = """class Trainer: pass
trainer = Trainer()
trainer.rate = ask()
trainer.shown = ask()
def decay(one):
    return one.rate * 2
compute(decay(trainer))
"""
    assert origins(source) == [3]


def test_attributes_of_attributes_are_followed():
    source = """class Model: pass
class Hook:
    def run(self):
        self.model.rate = ask()
        self.model.shown = ask()
hook = Hook()
hook.model = Model()
hook.model.rate = 1
hook.run()
def train(one):
    compute(one.rate)
train(hook.model)
"""
    assert origins(source) == [4]


def test_what_a_call_changes_in_what_it_is_given_is_followed():
    source = """def time_it(logs):
    logs['span'] = ask()
def call(function, *arguments):
    function(*arguments)
    compute(arguments)
call(time_it, {})
"""
    assert origins(source) == [2]


def test_statements_of_several_lines_are_followed_as_one():
    assert origins("def rows():\n    return [ask()]\nx = [\n    one * 2\n    for one in rows()\n]\ncompute(x)") == [2]


def test_what_a_call_leaves_in_other_attributes_is_beside_the_way():
    source = """class Trial:
    def __init__(self, settings):
        self.created = ask()
        self.settings = settings
def drawn():
    return {'lr': ask()}
trial = Trial(drawn())
compute(trial.settings)
"""
    assert origins(source, asks=(3,)) == [6]


def test_a_value_that_is_returned_through_with_comes_from_its_own_line():
    source = "import contextlib\ndef value():\n    with contextlib.nullcontext():\n        return ask()\ncompute(value())"
    assert origins(source) == [4]


def test_the_way_leads_through_loops_of_which_only_the_first_turns_are_looked_at():
    loop = "rate = ask()\ntotal, count = 0, 0\nfor turn in range(900):\n    total += rate\n    count += 1\ncompute(total)"
    assert origins(loop) == [1]


def test_a_line_that_computes_with_a_printed_moment_is_told_beside_the_line_that_asks_for_it():
    source = "now, beside = ask(), 1\nprint(now, end='')\nspan = now * 2\nrate = span + 1\ncompute(rate)"
    (one, time), (other, _) = (rows_of(source, ask=lambda value=value: value) for value in (1, 2))
    found = Origins(one, other, lambda file: source).of_computed((FILE, 5), time, [(FILE, 1)])
    assert [(origin.place[1], origin.used) for origin in found] == [(1, (FILE, 3))]


def test_a_line_that_computes_with_what_a_function_returns_that_also_times_is_told():
    source = "def span():\n    return ask()\nrate = span() * 2\nbeside = span()\ncompute(rate)"
    (one, time), (other, _) = (rows_of(source, ask=lambda value=value: value) for value in (1, 2))
    found = Origins(one, other, lambda file: source).of_computed((FILE, 5), time, [(FILE, 2)])
    assert [(origin.place[1], origin.used) for origin in found] == [(2, (FILE, 3))]


def test_a_seed_that_is_set_after_a_draw_is_found():
    source = "import random\nx = random.random()\nrandom.seed(1)\ny = random.random()\ncompute(x)"
    state = random.getstate()
    try:
        (one, time), (other, _) = rows_of(source), rows_of(f"import random; random.seed()\n{source.partition(chr(10))[2]}")
    finally:
        random.setstate(state)
    found = Origins(one, other, lambda file: source).of_computed((FILE, 5), time, [])
    assert [(origin.place[1], origin.late_seed) for origin in found] == [(2, (FILE, 3))]


def test_what_is_written_to_a_file_is_followed_back():
    source = (
        "import io\nrate, beside = ask(), 1\nbeside = ask()\nwith io.StringIO() as file:\n    file.write(str(rate))\ncompute()"
    )
    (one, _), (other, _) = (rows_of(source, ask=lambda value=value: value) for value in (1, 2))
    opened = next(row[0] for row in one if row[1] == "value" and row[6] == 4)
    values = Origins(one, other, lambda file: source)
    assert [origin.place[1] for origin in values.of_written([((FILE, 4), opened)], [])] == [2]


def test_a_line_that_asks_itself_is_named_before_what_it_was_given():
    assert origins("began = ask()\nspan = ask() - began / 2\ncompute(span)", asks=(1, 2)) == [2, 1]


def test_what_is_given_again_alike_has_no_other_origin_than_the_line_itself():
    assert origins("buffer = [ask()]\nbuffer[0] = 7\ncompute(buffer)") == [3]
    assert origins("class File: pass\nFile.__module__ = 'io'\nfile = File()\ncompute(file)") == []  # what it reads is not seen


def test_the_order_that_a_set_gives_is_named_and_not_the_set():
    source = "words = ask()\nknown = set(words)\nplaces = list(words)\ncompute(places)"
    assert origins(source, ones=(("a", "b"), ("b", "a"))) == [1]
    given = "known = {'x', 'y', 'z'}\nplaces = sorted(known, key=lambda word: ask() * ord(word))\ncompute(places)"
    assert origins(given, ones=(-1, 2)) == [2]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("random.seed(ask())\nx = random.random()\ny = 2 * x\ncompute(y)", [1]),
        ("random.seed(1)\nunused = ask()\nif ask() > 1: random.random()\nx = random.random()\ncompute(x)", [3]),
        ("first = random.random()\nx = random.random()\ncompute(x)\nrandom.seed(1)", [2]),
    ],
)
def test_a_draw_leads_back_to_the_line_that_left_its_generator_otherwise(source, expected):
    state = random.getstate()
    try:
        text = f"import random\n{source}"
        random.seed()  # neither run begins where the other one did
        found = origins(text)
    finally:
        random.setstate(state)
    assert found[0] == expected[0] + 1


def test_what_another_thread_changed_leads_into_that_thread():
    source = """import threading
class Noise:
    def lower(self):
        self.strength = ask()
    def use(self):
        thread = threading.Thread(target=self.lower, name='worker')
        thread.start()
        thread.join()
        x = 2 * self.strength
        compute(x)
noise = Noise()
noise.strength = 0
noise.use()
"""
    assert origins(source) == [4]


def test_ways_that_part_lead_to_what_decided():
    source = "limit = ask()\nx = 1\nif limit > 1:\n    x = 1\nfor turn in range(1):\n    compute(x)"
    assert origins(source, ones=(1, 2)) == [1]


def test_without_a_place_decisions_are_followed_that_do_more_than_print():
    source = "took, beside = ask(), ask()\nspan = took\nif span > 0:\n    rate = 2\nif beside > 0:\n    print(end='')"
    (one, _), (other, _) = (rows_of(source, ask=lambda value=value: value) for value in (1, 2))
    decided = Origins(one, other, lambda file: source).of_decisions([(FILE, 2)])
    assert [origin.place[1] for origin in decided] == [2, 1]


def test_the_names_of_a_runs_own_folder_are_no_difference():
    lines = Lines()
    values = observer(lines, ["/tmp/run-1"])
    assert values._digest("/tmp/run-1/data") == values._digest("/data") != values._digest("/other")


def test_nothing_of_the_programs_own_is_called():
    class Own:
        def __init__(self) -> None:
            self.held = 1

        def __repr__(self) -> str:
            raise AssertionError

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __len__(self) -> int:
            raise AssertionError

    values, own = observer(Lines(), []), Own()
    before = values._digest([own])
    own.held = 2
    assert before != values._digest([own]) != ""


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ({"a", "b"}, {"b", "a"}, {"a", "c"}),
        ({"a": 1}, {"a": 1}, {"a": 2}),
        (torch.ones(2, 2), torch.ones(2, 2), torch.zeros(2, 2)),
        (np.ones(3), np.ones(3), np.zeros(3)),
        (np.array(["a", None], object), np.array(["a", None], object), np.array(["b", None], object)),
        (np.random.default_rng(1), np.random.default_rng(1), np.random.default_rng(2)),
        (np.random.RandomState(1), np.random.RandomState(1), np.random.RandomState(2)),
        (random.Random(1), random.Random(1), random.Random(2)),
        (Pair(1, 2), Pair(1, 2), Pair(1, 3)),
        (Slots(1), Slots(1), Slots(2)),
        (range(3), range(3), range(4)),
        (slice(1, 3), slice(1, 3), slice(2, 3)),
        (iter([1, 2]), iter([1, 2]), iter([1, 3])),
        (zip("ab", [1, 2], strict=True), zip("ab", [1, 2], strict=True), zip("ab", [1, 3], strict=True)),
        (argparse.Namespace(seed=1), argparse.Namespace(seed=1), argparse.Namespace(seed=2)),
        (functools.partial(int, 1), functools.partial(int, 1), functools.partial(int, 2)),
        (sampler(1), sampler(1), sampler(2)),
        (torch.Generator().manual_seed(1), torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_told_apart_by_what_they_hold(one, same, other):
    values = observer(Lines(), [])
    assert values._digest(one) == values._digest(same) != values._digest(other)


def test_a_rate_is_part_of_its_optimizer_and_of_its_schedule():
    values = observer(Lines(), [])
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    before = values._digest(optimizer), values._digest(schedule)
    optimizer.param_groups[0]["lr"] = schedule._last_lr[0] = 0.2
    assert all(a != b for a, b in zip(before, (values._digest(optimizer), values._digest(schedule)), strict=True))


def test_a_source_that_is_none_has_no_statements():
    with pytest.raises(SyntaxError):
        ast.parse("x = ")
    assert Origins([], [], lambda file: "x = ").of_computed((FILE, 1), 1, []) == []


def test_what_a_fork_found_otherwise_leads_back_in_the_process_that_made_it():
    source = "order = ask()\nprint(end='')\nseen = 1\ncompute(seen)"
    (one, time), (other, _) = (rows_of(source, ask=lambda value=value: value) for value in (1, 2))
    values = Origins(one, other, lambda file: source)
    assert [origin.place[1] for origin in values.of_inherited([Variable(0, FILE, ":order")], time, [])] == [1]
    assert values.of_inherited([Variable(0, FILE, ":unknown")], time, []) == []


def test_a_generator_that_a_line_imports_was_not_drawn_from():
    def rows(state: str) -> Rows:
        before = [[0, "frame", 1, FILE, "<module>"], [1, "value", "MainThread", 1, 0, "call", 1, {}, False]]
        lines = [(1, {":x": "same"}), (2, {":x": "other" + state}), (3, {"<numpy>": state}), (4, {})]
        return before + [[2 + line, "value", "MainThread", 1, 0, "line", line, changes, False] for line, changes in lines]

    source = "x = ask()\ny = print(x, numpy)\nz = 1\n"
    values = Origins(rows("a"), rows("b"), lambda file: source)
    found = values.of_computed((FILE, 2), 4, [])
    assert [(origin.place[1], origin.generator) for origin in found] == [(1, "")]


@pytest.mark.parametrize("file", ["file", "file: object"])
def test_what_was_read_from_something_without_a_digest_leads_to_what_that_was_opened_by(file):
    source = f"name = ask()\n{file} = opened(name)\ntext = file.read()\ncompute(text)"

    class File:
        __slots__ = ("name",)

        def __init__(self, name: int) -> None:
            self.name = name

        def read(self) -> int:
            return self.name

    File.__module__ = "io"
    both = [rows_of(source, ask=lambda value=value: value, opened=File) for value in (1, 2)]
    (one, time), (other, _) = both
    assert [origin.place[1] for origin in Origins(one, other, lambda file: source).of_computed((FILE, 4), time, [])] == [1]


def test_an_attribute_that_differs_beside_the_way_is_not_named():
    lines = ("def __init__(self):", "    self.rate = ask()", "    self.begun = ask()", "    compute(self.rate)")
    source = "\n    ".join(("class Job:", *lines)) + "\nJob()"
    assert origins(source, asks=(3, 4)) == [3]


def test_which_thread_of_a_pool_does_which_work_is_no_difference():
    def rows(threads: tuple[str, str], origin: str) -> Rows:
        found: Rows = [[0, "frame", 1, FILE, "<module>"], [1, "value", "MainThread", 1, 0, "call", 1, {}, False]]
        found.append([2, "value", "MainThread", 1, 0, "line", 1, {}, False])
        for number, (thread, job) in enumerate(zip(threads, "ab", strict=True), 2):
            found.append([number, "frame", number, FILE, "work"])
            found.append([number, "value", thread, number, 0, "call", 3, {"job": job}, False])
            found.append([number, "value", thread, number, 0, "return", 3, {"<return>": job}, False])
        return [*found, [8, "value", "MainThread", 1, 0, "line", 2, {":x": origin}, False]]

    source = "x = ask()\ncompute(x)\ndef work(job): return job"
    values = Origins(rows(("t1", "t2"), "1"), rows(("t2", "t1"), "2"), lambda file: source)
    assert [origin.place[1] for origin in values.of_computed((FILE, 2), 9, [])] == [1]
    assert PairedValues(rows(("t1", "t2"), "1"), rows(("t2", "t1"), "2")).parting == {}


def test_a_race_over_what_another_thread_changes_leads_to_that_thread():
    source = "noise = 1\ndef lower():\n    global noise\n    noise = 2\ndef use(x):\n    return x + noise\ncompute(use(1))"

    def rows(seen: str) -> Rows:
        frames = [[0, "frame", 1, FILE, "<module>"], [0, "frame", 2, FILE, "lower"], [0, "frame", 3, FILE, "use"]]
        own = [[1, "value", "MainThread", 1, 0, "call", 1, {}, False], [2, "value", "MainThread", 1, 0, "line", 1, {}, False]]
        thread = [(3, "call", 2, {}), (4, "line", 4, {}), (5, "return", 4, {":noise": "2"})]
        use = [(7, "call", 5, {":noise": seen}), (8, "line", 6, {}), (9, "return", 6, {"<return>": "x" + seen})]
        return [
            *frames,
            *own,
            *([time, "value", "worker", 2, 0, kind, line, changes, False] for time, kind, line, changes in thread),
            [6, "value", "MainThread", 1, 0, "line", 7, {":noise": "1"}, False],
            *([time, "value", "MainThread", 3, 1, kind, line, changes, False] for time, kind, line, changes in use),
        ]

    values = Origins(rows("1"), rows("2"), lambda file: source)
    assert [origin.place[1] for origin in values.of_computed((FILE, 7), 10, [])] == [4]


def test_a_variable_of_the_function_around_leads_to_where_that_changed_it():
    source = """def make():
    rate = ask()
    beside = 1
    def use(x):
        return x * rate
    return use
use = make()
other = ask()
def call(function, other):
    return function(3)
compute(call(use, other))
"""
    assert origins(source) == [2]


def test_what_is_handed_to_a_function_is_followed_where_that_reads_it():
    source = """class Watch:
    def __init__(self):
        self.start, self.rate = ask(), 2
    def scaled(self):
        return self.rate * ask()
def weight(watch):
    return 3 * watch.scaled()
watch = Watch()
compute(weight(watch))
"""
    assert origins(source) == [5]


def test_a_loop_leads_to_what_it_goes_through():
    source = """def rows():
    return [1, ask(), 3 * ask()]
total = 0
for row in rows():
    total = row
    shown = 2
compute(total)
"""
    assert origins(source) == [2]


def test_what_came_after_a_line_had_given_something_is_beside_the_way():
    source = """class Numbers(dict):
    def __missing__(self, name):
        self[name] = number = len(self)
        return number
numbers = Numbers()
def found(names):
    yield from (numbers[name] for name in names)
for number in found(ask()):
    last = number
compute(last, numbers)
"""
    assert origins(source, ones=(("a", "b"), ("b", "a"))) == [8]


def test_a_function_that_returns_by_another_way_leads_to_what_it_decided_by():
    source = """def drawn(limit):
    if limit > 1:
        return 1
    return 2
limit = ask()
compute(drawn(limit))
"""
    assert origins(source) == [5]
    assert origins(source.replace("limit > 1", "ask() > 1").replace("limit = ask()", "limit = 1")) == [2]


def test_an_attribute_of_one_of_several_objects_leads_to_where_that_one_got_it():
    source = """class Words:
    def __init__(self, order):
        self.order = order
    def first(self):
        return self.order * 2
one = Words(ask() * 3)
other = Words(ask() * 5)
def use():
    x = one.first()
    y = other.first()
    z = one.first()
    compute(z)
use()
"""
    assert origins(source) == [6]


def test_what_a_thread_hands_over_by_a_queue_leads_into_that_thread():
    source = """import queue, threading
ready = queue.Queue()
def make(number):
    noise = ask()
    return [number, noise]
def work():
    ready.put((1, make(1)))
thread = threading.Thread(target=work, name='worker')
thread.start()
thread.join()
item = ready.get()
compute(item)
"""
    assert origins(source) == [4]


def test_coroutines_that_a_line_waits_for_are_followed():
    source = """import asyncio
async def fetch(scale):
    await asyncio.sleep(0)
    noise = ask()
    return scale * noise
async def all_of():
    return await asyncio.gather(fetch(1), fetch(2))
rows = asyncio.run(all_of())
compute(rows)
"""
    assert origins(source) == [4]


def test_works_of_a_pool_are_compared_by_what_they_are_given():
    def rows(jobs: str) -> Rows:
        found: Rows = [[0, "frame", 1, FILE, "<module>"], [1, "value", "MainThread", 1, 0, "call", 1, {}, False]]
        found += [[2, "frame", 2, FILE, "loop", ["self"], []], [3, "value", "t1", 2, 0, "call", 2, {}, False]]
        for number, job in enumerate(jobs, 3):
            found.append([4, "frame", number, FILE, "work", ["job"], []])
            found.append([5, "value", "t1", number, 2, "call", 3, {"job": job}, False])
            found.append([6, "value", "t1", number, 2, "return", 3, {"<return>": f"of {job}"}, False])
        return found

    values = PairedValues(rows("abc"), rows("bca"))
    assert values.parted_at == {}
    assert [variable.name for variable in values.changes].count("<return>") == 3
    assert [variable.name for variable in PairedValues(rows("abc"), rows("bd")).changes].count("<return>") == 1


def test_memory_beside_what_a_tensor_shows_is_no_part_of_its_value():
    values = observer(Lines(), [])
    one, other = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 5.0, 6.0])
    assert values._digest(one[:2]) == values._digest(other[:2])
    assert values._digest(one[::2]) != values._digest(other[::2])
    assert values._digest(one[:0]) == values._digest(other[:0]) != ""


def test_attributes_of_two_objects_of_a_class_in_one_function_are_told_apart():
    source = """class Mean:
    def __init__(self):
        self.mean = 0
    def add(self, value):
        self.mean += value
def clip(speed, sizes):
    return sizes.mean + 2 * speed.mean
speed, sizes = Mean(), Mean()
speed.add(ask())
sizes.add(3)
compute(clip(speed, sizes))
"""
    assert origins(source) == [9]


def test_what_a_function_changed_after_it_took_another_way_leads_to_its_decision():
    source = """class Lake:
    def __init__(self):
        self.place = 0
    def step(self, slips):
        if slips > 1:
            self.place += 1
        return 0
    def seen(self):
        return self.place
lake = Lake()
slips = ask()
lake.step(slips)
compute(lake.seen())
"""
    assert origins(source) == [11]


def test_what_has_no_digest_leads_from_a_closure_to_where_it_was_made():
    source = """def jitter(noise):
    def change(x):
        return x + noise.draw()
    return change
change = jitter(opened(ask()))
compute(change(1))
"""

    class File:
        __slots__ = ("number",)

        def __init__(self, number: int) -> None:
            self.number = number

        def draw(self) -> int:
            return self.number

    File.__module__ = "io"
    both = [rows_of(source, ask=lambda value=value: value, opened=File) for value in (1, 2)]
    (one, time), (other, _) = both
    found = Origins(one, other, lambda file: source).of_computed((FILE, 6), time, [(FILE, 5)])
    assert [origin.place[1] for origin in found] == [5]
