"""Chains of two runs compared."""

from __future__ import annotations

import errno
import mmap
from pathlib import Path

import pytest

from mltrainer.observe.process import ROOM, Mapped, Process, Settings
from mltrainer.programs.chains import (
    Chain,
    ChainDifference,
    Entry,
    chains,
    compared,
    first_divergence,
    last_step,
    steps_in,
)

CLEAN = tuple(Entry(step, 0, f"{step:016x}", f"{step + 100:016x}", "-") for step in (1, 2, 3))


def changed(step: int, **values: object) -> dict[tuple[str, int], Chain]:
    entries = tuple(e._replace(**values) if e.step == step else e for e in CLEAN)  # type: ignore[arg-type]
    return {("a", 0): Chain(entries, ("end", "held"))}


SAME = changed(0)


def test_equal_chains_are_the_same():
    assert first_divergence(SAME, dict(SAME)) is None


def test_processes_that_are_given_other_arguments_are_paired_in_their_order():
    one = {**SAME, ("x", 0): changed(2, weights="f")["a", 0], ("y", 0): changed(3, weights="f")["a", 0]}
    other = {("v", 0): one["x", 0], **SAME, ("b", 0): one["y", 0]}
    assert first_divergence(one, other) is None


@pytest.mark.parametrize(
    ("other", "divergence"),
    [
        (changed(2, gradients="f"), ChainDifference(2, "the gradients", "a")),
        (changed(3, weights="f"), ChainDifference(3, "the weights", "a")),
        (changed(3, whole="f"), ChainDifference(3, "the weights", "a")),
        (changed(1, optimizer=1, gradients="f"), ChainDifference(1, "which optimizer steps", "a")),
        ({("a", 0): Chain(CLEAN[:2], ("end", "held"))}, ChainDifference(3, "how many steps are made", "a")),
        ({("a", 0): Chain(CLEAN, ("other", "held"))}, ChainDifference(3, "the weights at the end", "a")),
        (
            {("a", 0): Chain(CLEAN, ("end", "other"))},
            ChainDifference(3, "the model's buffers or other parameters at the end", "a"),
        ),
        ({}, ChainDifference(0, "which processes train", "a")),
        ({("b", 0): changed(2, gradients="f")["a", 0]}, ChainDifference(2, "the gradients", "a")),
        ({**SAME, ("a", 1): Chain(CLEAN, ())}, ChainDifference(0, "which processes train", "a")),
    ],
)
def test_each_difference_is_told(other, divergence):
    assert first_divergence(SAME, other) == divergence


def test_the_earliest_of_several_processes_is_told():
    one = {("a", 0): Chain(CLEAN, ()), ("b", 0): Chain(CLEAN, ())}
    other = {("a", 0): changed(3, weights="f")["a", 0], ("b", 0): changed(2, weights="f")["a", 0]}
    assert first_divergence(one, other) == ChainDifference(2, "the weights", "b")


def threads(order: str, **changed: str) -> dict[tuple[str, int], Chain]:
    """Return a process of threads a, b ... that each train a model, in the order of their steps; `a2` is the second step of a."""
    made: dict[str, int] = {}
    entries = []
    for name in order:
        made[name] = made.get(name, 0) + 1
        weights = changed.get(f"{name}{made[name]}", f"{name}{made[name]}")
        number = list(made).index(name)
        entries.append(Entry(len(entries) + 1, number, weights, weights, "-", number))
    return {("p", 0): Chain(tuple(entries), ("end of " + order, "held"))}


@pytest.mark.parametrize(
    ("one", "other", "steps", "count"),
    [
        ("abab", "baba", 0, 4),  # whichever thread is first
        ("aabb", "abab", 4, 4),
        ("aaab", "abbb", 4, 2),  # ended after four steps, wherever the threads were
        ("aaaa", "abab", 4, 2),
        ("abcabc", "ccbbaa", 6, 6),
    ],
)
def test_trainings_in_several_threads_are_compared_each_for_itself(one, other, steps, count):
    assert first_divergence(threads(one), threads(other), steps) is None
    assert compared(threads(one), threads(other), steps) == count


