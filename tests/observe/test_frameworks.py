"""A program that imports TensorFlow or JAX is seeded and made deterministic, and what it then has is read back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.gates.checks import planning
from mltrainer.observe.disturbances import Perturbations
from mltrainer.trainers.script.observed import _read_back
from tests.programs.test_starting import ran, said

TENSORFLOW = {
    "tensorflow/__init__.py": (
        "import random as generator\nfrom types import SimpleNamespace as Names\n"
        "import tensorflow.python.framework.config as on, tensorflow.python.eager.context as context\n"
        "__version__ = '2.0'\ngenerator.random()\n"
        "random = Names(set_seed=lambda value: setattr(context, 'seed', value))\n"
        "config = Names(experimental=Names(enable_op_determinism=lambda: setattr(on, 'value', True)))\n"
    ),
    "tensorflow/python/framework/config.py": "value = False\ndef is_op_determinism_enabled(): return value\n",
    "tensorflow/python/eager/context.py": "seed = None\ndef global_seed(): return seed\n",
}
JAX = {"jax.py": "__version__ = '1.0'\ndef default_backend(): return 'cpu'\n"}
TWO_DRAWS = "print(random.random(), float(numpy.random.rand()))"
SEEDED_WITH_7 = "0.32383276483316237 0.07630828937395717"  # by CPython's and NumPy's Mersenne Twister
ONE_DRAWN = "0.15084917392450192 0.07630828937395717"  # likewise, after one draw of Python's


def read_back(
    tmp_path: Path, files: dict[str, str], code: str, seed: int | None = 7
) -> tuple[str, dict[str, str], dict[str, Any]]:
    for name, text in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    ended = ran(tmp_path, code, Perturbations(), seed=seed)
    assert ended.code == 0, said(ended)
    return said(ended), *_read_back(ended.lines)


def test_tensorflow_and_the_generators_beside_it_are_seeded_and_its_operations_deterministic(tmp_path):
    printed, draws, switches = read_back(tmp_path, TENSORFLOW, f"import random, numpy, tensorflow\n{TWO_DRAWS}")
    assert printed == SEEDED_WITH_7
    assert draws == {"python": float(printed.split()[0]).hex(), "numpy": float(printed.split()[1]).hex(), "tensorflow": "7"}
    assert switches == {"tensorflow": "2.0", "tensorflow_op_determinism": True}


def test_a_generator_that_is_imported_after_the_framework_is_seeded_too(tmp_path):
    printed, _, _ = read_back(tmp_path, JAX, f"import jax, random, numpy\n{TWO_DRAWS}")
    assert printed == SEEDED_WITH_7


def test_what_the_program_seeds_itself_counts(tmp_path):
    before = "import random, numpy\nrandom.seed(7); numpy.random.seed(7)\nimport tensorflow\n"
    printed, draws, _ = read_back(tmp_path, TENSORFLOW, f"{before}tensorflow.random.set_seed(3)\n{TWO_DRAWS}", seed=1)
    assert printed == ONE_DRAWN  # by the framework's import, as without us
    assert draws["tensorflow"] == "3"


def test_a_switch_that_the_program_takes_back_is_read_as_off(tmp_path):
    code = "import tensorflow, sys\nsys.modules['tensorflow.python.framework.config'].value = False"
    assert read_back(tmp_path, TENSORFLOW, code)[2]["tensorflow_op_determinism"] is False


def test_of_jax_is_read_that_a_cpu_has_no_switch(tmp_path):
    _, draws, switches = read_back(tmp_path, JAX, "import random, jax")
    assert (sorted(draws), switches) == (["python"], {"jax": "1.0", "jax_backend": "cpu", "jax_deterministic_ops": False})


@pytest.mark.parametrize(("code", "seed"), [("import random, numpy", 7), ("import tensorflow", None)])
def test_a_program_without_a_framework_and_one_that_is_only_checked_stay_as_they_are(tmp_path, code, seed):
    printed, draws, switches = read_back(tmp_path, TENSORFLOW, f"import random, numpy\n{code}\n{TWO_DRAWS}", seed)
    assert printed != SEEDED_WITH_7
    assert (draws, switches) == ({}, {})


# --- what the gate makes of it ---

OFF = dict.fromkeys(("tensorflow", "tensorflow_op_determinism", "jax", "jax_backend", "jax_deterministic_ops"))
WITH_TENSORFLOW = {"tensorflow": "2.0", "tensorflow_op_determinism": True}
DRAWN = {"python": "0x1", "tensorflow": "7"}


def record(draws: list[dict[str, str]], **switches: Any) -> Any:
    """Return a program's record, with the draws of both probes and the switches of both."""
    read = [SimpleNamespace(**{**OFF, "threads": 1, **switches, "PYTHONHASHSEED": seed}) for seed in ("0", "1")]
    runs = [SimpleNamespace(draws=drawn, determinism=on, init_sha256="") for drawn, on in zip(draws, read, strict=True)]
    probe = SimpleNamespace(runs=runs)
    return SimpleNamespace(evidence=SimpleNamespace(probe=probe, program=SimpleNamespace(), config={"seed": 7}))


@pytest.mark.parametrize(
    ("draws", "switches", "seeds", "determinism"),
    [
        ([DRAWN, DRAWN], WITH_TENSORFLOW, "pass", "pass"),
        ([DRAWN, {**DRAWN, "tensorflow": "8"}], WITH_TENSORFLOW, "fail", "pass"),
        ([DRAWN, {"python": "0x1"}], WITH_TENSORFLOW, "fail", "pass"),
        ([{"python": "0x1"}] * 2, WITH_TENSORFLOW, "fail", "pass"),
        ([DRAWN, DRAWN], {**WITH_TENSORFLOW, "tensorflow_op_determinism": False}, "pass", "fail"),
        ([{"python": "0x1"}] * 2, {"jax": "1.0", "jax_backend": "cpu", "jax_deterministic_ops": False}, "pass", "not_applicable"),
        ([{"python": "0x1"}] * 2, {"jax": "1.0", "jax_backend": "gpu", "jax_deterministic_ops": False}, "pass", "fail"),
        ([{"python": "0x1"}] * 2, {"jax": "1.0", "jax_backend": "gpu", "jax_deterministic_ops": True}, "pass", "pass"),
        ([{}, {}], {}, "not_applicable", "not_applicable"),
        ([{}, {"python": "0x1"}], {}, "fail", "not_applicable"),
    ],
)
def test_items_hold_by_what_both_processes_had(draws, switches, seeds, determinism):
    found = record(draws, **switches)
    assert (planning.seeds_fixed(found).verdict, planning.determinism_on(found).verdict) == (seeds, determinism)
