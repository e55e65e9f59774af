"""Steps read from a chain: exact, incremental, and thinned without losing a spike."""

from __future__ import annotations

import math

import pytest

from mltrainer.follow.steps import Band, Steps
from mltrainer.follow.tail import Tail
from mltrainer.reproducibility import fingerprint
from tests.companions.monitor.invented import chain


def test_every_step_is_read_with_the_bits_that_the_trainer_wrote(tmp_path):
    chain(tmp_path, [2.5, 0.1, 1e-30])
    steps = Steps(tmp_path)
    assert steps.poll() == (False, True)
    found = steps.view()
    assert (found.step, found.width) == ([1, 2, 3], 1)
    assert found.loss.mean == pytest.approx([2.5, 0.1, 1e-30], rel=1e-5)
    assert found.norm.high == pytest.approx([1.25, 0.05, 5e-31], rel=1e-5)


def test_only_what_is_new_is_read_and_half_a_line_waits(tmp_path):
    head, steps = chain(tmp_path, [1.0, 2.0]), Steps(tmp_path)
    steps.poll()
    assert steps.poll() == (False, False)
    with open(tmp_path / fingerprint.CHAIN_FILE, "a") as file:
        file.write("3 0123456789ab")
    assert (steps.poll(), steps.last) == ((False, False), 2)
    fingerprint.cut(tmp_path / fingerprint.CHAIN_FILE, head)
    chain(tmp_path, [3.0], 3, head)
    steps.poll()
    assert steps.view(3).loss.mean == [3.0]


def test_a_run_that_goes_back_to_a_checkpoint_is_read_again(tmp_path):
    head, steps = chain(tmp_path, [1.0, 2.0]), Steps(tmp_path)
    chain(tmp_path, [3.0, 4.0], 3, head)
    steps.poll()
    fingerprint.cut(tmp_path / fingerprint.CHAIN_FILE, head)
    chain(tmp_path, [5.0, 6.0, 7.0], 3, head)  # longer than before: the size alone would not tell
    assert steps.poll() == (True, True)
    assert steps.view().loss.mean == [1.0, 2.0, 5.0, 6.0, 7.0]


def test_a_fork_begins_at_its_own_step(tmp_path):
    chain(tmp_path, [1.0, 2.0], first=101)
    steps = Steps(tmp_path)
    steps.poll()
    assert (steps.first, steps.last, steps.view().step) == (101, 102, [101, 102])


@pytest.mark.parametrize("at", [1, 777, 49_999, 50_000])
def test_a_spike_of_one_step_is_seen_however_much_is_thinned(tmp_path, at):
    losses = [1.0] * 50_000
    losses[at - 1] = 40.0
    chain(tmp_path, losses)
    steps = Steps(tmp_path)
    steps.poll()
    found = steps.view(points=100)
    assert len(found.step) <= 101
    assert found.width == 512
    (place,) = [place for place, high in enumerate(found.loss.high) if high == 40.0]
    assert abs(found.step[place] - at) <= found.width
    assert found.loss.low[place] == 1.0


def test_buckets_stay_where_they_are_as_a_run_grows(tmp_path):
    head = chain(tmp_path, [float(nr) for nr in range(1, 1001)])
    steps = Steps(tmp_path)
    steps.poll()
    before = steps.view(points=200)
    chain(tmp_path, [0.0] * 20, 1001, head)
    steps.poll()
    after = steps.view(points=200)
    assert after.width == before.width
    assert after.loss.mean[:-4] == before.loss.mean[: len(after.step) - 4]


def test_numbers_that_are_not_finite_are_named_and_spoil_nothing(tmp_path):
    chain(tmp_path, [1.0, math.nan, 3.0, math.inf])
    steps = Steps(tmp_path)
    steps.poll()
    assert steps.view().nonfinite == [2, 4]
    assert steps.view().loss.mean == [1.0, None, 3.0, None]
    assert steps.view(points=1).loss == Band(mean=[2.0, None], low=[1.0, None], high=[3.0, None])


def test_a_gradient_norm_that_is_not_finite_is_named_beside_its_finite_loss(tmp_path):
    entries = [fingerprint.step_entry(nr, "0123456789abcdef", 1.0, norm) for nr, norm in ((1, 0.5), (2, math.inf), (3, 0.5))]
    fingerprint.append(tmp_path / fingerprint.CHAIN_FILE, fingerprint.extend(fingerprint.Head(), entries)[1])
    steps = Steps(tmp_path)
    steps.poll()
    assert steps.view().nonfinite == [2]
    assert steps.view().loss.mean == [1.0, 1.0, 1.0]


def test_a_file_that_is_removed_and_written_anew_is_read_anew(tmp_path):
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.read() == (False, b"")
    path.write_bytes(b"one\n")
    assert tail.read() == (False, b"one\n")
    path.unlink()
    assert tail.read() == (True, b"")
    path.write_bytes(b"one\ntwo\n")
    assert tail.read() == (False, b"one\ntwo\n")