@pytest.mark.parametrize(
    ("one", "other", "changed", "divergence"),
    [
        ("abab", "bbaa", {"b2": "f"}, ChainDifference(4, "the gradients", "p")),
        ("abab", "baba", {"a1": "f"}, ChainDifference(1, "the gradients", "p")),
        ("aaab", "abbb", {}, ChainDifference(2, "how many steps are made", "p")),  # neither was ended in mid-run
        ("abab", "aba", {}, ChainDifference(4, "how many steps are made", "p")),
        ("abab", "abcabc", {}, ChainDifference(3, "how many steps are made", "p")),
    ],
)
def test_a_training_in_a_thread_that_differs_is_told(one, other, changed, divergence):
    assert first_divergence(threads(one), threads(other, **changed)) == divergence


def test_what_threads_end_with_is_compared_where_they_came_to_their_end_in_one_order():
    one, other = threads("abab"), {key: Chain(chain.entries, ("other", "held")) for key, chain in threads("abab").items()}
    assert first_divergence(one, other) == ChainDifference(4, "the weights at the end", "p")
    assert first_divergence(one, other, 4) is None  # ended in mid-run, each thread wherever it was


def test_optimizers_that_one_thread_steps_in_another_order_are_told():
    one, other = (
        {key: Chain(tuple(e._replace(thread=0) for e in c.entries), ()) for key, c in threads(o).items()}
        for o in ("abab", "abba")
    )
    assert first_divergence(one, other) == ChainDifference(3, "which optimizer steps", "p")


def test_files_are_read_by_process_and_half_a_line_is_left_out(tmp_path):
    (tmp_path / "chain-0-30.jsonl").write_text("5 1 0 0 aa bb -\n6 end w b\n")
    (tmp_path / "chain-7c-12.jsonl").write_text("5 1 0 0 aa bb -\n6 2 0 0 aa bb c")
    (tmp_path / "chain-7c-9.jsonl").write_text("5 1 1 2 aa bb cc\n")
    found = chains(tmp_path)
    assert found["0", 0] == Chain((Entry(1, 0, "aa", "bb", "-"),), ("w", "b"))
    assert found["7c", 0].entries == (Entry(1, 1, "aa", "bb", "cc", 2),)
    assert len(found["7c", 1].entries) == 1
    assert steps_in(tmp_path) == 2


def entry(step: int) -> bytes:
    return f"5 {step} 0 0 aa bb -\n".encode()


def read(folder: Path) -> tuple[list[int], int, int]:
    [chain] = chains(folder).values()
    return [found.step for found in chain.entries], steps_in(folder), last_step(folder)


def test_what_is_written_through_memory_is_read_at_any_time_and_gone_on_with(tmp_path):
    path = str(tmp_path / "chain-0-30.jsonl")
    file, many = Mapped(path), 2 * ROOM // len(entry(1000))
    for step in range(1, many + 1):
        file.write(entry(step))
        if step in (1, many // 2, many):
            assert read(tmp_path) == ([*range(1, step + 1)], step, step)
    Mapped(path).write(entry(many + 1))
    assert read(tmp_path) == ([*range(1, many + 2)], many + 1, many + 1)


def test_lines_are_written_where_no_file_can_be_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(mmap, "mmap", raised)
    file = Process(Settings(folder=str(tmp_path))).map("chain")
    assert not isinstance(file, Mapped)
    with file:
        for step in (1, 2):
            file.write(entry(step))
            assert read(tmp_path) == ([*range(1, step + 1)], step, step)


def raised(*_: object) -> None:
    raise OSError(errno.ENODEV, "no such device")


def test_two_processes_of_one_name_are_told_apart_by_their_order_and_the_second_is_compared(tmp_path):
    for run, bits in (("one", "a"), ("other", "b")):
        (tmp_path / run).mkdir()
        for pid, gradients in ((9, "a"), (10, bits)):  # 10 is begun later, though it comes first as text
            (tmp_path / run / f"chain-x-{pid}.jsonl").write_text(f"5 1 0 0 {gradients} w -\n")
    one, other = chains(tmp_path / "one"), chains(tmp_path / "other")
    assert [*one] == [("x", 0), ("x", 1)]
    assert [chain.entries[0].gradients for chain in other.values()] == ["a", "b"]
    assert first_divergence(one, other) == ChainDifference(1, "the gradients", "x")
    assert steps_in(tmp_path / "one") == 1
