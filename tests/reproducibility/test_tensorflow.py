"""TensorFlow is seeded and made deterministic where a task imports it, and never imported otherwise."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.reproducibility import determinism, seeds, tensorflow


class Framework:
    """A stand-in that notes what was asked of it."""

    __version__ = "2.0"

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.random = SimpleNamespace(set_seed=lambda value: self.asked.append(("seed", value)), uniform=lambda *_, **__: 0.25)
        self.float64 = None
        threading = SimpleNamespace(
            set_intra_op_parallelism_threads=lambda n: self.asked.append(("intra", n)),
            set_inter_op_parallelism_threads=lambda n: self.asked.append(("inter", n)),
            get_intra_op_parallelism_threads=lambda: 3,
        )
        experimental = SimpleNamespace(enable_op_determinism=lambda: self.asked.append("determinism"))
        self.config = SimpleNamespace(experimental=experimental, threading=threading)


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Framework:
    found = Framework()
    monkeypatch.setitem(sys.modules, "tensorflow", found)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    private = SimpleNamespace(is_op_determinism_enabled=lambda: "determinism" in found.asked)
    monkeypatch.setitem(sys.modules, "tensorflow.python.framework.config", private)  # type: ignore[arg-type]
    return found


def test_its_operations_are_made_deterministic_with_the_runs_threads(framework):
    assert tensorflow.switch_on(3)
    assert framework.asked == ["determinism", ("intra", 3), ("inter", 1)]


def test_it_is_seeded_with_the_others(framework):
    seeds.seed_everything(7)
    assert framework.asked == [("seed", 7)]
    assert seeds.first_draws(1)["tensorflow"] == (0.25).hex()


def test_keras_is_seeded_before_the_generators_that_it_seeds_too(framework, monkeypatch):
    import random

    keras = SimpleNamespace(utils=SimpleNamespace(set_random_seed=random.seed))
    monkeypatch.setitem(sys.modules, "keras", keras)  # type: ignore[arg-type]
    seeds.seed_everything(2**40 + 7)
    assert random.random() == random.Random(2**40 + 7).random()


def test_switches_are_read_back(framework):
    assert determinism.read_back("cpu")["tensorflow_op_determinism"] is False
    tensorflow.switch_on(1)
    found = determinism.read_back("cpu")
    assert (found["tensorflow"], found["tensorflow_op_determinism"], found["tensorflow_threads"]) == ("2.0", True, 3)


@pytest.mark.slow
def test_without_it_nothing_is_done_or_imported():
    code = (
        "import sys; from mltrainer.reproducibility import seeds, tensorflow; seeds.seed_everything(1)\n"
        "assert not tensorflow.switch_on(1) and tensorflow.read_back() == {} and 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
