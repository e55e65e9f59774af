"""Draws depend on their address and on nothing that came before."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from mltrainer.reproducibility import seeds
from mltrainer.reproducibility.numerics import numerics_class


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_a_draw_does_not_depend_on_earlier_draws():
    seeds.seed_everything(seeds.key(42, "step", 7))
    expected = draws()
    torch.rand(1000)
    random.random()
    seeds.seed_everything(seeds.key(42, "step", 7))
    assert draws() == expected


@pytest.mark.parametrize("other", [(43, "step", 7), (42, "sample", 7), (42, "step", 8), (42, "step", 7, 0)])
def test_each_part_of_the_address_matters(other):
    assert seeds.key(*other) != seeds.key(42, "step", 7)


def test_numbers_in_an_address_are_kept_apart():
    assert seeds.key(4, "step", 21, 1) != seeds.key(4, "step", 2, 11)


def test_an_epochs_order_holds_each_sample_once():
    first, second = (seeds.epoch_order(42, epoch, 100) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("count", [2, 3, 16, 17, 1000, 4097])
def test_an_order_whose_places_are_computed_alone_holds_each_sample_once(count):
    whole = seeds.positions_at(42, 0, count, np.arange(count))
    assert sorted(whole.tolist()) == list(range(count))
    assert [int(seeds.positions_at(42, 0, count, np.array([place]))[0]) for place in range(0, count, 7)] == whole[::7].tolist()
    if count > 100:
        assert whole.tolist() != seeds.positions_at(42, 1, count, np.arange(count)).tolist()
        assert abs(np.corrcoef(whole, np.arange(count))[0, 1]) < 0.1


def test_the_order_of_many_samples_is_computed_place_by_place(monkeypatch):
    monkeypatch.setattr(seeds, "SHUFFLED_WHOLE", 99)
    assert seeds.epoch_order(42, 3, 100).tolist() == seeds.positions_at(42, 3, 100, np.arange(100)).tolist()


def test_a_place_among_a_billion_samples_is_computed_without_the_others():
    found = seeds.positions_at(42, 0, 10**9, np.array([0, 1, 10**9 - 1]))
    assert len(set(found.tolist())) == 3
    assert all(0 <= position < 10**9 for position in found.tolist())


def test_first_draws_are_the_same_in_every_call():
    assert seeds.first_draws(42) == seeds.first_draws(42) != seeds.first_draws(43)


def class_under(**variables: str) -> str:
    module = "mltrainer.reproducibility.numerics"
    code = f"import torch; torch.set_num_threads(1); from {module} import numerics_class as n; print(n('cpu'))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_numerics_class_ignores_the_hash_seed_and_the_generators_state():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = numerics_class("cpu")
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert numerics_class("cpu") == first
    assert class_under(PYTHONHASHSEED="1") == class_under(PYTHONHASHSEED="2")


@pytest.mark.slow
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="needs a CPU with AVX2")
@pytest.mark.parametrize(
    ("name", "value"), [("ATEN_CPU_CAPABILITY", "default"), ("ONEDNN_MAX_CPU_ISA", "SSE41"), ("MKL_CBWR", "COMPATIBLE")]
)
def test_the_numerics_class_tells_other_kernels(name, value):
    assert class_under(**{name: value}) != class_under()


def test_draws_of_many_samples_are_each_sample_s_own():
    ids = np.array([5, 0, 2**40])
    found = seeds.uniforms(seeds.key(42, "augment flip", 3), ids, 4)
    assert found.shape == (3, 4)
    assert np.array_equal(found[::-1], seeds.uniforms(seeds.key(42, "augment flip", 3), ids[::-1], 4))
    assert np.array_equal(found[:, :2], seeds.uniforms(seeds.key(42, "augment flip", 3), ids, 2))


def test_draws_of_many_samples_are_even_and_independent():
    found = seeds.uniforms(seeds.key(42, "augment flip", 0), np.arange(20_000), 3)
    assert (found >= 0).all()
    assert (found < 1).all()
    assert np.abs(found.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(found.var(axis=0) - 1 / 12).max() < 0.002
    other = seeds.uniforms(seeds.key(42, "augment flip", 1), np.arange(20_000), 1)
    pairs = np.corrcoef(np.concatenate([found.T, other.T]))
    assert np.abs(pairs - np.eye(4)).max() < 0.03
    assert abs(np.corrcoef(found[:-1, 0], found[1:, 0])[0, 1]) < 0.03
